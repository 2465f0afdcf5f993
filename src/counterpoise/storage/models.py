"""Models on disk: a folder with JSON for what people read and .npz for arrays. No pickle.

``model.json`` names its format and version, and carries a checksum of itself and one of the file
of arrays, ``model-<digest>.npz``. It holds the model and, if there is one, the record of its fit
(:class:`counterpoise.assessment.record.FitRecord`). The JSON is replaced last, so a crash leaves
the old model or the new one. Models of earlier format versions are migrated as they are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.storage.files import locked, write_bytes, write_json
from counterpoise.storage.migration import migrate
from counterpoise.storage.packing import Packer, unpack

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord

FORMAT, VERSION, OLDEST = "counterpoise model", 2, 1
FILE = "model.json"
# Seconds to wait for another process that stores a model in the same folder.
WAIT = 60.0
PathLike = str | os.PathLike[str]


class ModelFileError(ValueError):
    """A stored model that cannot be used: absent, damaged, or from a newer version."""


def save(model: Any, folder: PathLike, record: FitRecord | None = None) -> Path:
    """Store a fitted model in a folder, which is created; an older model in it is replaced.

    Parameters
    ----------
    model : GroupDRONeuron, GroupDRONeuronCV, a baseline, or a Pipeline of a TableEncoder and one
        Fitted.
    folder : path
    record : FitRecord, optional
        The record of the fit, from :func:`counterpoise.assess`.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from counterpoise import GroupDRONeuron, load
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> model = GroupDRONeuron("identity").fit(X, X @ [1.0, 2.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = model.save(folder)
    ...     again = load(folder)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    packer = Packer()  # raises before anything is written
    tree = {"model": packer.pack(model, "model"), "record": packer.pack(record, "record")}
    path = ready_folder(folder)
    with locked(path, wait=WAIT):
        _write(path, tree, packer.arrays)
    return path


def ready_folder(folder: PathLike) -> Path:
    """Create a folder that a model can be stored in."""
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
    if (path / FILE).exists():
        _previous(path)
    return path


def load(folder: PathLike) -> Any:
    """Load a model that was stored with ``model.save`` or ``counterpoise fit``.

    A model fitted to a table is a :class:`sklearn.pipeline.Pipeline` of a
    :class:`counterpoise.tabular.TableEncoder` and a neuron: ``predict`` takes data frames.

    Raises :class:`counterpoise.storage.models.ModelFileError` if the model is absent, damaged, or
    stored by a newer version.
    """
    return read_document(folder)["model"]


def load_fit(folder: PathLike) -> tuple[Any, FitRecord]:
    """Load a model and the record of its fit."""
    found = read_document(folder)
    if found["record"] is None:
        raise ModelFileError(
            f"{str(folder)!r} holds a model without a record of its fit; make one with "
            "counterpoise.assess(model, X, y, groups) and store it with record.save(folder)"
        )
    return found["model"], found["record"]


def load_record(folder: PathLike) -> FitRecord | None:
    """Load the record of a fit; None if the model was stored without one."""
    return read_document(folder)["record"]


def _check(model: Any) -> None:
    """Raise ValueError unless the model is complete and its parts fit together.

    Each class checks itself in ``__check_loaded__``.
    """
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    if not steps or not hasattr(steps[-1], "predict"):
        raise ValueError("it does not end with a model that predicts")
    for step in steps:
        step.__check_loaded__()
    for before, after in pairwise(steps):
        if len(before.get_feature_names_out()) != after.n_features_in_:
            raise ValueError("its steps have different numbers of features")


def read_document(folder: PathLike) -> dict[str, Any]:
    """Load the model and the record in a folder, checked, as ``{"model": ..., "record": ...}``."""
    path = Path(folder) / FILE
    whole = _read(path)
    try:
        arrays = _read_arrays(path.parent, whole["arrays"])
    except FileNotFoundError:
        # Another process may have put a new model in its place, with arrays of its own.
        whole = _read(path)
        try:
            arrays = _read_arrays(path.parent, whole["arrays"])
        except FileNotFoundError as error:
            raise ModelFileError(
                f"{str(error.filename)!r} is missing; a model is a whole folder: copy all of it, "
                "or fit again"
            ) from None
    try:
        content = migrate(whole["content"], whole["version"], VERSION)
        found = unpack(content, arrays)
        model, record = found["model"], found["record"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its content is invalid, {error!r}") from None
    try:
        _check(model)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"the model in {str(folder)!r} is incomplete or contradicts itself ({error}); fit it "
            "again"
        ) from None
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        record = dataclasses.replace(record, model=model)
    return {"model": model, "record": record}


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON and check its format, version and checksum."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(
            f"{str(path.parent)!r} holds no {path.name}; give a folder that a model was stored in"
        ) from None
    except NotADirectoryError:
        raise ModelFileError(
            f"{str(path.parent)!r} is a file; give the folder of a model"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON, {error}") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ModelFileError(f"{str(path)!r} is not a {FORMAT}; give another folder")
    version = whole.get("version")
    if version not in range(OLDEST, VERSION + 1):
        newer = isinstance(version, int) and version > VERSION
        remedy = "upgrade counterpoise with pip" if newer else "fit the model again"
        raise ModelFileError(
            f"{str(path)!r} has format version {version!r} and this counterpoise reads versions "
            f"{OLDEST} to {VERSION}; {remedy}"
        )
    try:
        digest = _digest(whole.get("content"), whole.get("arrays"))
    except RecursionError as error:
        raise _damaged(path, str(error)) from None
    if whole.get("sha256") != digest:
        raise _damaged(path, "its checksum does not match its content")
    return whole


def _previous(folder: Path) -> str | None:
    """The file of arrays of the model in a folder; None if it cannot be determined.

    A ``model.json`` that is something else is never replaced.
    """
    path = folder / FILE
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        whole = None
    if whole is not None and not (isinstance(whole, dict) and whole.get("format") == FORMAT):
        raise FileExistsError(
            f"{str(path)!r} exists but is not a {FORMAT}; choose another folder, or move it first"
        )
    stored = (whole or {}).get("arrays")
    name = stored.get("file") if isinstance(stored, dict) else None
    return name if isinstance(name, str) and Path(name).name == name != ".." else None


def _write(folder: Path, tree: Any, arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    # Members are numbered, because names of groups may not be valid names of files.
    members = {f"a{i}": value for i, value in enumerate(arrays.values())}
    np.savez_compressed(buffer, allow_pickle=False, **members)
    data = buffer.getvalue()
    sha = hashlib.sha256(data).hexdigest()
    file = f"model-{sha[:12]}.npz"
    named = {key: f"a{i}" for i, key in enumerate(arrays)}
    stored = {"file": file, "sha256": sha, "members": named}
    before = _previous(folder)
    write_bytes(folder / file, data)
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": _digest(tree, stored),
        "arrays": stored,
        "content": tree,
    }
    write_json(folder / FILE, whole)
    if before is not None and before != file:
        (folder / before).unlink(missing_ok=True)


def _read_arrays(folder: Path, stored: Any) -> dict[str, np.ndarray]:
    path = folder / FILE
    try:
        file, sha, named = stored["file"], stored["sha256"], dict(stored["members"])
        good = isinstance(file, str) and Path(file).name == file and file.isprintable()
    except (TypeError, KeyError, ValueError):
        good = False
    if not good or file == "..":
        raise _damaged(path, "it does not name the file of its arrays")
    data = (folder / file).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha:
        raise _damaged(folder / file, "its checksum is not the one that was stored")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as members:
            return {name: members[member] for name, member in named.items()}
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise _damaged(folder / file, str(error)) from None


def _digest(content: Any, stored: Any) -> str:
    text = json.dumps([content, stored], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is damaged ({why}); copy it again, or fit the model again"
    )
