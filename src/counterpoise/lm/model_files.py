"""Load language models: folders of transformers, GGUF files, names on the hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def load_checkpoint(spec: str | os.PathLike[str], *, dtype: Any = None) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    spec : path or str
        A folder to which ``save_pretrained`` wrote the model and the tokenizer, a ``.gguf`` file or
        a folder with one (package ``gguf``), or a name on the Hugging Face hub.
    dtype : torch.dtype or str, optional
        For instance ``"bfloat16"``; transformers chooses by default.

    Returns
    -------
    model, tokenizer
        Both of transformers. The model is on the CPU, in evaluation mode.

    Notes
    -----
    Weights come from safetensors or GGUF. ``pytorch_model.bin`` is not read: it is a pickle,
    which may run code. Missing weights and weights of another shape raise an error.

    Quantised tensors of a GGUF file are dequantised. The model then needs the memory of its
    ``dtype``, but has the numbers of the quantised one.
    """
    return load_model(spec, dtype=dtype), load_tokenizer(spec)


def load_model(spec: str | os.PathLike[str], *, dtype: Any = None) -> Any:
    """Load the model of `load_checkpoint` alone."""
    folder, options = locate(spec)
    transformers = _transformers()
    loading: dict[str, Any] = dict(options)
    if dtype is not None:
        old = int(transformers.__version__.split(".")[0]) < 5
        loading["torch_dtype" if old else "dtype"] = _dtype(dtype)
    if "gguf_file" not in options:
        loading["use_safetensors"] = True
    from safetensors import SafetensorError

    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, **loading
        )
    except SafetensorError as error:
        raise ValueError(
            f"spec={os.fspath(spec)!r}: the safetensors are damaged ({error}); copy or download "
            "them again"
        ) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise _failed(spec, "causal language model", error) from error
    _check_weights(spec, model, found)
    return model.eval()


def load_tokenizer(spec: str | os.PathLike[str]) -> Any:
    """Load the tokenizer of `load_checkpoint` alone."""
    folder, options = locate(spec)
    try:
        return _transformers().AutoTokenizer.from_pretrained(folder, **options)
    except (OSError, ValueError) as error:
        raise _failed(spec, "tokenizer", error) from error


def _check_weights(spec: Any, model: Any, found: dict[str, Any]) -> None:
    """Make sure that the files have all weights; transformers draws missing ones at random."""
    others = {
        name: f"{tuple(got)}, not {tuple(own)}" for name, got, own in found["mismatched_keys"]
    }
    missing = set(found["missing_keys"]) - set(others)
    named = dict(model.named_parameters(remove_duplicate=False))
    loaded = {id(weight) for name, weight in named.items() if name not in missing}
    lost = sorted(name for name in missing if id(named.get(name)) not in loaded)  # not tied heads
    faults = []
    if lost:
        faults.append(f"has no weights for {lost[:5]!r}{_more(lost)}")
    if others:
        shapes = [f"{name} {shape}" for name, shape in sorted(others.items())]
        faults.append(f"has weights of other shapes: {'; '.join(shapes[:5])}{_more(shapes)}")
    if faults:
        raise ValueError(
            f"spec={os.fspath(spec)!r} {' and '.join(faults)}; its files do not match its "
            "configuration, so save or download it again"
        )


def _more(names: list[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError("models need: pip install transformers") from error
    return transformers


def locate(spec: Any) -> tuple[str, dict[str, str]]:
    """Return the arguments of ``from_pretrained``; the files of a local model must exist."""
    if not isinstance(spec, (str, os.PathLike)) or not os.fspath(spec):
        raise TypeError(f"spec must be a path or a name on the hub; got {spec!r}")
    path = Path(spec)
    if path.is_dir():
        if (path / "config.json").is_file() and any(any(path.glob(w)) for w in WEIGHTS):
            return str(path), {}
        files = sorted(path.glob("*.gguf"))
        if len(files) > 1:
            names = [file.name for file in files]
            raise ValueError(
                f"{str(path)!r} has {len(files)} GGUF files, {names[:5]!r}; give the path of one"
            )
        if not files:
            raise FileNotFoundError(
                f"{str(path)!r} has neither a config.json with safetensors nor a .gguf file; give "
                "a folder that save_pretrained wrote (pytorch_model.bin, a pickle, is not read)"
            )
        path = files[0]
    if path.is_file():
        if path.suffix != ".gguf":
            raise ValueError(
                f"{str(path)!r} is not a .gguf file; give one, or the folder of a model"
            )
        try:
            import gguf  # noqa: F401
        except ImportError as error:
            raise ImportError(f"reading {str(path)!r} needs: pip install gguf") from error
        return str(path.parent), {"gguf_file": path.name}
    if isinstance(spec, str) and is_hub_name(spec):
        return spec, {}
    raise FileNotFoundError(
        f"{str(path)!r} does not exist; give a folder that save_pretrained wrote, a .gguf file, or "
        "a name on the hub such as 'owner/name'"
    )


def is_hub_name(spec: str) -> bool:
    """Return whether this could be a model's name on the hub."""
    return HUB_NAME.fullmatch(spec) is not None and not spec.endswith(".gguf")


def _failed(spec: Any, what: str, error: Exception) -> Exception:
    kind = FileNotFoundError if isinstance(error, OSError) else ValueError
    remedy = "check its files" if os.path.exists(spec) else "check the name and the connection"
    return kind(
        f"spec={os.fspath(spec)!r}: transformers cannot load a {what} from it ({error}); {remedy}"
    )


def _dtype(dtype: Any) -> Any:
    import torch

    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"dtype must be a floating type of torch, such as 'bfloat16'; got {dtype!r}"
        )
    return found
