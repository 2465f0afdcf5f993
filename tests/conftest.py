"""Set-up shared by all tests."""

import os
import sys

# Lets scikit-learn's conformance run include its array-API checks; read when SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest

# Tests that run for long, or wait for other processes.
LONG = ("docs", "distributed", "browser", "slow")


def pytest_collection_modifyitems(items):
    """Start long tests first, so that no core is idle at the end; the order is else as found."""

    def rank(item):
        return next((i for i, mark in enumerate(LONG) if item.get_closest_marker(mark)), len(LONG))

    items.sort(key=rank)


def pytest_runtest_setup(item):
    """Keep PyTorch to one thread: more of them only wait for each other over small tensors."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(request, monkeypatch):
    """Keep tests out of the user's cache folder."""
    if "tmp_path" in request.fixturenames:
        from counterpoise.storage import remembered

        folder = request.getfixturevalue("tmp_path") / ".cache"
        monkeypatch.setattr(remembered, "cache_folder", lambda: folder)


@pytest.fixture
def small_chunks(monkeypatch):
    """A few thousand rows are cut into chunks and shared among threads, as millions would be."""
    from counterpoise.rows.engines import row_part

    monkeypatch.setattr(row_part, "CHUNK_NUMBERS", 1280)
    monkeypatch.setattr(row_part, "THREAD_WORK", 0)
