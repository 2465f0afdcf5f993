"""Folders of models: whether one is there, and whether one can be written. Needs no numpy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE = "model.json"
PathLike = str | os.PathLike[str]


class ModelFileError(ValueError):
    """A stored model that cannot be used: absent, damaged, or from a newer version."""


def check_stored(folder: PathLike) -> None:
    """Check that a folder holds a model, without reading it."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ModelFileError(f"{str(path)!r} is a file; give the folder of a model")
    if not os.path.lexists(path / FILE):
        raise ModelFileError(
            f"{str(path)!r} holds no {FILE}; give a folder that a model was stored in"
        )


@contextmanager
def removed_if_empty(folder: PathLike) -> Iterator[None]:
    """Create a folder before the work begins; remove what was created if nothing is in it."""
    path = Path(os.path.abspath(folder))
    created = [place for place in (path, *path.parents) if not place.exists()]
    writable_folder(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            for place in created:
                place.rmdir()


def writable_folder(folder: PathLike) -> Path:
    """Create a folder, and check that it can be written to."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{str(path)!r} is a file; give a folder to store the model in")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"the folder {str(path)!r} cannot be created ({error.strerror}); choose another"
        ) from None
    if not os.access(path, os.W_OK):
        raise PermissionError(f"the folder {str(path)!r} cannot be written to; choose another")
    return path
