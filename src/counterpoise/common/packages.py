"""What to say about packages that are not installed."""

from __future__ import annotations

# What the harness for downstream tasks needs, and what training with transformers needs.
TASKS = ("lm_eval", "accelerate", "datasets", "transformers", "torch")
TRAINER = ("torch", "transformers", "accelerate")
# Names to install, where they are not those to import.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "tomli_w": "tomli-w"}


def not_installed(who: str, *packages: str, error: ImportError | None = None) -> ImportError:
    """Return an error that says what needs packages, and how to install them.

    The command names the packages rather than an extra of Counterpoise, which is not on any index.
    The message ends with the text of ``error``, if given.

    >>> print(not_installed("ONNX export needs", "onnx"))
    ONNX export needs onnx: pip install onnx
    >>> print(not_installed("reports need", "jinja2", "plotly"))
    reports need jinja2 and plotly: pip install jinja2 plotly
    """
    listed = " and ".join(filter(None, [", ".join(packages[:-1]), packages[-1]]))
    why = "" if error is None else f" ({error})"
    return ImportError(f"{who} {listed}: pip install {' '.join(packages)}{why}")


def with_hint(error: ImportError) -> str:
    """Return an error's message, with the command that installs what it lacks.

    >>> with_hint(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"))
    "No module named 'torch.nn': pip install torch"
    """
    message = str(error)
    name = (error.name or "").partition(".")[0]
    known = name in ("", "counterpoise") or not isinstance(error, ModuleNotFoundError)
    if known or "install" in message:
        return message
    return f"{message}: pip install {DISTRIBUTIONS.get(name, name)}"
