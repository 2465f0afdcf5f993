"""The package as a newcomer meets it: imports, README, example."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from lm_problems import markov_corpus, small_llama
from paths import printed
from problems import neuron_data

import counterpoise

ROOT = Path(__file__).parents[2]
TOML = (ROOT / "pyproject.toml").read_text()


# Prints packages that were imported after a point, but those of Python itself.
FOREIGN = (
    "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} "
    "- {*sys.stdlib_module_names, 'counterpoise'}))"
)


@pytest.mark.slow
def test_import_is_light():
    """The package imports lazy_loader alone; the estimator scikit-learn and what that needs."""
    code = f"import sys; before = set(sys.modules); import counterpoise; {FOREIGN}"
    assert printed(code) == "['lazy_loader']"
    code = (
        "import sys, sklearn.base; before = set(sys.modules); "
        f"from counterpoise import GroupDRONeuron, GroupDRONeuronCV; {FOREIGN}"
    )
    heavy = {"cvxpy", "dask", "matplotlib", "numba", "onnx", "pandas", "polars", "pyarrow", "torch"}
    assert heavy.isdisjoint(ast.literal_eval(printed(code)))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_answers_without_numpy(option):
    code = (
        "import sys; before = set(sys.modules); from counterpoise.cli.main import main; "
        f"main([{option!r}]); {FOREIGN}"
    )
    assert printed(code).splitlines()[-1] == "['click', 'lazy_loader']"


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["counterpoise.reweight.reweighter", "counterpoise.lm.corpus.prepare"]
)
def test_reweighting_and_preparing_need_numpy_alone(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('sklearn', 'scipy', 'torch', 'numba') if m in sys.modules])"
    )
    assert printed(code) == "[]"


@pytest.mark.slow
def test_names_are_listed_and_others_are_missing():
    code = (
        "import counterpoise; counterpoise.reweight.Rule; counterpoise.lm.prepare; "
        "print(sorted({'Reweighter', 'solve'} - set(dir(counterpoise))), "
        "hasattr(counterpoise, 'nothing'), 'torch' in dir(counterpoise))"
    )
    assert printed(code) == "[] False False"


def test_a_name_that_moved_says_where_it_is():
    with pytest.raises(
        AttributeError, match=r"is counterpoise\.dual\.DualState since version 0\.2"
    ):
        _ = counterpoise.DualState


def test_no_package_is_pinned_to_old_releases():
    requirements = re.findall(r'"([A-Za-z0-9_.-]+(?:\[[a-z,]+\])?[<>=!~][^"]*)"', TOML)
    assert len(requirements) > 20
    assert [r for r in requirements if re.search(r"<|==|~=", r)] == []


def test_public_names_exist_and_are_documented():
    for name in counterpoise.__all__:
        assert getattr(counterpoise, name).__doc__, name
    assert (Path(counterpoise.__file__).parent / "py.typed").exists()
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", counterpoise.__version__)


def count_batches(limit):
    """A training step that ends the loop it is called from after so many."""
    seen = []

    def train(batch):
        seen.append(batch)
        if len(seen) > limit:
            raise StopIteration

    return train


@pytest.mark.docs
def test_readme_snippets_run(monkeypatch, tmp_path):
    import dask.dataframe as dd
    import pandas as pd
    import torch
    from sklearn.linear_model import LogisticRegression

    from counterpoise import GroupDROClassifier

    X, y, g = neuron_data(K=3, n=60, d=3)
    carrier = np.array(["a", "b", "c"])[g]
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(air_time=y, carrier=carrier)
    scope = {
        "X": X, "y": y, "groups": g, "carrier": carrier, "cuda_tensor": torch.tensor(X),
        "make_chunks": lambda: iter([(X[:100], y[:100], g[:100]), (X[100:], y[100:], g[100:])]),
        "dask_frame": dd.from_pandas(frame, npartitions=2),
        "losses": torch.ones(4, requires_grad=True), "group": torch.tensor([0, 1, 1, 0]),
        "llama": small_llama(), "train": count_batches(100),
    }  # fmt: skip
    is_late = np.random.default_rng(0).random(len(y)) < 0.3 + 0.4 * (X[:, 0] > 0)
    origin = np.array(["east", "west"])[np.arange(len(y)) % 2]
    network = torch.nn.Sequential()
    network.add_module("body", torch.nn.Linear(3, 4))
    network.add_module("last", torch.nn.Linear(4, 2))
    rows = torch.utils.data.TensorDataset(torch.tensor(X).float(), torch.tensor(is_late).long())
    scope |= {
        "is_late": is_late, "origin": origin, "network": network,
        "models": {"logistic": LogisticRegression(), "worst group": GroupDROClassifier(nu=0)},
        "loader": torch.utils.data.DataLoader(rows, batch_size=60),
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    markov_corpus(tmp_path / "corpus", {"web": 3000, "code": 2000})
    for name, values in (("X", X), ("y", y), ("groups", g)):
        np.save(f"{name}.npy", values)
    (tmp_path / "flights").mkdir()
    frame.to_parquet("flights/january.parquet")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) == 5
    for block in blocks:
        with contextlib.suppress(StopIteration):
            exec(block, scope)
    assert scope["steering"].reweighter.updates == 1
    assert scope["model"].group_risks_.shape == (3,)
    assert scope["classifier"].groups_.tolist()[-1] == "origin=west"
    assert scope["head"].certificate.duality_gap < 1e-3
    assert counterpoise.load(tmp_path / "fit").groups_.tolist() == ["a", "b", "c"]
    assert (tmp_path / "frontier.png").exists()


@pytest.fixture
def celebrities():
    path = ROOT / "examples" / "celebrities.py"
    spec = importlib.util.spec_from_file_location("celebrities", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_draws_and_tabulates(celebrities, tmp_path, capsys):
    """Rows where the second feature gives the first class away, except in one rare group."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["blond men", "blond women", "other men", "other women"],
                       [60, 300, 600, 600])  # fmt: skip
    y = np.char.startswith(groups, "blond")
    X = rng.normal(size=(len(y), 3))
    X[:, 0] += y
    X[:, 1] += 2.0 * np.char.endswith(groups, "women")
    labels, found, model = celebrities.compare(X, y, groups, 2)
    sizes = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    celebrities.show(labels, found, sizes)
    table = capsys.readouterr().out
    assert all(name in table for name in (*found, *labels))
    worst = {name: rows[:, :-1].min(axis=1).mean() for name, rows in found.items()}
    assert worst["group DRO"] > worst["logistic regression"] + 0.2
    assert model.certificate_.duality_gap < 1e-3
    celebrities.draw(labels, found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
