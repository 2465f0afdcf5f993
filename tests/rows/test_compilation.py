"""What a fit compiles, and where compiled kernels are kept."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engine_checks import make
from paths import ROOT

import counterpoise
from counterpoise.activations import identity, relu
from counterpoise.losses import NeuronLoss
from counterpoise.rows import compilation, kernels, sorting
from counterpoise.rows.engines import dense
from counterpoise.rows.engines.questions import Gram


@pytest.fixture
def asked(monkeypatch):
    """The names of kernels that are asked for, as in a process that has compiled nothing."""
    monkeypatch.setattr(compilation, "_ready", set())

    def names():
        found = (key[0] if isinstance(key, tuple) else key for key in compilation._ready)
        return {name for name in found if isinstance(name, str) and hasattr(kernels, name)}

    return names


def rows(n, d, dtype=np.float64):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(n, d)), rng.integers(0, 3, n)
    return X.astype(dtype), X.sum(axis=1) + rng.normal(size=n) * (1 + groups), groups


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_small_linear_fit_needs_one_kernel(asked, dtype):
    X, y, groups = rows(300, 3, dtype)
    counterpoise.GroupDRONeuron(activation="identity").fit(X, y, groups=groups)
    assert asked() == {"evaluate_dense"}


def test_a_large_linear_fit_leaves_out_the_kernels_of_curved_models(asked):
    X, y, groups = rows(dense.SMALL // 4 + 1, 4)
    counterpoise.GroupDRONeuron(activation="identity").fit(X, y, groups=groups)
    assert asked() == {"evaluate_dense", "shifted_rows", "gather_rows"} | (
        {"counting_sort"} if len(y) >= sorting.SMALL else set()
    )


def test_a_small_neuron_compares_its_candidates_without_a_kernel(asked):
    X, y, groups = rows(300, 3)
    counterpoise.GroupDRONeuron(activation="relu").fit(X, np.maximum(y, 0), groups=groups)
    assert "evaluate_dense" in asked()
    assert "separations" not in asked()


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_numpy_and_both_kernels_scale_rows_to_the_same_bits(
    monkeypatch, tmp_path, storage, weighted, intercept
):
    data, _ = make(tmp_path, storage, weighted=weighted, intercept=intercept)
    if weighted:
        data.row_weights[::5] = 0.0  # as a bootstrap may have it: such rows are skipped
    part = dense.DensePart(data)
    point, shift = np.linspace(-1, 1, data.n_coef), np.linspace(0.1, 0.7, data.n_features)

    def gram(activation, w):
        return part.answer(Gram(w, NeuronLoss(activation), None, shift, None)).tobytes()

    by_numpy = gram(identity(), None)
    monkeypatch.setattr(dense, "SMALL", 0)
    assert gram(identity(), None) == by_numpy  # shifted_rows
    assert gram(relu(), None) == by_numpy  # scaled_rows
    assert gram(identity(), point) == by_numpy
    assert gram(relu(), point) != by_numpy


@pytest.mark.parametrize("n_codes", [1, 7, 70_000])
def test_both_ways_of_sorting_agree(monkeypatch, n_codes):
    codes = np.random.default_rng(0).integers(0, n_codes, 2000)
    codes[-2:] = [n_codes - 1, 0]
    expected = sorting.sorted_order(codes, n_codes)
    monkeypatch.setattr(sorting, "SMALL", 0)
    found = sorting.sorted_order(codes, n_codes)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def cache_hits(source, **variables):
    """Call a kernel in a process of its own; whether it was in the cache, and where that is."""
    code = """
import json
import numpy as np
from counterpoise.rows.kernels import merge_parts
merge_parts(np.ones((0, 2)), np.zeros(0, int), np.ones((1, 2)))
found = merge_parts.stats
counts = [sum(some.values()) for some in (found.cache_hits, found.cache_misses)]
print(json.dumps([*counts, found.cache_path]))
"""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, **variables}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.slow
def test_kernels_go_to_the_folder_of_the_user_if_the_package_is_read_only(tmp_path):
    source, home = tmp_path / "src", tmp_path / "home"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    # Even root cannot create a folder where there is a file.
    (source / "counterpoise" / "rows" / "__pycache__").write_text("")
    mine = {"XDG_CACHE_HOME": str(home), "LOCALAPPDATA": str(home), "HOME": str(home)}
    *first, folder = cache_hits(source, **mine)
    assert first == [0, 1]
    assert Path(folder).is_relative_to(home)
    assert cache_hits(source, **mine) == [1, 0, folder]


def test_kernels_are_compiled_again_if_a_file_changes_that_they_inline(monkeypatch):
    from counterpoise.common import compiling
    from counterpoise.rows import lines, many_kernels

    assert {kernels.__file__, lines.__file__} <= compiling.sources(kernels)
    assert {kernels.__file__, lines.__file__} <= compiling.sources(many_kernels)

    def stamp(kernel):
        compiling._stamp(kernel)
        return kernel._cache._cache_file._source_stamp

    before = [stamp(kernel) for kernel in (kernels.gather_rows, many_kernels.evaluate_many)]
    stat = os.stat
    monkeypatch.setattr(
        compiling.os, "stat", lambda path: stat(ROOT if path == lines.__file__ else path)
    )
    after = [stamp(kernel) for kernel in (kernels.gather_rows, many_kernels.evaluate_many)]
    monkeypatch.undo()
    assert [stamp(kernel) for kernel in (kernels.gather_rows, many_kernels.evaluate_many)] == before
    assert all(a != b for a, b in zip(after, before, strict=True))
