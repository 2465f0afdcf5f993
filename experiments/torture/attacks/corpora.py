"""Attacks on corpora: token files, their metadata, their sources, and their preparation."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from experiments.torture.harness import Trial, attack

TIMEOUT = 120
CONFIG = """
[corpus]
folder = "corpus"
source = "texts"
{tokenizer}
splits = {{ train = 0.6, validation = 0.2, test = 0.2 }}

[model]
hidden_size = 16
layers = 1
heads = 2

[train]
tokens = 256
length = 16
batch = 2
learning_rate = 1e-3
threads = 1

[evaluate]
sequences = 2
"""
BYTES = 'tokenizer = "bytes"'
TRAINED = "vocab_size = 300"


def texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    words = np.array(["one", "zwei", "trois", "čtyři", "五", "\n"])
    return [f"{i} " + " ".join(rng.choice(words, rng.integers(3, 40))) for i in range(n)]


def project(folder: Path, *, n: int = 120, tokenizer: str = BYTES) -> Path:
    """Two domains and a configuration."""
    (folder / "texts").mkdir(parents=True)
    for seed, name in enumerate(("web", "code")):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts(n, seed))
        (folder / "texts" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "run.toml").write_text(CONFIG.format(tokenizer=tokenizer))
    return folder


def command(*words: str, memory: int | None = None) -> list[str]:
    """A command of ours, with a limit of its address space in bytes."""
    own = [sys.executable, "-m", "counterpoise", "lm", *words]
    return own if memory is None else ["prlimit", f"--as={memory}", *own]


def run(
    folder: Path, *words: str, memory: int | None = None, limit: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Return the exit code and what was said on standard error."""
    ended = subprocess.run(
        command(*words, memory=memory), cwd=folder, capture_output=True, text=True,
        timeout=TIMEOUT, check=False, preexec_fn=limit,
    )  # fmt: skip
    return ended.returncode, ended.stderr


def is_refused(code: int, said: str, *names: str) -> bool:
    """Whether a command ended with one line that names a file."""
    last = said.strip().splitlines()[-1:] or [""]
    clear = last[0].startswith("error: ") and "Traceback" not in said
    return code not in (0, -signal.SIGSEGV) and clear and any(name in last[0] for name in names)


def prepared(folder: Path) -> Path:
    """A finished corpus."""
    code, said = run(project(folder / "made"), "prepare", "run.toml")
    if code:
        raise RuntimeError(said)
    return folder / "made"


def copied(trial: Trial) -> Path:
    """A copy with the sources' times, so that they count as the same."""
    return Path(shutil.copytree(trial.prepared, trial.folder / "copy"))


def flip(path: Path, rng: np.random.Generator) -> int:
    data = bytearray(path.read_bytes())
    at = int(rng.integers(len(data)))
    data[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)
    return at


def contents(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in found if not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in kept}


def read_all(corpus: Path) -> list[list[int]]:
    """Read every token as a training loop would: open, sample, evaluate."""
    from counterpoise.lm import Corpus, MixtureDataset, held_out

    opened = Corpus.open(corpus)
    MixtureDataset(opened, 16)
    for split in opened.splits[1:]:
        held_out(opened, 16, split=split)
    parts = [opened.tokens(name, split) for name in opened for split in opened.splits]
    found = []
    for part in parts:
        found += [part.document(i).tolist() for i in range(part.n_documents)]
    return found


# -- damage --------------------------------------------------------------------------------


@attack("a flipped bit of a token file", tries=200, prepare=prepared)
def flipped_token(trial: Trial) -> str | None:
    corpus = copied(trial) / "corpus"
    files = sorted(corpus.glob("*/*.bin"))
    path = files[int(trial.rng.integers(len(files)))]
    at = flip(path, trial.rng)
    try:
        read_all(corpus)
    except ValueError as error:
        return None if path.name in str(error) else f"the error does not name {path.name}: {error}"
    return f"{path.parent.name}/{path.name}, byte {at}, was flipped and read"


@attack("a flipped bit of a token file, and lm train", tries=3, prepare=prepared)
def flipped_token_trained(trial: Trial) -> str | None:
    folder = copied(trial)
    files = sorted((folder / "corpus").glob("*/train.bin"))
    flip(files[int(trial.rng.integers(len(files)))], trial.rng)
    code, said = run(folder, "train", "run.toml", "--out", "out")
    return (
        None
        if is_refused(code, said, "train.bin")
        else f"trained all the same ({code}): {said[-200:]}"
    )


@attack("a flipped bit of a token file, and lm prepare", tries=3, prepare=prepared)
def flipped_token_prepared(trial: Trial) -> str | None:
    folder = copied(trial)
    whole = contents(folder / "corpus")
    files = sorted((folder / "corpus").glob("*/*.bin"))
    path = files[int(trial.rng.integers(len(files)))]
    flip(path, trial.rng)
    code, said = run(folder, "prepare", "run.toml")
    if not is_refused(code, said, path.name):
        return f"{path.name} was left as it was ({code}): {said[-200:]}"
    code, said = run(folder, "prepare", "run.toml", "--overwrite")
    return None if contents(folder / "corpus") == whole else f"not repaired ({code}): {said[-200:]}"


@attack("a flipped bit of corpus.json or index.json", tries=200, prepare=prepared)
def flipped_metadata(trial: Trial) -> str | None:
    corpus = copied(trial) / "corpus"
    path = [corpus / "corpus.json", *sorted(corpus.glob("*/index.json"))][trial.number % 3]
    before, whole = json.loads(path.read_text()), read_all(corpus)
    at = flip(path, trial.rng)
    try:
        same = json.loads(path.read_text()) == before
    except ValueError:
        same = False
    try:
        found = read_all(corpus)
    except (ValueError, FileNotFoundError) as error:
        named = path.name in str(error) or path.parent.name in str(error)
        return None if named else f"byte {at} of {path.name}: the error names no file: {error}"
    if same and found == whole:
        return None
    return f"byte {at} of {path.name} was flipped and the corpus opened"


@attack("a truncated file of a corpus", tries=60, prepare=prepared)
def truncated(trial: Trial) -> str | None:
    corpus = copied(trial) / "corpus"
    files = sorted(path for path in corpus.rglob("*") if path.is_file())
    path = files[int(trial.rng.integers(len(files)))]
    os.truncate(path, int(trial.rng.integers(path.stat().st_size - 1)))  # all but a last blank
    try:
        read_all(corpus)
    except ValueError as error:
        return None if path.name in str(error) else f"the error does not name {path.name}: {error}"
    return f"{path.name} was cut and read"


@attack("a flipped bit of the trained tokenizer or its record", tries=4)
def flipped_tokenizer(trial: Trial) -> str | None:
    folder = project(trial.folder / "made", tokenizer=TRAINED)
    code, said = run(folder, "prepare", "run.toml")
    if code:
        return said[-200:]
    name = ("tokenizer.json", "tokenizer.made-of.json")[trial.number % 2]
    flip(folder / "corpus" / name, trial.rng)
    code, said = run(folder, "prepare", "run.toml")
    return (
        None if is_refused(code, said, "tokenizer", "another") else f"{name}: {code} {said[-200:]}"
    )


# -- interruptions -------------------------------------------------------------------------


def whole_and_source(folder: Path) -> tuple[Path, dict[str, bytes]]:
    made = project(folder / "made", n=8000)
    code, said = run(made, "prepare", "run.toml")
    if code:
        raise RuntimeError(said)
    whole = contents(made / "corpus")
    shutil.rmtree(made / "corpus")
    return made, whole


def killed(folder: Path, after: float, number: int) -> int:
    """Start a preparation and send it a signal; the exit code."""
    process = subprocess.Popen(
        command("prepare", "run.toml"), cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + TIMEOUT
    while not (folder / "corpus").is_dir() and process.poll() is None:
        if time.monotonic() > until:
            break
        time.sleep(0.002)
    time.sleep(after)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        return process.wait(timeout=TIMEOUT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@attack("lm prepare killed, then run again: the same bytes", tries=8, prepare=whole_and_source)
def kill_prepare(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    for _ in range(2):
        killed(folder, float(trial.rng.uniform(0, 0.6)), signal.SIGKILL)
    code, said = run(folder, "prepare", "run.toml")
    if code:
        return said[-200:]
    left = [path.name for path in folder.rglob("*.new")]
    if left:
        return f"drafts are left: {left}"
    return None if contents(folder / "corpus") == whole else "other bytes"


@attack("lm prepare killed, a bit flipped, then run again", tries=6, prepare=whole_and_source)
def kill_and_flip(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    killed(folder, float(trial.rng.uniform(0.0, 0.5)), signal.SIGKILL)
    files = sorted(p for p in (folder / "corpus").glob("*/*") if p.stat().st_size)
    if not files:
        return None
    path = files[int(trial.rng.integers(len(files)))]
    flip(path, trial.rng)
    code, said = run(folder, "prepare", "run.toml")
    if code:
        if not is_refused(code, said, path.parent.name):
            return f"{path.name}: {said[-200:]}"
        code, said = run(folder, "prepare", "run.toml", "--overwrite")
    return (
        None
        if contents(folder / "corpus") == whole
        else f"{path.name}: other bytes ({said[-200:]})"
    )


@attack("lm prepare asked to stop (SIGTERM)", tries=4, prepare=whole_and_source)
def stop_prepare(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    ended = killed(folder, float(trial.rng.uniform(0.0, 0.4)), signal.SIGTERM)
    if ended not in (0, 75):
        return f"it ended with {ended}"
    code, said = run(folder, "prepare", "run.toml")
    return None if not code and contents(folder / "corpus") == whole else f"{code} {said[-200:]}"


@attack("lm prepare on a full disk", tries=5, prepare=whole_and_source)
def full_disk(trial: Trial) -> str | None:
    import resource

    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    size = int(trial.rng.integers(500, 600_000))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    code, said = run(folder, "prepare", "run.toml", limit=limit)
    if code and not is_refused(code, said, ".bin", ".json"):
        return f"{size} bytes: {said[-300:]}"
    code, said = run(folder, "prepare", "run.toml")
    return None if not code and contents(folder / "corpus") == whole else f"{code} {said[-200:]}"


# -- hostile sources -----------------------------------------------------------------------


def bombs(folder: Path) -> list[Path]:
    """Small files of one document of three gigabytes, in many parts that are alike."""
    import zstandard

    parts = (b'{"text": "', b"A" * (1 << 24), b'"}\n')
    found = []
    for suffix, pack in (("gz", gzip.compress), ("zst", zstandard.compress)):
        head, block, tail = (pack(part) for part in parts)
        for kind in ("jsonl", "txt"):
            found.append(folder / f"web.{kind}.{suffix}")
            found[-1].write_bytes(head + 192 * block + tail)
    return found


@attack("a small file that unpacks to one document of 3 GB", tries=4, prepare=bombs)
def bomb(trial: Trial) -> str | None:
    path = trial.prepared[trial.number % len(trial.prepared)]
    folder = project(trial.folder / "made")
    (folder / "texts/web.jsonl").unlink()
    shutil.copyfile(path, folder / "texts" / path.name)
    code, said = run(folder, "prepare", "run.toml", memory=2 << 30)
    return None if is_refused(code, said, path.name) else f"{path.name}: {code} {said[-200:]}"


@attack("a small Parquet file of a long text repeated 1,000 times", tries=1)
def dictionary_bomb(trial: Trial) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    index, values = pa.array(np.zeros(1000, np.int32)), pa.array(["long " * 8_000_000])
    table = pa.table({"text": pa.DictionaryArray.from_arrays(index, values)})
    pq.write_table(table, trial.folder / "web.parquet")
    code = "from counterpoise.lm import read_documents as r; d = r('web.parquet'); next(d), next(d)"
    ended = subprocess.run(
        ["prlimit", f"--as={2 << 30}", sys.executable, "-c", code], cwd=trial.folder, check=False,
        capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    return f"{ended.returncode} {ended.stderr[-200:]}" if ended.returncode else None


def damaged_source(trial: Trial, name: str, data: bytes) -> str | None:
    folder = project(trial.folder / "made")
    (folder / "texts/web.jsonl").unlink()
    (folder / "texts" / name).write_bytes(data)
    code, said = run(folder, "prepare", "run.toml")
    if code == 0:
        return None  # what is left is text
    return None if is_refused(code, said, name, "web") else f"{name}: {code} {said[-200:]}"


def packed(suffix: str) -> bytes:
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts(200, 3)).encode()
    if suffix == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": texts(200, 3)}), sink, row_group_size=50)
        return sink.getvalue().to_pybytes()
    packs: dict[str, Callable[[bytes], bytes]] = {
        "jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.bz2": bz2.compress,
        "jsonl.xz": lzma.compress,
    }  # fmt: skip
    return packs[suffix](data)


@attack("a flipped or cut source, of every kind", tries=15)
def flipped_source(trial: Trial) -> str | None:
    kinds = ("jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.xz", "parquet")
    suffix = kinds[trial.number % len(kinds)]
    data = bytearray(packed(suffix))
    at = int(trial.rng.integers(len(data)))
    if trial.rng.integers(2):
        data[at] ^= 1 << int(trial.rng.integers(8))
    else:
        del data[at:]
    return damaged_source(trial, f"web.{suffix}", bytes(data))


@attack("deeply nested JSON, TOML and Parquet", tries=6)
def deep(trial: Trial) -> str | None:
    if trial.number % 3 == 0:
        depth = int(trial.rng.integers(10_000, 300_000))
        line = '{"text": "a", "x": ' + "[" * depth + "]" * depth + "}\n"
        return damaged_source(trial, "web.jsonl", line.encode())
    if trial.number % 3 == 1:
        import pyarrow as pa
        import pyarrow.parquet as pq

        value, kind = "a", pa.string()
        for _ in range(int(trial.rng.integers(2, 60))):
            value, kind = [value], pa.list_(kind)  # type: ignore[assignment]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": pa.array([value], kind)}), sink)
        return damaged_source(trial, "web.parquet", sink.getvalue().to_pybytes())
    folder = project(trial.folder / "made")
    forms = ("x = " + "[" * 50_000, ".".join(["a"] * 20_000) + " = 1", "x = " + "{a=" * 30_000)
    (folder / "run.toml").write_text(forms[int(trial.rng.integers(3))])
    code, said = run(folder, "prepare", "run.toml")
    return None if is_refused(code, said, "run.toml") else f"TOML: {code} {said[-200:]}"


@attack("a flipped bit of a configuration", tries=12)
def flipped_config(trial: Trial) -> str | None:
    folder = project(trial.folder / "made", n=20)
    flip(folder / "run.toml", trial.rng)
    code, said = run(folder, "prepare", "run.toml")
    if code == 0:
        return None  # another corpus, as asked
    words = ("run.toml", "corpus", "texts", "domain", "split", "tokenizer")
    return None if is_refused(code, said, *words) else f"{code} {said[-300:]}"
