"""Snippets of the docs run as they stand, and print what the pages say they do."""

import contextlib
import io
import json
import re
import sys
import tomllib
import types
import warnings
from pathlib import Path

import numpy as np
import pages
import pytest
import torch
import torch.distributed as dist
from lm_problems import lightning_llama, small_llama
from lm_titan import config_module, spec_module
from problems import neuron_data
from torch.distributed.device_mesh import init_device_mesh
from trl_runs import Judge, prompts_of, quiet, tokenizer_of

import counterpoise
from counterpoise.common.toml import build
from counterpoise.lm.training.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"

# Pages whose snippets have tests of their own, below.
OWN = ("training-loops.md", "rules.md", "composer.md")
RUN = sorted(
    path.name
    for path in DOCS.glob("*.md")
    if path.name not in OWN and pages.runs(path.read_text(encoding="utf-8"))
)
WORDS = {
    "web": [
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "it",
        "you",
        "that",
        "he",
        "was",
        "for",
        "on",
        "are",
        "with",
        "as",
    ],
    "code": [
        "def",
        "return",
        "import",
        "class",
        "self",
        "if",
        "else",
        "for",
        "in",
        "range",
        "len",
        "print",
        "none",
    ],
    "books": [
        "call",
        "me",
        "some",
        "years",
        "ago",
        "never",
        "mind",
        "how",
        "long",
        "precisely",
        "having",
        "little",
    ],
}


def snippets(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)


def given(page):
    """What the reader of a page has already."""
    if page == "choosing.md":
        X, y, groups = neuron_data(K=3, n=120, d=3)
        return {"X": X, "y": y, "groups": groups}
    if page == "coming-from.md":
        names = classifier()
        return names | {"net": names["model"]}
    if page == "last-layers.md":
        return classifier()
    return {}


@pytest.mark.docs
@pytest.mark.parametrize("page", RUN)
def test_pages_run_and_print_what_they_show(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    now = pages.filled(text, given(page))
    for shown, printed in zip(*map(pages.BLOCK.finditer, (text, now)), strict=True):
        assert pages.alike(shown["body"], printed["body"]), printed["body"]


def test_only_what_cannot_run_here_is_left_out():
    left = {
        (path.name, block["skip"].split(": ", 1)[1].split(" -->")[0])
        for path in DOCS.glob("*.md")
        for block in pages.BLOCK.finditer(path.read_text(encoding="utf-8"))
        if block["skip"]
    }
    peers = {"fairlearn", "dro", "group_DRO", "deep_feature_reweighting", "XGBoost", "LLM-Shearing"}
    assert left == {("coming-from.md", peer) for peer in peers} | {
        ("cluster.md", "fetches a model from the hub"),
        ("large-data.md", "needs two processes"),  # tests/rows/engines/test_collective_ranks.py
        ("pretraining.md", "wants a corpus and time"),
    }


PAGE = """Text.

```python
print("seen", 2 / 3)
```

```text
seen 0.1
```

<!-- not run: a peer -->
```python
raise ValueError
```

```python
print("no output shown")
```
"""


def test_output_on_a_page_is_what_was_printed():
    now = pages.filled(PAGE, {})
    assert "```text\nseen 0.6666666666666666\n```" in now
    assert now == pages.filled(now, {})
    assert not pages.alike(PAGE, now)
    assert pages.alike(now, now.replace("0.66666", "0.66777"))
    assert not pages.alike(now, now.replace("seen", "saw"))
    with pytest.raises(ValueError):
        pages.filled(PAGE.replace("<!-- not run: a peer -->\n", ""), {})


@pytest.mark.docs
def test_commands_on_a_page_are_run():
    page = "```console\n$ make x\nas is\n$ counterpoise --version\nold\n$ counterpoise -h\n...\n```"
    now = pages.filled(page, {})
    assert "as is" in now
    assert f"counterpoise, version {counterpoise.__version__}" in now
    assert now.endswith("$ counterpoise -h\n...\n```")
    with pytest.raises(RuntimeError, match="ended with 2"):
        pages.filled("```console\n$ counterpoise nonsense\n```", {})


def documents(name, count, rng):
    return [" ".join(rng.choice(WORDS[name], size=40)) for _ in range(count)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page speaks of."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    Path("data/books").mkdir(parents=True)
    texts = {name: documents(name, 300, rng) for name in WORDS}
    with gzip.open("data/web.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts["web"])
    pq.write_table(pa.table({"text": texts["code"]}), "data/code.parquet")
    for i, text in enumerate(texts["books"]):
        Path(f"data/books/{i}.txt").write_text(text)
    tokenizer = Tokenizer(models.WordLevel(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["<|endoftext|>", "?"])
    tokenizer.train_from_iterator([t for ts in texts.values() for t in ts], trainer)
    tokenizer.save("tokenizer.json")
    return tmp_path


def scope():
    """What a reader has already: a model and its optimiser."""
    model = small_llama(vocab_size=64)
    return {
        "__name__": "__main__", "torch": torch, "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }  # fmt: skip


def classifier():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    loader = [
        (torch.randn(16, 3), torch.randint(2, (16,)), torch.randint(2, (16,))) for _ in range(5)
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"torch": torch, "model": model, "loader": loader, "optimizer": optimizer}


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # Trainer's default, without a card
def test_snippets_of_training_loops_run(folder, monkeypatch):
    found = snippets("training-loops.md")
    loss, accumulated, prepared, plain, hf, lightning, *others, parallel = found

    names = {}
    for snippet in (loss, accumulated):  # the second goes on from the first
        names |= classifier()
        exec(snippet, names)
        assert names["criterion"].reweighter.updates == 5
    assert "criterion" in torch.load("robust.pt", weights_only=True)

    exec(prepared, scope())
    assert (folder / "corpus" / "code" / "train.bin").stat().st_size > 0

    names = scope()
    exec(plain, names)
    assert names["steering"].reweighter.updates == 3
    exec(plain, names := scope())  # once more: it goes on
    assert names["steering"].reweighter.updates == 6
    assert names["step"] == 24
    assert len((folder / "run.jsonl").read_text().splitlines()) == 6

    names = scope()
    exec(hf, names)
    assert names["mixture"].number == 12 * 8
    assert len((folder / "run/domains.jsonl").read_text().splitlines()) == 3

    names = scope() | {"module": lightning_llama(vocab_size=64)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and loggers
        exec(lightning, names)
    assert names["callback"].steering.reweighter.updates == 3

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        exec(parallel, names := scope() | {"mesh": mesh})
    finally:
        dist.destroy_process_group()
    assert names["steering"].reweighter.updates == 3
    assert names["mixture"].number == 12 * 8

    titan, titan_before, trl, bins = others
    made = []
    registry = "torchtitan.models.llama3.config_registry"  # of torchtitan 0.3; its trainer: a card
    monkeypatch.setitem(sys.modules, registry, config_module(made))
    monkeypatch.setitem(sys.modules, "torchtitan.protocols.train_spec", spec_module(specs := {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(titan, names := scope())
        exec(titan_before, names)
    assert made[0].dataloader.steering.reweighter.updates == 3  # at the start, too
    assert specs["mixture"].build_dataloader_fn is names["build"]

    judge = Judge({"sums": 0.75, "proofs": 0.25})
    names = {"model": small_llama(vocab_size=64), "tokenizer": tokenizer_of()}
    names |= {"reward": judge, "prompts": prompts_of(["sums"] * 9 + ["proofs"] * 9)}
    quiet(lambda: exec(trl, names))
    assert names["callback"].steering.reweighter.updates == 6
    assert len(judge.calls) == 6
    exec(bins, names)
    assert len(names["bins"]) == 18


@pytest.mark.docs
def test_snippet_of_composer_runs(monkeypatch):
    from importlib import import_module, reload

    (composer,) = snippets("composer.md")
    monkeypatch.setitem(sys.modules, "composer", types.SimpleNamespace(Callback=object))
    module = reload(import_module("counterpoise.lm.adapters.composer"))
    exec(composer, names := scope())
    assert names["callback"].steering.weights.tolist() == [0.5, 0.2, 0.3]
    monkeypatch.undo()
    reload(module)


@pytest.mark.docs
def test_snippets_of_rules_run(folder):
    exec(snippets("training-loops.md")[2], scope())
    references, certificate = snippets("rules.md")
    names = scope() | {"reference_model": small_llama(vocab_size=64)}
    exec(references, names)
    assert list(names["reweighter"].domains) == ["web", "code", "books"]
    assert names["reweighter"].reference.min() > 0
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(certificate, {})
    text = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert f"```output\n{printed.getvalue()}```" in text


def test_every_snippet_of_python_is_run():
    """Those of pages with tests of their own are all of the plain kind."""
    for page in OWN:
        text = (DOCS / page).read_text(encoding="utf-8")
        assert len(snippets(page)) == len(re.findall(r"^ *`{3,}python", text, re.M))
    for page in RUN:
        text = (DOCS / page).read_text(encoding="utf-8")
        found = [b for b in pages.BLOCK.finditer(text) if b["kind"] == "python"]
        assert len(found) == len(re.findall(r"^ *`{3,}python", text, re.M)), page


def test_configurations_in_the_docs_are_ones():
    found = 0
    for page in DOCS.glob("*.md"):
        for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S):
            table = {"corpus": {"folder": "c"}, "train": {"tokens": 1e6}} | tomllib.loads(text)
            build(Settings, table)
            found += 1
    assert found


def test_pages_that_are_linked_exist():
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\((?!http|#|auto_gallery)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
