"""Code shared by the baselines: from rows to a fit, option checks, and starting points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from counterpoise.activations import Activation
from counterpoise.estimators.base import GroupEstimator, Neuron
from counterpoise.estimators.classes import Classifier, row_loss
from counterpoise.estimators.classifier import GroupDROClassifier
from counterpoise.estimators.neuron import NEURON, GroupDRONeuron, plain_average
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.backends import backend_of
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.threads import single_threaded_blas
from counterpoise.solver import coordinates as coords
from counterpoise.solver.frame import label_scale
from counterpoise.solver.options import FitOptions
from counterpoise.solver.problem import Problem
from counterpoise.solver.ridge import Ridge
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solve import open_solver
from counterpoise.solver.solver import Solver, split_scores
from counterpoise.solver.stacked import Stacked
from counterpoise.solver.units import check_units, mean_squares

Array = np.ndarray

# The scores of a random start are about this share of the labels' standard deviation.
SMALL = 0.1
# A variance below this share of the squares it was computed from is rounding.
ROUNDING = 1e-10


class Baseline(GroupEstimator):
    """A method that is not group DRO; subclasses say how it finds a fit."""

    fit_intercept: bool
    max_iter: int
    nu_: float
    # The estimator to use where a baseline cannot serve.
    INSTEAD: ClassVar[str]

    def _check(self) -> None:
        """Raise ValueError for invalid options, before any row is read."""

    def _find(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Outcome:
        raise NotImplementedError(type(self).__name__)

    def _fit(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Self:
        """Fit checked rows whose labels are the loss's own."""
        with single_threaded_blas():
            found = self._find(X, y, groups, sample_weight)
        self._keep(X, (y, groups, sample_weight), found)
        return self

    def _options(self, **options: Any) -> FitOptions:
        """Return the options of a fit of this model."""
        return FitOptions.of(self, **options)

    def _open(self, X: Any, y: Any, groups: Any, sample_weight: Any, **options: Any) -> Solver:
        """Open the rows and check the options, as ``solve`` does."""
        asked = self._options(polish=False, **options)
        return open_solver(X, y, groups, sample_weight, options=asked, check_input=False)


class NeuronBaseline(Baseline, Neuron):
    """A baseline that is a neuron with a squared error."""

    INSTEAD = "GroupDRONeuron"

    activation: str | Activation

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the neuron; parameters as in :meth:`counterpoise.GroupDRONeuron.fit`."""
        self._check_flags("fit_intercept")
        self._check()
        X, y, sample_weight = self._checked(X, y, sample_weight)
        return self._fit(X, y, groups, sample_weight)

    def plain_twin(self) -> GroupDRONeuron:
        """The same neuron, unfitted, for the plain average over rows."""
        return plain_average(self, NEURON)  # max_iter and tol have other meanings here


class ClassifierBaseline(Classifier, Baseline):
    """A baseline that is a linear classifier."""

    INSTEAD = "GroupDROClassifier"

    alpha: float

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the classifier; parameters as in :meth:`counterpoise.GroupDROClassifier.fit`."""
        self._check_flags("fit_intercept")
        self._check()
        X, codes, classes, sample_weight = self._classes(X, y, sample_weight)
        self.loss_, self.classes_ = row_loss(self.loss, len(classes)), classes
        if isinstance(codes, Array):
            self.loss_.check_labels(codes)
        return self._fit(X, codes, groups, sample_weight)

    def _options(self, **options: Any) -> FitOptions:
        return FitOptions.of(self, loss=self.loss_, ridge=self.alpha, **options)

    def plain_twin(self) -> GroupDROClassifier:
        """The same classifier, unfitted, for the plain average over rows."""
        return GroupDROClassifier(
            self.loss, alpha=self.alpha, nu=math.inf, prior="rows",
            fit_intercept=self.fit_intercept,
        )  # fmt: skip


def outcome(engine: SumEngine, w: Array, **found: Any) -> Outcome:
    """Make the outcome for the user's coefficients ``w``, intercept last."""
    coef, intercept = split_scores(w, engine)
    return Outcome(
        coef=coef,
        intercept=intercept,
        labels=engine.census.labels,
        n_passes=engine.passes,
        **found,
    )


def standardised(
    engine: SumEngine, prior: Array, radius: float | None = None
) -> coords.Coordinates:
    """Return coordinates of standardised features, with groups weighted by ``prior``.

    Features are centred only if there is an intercept. Takes two passes. The mean and deviation
    are exact, because methods with a fixed number of steps depend on the coordinates.
    """
    d, (squares, units) = engine.n_features, mean_squares(engine, prior)
    if units is not None:
        check_units(units, "scale", radius)
    if not engine.census.intercept:
        return coords.scaled(squares, np.zeros(d), False, radius, units)
    ones = np.zeros((engine.n_groups, d + 1))
    ones[:, d] = 1.0
    mean = prior @ engine.apply_moments(ones)[:, :d]
    offset = ((mean - engine.shift) * (1.0 if units is None else units)) ** 2
    squares[:d] -= offset
    squares[:d][squares[:d] < ROUNDING * offset] = 0.0  # constant columns
    return coords.scaled(squares, mean, True, radius, units)


def standardised_ridge(
    engine: SumEngine, coordinates: coords.Coordinates, prior: Array, alpha: float
) -> Ridge | None:
    """Return the ridge of one score's standardised ``coordinates``; None if ``alpha`` is 0.

    Its scale is the features' deviation with groups weighted by ``prior``. Takes two passes if
    the coordinates have other weights.
    """
    if alpha == 0:
        return None
    d = engine.n_features
    other = coordinates
    if np.ptp(prior) > 0:
        other = standardised(engine, prior)
    scale = np.divide(1.0, other.basis[:d], out=np.zeros(d), where=other.basis[:d] > 0)
    root = np.zeros(len(coordinates.basis))
    root[:d] = scale * coordinates.basis[:d]
    return Ridge(alpha, scale, root, max(1, engine.loss.n_scores - 1))


def true_evaluate(problem: Problem, u: Array) -> GroupEval:
    """Return losses and true gradients at ``u``, with the left slope at ``u = 0``.

    At other points, almost no row is at a kink.
    """
    found = problem.evaluate(u, surrogate=False)
    if problem.has_kink and not u.any():
        assert isinstance(problem.engine, SumEngine)
        left = problem.engine.activation.left_slope(np.zeros(1))
        return GroupEval(found.loss_K, float(left[0]) * found.grad_KD)
    return found


def true_slope(loss: Loss, z: Array, y: Array) -> Array:
    """Return derivatives of the losses by the scores, from the left at a kink."""
    if isinstance(loss, NeuronLoss):
        sigma = loss.activation
        return 2.0 * (sigma.value(z) - y) * sigma.left_slope(z)
    return loss.slope(z, y)


def loss_scale(engine: SumEngine, prior: Array) -> float:
    """Return the size of losses: the labels' variance, or the mean loss at scores of zero."""
    if isinstance(engine.loss, NeuronLoss):
        return label_scale(engine, prior)
    return float(prior @ engine.evaluate(np.zeros(engine.n_coef), surrogate=False).loss_K) or 1.0


def score_scale(engine: SumEngine, prior: Array) -> float:
    """Return the size of scores: the labels' deviation, or one if they are classes."""
    if isinstance(engine.loss, NeuronLoss):
        return math.sqrt(label_scale(engine, prior))
    return 1.0


def first_point(
    start: Any, coordinates: coords.Coordinates | Stacked, n_coef: int, size: float, rng: Any
) -> Array:
    """Return the first iterate: zero, a random point, or the user's coefficients.

    The scores of a random point have about the given ``size``.
    """
    if isinstance(start, str) and start == "zero":
        return np.zeros(coordinates.size)
    if isinstance(start, str):
        if isinstance(coordinates, Stacked):
            blocks = [_random_point(coordinates.each, rng) for _ in range(coordinates.blocks)]
            u = np.concatenate(blocks)
        else:
            u = _random_point(coordinates, rng)
        norm = float(np.linalg.norm(u))
        return coordinates.project(u * (size / norm)) if norm > 0 else u
    w = np.asarray(start, dtype=float)
    if w.shape != (n_coef,):
        raise ValueError(
            f"start must hold {n_coef} coefficients for these rows (the intercept last, if any); "
            f"got shape {w.shape}"
        )
    return coordinates.project(coordinates.from_user(w))


def _random_point(coordinates: coords.Coordinates, rng: Any) -> Array:
    """Draw coefficients of standardised features, whatever the solver's coordinates."""
    d = len(coordinates.shift)
    w = rng.normal(size=d)
    if coordinates.basis.ndim == 1:
        w *= coordinates.basis[:d]
    elif coordinates.scale is not None:
        w /= coordinates.scale
    if coordinates.intercept:
        mean = coordinates.mean  # mean of the shifted features
        w = np.append(w, -w @ (coordinates.shift + (0.0 if mean is None else mean)))
    return coordinates.from_user(w)


def check_start(start: Any) -> None:
    """Check that ``start`` is a known name or an array of finite numbers."""
    if isinstance(start, str):
        if start not in ("zero", "random"):
            raise ValueError(
                f"start={start!r} is not known; use 'zero', 'random' or an array of coefficients"
            )
        return
    try:
        finite = np.isfinite(np.asarray(start, dtype=float)).all()
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(
            f"start must be 'zero', 'random' or an array of finite coefficients; got {start!r}"
        )


def check_number(name: str, value: Any, *, zero: bool = False, auto: bool = False) -> None:
    """Check for a positive finite number; ``zero`` and ``auto`` also allow 0 and "auto"."""
    if auto and isinstance(value, str) and value == "auto":
        return
    number = isinstance(value, (int, float, np.integer, np.floating))
    good = number and not isinstance(value, bool) and math.isfinite(value)
    if not (good and (value > 0 or (zero and value == 0))):
        what = "a finite number >= 0" if zero else "a positive finite number"
        raise ValueError(
            f"{name} must be {what}{' or ' + repr('auto') if auto else ''}; got {value!r}"
        )


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")


def require_memory(X: Any, what: str, remedy: str) -> None:
    """Raise ValueError if the rows are not in memory, before reading any."""
    if backend_of(X).in_place(X):
        raise ValueError(
            f"{what} needs its rows in memory; got X of type {type(X).__name__}. {remedy}"
        )


def in_memory(solver: Solver) -> MemoryEngine:
    """Return the engine of rows in memory with one group each."""
    if not isinstance(solver.engine, MemoryEngine):
        raise ValueError(
            "groups: this baseline looks at single rows and takes one label per row; got "
            "memberships of groups that overlap"
        )
    return solver.engine


Prior = Array | Mapping[Any, float] | str | None
