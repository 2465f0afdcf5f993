"""Check whether the theory's assumptions hold for the data, and give advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterpoise.activations import get_activation, identity
from counterpoise.assessment.diagnosis import assumptions as theory
from counterpoise.assessment.diagnosis import verdicts as say
from counterpoise.assessment.diagnosis.feature_laws import FeatureLaws
from counterpoise.assessment.diagnosis.floors import noise_floors
from counterpoise.assessment.diagnosis.verdicts import DOUBTFUL, HOLDS, VIOLATED, Verdict
from counterpoise.assessment.diagnosis.worth import Worth
from counterpoise.common.arguments import is_number
from counterpoise.common.text import text_table
from counterpoise.rows.backends import backend_of, has_memberships, open_engine
from counterpoise.rows.frames import given
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.sample import RowSample
from counterpoise.solver.algorithm import PrimalDualResult, spread
from counterpoise.solver.certificate import Certificate
from counterpoise.solver.options import FitOptions, check_rows
from counterpoise.solver.schedules import PaperSteps
from counterpoise.solver.setup import Setup
from counterpoise.solver.solution import Solution
from counterpoise.solver.solve import open_solver, running
from counterpoise.solver.solver import Solver

Array = np.ndarray

# Tails of the features, margin, sharpness along the fit, tails of the labels, sample size.
ASSUMPTIONS = ("tails", "margin", "sharpness", "labels", "rows")
# Size of the sample that a diagnosis draws, in numbers.
BUDGET = 1 << 22
# Maximum number of groups in the printed report.
SHOWN = 25
# The share of a group's rows that counts as its worst.
WORST_ROWS = 0.01


@dataclass(frozen=True)
class GroupDiagnosis:
    """Figures and verdicts for one group.

    The figures are in coordinates where the pooled second moment of the features is the identity
    (or in the user's own coordinates with ``precondition=None``).

    Attributes
    ----------
    label : the group
    rows : int
    B, reach : float
        Tail parameter: ``P(|u.x| >= r) <= exp(-r/B)`` for ``r >= reach``, along the directions
        checked. The paper has ``reach = 1``; other units of the features need another reach.
    gamma, zeta : float
        Margin, at the ``gamma`` that gives the largest ``c0``. The identity activation needs no
        margin; for it, ``zeta`` and the sharpness are the smallest eigenvalue of the second
        moment.
    zeta_fit : float
        Margin on the rows where the fit is active.
    c0, c1 : float
        Worst-case sharpness that the theory derives from these.
    measured_c1 : float
        Smallest ``mean (sigma(w_t.x) - sigma(w.x))^2 / ||w_t - w||^2`` over the fit's iterates, in
        the coordinates of the fit and relative to the mean square of the features there.
    noise_floor : float
        Loss of a neuron fitted to this group alone; NaN if the group is too small.
    average_loss : float
        Loss of the plain average fit; a row counts once for each group that it belongs to.
    tail_share : float
        Share of that loss in the worst hundredth of the rows; 0.085 for normal errors.
    rows_needed : float
        Number of rows that the theorem requires, with its unspecified constants set to one.
    verdicts : dict assumption -> Verdict
    """

    label: Any
    rows: int
    B: float
    reach: float
    gamma: float
    zeta: float
    zeta_fit: float
    c0: float
    c1: float
    measured_c1: float
    noise_floor: float
    average_loss: float
    tail_share: float
    rows_needed: float
    verdicts: dict[str, Verdict]


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`; prints as a report.

    ``diagnosis[label]`` is the :class:`GroupDiagnosis` of one group.

    Attributes
    ----------
    groups : list of GroupDiagnosis
    advice : list of str
        What to do, most pressing first.
    truncation, clipped : float
        The level ``M`` of the paper's label truncation, and the share of labels beyond it.
    epsilon : float
        Accuracy that ``rows_needed`` and the predicted passes refer to, in units of the loss.
    radius : float
        Norm of the fit's coefficients in the coordinates of the figures.
    paper_passes, adaptive_passes : float
        Passes after which the theory guarantees an accuracy of ``epsilon``, with the theorem's
        step sizes and with measured ones. Fits take far fewer.
    sampled : int
        Number of rows in the sample.
    worth : Worth or None
        Whether a worst-group fit pays on these rows.
    """

    groups: list[GroupDiagnosis]
    advice: list[str]
    truncation: float
    clipped: float
    epsilon: float
    radius: float
    paper_passes: float
    adaptive_passes: float
    sampled: int
    worth: Worth | None = None

    def __getitem__(self, label: Any) -> GroupDiagnosis:
        for group in self.groups:
            if group.label == label:
                return group
        raise KeyError(label)

    def status(self, assumption: str) -> str:
        """Return the worst status of an assumption over all groups."""
        if assumption not in ASSUMPTIONS:
            raise KeyError(f"{assumption!r} is not one of {', '.join(map(repr, ASSUMPTIONS))}")
        order = (HOLDS, DOUBTFUL, VIOLATED)
        return max((g.verdicts[assumption].status for g in self.groups), key=order.index)

    def __str__(self) -> str:
        return f"{self.summary()}\n\nThe theory's assumptions\n\n{self.assumptions()}"

    def summary(self) -> str:
        """The answer, its reasons, and what to do."""
        if self.worth is not None:
            return str(self.worth)
        return "\n".join(f"Advice: {sentence}" for sentence in self.advice)

    def assumptions(self) -> str:
        """The theory's assumptions by group, as a table with remarks."""
        shown = self.groups
        if len(shown) > SHOWN:  # those with the most problems, in their order
            trouble = [sum(v.status != HOLDS for v in g.verdicts.values()) for g in shown]
            keep = sorted(np.argsort(-np.array(trouble), kind="stable")[:SHOWN])
            shown = [shown[i] for i in keep]
        head = ["group", "rows", "loss", "noise", "B", "zeta", *ASSUMPTIONS]
        rows = [
            [
                str(g.label), str(g.rows), f"{g.average_loss:.3g}", f"{g.noise_floor:.3g}",
                f"{g.B:.2f}", f"{g.zeta:.2g}", *(g.verdicts[a].status for a in ASSUMPTIONS),
            ]
            for g in shown
        ]  # fmt: skip
        widths = (0, 9, 9, 9, 5, 6, *(9 for _ in ASSUMPTIONS))
        lines = [text_table(head, rows, align="<>>>>><", least=widths)]
        if len(shown) < len(self.groups):
            lines.append(f"... and {len(self.groups) - len(shown)} groups with fewer problems")
        lines.append("")
        for assumption in ASSUMPTIONS:
            troubled = [g for g in self.groups if g.verdicts[assumption].status == VIOLATED]
            troubled += [g for g in self.groups if g.verdicts[assumption].status == DOUBTFUL]
            for g in troubled[:3]:
                lines.append(f"{assumption}, {g.label}: {g.verdicts[assumption]}")
            if len(troubled) > 3:
                lines.append(f"{assumption}: and {len(troubled) - 3} more groups")
        lines.append(
            f"{self.clipped:.2%} of the labels exceed the truncation level M = "
            f"{self.truncation:.3g}."
        )
        if self.worth is not None:
            lines += [f"Advice: {sentence}" for sentence in self.advice]
        return "\n".join(lines)


def check_assumptions(
    X: Any,
    y: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    activation: Any = "relu",
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    epsilon: float | None = None,
    delta: float = 0.05,
    random_state: int = 0,
    feature_names: Sequence[str] | None = None,
) -> Diagnosis:
    """Estimate the theory's constants for every group, judge them, and give advice.

    See :func:`counterpoise.diagnose`, which also answers whether a worst-group fit pays.
    """
    options = dict(activation=activation, fit_intercept=fit_intercept, precondition=precondition)
    if not isinstance(fit_intercept, (bool, np.bool_)):
        raise ValueError(f"fit_intercept must be True or False; got {fit_intercept!r}")
    whole = isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise ValueError(f"random_state must be an integer >= 0; got {random_state!r}")
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must be a probability between 0 and 1; got {delta!r}")
    if epsilon is not None and not (is_number(epsilon) and 0 < epsilon < math.inf):
        raise ValueError(f"epsilon must be a positive number; got {epsilon!r}")
    X = given(X, "X") if backend_of(X).is_memory else X
    sample = sampled_rows(X, y, groups, sample_weight, options, int(random_state))
    count = sample.X.shape[1]
    if feature_names is not None and len(feature_names) != count:
        raise ValueError(
            f"feature_names must hold a name for each of the {count} features; got "
            f"{len(feature_names)}"
        )
    names = _feature_names(X, count) if feature_names is None else list(feature_names)
    return diagnose_sample(
        sample, options, epsilon=epsilon, delta=delta, names=names, seed=int(random_state)
    )


def _feature_names(X: Any, count: int) -> list[str] | None:
    """Return the column names of ``X``, if it has one per feature."""
    names = getattr(X, "feature_names", getattr(X, "columns", None))
    return None if names is None or len(names) != count else [str(name) for name in names]


def sampled_rows(
    X: Any, y: Any, groups: Any, weights: Any, options: dict[str, Any], seed: int,
    rows: int | None = None,
) -> RowSample:  # fmt: skip
    """Draw rows of every group; at most about so many ``rows``, if given, of rows in memory."""
    X = given(X, "X") if backend_of(X).is_memory else X
    if not backend_of(X).is_memory or has_memberships(groups, X):
        if backend_of(X).is_memory:
            X, y = check_rows(X, y, "diagnose")
        return open_engine(
            X, y, groups, weights, get_activation(options["activation"]),
            intercept=bool(options["fit_intercept"]), centred=False,
        ).sample()  # fmt: skip
    X, y = check_rows(X, y, "diagnose")
    data = GroupedData.build(X, y, groups, weights, intercept=False)
    row_weights = data.row_weights if data.row_weights.size else None
    return RowSample.draw(
        data.X, data.y, data.codes, data.labels, row_weights, seed=seed,
        budget=BUDGET if rows is None else rows * data.X.shape[1],
    )  # fmt: skip


def diagnose_sample(
    sample: RowSample,
    options: dict[str, Any],
    *,
    found: Solution | None = None,
    epsilon: float | None = None,
    delta: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Diagnose sampled rows; ``found`` is the fit to judge, or None to make one."""
    asked = FitOptions(**{**options, "schedule": "adaptive"})
    solver = open_solver(
        sample.X, sample.y, sample.codes, sample.weights, options=asked, check_input=False
    )
    K = len(sample.labels)
    with running(solver):
        found = solver.fit("auto") if found is None else found
        # Group sizes in the data, not in the sample, which caps large groups.
        drawn = np.bincount(sample.codes, minlength=K)
        totals = solver.engine.census.totals * sample.counts / drawn
        average = solver.variant(prior=totals / totals.sum()).fit(math.inf)
        floors = noise_floors(solver)
        setup = solver.set_up(found.nu)
        run = solver.run(setup, found.nu)
        activity = _activity(setup, run, found)
        scores = np.asarray(sample.X @ found.coef) + found.intercept
        laws = FeatureLaws.of(
            sample,
            intercept=solver.engine.census.intercept,
            precondition=solver.options.precondition,
            activation=solver.engine.activation,
            scores=scores,
            names=names,
            seed=seed,
        )
    middle = float(scores.mean()) if solver.engine.census.intercept else 0.0
    plan = _Plan.of(solver, setup, run, laws, found, middle, epsilon)
    needed = theory.rows_needed(laws.size, K, plan.radius, plan.epsilon, delta)
    assert isinstance(found.certificate, Certificate)
    sharpness = found.certificate.group_sharpness
    # Relative to the mean square of the features, in the coordinates of the fit.
    measured = np.full(K, np.nan)
    if sharpness is not None:
        measured = np.array(sharpness) / found.certificate.constants.mean_moment
    carried = _tail_shares(sample, solver, average)
    groups = []
    for k, label in enumerate(label_list(sample.labels)):
        law, rows = laws.groups[k], int(sample.counts[k])
        groups.append(
            GroupDiagnosis(
                label=label,
                rows=rows,
                zeta_fit=law.zeta_fit,
                **law.sharpness._asdict(),
                measured_c1=float(measured[k]),
                noise_floor=float(floors[k]),
                average_loss=float(average.losses[k]),
                tail_share=float(carried[k]),
                rows_needed=needed,
                verdicts={
                    "tails": law.tails,
                    "margin": law.margin,
                    "sharpness": say.sharpness_verdict(float(activity[k])),
                    "labels": say.label_verdict(float(carried[k]), rows),
                    "rows": say.rows_verdict(rows, laws.size, needed),
                },
            )
        )
    beyond = np.abs(sample.y) > plan.truncation
    return Diagnosis(
        groups=groups,
        advice=advise(groups, laws.size, linear=solver.engine.activation.is_identity),
        truncation=plan.truncation,
        clipped=float(np.average(beyond, weights=(sample.counts / drawn)[sample.codes])),
        epsilon=plan.epsilon,
        radius=plan.radius,
        paper_passes=plan.paper_passes,
        adaptive_passes=plan.adaptive_passes,
        sampled=sample.n_drawn,
    )


def _activity(setup: Setup, run: PrimalDualResult, found: Solution) -> Array:
    """Measure how well the neuron's outputs distinguish iterates of Algorithm 1 from the fit.

    The result is relative to a linear model: the smallest ratio in each group, on the sample; NaN
    where even linear scores do not differ.
    """
    coordinates, engine = setup.problem.coordinates, setup.engine
    w = np.append(found.coef, found.intercept) if engine.census.intercept else found.coef
    points = np.array([coordinates.to_user(v) for v, _ in run.milestones])
    said = engine.separation(points, w)
    linear = engine.variant(loss=identity()).separation(points, w)
    apart = linear > 1e-9 * max(float(linear.max(initial=0.0)), 1e-300)
    ratio = np.divide(said, linear, out=np.full(linear.shape, np.inf), where=apart)
    least = ratio.min(axis=0)
    return np.where(np.isfinite(least), least, np.nan)


class _Plan(NamedTuple):
    """Predictions of the theory for a fit of this size and accuracy."""

    epsilon: float
    radius: float
    truncation: float
    paper_passes: float
    adaptive_passes: float

    @classmethod
    def of(
        cls,
        solver: Solver,
        setup: Setup,
        run: PrimalDualResult,
        laws: FeatureLaws,
        found: Solution,
        middle: float,
        epsilon: float | None,
    ) -> _Plan:
        scale = setup.scale
        epsilon = 0.1 * scale.label_scale if epsilon is None else epsilon
        radius = laws.norm(found.coef)
        B = max(law.sharpness.B for law in laws.groups)
        c1 = min(law.sharpness.c1 for law in laws.groups)
        passes = math.inf
        if math.isfinite(B) and c1 > 0:
            # In units of the labels' spread, as in the theory.
            unit = math.sqrt(scale.label_scale)
            size, accuracy = radius / unit, epsilon / scale.label_scale
            paper = PaperSteps(epsilon=accuracy, B=B, c1=c1)
            ball = max(size, math.e * accuracy / (scale.beta * B))  # keeps the logarithm positive
            normal = scale._replace(radius=ball, nu=scale.nu / scale.label_scale)
            passes = theory.paper_passes(paper, normal, size)
        # The theory has no intercept, so the fit's output at the features' mean is added.
        truncation = scale.beta * abs(middle)
        truncation += theory.truncation_level(scale.beta, B, radius, epsilon)
        gradients = setup.working.evaluate(run.start, surrogate=True).grad_KD
        distance = float(np.linalg.norm(run.result - run.start))
        adaptive = theory.adaptive_passes(
            solver.schedule, scale, spread(gradients), epsilon / scale.mean_moment, distance
        )
        return cls(epsilon, radius, truncation, passes, adaptive)


def _tail_shares(sample: RowSample, solver: Solver, average: Solution) -> Array:
    """Return the share of each group's loss in its worst rows, under the average fit."""
    scores = sample.X @ average.coef + average.intercept
    losses = (solver.engine.activation.value(scores) - sample.y) ** 2
    if sample.weights is not None:
        losses = losses * sample.weights
    out = np.full(len(sample.labels), np.nan)
    for k in range(len(out)):
        own = np.sort(losses[sample.codes == k])[::-1]
        count = int(WORST_ROWS * len(own))
        if count >= 1:
            out[k] = float(own[:count].sum() / own.sum()) if own.sum() > 0 else 0.0
    return out


def advise(groups: list[GroupDiagnosis], size: int, *, linear: bool) -> list[str]:
    """Turn the verdicts into advice, most pressing first."""
    out = []

    def named(some: list[GroupDiagnosis]) -> str:
        names = ", ".join(str(g.label) for g in some[:4])
        return names + (f" and {len(some) - 4} more" if len(some) > 4 else "")

    def troubled(assumption: str, *statuses: str) -> list[GroupDiagnosis]:
        return [g for g in groups if g.verdicts[assumption].status in statuses]

    worst = max(groups, key=lambda g: g.average_loss)
    heavy = troubled("labels", VIOLATED) or troubled("labels", DOUBTFUL)
    heavy = [g for g in heavy if not math.isnan(g.tail_share)]
    if heavy:
        out.append(
            f"truncate labels, or raise nu: a few rows dominate the loss of {named(heavy)}, and a "
            "worst-group fit would follow them. Cross-validation tries both."
        )
    share = min(worst.noise_floor / worst.average_loss, 1.0) if worst.average_loss > 0 else 0.0
    others = [g.noise_floor for g in groups if g is not worst and g.noise_floor > 0]
    if share > 0.9 and others and worst.noise_floor > 1.5 * float(np.median(others)):
        out.append(
            f"use reference risks, or the plain average: {share:.0%} of the loss of {worst.label}, "
            "the worst group, is noise that no neuron can remove."
        )
    small = troubled("rows", VIOLATED)
    if small:
        out.append(
            f"merge groups, or raise nu: with fewer than {say.ROWS_PER_COEFFICIENT:.0f} rows for "
            f"each of the {size} coefficients in {named(small)}, which group is worst is largely "
            "chance."
        )
    far = troubled("tails", VIOLATED)
    if far:
        out.append(
            f"clip or transform features: tails in {named(far)} are heavier than the theory "
            "allows, and a few outliers can dominate a worst-group fit "
            f"({far[0].verdicts['tails'].evidence})."
        )
    silent = troubled("sharpness", VIOLATED)
    if silent and not linear:
        out.append(
            "try another activation: the neuron is inactive on nearly all rows of "
            f"{named(silent)}, so these rows cannot distinguish good coefficients from bad ones. "
            "leaky_relu and identity are always active."
        )
    if not out:
        out.append("proceed: nothing here argues against worst-group training.")
        if share > 0.9:
            out.append(f"expect little gain: {share:.0%} of the worst group's loss is noise.")
    return out
