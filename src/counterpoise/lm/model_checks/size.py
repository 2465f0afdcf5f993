"""Compare the model that a configuration describes with what its weight files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterpoise.common.text import one_line, short
from counterpoise.lm.model_checks.held import Held
from counterpoise.lm.model_checks.unattended import panics_as_errors, unattended

# Room for weights that files share or lack, which is reported by name once the model is loaded.
SPARE = 1 << 24
# Room for tables that are computed, such as masks: elements.
TABLES = 1 << 30


def check_size(file: Path, config: Any, held: Held) -> None:
    """Refuse a configuration of a model that is much larger than its weights.

    transformers would allocate all of it, and draw at random what the files lack.
    """
    parameters, tables = _described(file, config)
    if parameters > 2 * held.elements + SPARE or tables > 2 * held.elements + TABLES:
        raise ValueError(
            f"{str(file)!r} describes a model of {short(max(parameters, tables))} parameters, but "
            f"its weights have {short(held.elements)}; its files do not match, so save or download "
            "them again"
        )


def _described(file: Path, config: Any) -> tuple[int, int]:
    """Count parameters and elements of buffers, of a model without memory."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with unattended(), panics_as_errors(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"{str(file)!r} does not describe a causal language model of transformers "
            f"({one_line(error)}); check it, or give another model"
        ) from error
    parameters = sum(weight.numel() for weight in model.parameters())
    return parameters, sum(table.numel() for table in model.buffers())
