"""Models on disk: a folder with JSON for what people read and .npz for arrays. No pickle.

``model.json`` names its format and version, and carries a checksum of itself and one of the file
of arrays, ``model-<digest>.npz``. It holds the model and, if there is one, the record of its fit
(:class:`counterpoise.assessment.record.FitRecord`). The JSON is replaced last, so a crash leaves
the old model or the new one. Models of earlier format versions are migrated as they are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.common.machine import memory
from counterpoise.common.text import one_line
from counterpoise.storage.arrays import from_bytes, to_bytes
from counterpoise.storage.files import locked, read_regular, replacing, sweep, write_bytes
from counterpoise.storage.folders import FILE, ModelFileError, PathLike, writable_folder
from counterpoise.storage.migration import migrate
from counterpoise.storage.packing import Packer, unpack

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord

logger = logging.getLogger(__name__)

FORMAT, VERSION, OLDEST = "counterpoise model", 4, 1
# Since this version arrays are not compressed.
STORED = 3
JSON_BYTES = 1 << 29
ARRAYS = re.compile(r"model-[0-9a-f]{12}\.npz")
# A report of the model, and what its head contains.
REPORT, REPORT_MARK = "report.html", " · Counterpoise</title>"
# Seconds to wait for another process that stores a model in the same folder.
WAIT = 60.0


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
    path = writable_folder(folder)
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
    if not hasattr(found["record"], "comparison"):
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
        arrays = _read_arrays(path.parent, whole)
    except FileNotFoundError:
        # Another process may have put a new model in its place, with arrays of its own.
        whole = _read(path)
        try:
            arrays = _read_arrays(path.parent, whole)
        except FileNotFoundError as error:
            raise ModelFileError(
                f"{str(error.filename)!r} is missing; a model is a whole folder: copy all of it, "
                "or fit again"
            ) from None
    try:  # of anything that a file may hold
        content = migrate(whole["content"], whole["version"], VERSION)
        found = unpack(content, arrays)
        model, record = found["model"], found["record"]
    except Exception as error:
        raise _damaged(path, f"its content is invalid, {one_line(error)}") from None
    try:
        _check(model)
    except Exception as error:
        raise ModelFileError(
            f"the model in {str(folder)!r} is incomplete or contradicts itself "
            f"({one_line(error)}); fit it again"
        ) from None
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        record = dataclasses.replace(record, model=model)
    return {"model": model, "record": record}


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON and check its format, version and checksum."""
    try:
        whole = json.loads(_bytes(path, JSON_BYTES).decode())
    except FileNotFoundError:
        raise ModelFileError(
            f"{str(path.parent)!r} holds no {path.name}; give a folder that a model was stored in"
        ) from None
    except NotADirectoryError:
        raise ModelFileError(
            f"{str(path.parent)!r} is a file; give the folder of a model"
        ) from None
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON, {error}") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ModelFileError(f"{str(path)!r} is not a {FORMAT}; give another folder")
    version = whole.get("version")
    if type(version) is not int or version not in range(OLDEST, VERSION + 1):
        newer = type(version) is int and version > VERSION
        remedy = "upgrade counterpoise with pip" if newer else "fit the model again"
        raise ModelFileError(
            f"{str(path)!r} has format version {version!r:.40} and this counterpoise reads "
            f"versions {OLDEST} to {VERSION}; {remedy}"
        )
    try:
        digest = _digest(whole.get("content"), whole.get("arrays"))
    except (RecursionError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if whole.get("sha256") != digest:
        raise _damaged(path, "its checksum does not match its content")
    return whole


def _bytes(path: Path, limit: int) -> bytes:
    """Read a regular file of a model."""
    try:
        return read_regular(path, limit)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except ValueError as error:
        raise ModelFileError(f"{error}; a model is a folder of files") from None
    except OSError as error:
        raise ModelFileError(
            f"{str(path)!r} cannot be read ({error.strerror}); check its permissions and its disk, "
            "or give another folder"
        ) from None


def _previous(folder: Path) -> tuple[str | None, Any]:
    """The file of arrays of the model in a folder, and its checksum; None if not known.

    A ``model.json`` that is something else is never replaced.
    """
    path, ours = folder / FILE, True
    whole: Any = None
    try:
        whole = json.loads(_bytes(path, JSON_BYTES).decode())
        ours = isinstance(whole, dict) and whole.get("format") == FORMAT
    except FileNotFoundError:
        return None, None
    except ModelFileError:
        ours = False
    except (ValueError, RecursionError):  # a model that was cut short
        whole = {}
    if not ours:
        raise FileExistsError(
            f"{str(path)!r} exists but is not a {FORMAT}; choose another folder, or move it first"
        )
    stored = whole.get("arrays")
    name = stored.get("file") if isinstance(stored, dict) else None
    known = isinstance(name, str) and ARRAYS.fullmatch(name)
    return name if known else None, whole.get("sha256")


def _write(folder: Path, tree: Any, arrays: Mapping[str, np.ndarray]) -> None:
    data, members = to_bytes(arrays.values())
    sha = hashlib.sha256(data).hexdigest()
    file = f"model-{sha[:12]}.npz"
    named = dict(zip(arrays, members, strict=True))
    stored = {"file": file, "bytes": len(data), "sha256": sha, "members": named}
    replaced = (folder / FILE).exists()
    before, sealed = _previous(folder)
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": _digest(tree, stored),
        "arrays": stored,
        "content": tree,
    }
    text = (json.dumps(whole, indent=2) + "\n").encode()
    if len(text) > JSON_BYTES:
        raise ValueError(
            f"the model would take {len(text):,} bytes of JSON, more than the {JSON_BYTES:,} that "
            "are read again. With so many groups, store it without its record, with "
            "model.save(folder), or assess it with diagnosis=False"
        )
    fresh = not (folder / file).exists()
    try:
        write_bytes(folder / file, data)
        with replacing(folder / FILE) as out:
            out.write(text)
            out.flush()
            if replaced and whole["sha256"] != sealed:
                _remove_report(folder)
    except BaseException:
        with suppress(OSError):
            if fresh and _previous(folder)[0] != file:
                (folder / file).unlink()
        raise
    if before is not None and before != file:
        (folder / before).unlink(missing_ok=True)
    _remove_orphans(folder, file)


def _remove_report(folder: Path) -> None:
    """Remove the report of the model before this one, unless it is another's file."""
    path = folder / REPORT
    try:
        with path.open("rb") as file:
            ours = REPORT_MARK.encode() in file.read(1 << 14)
    except OSError:
        return
    if ours and not path.is_symlink():
        path.unlink()
        logger.warning("%s described the model that was replaced, and was removed", str(path))


def _remove_orphans(folder: Path, file: str) -> None:
    """Remove files of arrays, and drafts of them, that killed processes left in a locked folder.

    Arrays beside other JSON files stay: they may belong to a model under another name.
    """
    sweep(folder, "model-*.npz")
    if any(path.name != FILE for path in folder.glob("*.json")):
        return
    for path in folder.glob("model-*.npz"):
        if path.name != file and ARRAYS.fullmatch(path.name) and not path.is_symlink():
            with suppress(OSError, ValueError):  # a file of another is not called by its checksum
                sha = hashlib.sha256(read_regular(path, _largest())).hexdigest()
                if path.name == f"model-{sha[:12]}.npz":
                    path.unlink()


def _read_arrays(folder: Path, whole: Mapping[str, Any]) -> dict[str, np.ndarray]:
    path, compressed = folder / FILE, whole["version"] < STORED
    stored: Any = whole.get("arrays")
    try:
        file, sha, named = stored["file"], stored["sha256"], dict(stored["members"])
        size = stored.get("bytes")
        good = isinstance(file, str) and Path(file).name == file and file.isprintable()
        good = good and all(isinstance(name, str) for name in named.values())
    except (TypeError, KeyError, ValueError, AttributeError):
        good = False
    if not good or file in ("", "..", "."):
        raise _damaged(path, "it does not name the file of its arrays")
    data = _bytes(folder / file, _largest() if compressed else _size(path, size))
    if hashlib.sha256(data).hexdigest() != sha:
        raise _damaged(folder / file, "its checksum is not the one that was stored")
    try:  # of anything that a file may hold
        return from_bytes(data, named, compressed=compressed)
    except Exception as error:
        raise _damaged(folder / file, one_line(error)) from None


def _largest() -> int:
    """The largest file of arrays that is read: one that fits in memory."""
    return int(memory() or 1 << 40)


def _size(path: Path, size: Any) -> int:
    if type(size) is not int or not 0 <= size <= _largest():
        raise _damaged(path, f"its arrays have {size!r:.40} bytes")
    return size


def _digest(content: Any, stored: Any) -> str:
    text = json.dumps([content, stored], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is damaged ({why}); copy it again, or fit the model again"
    )
