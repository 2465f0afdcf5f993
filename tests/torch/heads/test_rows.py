"""Embeddings in memory and on disk."""

import numpy as np
import pytest

from counterpoise.torch.heads.rows import EMBEDDINGS, EmbeddingRows


@pytest.mark.parametrize("memory", [0, 1000, 10**9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_come_back(memory, dtype, tmp_path):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 5)).astype(dtype) for n in (7, 0, 90, 1)]
    with EmbeddingRows(memory, tmp_path / "new") as store:
        for part in parts:
            store.add(part)
        found = store.finish()
    if memory < 10**9:
        assert found == tmp_path / "new" / EMBEDDINGS
        assert [path.name for path in found.parent.iterdir()] == [EMBEDDINGS]
        found = np.load(found, allow_pickle=False)
    else:
        assert not (tmp_path / "new").exists()
    np.testing.assert_array_equal(found, np.concatenate(parts))
    assert found.dtype == dtype


def test_batches_of_another_width(tmp_path):
    with EmbeddingRows(0, tmp_path) as store:
        store.add(np.zeros((2, 5), np.float32))
        with pytest.raises(ValueError, match="4 x float32, those before it had 5 x float32"):
            store.add(np.zeros((2, 4), np.float32))
    assert list(tmp_path.iterdir()) == []
