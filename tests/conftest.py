"""Test set-up."""

import os

# Lets scikit-learn's conformance run include its array-API checks; read when SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest


@pytest.fixture
def small_chunks(monkeypatch):
    """A few thousand rows are cut into chunks and shared among threads, as millions would be."""
    from counterpoise.rows.engines import row_part

    monkeypatch.setattr(row_part, "CHUNK_NUMBERS", 1280)
    monkeypatch.setattr(row_part, "THREAD_WORK", 0)
