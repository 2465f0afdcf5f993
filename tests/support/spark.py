"""A real Spark for tests, on this machine alone.

A file of tests imports the fixture ``spark`` from here. ``start`` makes a session with any master,
for tests that need executors of their own; a process can have only one session at a time.
"""

import os
import shutil
import sys

import pytest

QUIET = "ignore:PySpark does not yet fully support pandas:FutureWarning"


def lacking(what):
    """Skip tests that need Spark; fail them where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; CI is set, so the tests of Spark must run")
    pytest.skip(what)


def find_java():
    """Return whether there is a Java to run Spark: JAVA_HOME, or one on the path."""
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which("java", path=f"{home}/bin") if home else shutil.which("java"))


def start(master, folder, **settings):
    """Start a session that neither listens nor writes anywhere but on this machine."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        lacking("there is no PySpark: pip install pyspark")
    if not find_java():
        lacking("there is no Java: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    builder = SparkSession.builder.master(master).config(
        map={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "512m",
            "spark.python.unix.domain.socket.enabled": "true",
            **settings,
        }
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session with two cores for one file of tests."""
    session = start("local[2]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
