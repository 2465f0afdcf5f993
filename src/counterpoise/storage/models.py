"""Models on disk: a folder with JSON for what people read and .npz for arrays. No pickle.

``model.json`` names its format and version, carries a checksum of itself and that of the file of
arrays, ``model-<digest>.npz``. It holds the model and, where the fit was made from a table, the
:class:`counterpoise.assessment.record.FitRecord`. The JSON is replaced last, so a crash leaves the
old model or the new one.
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

from counterpoise.storage.files import locked, write_bytes, write_json
from counterpoise.storage.packing import Packer, unpack

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord
    from counterpoise.estimators.base import Neuron

FORMAT, VERSION = "counterpoise model", 1
FILE = "model.json"
# Seconds to wait for another process that stores a model in the same folder.
WAIT = 60.0
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
        What the fit was made of, for a report.

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
    packer = Packer()  # what cannot be stored is refused before anything is written
    tree = {"model": packer.pack(model, "model"), "record": packer.pack(record, "record")}
    path = ready_folder(folder)
    with locked(path, wait=WAIT):
        _write(path, tree, packer.arrays)
    return path


def ready_folder(folder: PathLike) -> Path:
    """Make a folder that a model can be stored in; errors say why it cannot."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{str(path)!r} is a file; give a folder to store the model in")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"the folder {str(path)!r} cannot be made ({error.strerror}); choose another"
        ) from None
    if not os.access(path, os.W_OK):
        raise PermissionError(f"the folder {str(path)!r} cannot be written to; choose another")
    if (path / FILE).exists():
        _previous(path)
    return path


def load(folder: PathLike) -> Neuron:
    """A model that was stored with ``model.save`` or ``counterpoise fit``.

    Raises :class:`counterpoise.storage.models.ModelFileError` if it is absent, damaged, or made by
    a newer version of the format.
    """
    return _checked(read_document(folder)["model"], folder)


def load_fit(folder: PathLike) -> tuple[Neuron, FitRecord]:
    """A model and the record of its fit, as ``counterpoise fit`` stores them."""
    from counterpoise.assessment.record import FitRecord

    found = read_document(folder)
    if not isinstance(found["record"], FitRecord):
        raise ModelFileError(
            f"{str(folder)!r} holds a model without a record of its fit; a report needs one that "
            "was made by `counterpoise fit --out`"
        )
    return _checked(found["model"], folder), found["record"]


def load_record(folder: PathLike) -> FitRecord | None:
    """The record of a fit, where there is one."""
    return read_document(folder)["record"]


def _checked(model: Any, folder: PathLike) -> Neuron:
    """A model with all that predictions need, which fits together."""
    from counterpoise.activations import Activation
    from counterpoise.estimators.base import Neuron

    def number(value: Any) -> bool:
        return isinstance(value, (int, float)) and bool(np.isfinite(value))

    coef: Any = getattr(model, "coef_", None)
    fits = isinstance(model, Neuron) and isinstance(coef, np.ndarray)
    if fits:
        width = (getattr(model, "n_features_in_", None),)
        by_group: list[Any] = [
            getattr(model, name, None) for name in ("groups_", "group_weights_", "group_risks_")
        ]
        fits = (
            coef.shape == width
            and coef.dtype.kind == "f"
            and bool(np.isfinite(coef).all())
            and number(getattr(model, "intercept_", None))
            and isinstance(getattr(model, "activation_", None), Activation)
            and isinstance(getattr(model, "status_", None), str)
            and len({np.shape(values) for values in by_group}) == 1
            and np.ndim(by_group[0]) == 1
            and np.shape(getattr(model, "feature_names_in_", coef)) == width
        )
    if fits and hasattr(model, "columns_"):
        from counterpoise.tabular.columns import Columns

        columns = model.columns_
        fits = isinstance(columns, Columns) and columns.width == len(coef)
    if not fits:
        raise ModelFileError(
            f"the model in {str(folder)!r} is not whole or contradicts itself; fit it again"
        )
    return model


def read_document(folder: PathLike) -> dict[str, Any]:
    """The model and the record that are stored in a folder."""
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
                f"{str(error.filename)!r} is missing; a model is its whole folder: copy all of it, "
                "or fit again"
            ) from None
    try:
        found = unpack(whole["content"], arrays)
        return {"model": found["model"], "record": found["record"]}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"its content makes no sense, {error!r}") from None


def _read(path: Path) -> dict[str, Any]:
    """The JSON, as far as its format, version and checksum can be told."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(
            f"{str(path.parent)!r} holds no {path.name}; give a folder that `counterpoise fit "
            "--out` or model.save made"
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
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        remedy = "upgrade: pip install --upgrade counterpoise" if newer else "fit the model again"
        raise ModelFileError(
            f"{str(path)!r} is of version {version!r} and this counterpoise reads version "
            f"{VERSION}; {remedy}"
        )
    try:
        digest = _digest(whole.get("content"), whole.get("arrays"))
    except RecursionError as error:
        raise _damaged(path, str(error)) from None
    if whole.get("sha256") != digest:
        raise _damaged(path, "its checksum does not match its content")
    return whole


def _previous(folder: Path) -> str | None:
    """The file of arrays of the model that is in a folder; None if that cannot be told. A file of
    the same name that is something else is not replaced."""
    path = folder / FILE
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        whole = None
    if whole is not None and not (isinstance(whole, dict) and whole.get("format") == FORMAT):
        raise FileExistsError(
            f"{str(path)!r} is there and is no {FORMAT}; choose another folder, or take it away"
        )
    stored = (whole or {}).get("arrays")
    name = stored.get("file") if isinstance(stored, dict) else None
    return name if isinstance(name, str) and Path(name).name == name != ".." else None


def _write(folder: Path, tree: Any, arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    # Members are numbered: names of groups have no place in names of files.
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
