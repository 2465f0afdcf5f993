"""Language models to evaluate: folders of transformers, GGUF files, names on the hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*")


def load_checkpoint(spec: str | os.PathLike[str], *, dtype: Any = None) -> tuple[Any, Any]:
    """A causal language model and its tokenizer.

    Parameters
    ----------
    spec : path or str
        A folder that ``save_pretrained`` wrote, of the model and of the tokenizer; a ``.gguf`` file
        or a folder with one (package ``gguf``); or a name on the Hugging Face hub.
    dtype : torch.dtype or str, optional
        As ``"bfloat16"``; by default what transformers chooses.

    Returns
    -------
    model, tokenizer
        Of transformers; the model is in evaluation mode, on the CPU.

    Notes
    -----
    Quantised tensors of a GGUF file are dequantised: the model needs the memory of its ``dtype``,
    and its numbers are those of the quantised one.
    """
    return load_model(spec, dtype=dtype), load_tokenizer(spec)


def load_model(spec: str | os.PathLike[str], *, dtype: Any = None) -> Any:
    """The model of `load_checkpoint`, by itself."""
    folder, options = _locate(spec)
    transformers = _transformers()
    loading: dict[str, Any] = dict(options)
    if dtype is not None:
        old = int(transformers.__version__.split(".")[0]) < 5
        loading["torch_dtype" if old else "dtype"] = _dtype(dtype)
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **loading).eval()
    except (OSError, ValueError) as error:
        raise _failed(spec, "causal language model", error) from error


def load_tokenizer(spec: str | os.PathLike[str]) -> Any:
    """The tokenizer of `load_checkpoint`, by itself."""
    folder, options = _locate(spec)
    try:
        return _transformers().AutoTokenizer.from_pretrained(folder, **options)
    except (OSError, ValueError) as error:
        raise _failed(spec, "tokenizer", error) from error


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError("models need: pip install transformers") from error
    return transformers


def _locate(spec: Any) -> tuple[str, dict[str, str]]:
    """What ``from_pretrained`` is told."""
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
                f"{str(path)!r} has neither a config.json with weights nor a .gguf file; give a "
                "folder that save_pretrained wrote"
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
    if isinstance(spec, str) and HUB_NAME.fullmatch(spec) and not spec.endswith(".gguf"):
        return spec, {}
    raise FileNotFoundError(
        f"{str(path)!r}: there is no such file or folder; give a folder that save_pretrained "
        "wrote, a .gguf file, or a name on the hub as 'owner/name'"
    )


def _failed(spec: Any, what: str, error: Exception) -> Exception:
    kind = FileNotFoundError if isinstance(error, OSError) else ValueError
    where = "in this folder" if os.path.exists(spec) else "on the hub, or no connection to it"
    return kind(
        f"spec={os.fspath(spec)!r}: there is no {what} that transformers can load {where} ({error})"
    )


def _dtype(dtype: Any) -> Any:
    import torch

    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype must be a floating type of torch, as 'bfloat16'; got {dtype!r}")
    return found
