"""Set-up of the language-model tests."""

import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small models gain nothing from more threads, and lose much on a busy machine."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
