"""Load language models: folders of transformers, GGUF files, names on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.common.packages import TRAINER, not_installed
from counterpoise.common.text import one_line
from counterpoise.lm.model_checks.configs import (
    ADAPTER,
    CONFIG,
    CONFIGS,
    WEIGHTS,
    check_config,
    check_counts,
    check_folder,
)
from counterpoise.lm.model_checks.gguf_header import check_gguf
from counterpoise.lm.model_checks.held import Held
from counterpoise.lm.model_checks.safetensors_files import check_safetensors, shards
from counterpoise.lm.model_checks.size import check_size
from counterpoise.lm.model_checks.unattended import panics_as_errors, unattended

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
TOKENIZER = "tokenizer.json"


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

    No code comes with a model: files whose ``auto_map`` or other keys name code to run, or kernels
    to fetch, are refused, as are indices that name pickles or files elsewhere. So are quantised
    weights other than those of GGUF.

    Quantised tensors of a GGUF file are dequantised. The model then needs the memory of its
    ``dtype``, but has the numbers of the quantised one.
    """
    return load_model(spec, dtype=dtype), load_tokenizer(spec)


def load_model(spec: str | os.PathLike[str], *, dtype: Any = None) -> Any:
    """Load the model of `load_checkpoint` alone."""
    transformers = _transformers()
    source = _find(spec, weights=True)
    loading: dict[str, Any] = dict(source.options)
    if dtype is not None:
        old = int(transformers.__version__.split(".")[0]) < 5
        loading["torch_dtype" if old else "dtype"] = _dtype(dtype)
    if not source.gguf:
        loading["use_safetensors"] = True
    config = _open_config(source)
    assert source.held is not None
    check_size(source.described, config, source.held)
    with _naming(spec, "causal language model"):
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            source.name,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            **loading,
        )
    _check_weights(spec, model, found)
    return model.eval()


def load_tokenizer(spec: str | os.PathLike[str]) -> Any:
    """Load the tokenizer of `load_checkpoint` alone."""
    return _open_tokenizer(_find(spec))


def load_tokenizer_folder(folder: str | os.PathLike[str]) -> Any:
    """Load a tokenizer from a folder, which need not hold a model."""
    check_folder(Path(folder))
    return _open_tokenizer(Source(folder, os.fspath(folder), {}, Path(folder)))


def load_config(spec: str | os.PathLike[str]) -> Any:
    """Load the configuration of a model; a local folder need not hold its weights."""
    path = Path(spec)
    if (path / CONFIG).is_file():
        check_counts(check_folder(path), path / CONFIG)
        return _open_config(Source(spec, str(path), {}, path))
    return _open_config(_find(spec))


@dataclass(frozen=True)
class Source:
    """A model's files after they were checked.

    Attributes
    ----------
    spec : path or str
        As the caller named it.
    name : str
        What transformers loads: a folder, or a name on the hub.
    options : dict
        Further arguments of ``from_pretrained``.
    folder : Path
        The folder of the files, in the cache of the hub if they come from there.
    held : Held or None
        What the weight files hold, if they were asked for.
    """

    spec: Any
    name: str
    options: dict[str, str]
    folder: Path
    held: Held | None = None

    @property
    def gguf(self) -> bool:
        return "gguf_file" in self.options

    @property
    def described(self) -> Path:
        """The file that describes the model's shape."""
        return self.folder / self.options.get("gguf_file", CONFIG)


def _find(spec: Any, weights: bool = False) -> Source:
    """Find a model's files, and check all that transformers will read."""
    name, options = locate(spec)
    folder = Path(name)
    if not folder.is_dir():
        folder, options["revision"] = _fetch(spec, weights)
    config = check_folder(folder)
    held = None
    if "gguf_file" in options:
        held = check_gguf(folder / options["gguf_file"])
    else:
        held = check_safetensors(folder) if weights else None
        check_counts(config, folder / CONFIG, None if held is None else held.tensors)
    return Source(spec, name, options, folder, held)


def _fetch(name: str, weights: bool) -> tuple[Path, str]:
    """Bring a model's files from the hub to its cache; return their folder and revision."""
    from transformers.utils.hub import cached_file

    _transformers()
    revision, folder = None, None
    with _naming(name, "model"):
        for file in (*CONFIGS, ADAPTER, *(WEIGHTS if weights else ())):
            found = cached_file(
                name,
                file,
                revision=revision,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=folder is None,
            )
            if found is not None:
                folder = Path(found).parent
                revision = folder.name  # so that all that follows is of the same state
        if folder is None or revision is None:
            raise OSError("it has no configuration")
        if weights:
            if not any((folder / file).exists() for file in WEIGHTS):
                raise OSError("it has no safetensors, and pytorch_model.bin, a pickle, is not read")
            for file in shards(folder):
                cached_file(name, file, revision=revision)
    return folder, revision


def _open_config(source: Source) -> Any:
    with _naming(source.described, "configuration"):
        config = _transformers().AutoConfig.from_pretrained(
            source.name, trust_remote_code=False, **source.options
        )
        found = config.to_dict()
    check_config(found, source.described)
    check_counts(found, source.described)
    return config


def _open_tokenizer(source: Source) -> Any:
    with _naming(source.spec, "tokenizer"):
        try:
            return _transformers().AutoTokenizer.from_pretrained(
                source.name, trust_remote_code=False, **source.options
            )
        except Exception:
            _check_tokenizer_file(source.folder / TOKENIZER)
            raise


def _check_tokenizer_file(path: Path) -> None:
    """Say what is wrong with a tokenizer.json, if that is why a tokenizer does not load."""
    if path.is_file():
        from tokenizers import Tokenizer

        try:
            with panics_as_errors():
                Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the package raises nothing more precise
            raise ValueError(f"{path.name} is damaged: {one_line(error)}") from None


@contextmanager
def _naming(spec: Any, what: str) -> Iterator[None]:
    """Let transformers ask nothing, and turn its errors into one line that names the model."""
    try:
        with unattended(), panics_as_errors():
            yield
    except ImportError:
        raise
    except Exception as error:  # damaged files end in many kinds of them
        kind = FileNotFoundError if isinstance(error, OSError) else ValueError
        remedy = "check its files" if os.path.exists(spec) else "check the name and the connection"
        raise kind(
            f"{os.fspath(spec)!r}: transformers cannot load a {what} from it "
            f"({one_line(error)}); {remedy}"
        ) from error


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
        raise not_installed("models need", *TRAINER) from error
    return transformers


def locate(spec: Any) -> tuple[str, dict[str, str]]:
    """Return the arguments of ``from_pretrained``; the files of a local model must exist."""
    if not isinstance(spec, (str, os.PathLike)) or not os.fspath(spec):
        raise TypeError(f"spec must be a path or a name on the hub; got {spec!r}")
    path = Path(spec)
    if path.is_dir():
        if (path / "config.json").is_file() and any(path.glob("*.safetensors*")):
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
            raise not_installed(f"reading {str(path)!r} needs", "gguf", "accelerate") from error
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


def _dtype(dtype: Any) -> Any:
    import torch

    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"dtype must be a floating type of torch, such as 'bfloat16'; got {dtype!r}"
        )
    return found
