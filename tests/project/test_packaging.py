"""The wheel and the source archive, and what is said about them.

`make package` tries the wheel in an environment of its own.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import counterpoise

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"counterpoise-{counterpoise.__version__}"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command, cwd):
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=CLEAN, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(tree, out, *options):
    run(sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", out, cwd=tree)


def kept_files():
    """Files of the repository, committed or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        done = None
    if done is None or done.returncode:
        pytest.skip("only in a git repository is it known which files belong to it")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the repository, and what was built of it."""
    folder = tmp_path_factory.mktemp("built")
    for name in kept_files():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    build(folder / "tree", folder / "dist", "--sdist", "--wheel")
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = (built / "dist").glob("*.whl")
    return path


def listed(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built, wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    package = {name for name in listed(wheel) if not name.startswith(f"{NAME}.dist-info/")}
    source = built / "tree" / "src"
    assert package == {
        path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()
    }
    assert "counterpoise/py.typed" in package
    assert all(name.startswith("counterpoise/") for name in package)
    assert f"{NAME}.dist-info/licenses/LICENSE" in listed(wheel)


@pytest.mark.slow
def test_the_source_archive_builds_the_same_wheel(built, wheel, tmp_path):
    with tarfile.open(built / "dist" / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    tree = tmp_path / NAME
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "README.md", "Makefile"} <= files
    own = [name for name in kept_files() if name.split("/")[0] in ("src", "tests", "docs")]
    assert sorted(set(own) - files) == []
    build(tree, tmp_path / "dist", "--wheel")
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert listed(again) == listed(wheel)


@pytest.mark.slow
def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        about = email.message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))
        scripts = archive.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert (about["Name"], about["Version"]) == ("counterpoise", counterpoise.__version__)
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "\ncounterpoise = counterpoise.cli.main:script\n" in scripts
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    core = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(core) == sorted(PROJECT["dependencies"])
    # Nothing is left for pip to look up by the package's own name.
    assert [line for line in about.get_all("Requires-Dist") if "counterpoise" in line] == []
    assert about["Description-Content-Type"] == "text/markdown"
    text = about.get_payload(decode=True).decode()
    assert text.strip() == (ROOT / "README.md").read_text().strip()


def test_everything_but_developing_is_in_all():
    """Extras that are for users are in ``all``, and every other is known to be no such."""
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    inside = set(re.fullmatch(r"counterpoise\[([a-z,]+)\]", everything)[1].split(","))
    assert {"torch", "lm", "dask", "report", "onnx", "plot"} <= inside <= set(extras)
    assert set(extras) - inside <= {
        "all", "bench", "demo", "docs", "experiments", "tasks", "test",
        "spark",  # 400 MB, and it needs Java
    }  # fmt: skip


def test_extras_that_messages_name_exist():
    named = set()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]:
        for found in re.findall(r"counterpoise\[([a-z,]+)\]", path.read_text(encoding="utf-8")):
            named.update(found.split(","))
    assert "onnx" in named
    assert named <= set(PROJECT["optional-dependencies"])


def test_every_requirement_has_a_tested_version():
    """A package that is missing here is added by ``make constraints``."""
    text = (ROOT / "requirements" / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", line)] == []
    tested = dict(line.split("==") for line in lines)
    extras = PROJECT["optional-dependencies"]
    for line in PROJECT["dependencies"] + [name for names in extras.values() for name in names]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name not in ("counterpoise", "torch"):  # the Makefile pins PyTorch
            assert requirement.specifier.contains(tested[name]), line


def test_citation():
    """By the rules of the Citation File Format 1.2.0, as far as they matter here."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert cited.keys() >= {"message", "title", "authors"}
    assert cited["type"] == "software"
    if ".dev" not in counterpoise.__version__:
        assert str(cited["version"]) == counterpoise.__version__
    assert cited["license"] == PROJECT["license"]
    assert cited["authors"] == PROJECT["authors"]
    assert cited["keywords"] == PROJECT["keywords"]
    paper = cited["preferred-citation"]
    assert paper.keys() >= {"type", "title", "authors", "year"}
    assert paper["title"] in (ROOT / "README.md").read_text()
    for person in paper["authors"]:
        assert {"family-names", "given-names"} <= person.keys()
        assert person.keys() <= {"family-names", "given-names", "affiliation", "orcid"}
    number = re.fullmatch(r"10\.48550/arXiv\.(\d{4}\.\d{5})", paper["doi"])[1]
    assert paper["url"] == f"https://arxiv.org/abs/{number}"
    assert number in paper["journal"]
