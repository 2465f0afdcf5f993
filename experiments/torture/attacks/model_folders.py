"""Attacks on the loading of language models and tokenizers, and on scoring them.

Worker processes load many folders each, because importing transformers takes seconds. A worker is
limited in memory, and every load in time; if one dies, the next goes on after the folder that ended
it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.torture.harness import Trial, attack

ROOT = Path(__file__).parents[3]
MODULE = "experiments.torture.attacks.model_folders"
SECONDS = 20  # for one load
MEMORY = 12 << 30  # address space of a worker
GROWTH = 1_500  # MB that a refusal may take
# What the command line reports on one line.
EXPECTED = ("ValueError", "FileNotFoundError", "TypeError", "RuntimeError", "OSError")

Change = Callable[[Path], None]


# ---- workers -----------------------------------------------------------------------------------


def run_worker(job: str, *words: str, timeout: float = 600, **options: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-m", MODULE, job, *words],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout, **options,
    )  # fmt: skip


def load_all(folders: list[Path], out: Path) -> list[dict[str, Any]]:
    """Load every folder in workers; return for each what happened."""
    out.touch()
    while (done := len(out.read_text().splitlines())) < len(folders):
        rest = [str(folder) for folder in folders[done:]]
        try:
            said = run_worker("load", str(out), *rest, timeout=60 + 5 * SECONDS + 2 * len(rest))
            end = said.stderr.strip().splitlines()[-1:]
        except subprocess.TimeoutExpired:
            end = ["no answer"]
        if len(out.read_text().splitlines()) < len(folders):
            with out.open("a") as file:
                file.write(json.dumps({"error": "Death", "message": f"{end}"}) + "\n")
    return [json.loads(line) for line in out.read_text().splitlines()]


def _make(folder: str) -> None:
    """Worker: save a small model with its tokenizer, as a folder and as GGUF."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    known = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(known)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for target in (Path(folder, "plain"), Path(folder, "gguf")):
        tokenizer.save_pretrained(target)
    model.save_pretrained(Path(folder, "plain"))
    _save_gguf(Path(folder, "gguf", "model.gguf"), model, tokenizer)


def _save_gguf(path: Path, model: Any, tokenizer: Any) -> None:
    import gguf

    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["T h"])
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for name, tensor in model.state_dict().items():
        own = name.removesuffix(".weight").replace("model.layers.0.", "")
        writer.add_tensor(f"{'blk.0.' if 'layers' in name else ''}{names[own]}.weight",
                          tensor.numpy())  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _load(out: str, *folders: str) -> None:
    """Worker: load folders one after the other, and write down what happens."""
    import torch  # noqa: F401
    import transformers

    from counterpoise.lm import load_checkpoint

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_long)
    for folder in folders:
        found: dict[str, Any] = {"error": None, "message": ""}
        began, before = time.monotonic(), _peak()
        signal.alarm(SECONDS)
        try:
            load_checkpoint(folder)
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            kind = next((k for k in kinds if k in EXPECTED), type(error).__name__)
            found = {"error": kind, "message": str(error)[:2000]}
        signal.alarm(0)
        found |= {"seconds": time.monotonic() - began, "growth": _peak() - before}
        with open(out, "a") as file:
            file.write(json.dumps(found) + "\n")


def _too_long(*_: Any) -> None:
    raise InterruptedError("too long")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _score(folder: str, data: str) -> None:
    """Worker: score a model on tasks, one of which is damaged; print those that have scores."""
    from counterpoise.lm import evaluate_tasks, load_checkpoint

    try:
        found = evaluate_tasks(*load_checkpoint(folder), ["SciQ", "PIQA", "COPA"], data=data)
    except Exception as error:
        found = getattr(error, "scores", [])
        print(json.dumps({"message": str(error), "scores": [score.task for score in found]}))


# ---- what is common ----------------------------------------------------------------------------


def small_model(folder: Path) -> Path:
    done = run_worker("make", str(folder))
    if done.returncode:
        raise RuntimeError(done.stderr)
    return folder


def copies(changes: list[tuple[str, Change]]) -> Callable[[Path], list[dict[str, Any]]]:
    """Prepare changed copies of the model, and load them; a change is (kind, function)."""

    def prepare(base: Path) -> list[dict[str, Any]]:
        model, folders = small_model(base / "model"), []
        for number, (kind, change) in enumerate(changes):
            folder = base / f"copy-{number}"
            shutil.copytree(model / kind, folder)
            change(folder)
            folders.append(folder)
        found = load_all(folders, base / "results.jsonl")
        return [row | {"folder": str(folder)} for row, folder in zip(found, folders, strict=True)]

    return prepare


def fault(row: dict[str, Any], *, may_load: bool) -> str | None:
    """Say what fell: a load that should not be, or an error that no user can use."""
    if row["error"] is None:
        return None if may_load else "it was loaded"
    if row["error"] == "Death":
        return f"the process died: {row['message']}"
    if row["error"] == "InterruptedError" or "too long" in row["message"]:
        return f"still busy after {SECONDS} s"
    if row["error"] not in EXPECTED:
        return f"raw {row['error']}: {row['message'][:120]}"
    if row["folder"] not in row["message"] or "\n" in row["message"]:
        return f"no file is named, or many lines: {row['message'][:160]!r}"
    if row["growth"] > GROWTH:
        return f"refused after {row['growth']:.0f} MB"
    return None


def json_keys(name: str, **keys: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    return change


# ---- code --------------------------------------------------------------------------------------

AUTO = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C", "AutoTokenizer": ["evil.C", None]}
API = "from counterpoise.lm import {0}; {0}({1!r})"
COMMAND = ["-m", "counterpoise", "lm"]
ENTRIES = ("load_checkpoint", "get_tokenizer", "prepare", "train")


@attack("code in a model folder, with yes on standard input", tries=7, prepare=small_model)
def code_in_a_folder(trial: Trial) -> str | None:
    folder, marker = trial.folder / "model", trial.folder / "marker"
    shutil.copytree(trial.prepared / "plain", folder)
    (folder / "evil.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n"
        "from transformers import LlamaConfig\nclass C(LlamaConfig): model_type = 'evil'\n"
    )
    of_model = trial.number % 2 == 0
    name = "config.json" if of_model else "tokenizer_config.json"
    kind = {"model_type": "evil"} if of_model else {"tokenizer_class": "EvilTokenizer"}
    json_keys(name, auto_map=AUTO, **kind)(folder)
    entry = ENTRIES[trial.number // 2 % 4]
    if entry in ("prepare", "train"):
        config = trial.folder / "run.toml"
        config.write_text(
            f'out = "{trial.folder}/run"\n[corpus]\nfolder = "{trial.folder}/corpus"\n'
            f'domains = ["x"]\ntokenizer = "{folder}"\nsource = "{trial.folder}/texts"\n'
            f'[model]\ncheckpoint = "{folder}"\nvocab_size = 300\n[train]\ntokens = 16384\n'
        )
        (trial.folder / "texts").mkdir()
        (trial.folder / "texts" / "x.txt").write_text("The owl runs. " * 500)
        words = [*COMMAND, entry, str(config), *(["--dry-run"] if entry == "train" else [])]
    else:
        words = ["-c", API.format(entry, str(folder))]
    done = subprocess.run(
        [sys.executable, *words], input="yes\n" * 10_000, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    if marker.exists():
        return f"{entry}: the code of {name} ran"
    if "Do you wish" in done.stdout + done.stderr:
        return f"{entry}: asked on standard input"
    if "auto_map" not in done.stderr or done.returncode == 0:
        return f"{entry}: {name} was not refused ({done.stderr[-200:]!r})"
    return None


KERNELS = [
    ("plain", json_keys("config.json", **{key: value}))
    for key in ("_attn_implementation", "attn_implementation")
    for value in ("owner/kernel", "owner/kernel@v1:f", {"": "owner/kernel"}, "flash_attention_2")
] + [
    ("plain", json_keys("config.json", **keys))
    for keys in (
        {"quantization_config": {"quant_method": "eetq", "weights": "int8"}},
        {"transformers_weights": "adapter_model.bin"},
        {"configuration_files": ["../copy-0/config.4.0.0.json"]},
        {"tokenizer_class": "AutoModel"},
        *(
            {"model_type": "gemma3n", "vision_config": {"model_type": "gemma3n_vision", **keys}}
            for keys in (
                {"architecture": "resnet18", "model_args": {"checkpoint_path": "weights.pth"}},
                {"architecture": "hf-hub:owner/model"},
                {"architecture": "local-dir:/tmp"},
            )
        ),
    )
]


@attack("keys that fetch kernels or read elsewhere", tries=len(KERNELS), prepare=copies(KERNELS))
def kernels(trial: Trial) -> str | None:
    row = trial.prepared[trial.number]
    if row["error"] is not None and "kernels" in row["message"] and "pip install" in row["message"]:
        return f"would have fetched a kernel: {row['message'][:120]!r}"
    if (
        row["error"] is not None
        and "timm" in row["message"]
        and "config.json" not in row["message"]
    ):
        return f"would have asked timm for a model: {row['message'][:120]!r}"
    return fault(row, may_load=False)


def pickled(name: str) -> Change:
    """Replace safetensors by a pickle, with an index that names it as ``name``."""

    def change(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file

        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        place = name.replace("PARENT", str(folder.parent))
        target = folder / place
        if name.endswith(".bin"):
            torch.save(weights, target)
        else:
            from safetensors.torch import save_file

            save_file(weights, target, metadata={"format": "pt"})
        table = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(weights, place)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(table))

    return change


INDICES = [
    ("plain", pickled(name))
    for name in ("w.bin", "model.safetensors.bin", "../w.bin", "../w.safetensors", "PARENT/v.bin")
]


@attack("an index that names a pickle or leaves the folder", tries=5, prepare=copies(INDICES))
def indices(trial: Trial) -> str | None:
    return fault(trial.prepared[trial.number], may_load=False)


# ---- bombs -------------------------------------------------------------------------------------


def header(text: bytes, length: int | None = None, size: int = 0) -> Change:
    def change(folder: Path) -> None:
        with (folder / "model.safetensors").open("wb") as file:
            file.write((len(text) if length is None else length).to_bytes(8, "little") + text)
            if size:
                file.truncate(size)

    return change


def gguf_file(data: bytes) -> Change:
    return lambda folder: (folder / "model.gguf").write_bytes(data) and None


def _gguf(tensors: int, keys: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest


def gguf_layers(folder: Path) -> None:
    path = folder / "model.gguf"
    data, key = path.read_bytes(), b"llama.block_count"
    at = data.index(key) + len(key) + 4
    path.write_bytes(data[:at] + struct.pack("<I", 200_000) + data[at + 4 :])


TEXT = struct.pack("<Q", 20) + b"general.architecture"
NAME = struct.pack("<Q", 1) + b"a"
BOMBS = [
    ("plain", json_keys("config.json", **keys))
    for keys in (
        {"num_hidden_layers": 200_000}, {"num_hidden_layers": 10**12}, {"vocab_size": 10**10},
        {"hidden_size": 10**8}, {"intermediate_size": 10**9}, {"num_labels": 10**8},
        {"head_dim": 10**8}, {"num_hidden_layers": 5_000},
    )
] + [
    ("plain", header(b"", 1 << 62)),
    ("plain", header(b"{", 1 << 33, 1 << 34)),
    ("plain", header(b'{"a":' * 200_000)),
    ("plain", header(json.dumps({"a": {"dtype": "F32", "shape": [1 << 62] * 9, "data_offsets":
                                       [0, 4]}}).encode(), size=9999)),
    ("gguf", gguf_file(_gguf(1 << 60, 0))),
    ("gguf", gguf_file(_gguf(0, 1 << 60))),
    ("gguf", gguf_file(_gguf(0, 1, TEXT + struct.pack("<IQ", 8, 1 << 62)))),
    ("gguf", gguf_file(_gguf(0, 1, NAME + struct.pack("<IIQ", 9, 4, 1 << 61)))),
    ("gguf", gguf_file(_gguf(0, 1, NAME + struct.pack("<IIQ", 9, 8, 1 << 40)))),
    ("gguf", gguf_file(_gguf(1, 0, NAME + struct.pack("<I", 1 << 31) + bytes(64)))),
    ("gguf", gguf_layers),
]  # fmt: skip


@attack("bombs in configurations and headers", tries=len(BOMBS), prepare=copies(BOMBS))
def bombs(trial: Trial) -> str | None:
    return fault(trial.prepared[trial.number], may_load=False)


SHAPES = ({"layers": 10**6}, {"layers": 10**9}, {"hidden_size": 4 << 40}, {"vocab_size": 10**17})


@attack("a dry run of a model beyond any", tries=len(SHAPES))
def dry_runs(trial: Trial) -> str | None:
    ((key, value),) = SHAPES[trial.number % len(SHAPES)].items()
    path = trial.folder / "run.toml"
    path.write_text(
        f'out = "{trial.folder}/run"\n[corpus]\nfolder = "{trial.folder}/corpus"\n'
        f'domains = ["x"]\ntokenizer = "bytes"\n[model]\n{key} = {value}\n[train]\ntokens = 16384\n'
    )
    words = [sys.executable, *COMMAND, "train", str(path), "--dry-run"]
    limited = ["bash", "-c", f'ulimit -v {MEMORY >> 10}; exec "$@"', "_", *words]
    try:
        done = subprocess.run(limited, capture_output=True, text=True, timeout=45)
    except subprocess.TimeoutExpired:
        return f"model.{key}={value}: still busy after 45 s"
    lines = done.stderr.strip().splitlines()
    if done.returncode != 1 or len(lines) != 1 or f"model.{key}" not in lines[0]:
        return f"model.{key}={value}: exit {done.returncode}, {lines[-1:]!r}"
    return None


# ---- damage ------------------------------------------------------------------------------------


def damage(number: int) -> tuple[str, Change]:
    """Flip bytes or cut a file short; of weights the header alone, as no checksum covers more."""
    rng = np.random.default_rng([18, number])
    names = [
        ("plain", "model.safetensors"), ("gguf", "model.gguf"), ("plain", "config.json"),
        ("plain", "tokenizer.json"), ("plain", "tokenizer_config.json"),
        ("plain", "generation_config.json"),
    ]  # fmt: skip
    kind, name = names[number % len(names)]

    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        size = len(data)
        if name == "model.safetensors":
            size = 8 + int.from_bytes(data[:8], "little")
        if name == "model.gguf":
            size = data.index(b"ffn_norm.weight")
        if rng.random() < 0.3:
            del data[int(rng.integers(0, len(data))) :]
        else:
            for _ in range(int(rng.integers(1, 4))):
                data[int(rng.integers(0, size))] ^= 1 << int(rng.integers(0, 8))
        (folder / name).write_bytes(data)

    return kind, change


DAMAGES = [damage(number) for number in range(240)]


@attack("flipped bytes and cut files of a model", tries=len(DAMAGES), prepare=copies(DAMAGES))
def damages(trial: Trial) -> str | None:
    return fault(trial.prepared[trial.number], may_load=True)


def special(name: str, kind: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        if kind == "pipe":
            os.mkfifo(folder / name)
        else:
            (folder / name).symlink_to({"device": "/dev/zero", "circle": folder / name}[kind])

    return change


SPECIAL = [
    ("plain", special(name, kind))
    for name in ("config.json", "tokenizer.json", "model.safetensors")
    for kind in ("pipe", "device", "circle")
]


@attack("pipes, devices and circles in a model folder", tries=9, prepare=copies(SPECIAL))
def specials(trial: Trial) -> str | None:
    return fault(trial.prepared[trial.number], may_load=False)


# ---- tasks and packages ------------------------------------------------------------------------

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "SciQ": ("sciq", {"question": "Who?", "distractor1": "b", "distractor2": "c",
                      "distractor3": "d", "correct_answer": "a", "support": "All is well."}),
    "PIQA": ("piqa", {"goal": "owl", "sol1": "a", "sol2": "b", "label": 0}),
    "COPA": ("copa", {"premise": "It rains.", "choice1": "a", "choice2": "b",
                      "question": "cause", "label": 0}),
}  # fmt: skip
BROKEN = ('{"goal": "', "[]", '{"nothing": 1}', "\x00")


@attack("a task that cannot be scored among others", tries=len(BROKEN), prepare=small_model)
def failing_task(trial: Trial) -> str | None:
    index = {}
    for name, (harness, row) in TASKS.items():
        file = f"{harness}.validation.jsonl"
        (trial.folder / file).write_text((json.dumps(row) + "\n") * 2)
        index[name] = {"harness": harness, "files": {"validation": file}, "rows": {"validation": 2}}
    (trial.folder / "piqa.validation.jsonl").write_text(BROKEN[trial.number % len(BROKEN)])
    table = {"format": "counterpoise tasks", "version": 1, "tasks": index}
    (trial.folder / "tasks.json").write_text(json.dumps(table))
    done = run_worker("score", str(trial.prepared / "plain"), str(trial.folder))
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return f"no report: {done.stderr[-200:]!r}"
    if found["scores"] != ["SciQ", "COPA"] or "PIQA" not in found["message"]:
        return f"scored {found['scores']}, said {found['message'][:160]!r}"
    return None


HINTS = {
    "onnx": "from counterpoise.storage.onnx import to_onnx; from counterpoise import "
    "GroupDRONeuron; to_onnx(GroupDRONeuron().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]))",
    "tokenizers": "from counterpoise.lm import train_tokenizer; "
    "train_tokenizer({'x': __file__ + '.txt'}, vocab_size=300, out='t')",
    "zstandard": "from counterpoise.lm import read_documents; next(read_documents('x.jsonl.zst'))",
    "matplotlib": "from counterpoise.lm.compare.canvas import saved_figure; "
    "saved_figure('x.svg', 1, 1, 'x').__enter__()",
    "jinja2": "from counterpoise.report.page import _template; _template()",
}


@attack("install hints that name what an index has", tries=len(HINTS))
def hints(trial: Trial) -> str | None:
    name, code = list(HINTS.items())[trial.number % len(HINTS)]
    script = trial.folder / "script.py"
    script.write_text(f"import sys; sys.modules[{name!r}] = None\n{code}\n")
    for file in ("x.jsonl.zst", "script.py.txt"):
        (trial.folder / file).write_text("text")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=trial.folder, capture_output=True, text=True, timeout=120
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return None if f"pip install {name}" in last else f"without {name}: {last[:200]!r}"


if __name__ == "__main__":
    {"make": _make, "load": _load, "score": _score}[sys.argv[1]](*sys.argv[2:])
