"""GroupDRONeuron: the scikit-learn estimator."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from counterpoise.activations import Activation
from counterpoise.common.arguments import is_number
from counterpoise.dual.divergences import Divergence
from counterpoise.estimators.base import Neuron
from counterpoise.estimators.solved import Solved
from counterpoise.rows.backends import backend_of
from counterpoise.rows.frames import given
from counterpoise.solver.certificate import Region, RegionProof
from counterpoise.solver.options import FitOptions, check_rows
from counterpoise.solver.schedules import Schedule
from counterpoise.solver.solve import open_solver, running

Array = np.ndarray
# Passes over the rows that a search for regions may take, at the least.
LEAST_PASSES = 30


class GroupDRONeuron(Solved, Neuron):
    """A single neuron ``sigma(w.x + b)`` that is robust on the worst group.

    It minimises ``max_lam sum_i lam_i loss_i - nu d_f(lam, prior)`` over mixtures ``lam`` of the
    groups, where ``loss_i`` is the mean squared error of group ``i``. A primal-dual method with
    dual extrapolation, which tolerates arbitrarily corrupted labels, is followed by descent on the
    risk itself.

    Parameters
    ----------
    activation : str or Activation, default="relu"
        "identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu", or your own
        :class:`Activation` with declared ``alpha`` and ``beta``.
    divergence : {"kl", "chi2", "cvar"} or Divergence, default="kl"
        Divergence that keeps the mixture near the prior.
    nu : float >= 0, inf or "auto", default="auto"
        Strength of the divergence, in units of the loss. 0 minimises the worst group alone;
        ``inf`` the average over groups, weighted by the prior. "auto" takes a tenth of the average
        fit's risk.
    radius : float, optional
        Largest norm of ``coef_``. None means no bound.
    prior : array of shape (K,), mapping group -> weight, or "rows", optional
        The mixture to stay near; uniform over groups if None. "rows" weights groups by their
        number of rows (or total sample weight); with ``nu=inf`` this is the average over rows,
        which is least squares for the identity activation. If groups overlap, a row counts in the
        prior once for each of its groups, but once in the average of ``nu=inf``.
    reference : array of shape (K,) or mapping group -> risk, optional
        Subtracted from each group's risk before the maximum, so that groups are compared by their
        avoidable (excess) risk.
    schedule : {"adaptive", "paper"} or Schedule, default="adaptive"
        "paper" runs ``max_iter`` iterations of the paper's Algorithm 1 and nothing else: from
        zero, with its step sizes and its truncation, in a ball of the given ``radius``, without
        intercept, polish or change of coordinates. The result is its last iterate, or zero if that
        has a lower risk, as in the paper. It is far too slow for practical use. ``PaperSteps(...)``
        takes the paper's step sizes, with its constants as arguments; all other options then
        apply unless ``alone=True``. The default "adaptive" adds: measured step sizes, whitened
        features, a start at the average fit if ``nu="auto"``, the best iterate instead of the
        last, and the polish.
    polish : bool, default=True
        Whether to descend on the risk itself after Algorithm 1. Never raises the risk.
    fit_intercept : bool, default=True
    precondition : {"auto", "whiten", "scale", None}, default="auto"
        Coordinates for the solver. "auto" whitens up to 512 coefficients and scales beyond.
    truncate : float, optional
        Clip labels to ``[-truncate, truncate]`` before the fit. All fitted risks then refer to
        clipped labels.
    max_iter : int, default=1000
        Maximum number of iterations of Algorithm 1.
    tol : float, default=1e-6
        Stop when the relative change of the risk falls below this.
    certificate : {"run", "region", "theorem"}, default="run"
        What to prove about the fit. "run" takes what follows from the run itself: a duality gap
        for the identity activation, the theorem's inequality for others. "region" also bounds the
        risk of all coefficients near the fit, as :meth:`certify` does, in at most as many passes
        as the fit took; if that leads to a better fit, it is returned. "theorem" runs Algorithm 1
        until the theorem's inequality bounds a distance, given the sharpness.
    warm_start : bool, default=False
        Whether to start from the coefficients and group weights of the last fit.
    checkpoint : path, optional
        File that records the result of every pass. An interrupted fit resumes from it when
        repeated with the same rows and options, and ends with the same bits. The file is removed
        when the fit ends.
    verbose : int, default=0
        1 logs milestones (and shows a progress bar for passes over files), 2 logs every
        iteration, to the logger "counterpoise".

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    activation_ : Activation
    groups_ : array of shape (K,)
        Group labels, sorted; the order of everything below.
    group_weights_ : array of shape (K,)
        The final mixture; hard groups have large weights. NaN for the average over rows if no
        mixture of overlapping groups is that average.
    group_risks_ : array of shape (K,)
        Mean squared error of every group.
    risk_ : float
        The minimised risk.
    nu_ : float
    n_iter_ : int
        Iterations of Algorithm 1.
    n_passes_ : int
        Passes over the rows, including preparation, polish and certificate.
    status_ : str
        How the fit ended, as a sentence; also which overlapping groups lie within others.
    history_ : dict of arrays
        "risk", "worst", "step", "slack" (running), "weights" and "group_risks" (both (T, K)), one
        entry per iteration of Algorithm 1.
    certificate_ : Certificate
        What is proved about this fit; prints as a paragraph.
    diagnose_ : Diagnosis
        Whether the theory's assumptions hold for these rows, with advice.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(600, 3)), np.repeat(["a", "b", "c"], 200)
    >>> slope = {"a": 1.0, "b": 1.2, "c": 2.0}
    >>> y = np.maximum(0.0, X[:, 0] * [slope[g] for g in groups])
    >>> model = GroupDRONeuron(activation="relu", nu=0.0).fit(X, y, groups=groups)
    >>> bool(np.ptp(model.group_risks_[[0, 2]]) < 1e-3)
    True
    """

    # Options that affect a diagnosis.
    SEEN: ClassVar = ("activation", "divergence", "fit_intercept", "precondition")

    def __init__(
        self,
        activation: str | Activation = "relu",
        *,
        divergence: str | Divergence = "kl",
        nu: float | str = "auto",
        radius: float | None = None,
        prior: Array | Mapping[Any, float] | str | None = None,
        reference: Array | Mapping[Any, float] | None = None,
        schedule: str | Schedule = "adaptive",
        polish: bool = True,
        fit_intercept: bool = True,
        precondition: str | None = "auto",
        truncate: float | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        certificate: str = "run",
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.activation = activation
        self.divergence = divergence
        self.nu = nu
        self.radius = radius
        self.prior = prior
        self.reference = reference
        self.schedule = schedule
        self.polish = polish
        self.fit_intercept = fit_intercept
        self.precondition = precondition
        self.truncate = truncate
        self.max_iter = max_iter
        self.tol = tol
        self.certificate = certificate
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> GroupDRONeuron:
        """Fit the neuron.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, d)
            float32 and float64 are read without conversion; all sums are in double precision.
            ``X`` may also be a :class:`counterpoise.rows.sources.Source` of chunks (Parquet, .npy,
            an iterable), which include ``y``, ``groups`` and ``sample_weight``; a Dask array or
            data frame; a Spark data frame, of which ``y``, ``groups`` and ``sample_weight`` name
            columns; or a PyTorch tensor, which stays on its device.
        y : array of shape (n,)
        groups : array of shape (n,), or memberships of shape (n, K), optional
            A sortable label per row; None means a single group. Groups may overlap: a
            :class:`counterpoise.Memberships` or a matrix (dense, sparse or data frame) has a column
            for every group with the share of each row in it, 0 or 1 or between, and
            :func:`counterpoise.side_by_side` makes a group of every level of several columns.
        sample_weight : array of shape (n,), optional
            Weights of the rows within their group.
        """
        self._check_flags("polish", "fit_intercept", "warm_start")
        X, y, sample_weight = self._checked(X, y, sample_weight)
        self._solve(X, y, groups, sample_weight, FitOptions.of(self))
        return self

    def certify(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        radii: Sequence[float] | None = None,
    ) -> tuple[Region, ...]:
        """Prove how much better any other coefficients near the fit can be, on these rows.

        For every radius ``r``: no coefficients whose scores differ from the fit's by at most ``r``
        (root mean square over the rows of a group, averaged over groups by the prior) have a risk
        below ``lower_bound``. This rests on the rows alone, which need not be those of the fit. It
        holds for ReLU and similar activations, where the risk is not convex. For the identity
        activation, the duality gap bounds the risk of all coefficients. If the fit has a
        ``radius``, regions hold the coefficients that it admits, and one of infinite radius holds
        all of these.

        Parameters
        ----------
        X, y, groups, sample_weight :
            As in :meth:`fit`; the risk is the one that the fit minimised, with its ``nu_``.
        radii : sequence of float > 0, optional
            Radii of regions, in the units of the labels. None searches for the widest region in
            which the gap is at most 1 % of the risk, beginning at the labels' spread.

        Returns
        -------
        tuple of Region
            From the smallest to the widest, also in ``certificate_.regions``.
            ``print(model.certificate_.proof)`` says what they mean.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, groups = rng.normal(size=(600, 3)), np.repeat(["a", "b", "c"], 200)
        >>> y = np.maximum(0.0, X[:, 0]) + 0.3 * rng.normal(size=600)
        >>> model = GroupDRONeuron().fit(X, y, groups)
        >>> [region] = model.certify(X, y, groups, radii=[0.2])
        >>> bool(region.gap < 1e-3 * model.risk_)
        True
        """
        proof = self.region_proof(X, y, groups, sample_weight, radii=radii)
        if proof.missing:
            raise ValueError(f"no region can be certified: {proof.missing}")
        if not proof.regions:
            raise ValueError(
                "radii: the coefficients that radius admits cannot be covered, because nothing "
                "bounds the intercept; give finite radii, or fit with fit_intercept=False"
            )
        self.certificate_ = replace(self.certificate_, proof=proof)
        return proof.regions

    def region_proof(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        radii: Sequence[float] | None = None,
    ) -> RegionProof:
        """Return what :meth:`certify` proves, and leave the certificate as it is."""
        check_is_fitted(self)
        if radii is not None:
            radii = self._checked_radii(radii)
        if backend_of(X).is_memory:
            X, y = check_rows(self.check_width(given(X, "X")), y, "certify")
        options = FitOptions.of(self)
        solver = open_solver(X, y, groups, sample_weight, options=options, check_input=False)
        w = self.coef_ if not self.fit_intercept else np.append(self.coef_, self.intercept_)
        with running(solver):
            return solver.regions_around(w, self.nu_, radii, max(self.n_passes_, LEAST_PASSES))

    def _checked_radii(self, radii: Sequence[float]) -> list[float]:
        """Return radii of regions: positive numbers, or infinity for all that are admitted."""
        found = list(radii)
        if not found:
            raise ValueError("radii is empty; give at least one, or None for a search")
        for radius in found:
            if not (is_number(radius) and radius > 0):
                raise ValueError(
                    f"radii must be positive numbers, in the units of y; got {radius!r}"
                )
        if math.inf in found and self.radius is None and not self.activation_.is_identity:
            raise ValueError(
                "radii: inf stands for all coefficients that radius admits, but this fit has no "
                "radius; give finite radii, or fit with radius"
            )
        return [float(radius) for radius in found]

    def plain_twin(self) -> GroupDRONeuron:
        """Return the same neuron, unfitted, for the plain average over rows."""
        return plain_average(self)


# Options that a neuron shares with its plain average: the model, and the solver's settings.
NEURON = ("activation", "radius", "fit_intercept")
SHARED = (*NEURON, "precondition", "max_iter", "tol")


def plain_average(model: Neuron, shared: Sequence[str] = SHARED) -> GroupDRONeuron:
    """Return an unfitted neuron for the average over rows; least squares for the identity."""
    options = {name: getattr(model, name) for name in shared if hasattr(model, name)}
    return GroupDRONeuron(**options, nu=np.inf, prior="rows")
