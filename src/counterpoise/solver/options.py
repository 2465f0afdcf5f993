"""The options of a fit, and their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from counterpoise.activations import Activation, get_activation
from counterpoise.common.arguments import by_name, is_number
from counterpoise.dual.divergences import Divergence, check_nu
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.frames import given
from counterpoise.rows.groups import label_list
from counterpoise.solver.schedules import Schedule

Array = np.ndarray

PRECONDITIONS = ("auto", "whiten", "scale")
CERTIFICATES = ("run", "region", "theorem")
PerGroup = Array | Mapping[Any, float]


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of a fit, except ``nu``; see :class:`counterpoise.GroupDRONeuron` for each.

    ``loss`` replaces the squared error of the neuron. ``ridge`` is the ``alpha`` of
    :class:`counterpoise.GroupDROClassifier`.
    """

    activation: str | Activation = "relu"
    loss: Loss | None = None
    ridge: float = 0.0
    divergence: str | Divergence = "kl"
    radius: float | None = None
    prior: PerGroup | str | None = None
    reference: PerGroup | None = None
    schedule: str | Schedule = "adaptive"
    polish: bool = True
    fit_intercept: bool = True
    precondition: str | None = "auto"
    truncate: float | None = None
    max_iter: int = 1000
    tol: float = 1e-6
    certificate: str = "run"

    @classmethod
    def of(cls, estimator: object, **changes: Any) -> FitOptions:
        """Collect the options that an estimator has as attributes, with some changed."""
        found = {**changes}
        for field in fields(cls):
            if field.name not in changes and hasattr(estimator, field.name):
                value = getattr(estimator, field.name)
                found[field.name] = bool(value) if isinstance(value, np.bool_) else value
        return cls(**found)

    def row_loss(self) -> Loss:
        """Return the loss of rows: the squared error of the neuron unless another is given."""
        return NeuronLoss(get_activation(self.activation)) if self.loss is None else self.loss

    def resolved(self, schedule: Schedule) -> FitOptions:
        """Return the options as they take effect under the schedule.

        One that runs ``alone`` has no intercept, no polish and no change of coordinates, and it
        searches a ball.
        """
        if schedule.as_printed and self.precondition == "auto":
            return replace(self, precondition=None).resolved(schedule)
        if not schedule.alone:
            return self
        if self.radius is None:
            raise ValueError(
                "schedule='paper' is Algorithm 1 as printed, which searches a ball; give its "
                "radius W as radius, or use schedule=PaperSteps() for its step sizes alone"
            )
        if self.precondition is not None:
            raise ValueError(
                f"precondition={self.precondition!r} does not go with schedule='paper', which runs "
                "in the coordinates of X; use schedule=PaperSteps() for its step sizes alone"
            )
        return replace(self, polish=False, fit_intercept=False)

    def check(self) -> None:
        """Raise ValueError for numbers out of range and unknown names."""
        for name in ("radius", "truncate"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be None or a positive finite number; got {value!r}")
        if not (is_number(self.ridge) and self.ridge >= 0 and math.isfinite(self.ridge)):
            raise ValueError(f"alpha must be a finite number >= 0; got {self.ridge!r}")
        known = isinstance(self.precondition, str) and self.precondition in PRECONDITIONS
        if self.precondition is not None and not known:
            raise ValueError(
                f"precondition={self.precondition!r} is not known; use 'auto', 'whiten', 'scale' "
                "or None"
            )
        if self.certificate not in CERTIFICATES:
            raise ValueError(
                f"certificate={self.certificate!r} is not known; use 'run' (what follows from the "
                "run itself), 'region' or 'theorem'"
            )
        whole = isinstance(self.max_iter, (int, np.integer)) and not isinstance(self.max_iter, bool)
        if not whole or self.max_iter < 1:
            raise ValueError(f"max_iter must be a positive integer; got {self.max_iter!r}")
        if not (is_number(self.tol) and self.tol >= 0 and math.isfinite(self.tol)):
            raise ValueError(f"tol must be a number >= 0; got {self.tol!r}")


def per_group(values: Any, labels: Array, name: str) -> Array | None:
    """Return an array in the order of ``labels``, from an array or a mapping label -> value."""
    if values is None:
        return None
    return by_name(values, label_list(labels), name, "group", "in the data")


def named_prior(name: str, totals: Array) -> Array:
    """Return the prior of this name; ``totals`` are the total row weights of the groups."""
    if name != "rows":
        raise ValueError(
            f"prior={name!r} is not known; use 'rows' (weights by number of rows), an array, a "
            "mapping group -> weight, or None for equal weights"
        )
    return totals / totals.sum()


def check_nu_option(nu: Any) -> None:
    """Raise ValueError unless ``nu`` is a number >= 0 or "auto"."""
    if not isinstance(nu, str):
        check_nu(nu)
    elif nu != "auto":
        raise ValueError(f"nu must be a number >= 0 or 'auto'; got {nu!r}")


def check_rows(X: Any, y: Any, asker: str = "solve") -> tuple[Any, Array]:
    """Check rows and labels, and return arrays (or CSR) of finite numbers.

    float32 stays float32. Errors name the ``asker``.
    """
    from sklearn.utils.validation import check_X_y

    return check_X_y(
        given(X, "X"), given(y, "y"), accept_sparse="csr", dtype=(np.float64, np.float32),
        y_numeric=True, estimator=asker,
    )  # fmt: skip
