"""What ranks tell each other about their rows, as bytes without pickle."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import Scan
from counterpoise.storage.arrays import from_bytes, to_bytes
from counterpoise.storage.packing import Packer, unpack

Array = np.ndarray

# Rows of a sample are numbered by rank and by their place on it, until they are exchanged.
PLACES = 1 << 40


def to_parcel(value: Any) -> bytes:
    """Return numbers, text, labels, arrays and CSR matrices, in lists and mappings, as bytes."""
    packer = Packer()
    tree = packer.pack(_plain(value), "rows")
    data, members = to_bytes(packer.arrays.values())
    named = dict(zip(packer.arrays, members, strict=True))
    head = json.dumps({"tree": tree, "members": named}).encode()
    return len(head).to_bytes(8, "little") + head + data


def from_parcel(data: bytes) -> Any:
    """Return what `to_parcel` made the bytes of."""
    end = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:end])
    return _revived(unpack(head["tree"], from_bytes(data[end:], head["members"], compressed=False)))


def _plain(value: Any) -> Any:
    if sparse.issparse(value):
        return {"csr": [value.data, value.indices, value.indptr], "shape": list(value.shape)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return [_revived(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"csr", "shape"}:
        return sparse.csr_matrix(tuple(value["csr"]), shape=tuple(value["shape"]))
    return {key: _revived(item) for key, item in value.items()}


def numbered(scan: Scan, rank: int) -> Scan:
    """Return a scan whose sample has numbers in place of its rows."""
    drawn = scan.sample
    numbers = (rank * PLACES + np.arange(len(drawn.y), dtype=np.int64))[:, None]
    return replace(
        scan, sample=drawn.with_rows(numbers, max(1, drawn.budget // max(1, scan.n_features)))
    )


def split_numbers(numbers: Array) -> tuple[Array, Array]:
    """Return the ranks and the places of numbered rows."""
    return numbers // PLACES, numbers % PLACES


def scan_tree(scan: Scan) -> dict[str, Any]:
    """Return a scan as a mapping of plain values."""
    tree = {field.name: getattr(scan, field.name) for field in fields(Scan)}
    drawn = scan.sample
    own = {name: getattr(drawn, name) for name in ("X", "y", "weights", "codes", "counts", "keys")}
    return {**tree, "sample": {**own, "budget": drawn.budget}}


def scan_of(tree: dict[str, Any]) -> Scan:
    """Return the scan that `scan_tree` made the mapping of."""
    sample = RowSample(**tree["sample"], labels=tree["labels"])
    return Scan(**{**tree, "sample": sample})
