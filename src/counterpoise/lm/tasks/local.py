"""Task documents in a local folder: JSONL files, and ``tasks.json``, which lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from counterpoise.storage.files import read_json

INDEX = "tasks.json"
FORMAT = "counterpoise tasks"
VERSION = 1
REMEDY = "make the folder anew, or give another one"


def task_files(folder: str | os.PathLike[str]) -> dict[str, dict[str, Path]]:
    """Return the files of a folder by the harness's task and by split, the scored split first.

    Every line of a file is a document, with the fields that the task's dataset has on the hub.
    ``tasks.json`` names the files::

        {"format": "counterpoise tasks", "version": 1, "tasks": {
            "PIQA": {"harness": "piqa", "files": {"validation": "piqa.validation.jsonl"}}}}
    """
    found = {}
    for name, task in read_index(folder).items():
        files = {split: Path(folder).resolve() / file for split, file in task["files"].items()}
        for path in files.values():
            if not path.is_file():
                raise FileNotFoundError(
                    f"data={os.fspath(folder)!r}: the file {path.name!r} of the task {name!r} is "
                    f"missing; {REMEDY}"
                )
        found[str(task["harness"])] = files
    return found


def read_index(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what ``tasks.json`` says of each task."""
    path = Path(folder) / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"data={os.fspath(folder)!r} has no {INDEX}; give a folder of task files, as "
            "`python -m experiments.tasks FOLDER` writes it"
        )
    tasks: dict[str, Any] = read_json(path, FORMAT, VERSION, REMEDY)["tasks"]
    return tasks
