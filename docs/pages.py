"""Run the snippets of documentation pages, and update their output.

``python docs/pages.py start.md`` updates a page. All ``python`` blocks of a page run in one
namespace. An ``output`` or ``text`` block that follows one holds what it printed (``text`` for
sentences, which the site wraps). In a ``console`` block, lines ``$ counterpoise ...`` are run,
and the lines below them are their output (``...`` if not shown). Blocks after ``<!-- not run: why
-->`` are left alone, and so are the commands of ``counterpoise lm``, which need corpora and time.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]*-->\n)?"
    r"^```(?P<kind>python|console|text|output)\n(?P<body>.*?)^```$",
    re.S | re.M,
)
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
TIME = re.compile(r"[\d.]+ (?:m?s|seconds?|minutes?)\b")


def runs(text: str) -> bool:
    """Whether a page has anything to run."""
    return any(_wanted(block) for block in BLOCK.finditer(text))


def filled(text: str, names: dict[str, Any], *, commands: bool = True) -> str:
    """Return the page with the current output of its snippets."""
    names.setdefault("__name__", "__main__")
    out, end, printed = [], 0, None
    for block in BLOCK.finditer(text):
        between = text[end : block.start()]
        kind, body = block["kind"], block["body"]
        if kind in ("text", "output"):
            follows = printed is not None and not between.strip()
            body = printed + "\n" if follows and printed else body
            printed = None
        elif block["skip"]:
            printed = None
        elif kind == "python":
            printed = _printed(lambda code=body: exec(code, names))
        else:
            printed = None
            body = "".join(_console(body)) if commands else body
        out.append(between + (block["skip"] or "") + f"```{kind}\n{body}```")
        end = block.end()
    return "".join(out) + text[end:]


def alike(shown: str, now: str, tolerance: float = 0.02) -> bool:
    """Whether two texts agree except for times, tiny numbers and last digits."""
    shown, now = TIME.sub("TIME", shown), TIME.sub("TIME", now)
    if NUMBER.sub("#", shown) != NUMBER.sub("#", now):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(now), strict=True)
    for a, b in ((_value(a), _value(b)) for a, b in pairs):
        if abs(a - b) > tolerance * max(abs(a), abs(b)) and max(abs(a), abs(b)) > 1e-3:
            return False
    return True


def _wanted(block: re.Match[str]) -> bool:
    console = block["kind"] == "console" and bool(list(_calls(block["body"])))
    return not block["skip"] and (block["kind"] == "python" or console)


def _calls(body: str) -> Iterator[tuple[str, list[str] | None, list[str]]]:
    """Yield each command of a console block, its arguments if we run it, and its output."""
    lines = body.splitlines(keepends=True)
    while lines:
        command = lines.pop(0)
        while command.rstrip().endswith("\\") and lines:
            command += lines.pop(0)
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        ours = words[:2] == ["$", "counterpoise"] and words[2:3] != ["lm"]
        yield command, words[2:] if ours else None, output


def _console(body: str) -> Iterator[str]:
    from counterpoise.cli.main import main

    for command, arguments, output in _calls(body):
        yield command
        if arguments is None:
            yield from output
            continue
        code = [0]
        printed = _printed(lambda words=arguments, code=code: code.append(main(words)))
        if code[-1]:
            raise RuntimeError(f"{command.strip()} ended with {code[-1]}")
        if output and "".join(output).strip() != "...":
            yield printed + "\n"
        else:
            yield from output


def _printed(call: Any) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        call()
    return "\n".join(line.rstrip() for line in stream.getvalue().strip("\n").split("\n"))


def _value(number: str) -> float:
    return float(number.replace(",", "").rstrip("."))


def main(pages: list[str]) -> None:
    for name in pages:
        path = HERE / name
        text = path.read_text(encoding="utf-8")
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            new = filled(text, {}, commands="--python-only" not in sys.argv)
            os.chdir(before)
        path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if not name.startswith("-")])
