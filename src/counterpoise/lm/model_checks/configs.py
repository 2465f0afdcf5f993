"""Configurations of models and tokenizers: nothing in them may bring code or absurd sizes.

transformers runs what some keys of these files name: classes in Python files beside them
(``auto_map``), kernels on the hub (``_attn_implementation``), other files to read instead. None of
that is needed for the architectures that transformers has itself, so it is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from counterpoise.storage.files import check_regular

CONFIG = "config.json"
TOKENS = "added_tokens.json"  # whose keys are tokens
# Files that AutoConfig, AutoTokenizer, AutoModelForCausalLM and GenerationConfig read.
CONFIGS = (
    CONFIG,
    "tokenizer_config.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "special_tokens_map.json",
    TOKENS,
)
ADAPTER = "adapter_config.json"
DATA = ("*.json", "*.safetensors", "*.gguf", "*.model", "*.txt", "*.jinja")
REMEDY = "copy or download it again"
LARGEST = 1 << 26  # bytes of a configuration
DEPTH = 64

MOST_LAYERS = 10_000
MOST_EXPERTS = 1 << 18  # layers times experts
MOST_LABELS = 1 << 20
LAYERS = re.compile(r"(?<!per_)(layers?|blocks|depth)$")
EXPERTS = re.compile(r"experts$")

OWN_ATTENTION = ("eager", "sdpa", "flex_attention")
OWN_EXPERTS = ("eager", "batched_mm", "grouped_mm")
FLASH = re.compile(r"flash_attention_\d")
# Arguments of timm, which is a package of vision models, and names of those models.
TIMM_ARGUMENTS = ("model_args", "backbone_kwargs", "timm_kwargs")
TIMM_NAME = re.compile(r"[\w.-]+")
TOKENIZER = re.compile(r"(?!Auto|Rag)\w+?(Tokenizer|TokenizerFast|Backend)")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def check_folder(folder: Path) -> dict[str, Any]:
    """Check the configurations in a folder; return ``config.json``, or {} if there is none."""
    for pattern in DATA:
        for path in folder.glob(pattern):
            check_regular(path, REMEDY)
    if (folder / ADAPTER).exists():
        raise ValueError(
            f"{str(folder / ADAPTER)!r} makes this folder an adapter, which may name other models "
            "and modules; merge it into its model, save that, and give its folder"
        )
    found = {}
    for name in CONFIGS:
        if (folder / name).exists():
            found[name] = read_config(folder / name)
            if name != TOKENS:
                check_config(found[name], folder / name)
    return found.get(CONFIG, {})


def read_config(path: Path) -> dict[str, Any]:
    """Read a JSON object of bounded size and depth."""
    size = check_regular(path, REMEDY)
    if size > LARGEST:
        raise ValueError(
            f"{str(path)!r} has {size:,} bytes, which is no configuration (at most {LARGEST:,}); "
            f"{REMEDY}"
        )
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        problem = "too many levels" if isinstance(error, RecursionError) else error
        raise ValueError(f"{str(path)!r} is not JSON ({problem}); {REMEDY}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{str(path)!r} holds a {type(found).__name__}, not an object; {REMEDY}")
    return found


def check_config(config: dict[str, Any], file: Path) -> None:
    """Refuse keys, at any depth, by which transformers would run or fetch code."""
    for keys, value in entries(config, file):
        why = _refused(keys[-1], value)
        if why is not None:
            raise ValueError(f"{str(file)!r}: {'.'.join(keys)}={_shown(value)} {why}")


def check_counts(config: dict[str, Any], file: Path, tensors: int | None = None) -> None:
    """Refuse numbers of layers that no model has, or that the weights cannot fill.

    transformers makes a Python object for each, so they are compared before a model is made.
    """
    layers, experts = 1, 1
    for keys, value in entries(config, file):
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        name = ".".join(keys)
        if LAYERS.search(keys[-1]):
            layers = max(layers, value)
            _bound(file, name, value, MOST_LAYERS, "layers")
            if tensors is not None and value > max(tensors, 256):
                raise ValueError(
                    f"{str(file)!r}: {name}={value:,}, but the weights are only {tensors:,} "
                    "tensors; its files do not match, so save or download them again"
                )
        elif EXPERTS.search(keys[-1]):
            experts = max(experts, value)
        elif keys[-1] == "num_labels":
            _bound(file, name, value, MOST_LABELS, "labels")
    _bound(file, "layers times experts", layers * experts, MOST_EXPERTS, "experts")


def _bound(file: Path, name: str, value: int, most: int, what: str) -> None:
    if value > most:
        raise ValueError(
            f"{str(file)!r}: {name}={_shown(value)} is beyond the {most:,} {what} that are read at "
            "most; correct it"
        )


def entries(
    value: Any, file: Path, keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values of a JSON object by their keys, those of inner objects after their own."""
    if len(keys) > DEPTH:
        raise ValueError(f"{str(file)!r} has more than {DEPTH} levels; {REMEDY}")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*keys, str(key)), inner
            yield from entries(inner, file, (*keys, str(key)))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if isinstance(inner, (dict, list)):
                yield from entries(inner, file, (*keys, str(number)))


def _refused(key: str, value: Any) -> str | None:
    """Say why a key's value is refused; None if it is not."""
    if value is None or value is False or value in ({}, [], ""):
        return None
    if key in ("auto_map", "custom_pipelines"):
        return (
            "names Python code to run, which is never done; give a model of an architecture that "
            "transformers has itself, or remove the key"
        )
    if key in ("use_kernels", "kernel_config"):
        return "asks for kernels from the hub, which are code; remove the key"
    if "attn_implementation" in key:
        return _implementation(value, OWN_ATTENTION, "attention")
    if "experts_implementation" in key:
        return _implementation(value, OWN_EXPERTS, "experts")
    if key in ("quantization_config", "compression_config"):
        return (
            "asks for quantised weights, whose packages and kernels are code; dequantise the model "
            "and save it again, or give a .gguf file"
        )
    return _vision(key, value) or _elsewhere(key, value)


def _vision(key: str, value: Any) -> str | None:
    """Refuse what timm, which makes the vision part of some models, would open or fetch."""
    if key in TIMM_ARGUMENTS:
        return (
            "holds arguments of timm, by which it may open a pickle; remove the key, or give a "
            "model without a vision part"
        )
    if key == "architecture" and not (isinstance(value, str) and TIMM_NAME.fullmatch(value)):
        return "names a model elsewhere, which timm would fetch; remove the key"
    if key in ("backbone", "use_pretrained_backbone"):
        return "names a model elsewhere, which would be fetched; remove the key"
    return None


def _elsewhere(key: str, value: Any) -> str | None:
    """Refuse names of other files and of classes that read them."""
    if key in ("configuration_files", "init_inputs"):
        return "replaces what is in this file by other files; remove the key"
    if key == "transformers_weights" and value not in WEIGHTS:
        return f"is no name for weights; use {WEIGHTS[0]!r} and remove the key"
    if key == "fast_tokenizer_files":
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and plain_name(name) for name in names):
            return "names files outside of this folder; remove the key"
    if key == "tokenizer_class" and not (isinstance(value, str) and TOKENIZER.fullmatch(value)):
        return "is no tokenizer of transformers; name one, or remove the key"
    return None


def _implementation(value: Any, own: tuple[str, ...], what: str) -> str | None:
    for name in value.values() if isinstance(value, dict) else [value]:
        if name is None or name is True or name in own:
            continue
        if what == "attention" and isinstance(name, str) and FLASH.fullmatch(name):
            if (why := _flash()) is not None:
                return why
            continue
        return (
            f"names a kernel to fetch and run; the {what} implementations that need none are "
            f"{', '.join(own)}, so name one of them or remove the key"
        )
    return None


def _flash() -> str | None:
    """Say why FlashAttention is refused; None if an installed package must provide it.

    Whichever version is named and installed, transformers may choose another from the hub, for
    which it needs the package kernels.
    """
    if find_spec("kernels") is not None:
        return (
            "may fetch a kernel from the hub, which is code; remove the key, or uninstall the "
            "package kernels"
        )
    if find_spec("flash_attn") is None and find_spec("flash_attn_interface") is None:
        return "needs flash-attn, which is not installed; install it, or remove the key"
    return None


def plain_name(name: str) -> bool:
    """Return whether a name is one of a file in the same folder."""
    return name not in ("", ".", "..") and not re.search(r"[/\\\x00]", name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
