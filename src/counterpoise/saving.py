"""Models on disk: a folder with JSON for what people read and .npz for arrays. No pickle.

``model.json`` names its format and version, carries a checksum of itself and that of the file of
arrays, ``model-<digest>.npz``. The JSON is replaced last, so a crash leaves the old model or the
new one. ``record.json`` beside it, of the same make, is a :class:`counterpoise.record.FitRecord`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.disk import write_bytes, write_json
from counterpoise.packing import Packer, unpack

if TYPE_CHECKING:
    from counterpoise.estimator import Neuron
    from counterpoise.record import FitRecord

VERSION = 1
PathLike = str | os.PathLike[str]


class ModelFileError(ValueError):
    """A stored model that cannot be used: absent, damaged, or from a newer version."""


def save(model: Neuron, folder: PathLike, record: FitRecord | None = None) -> Path:
    """Store a fitted model in a folder, which is made; an older model in it is replaced.

    Parameters
    ----------
    model : GroupDRONeuron, GroupDRONeuronCV, or a baseline, fitted
    folder : path
    record : FitRecord, optional
        What the fit was made of, for a report. An older one in the folder is removed if None.

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
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{str(path)!r} is a file; give a folder to store the model in")
    packer = Packer()
    tree = packer.pack(
        model, "model"
    )  # what cannot be stored is refused before anything is written
    path.mkdir(parents=True, exist_ok=True)
    if record is None:
        (path / "record.json").unlink(missing_ok=True)
    else:
        write_document(path, "record", record)
    _write(path, "model", tree, packer.arrays)
    return path


def load(folder: PathLike) -> Neuron:
    """A model that was stored with ``model.save`` or ``counterpoise fit``.

    Raises :class:`counterpoise.saving.ModelFileError` if it is absent, damaged, or made by a newer
    version of the format.
    """
    from counterpoise.estimator import Neuron

    model = read_document(folder, "model")
    if not isinstance(model, Neuron) or not hasattr(model, "coef_"):
        raise ModelFileError(f"{str(folder)!r} holds no fitted model; fit it again")
    width = getattr(model, "n_features_in_", len(model.coef_))
    if np.shape(model.coef_) != (width,) or not np.isfinite(model.coef_).all():
        raise ModelFileError(f"the model in {str(folder)!r} contradicts itself; fit it again")
    return model


def load_fit(folder: PathLike) -> tuple[Neuron, FitRecord]:
    """A model and the record of its fit, as ``counterpoise fit`` stores them."""
    model, record = load(folder), load_record(folder)
    if record is None:
        raise ModelFileError(
            f"{str(folder)!r} holds a model without a record of its fit; a report needs one that "
            "was made by `counterpoise fit --out`"
        )
    return model, record


def load_record(folder: PathLike) -> FitRecord | None:
    """The record of a fit, where there is one."""
    return read_document(folder, "record") if (Path(folder) / "record.json").is_file() else None


def write_document(folder: Path, name: str, value: Any) -> None:
    """Store a value as ``<name>.json`` and ``<name>-<digest>.npz``."""
    packer = Packer()
    tree = packer.pack(value, name)
    _write(folder, name, tree, packer.arrays)


def read_document(folder: PathLike, name: str) -> Any:
    """What :func:`write_document` stored."""
    path = Path(folder) / f"{name}.json"
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(
            f"{str(folder)!r} holds no {name}.json; give a folder that `counterpoise fit --out` or "
            "model.save made"
        ) from None
    except NotADirectoryError:
        raise ModelFileError(f"{str(folder)!r} is a file; give the folder of a model") from None
    except ValueError as error:
        raise _damaged(path, f"it is not JSON, {error}") from None
    if not isinstance(whole, dict) or whole.get("format") != f"counterpoise {name}":
        raise ModelFileError(f"{str(path)!r} is not a counterpoise {name}; give another folder")
    if whole.get("version") != VERSION:
        raise ModelFileError(
            f"{str(path)!r} is of version {whole.get('version')!r} and this counterpoise reads "
            f"version {VERSION}; upgrade it: pip install --upgrade counterpoise"
        )
    content, stored = whole.get("content"), whole.get("arrays")
    if whole.get("sha256") != _digest(content, stored):
        raise _damaged(path, "its checksum does not match its content")
    arrays = _read_arrays(path.parent, stored)
    try:
        return unpack(content, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"its content makes no sense, {error!r}") from None


def _write(folder: Path, name: str, tree: Any, arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    # Members are numbered: names of groups have no place in names of files.
    members = {f"a{i}": value for i, value in enumerate(arrays.values())}
    np.savez_compressed(buffer, allow_pickle=False, **members)
    data = buffer.getvalue()
    sha = hashlib.sha256(data).hexdigest()
    file = f"{name}-{sha[:12]}.npz"
    named = {key: f"a{i}" for i, key in enumerate(arrays)}
    stored = {"file": file, "sha256": sha, "members": named}
    write_bytes(folder / file, data)
    whole = {
        "format": f"counterpoise {name}",
        "version": VERSION,
        "sha256": _digest(tree, stored),
        "arrays": stored,
        "content": tree,
    }
    write_json(folder / f"{name}.json", whole)
    for other in folder.glob(f"{name}-*.npz"):
        if other.name != file:
            other.unlink()


def _read_arrays(folder: Path, stored: Any) -> dict[str, np.ndarray]:
    file = stored["file"]
    if not isinstance(file, str) or Path(file).name != file:
        raise ModelFileError(f"{file!r} is not the name of a file beside it; fit the model again")
    path = folder / file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(
            f"{str(path)!r} is missing; a model is its whole folder: copy all of it, or fit again"
        ) from None
    if hashlib.sha256(data).hexdigest() != stored["sha256"]:
        raise _damaged(path, "its checksum is not the one that was stored")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as members:
            return {name: members[member] for name, member in stored["members"].items()}
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise _damaged(path, str(error)) from None


def _digest(content: Any, stored: Any) -> str:
    text = json.dumps([content, stored], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is damaged ({why}); copy it again, or fit the model again"
    )
