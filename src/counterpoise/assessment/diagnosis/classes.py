"""What a linear classifier can do for every group, and advice.

The paper's assumptions are about neurons with a squared error. For a classifier, other questions
decide whether worst-group training can help: are there rows enough of every class, can any linear
score serve the group, are its classes separable, and how much of its error is noise?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_X_y

from counterpoise.assessment.diagnosis.floors import (
    MOST_FITS,
    SEPARATED,
    Alone,
    fit_alone,
    free_coefficients,
)
from counterpoise.assessment.diagnosis.neighbours import AlikeRows, alike_rows
from counterpoise.assessment.diagnosis.separation import separates
from counterpoise.assessment.diagnosis.verdicts import (
    DOUBTFUL,
    HOLDS,
    ROWS_PER_COEFFICIENT,
    VIOLATED,
    Verdict,
)
from counterpoise.assessment.diagnosis.worth import Worth
from counterpoise.assessment.measures import ErrorRate
from counterpoise.common.text import clipped, listed, number, percent, text_table
from counterpoise.losses import LogLoss, Loss, Multinomial, NeuronLoss
from counterpoise.rows.backends import backend_of, has_memberships, open_engine
from counterpoise.rows.classes import encode_classes
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.frames import given
from counterpoise.rows.groups import GroupedData, label_list
from counterpoise.rows.sample import RowSample
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running

Array = np.ndarray

CHECKS = ("rows", "classes", "linear", "separable", "noise")
# Size of the sample that a diagnosis draws, in numbers.
BUDGET = 1 << 22
# Maximum number of groups in the printed report.
SHOWN = 25
# Gains over the class shares (of the loss) below which no linear score serves a group.
NO_GAIN, LITTLE_GAIN = 0.02, 0.10
# A group whose own fit misclassifies a larger share than this is not separable.
NEARLY = 0.05
# Bayes errors that count as noisy labels.
NOISY = (0.1, 0.25)


@dataclass(frozen=True)
class GroupClassDiagnosis:
    """Figures and verdicts for one group.

    Attributes
    ----------
    label : the group
    rows : int
    class_counts : array of shape (C,)
        Rows of every class, in the sample.
    base_loss, base_error : float
        Of always predicting the group's own class shares, and its most frequent class.
    average_loss, average_error : float
        Of the plain average over all rows.
    own_loss, own_error : float
        Of a classifier fitted to this group alone; the loss is corrected for optimism (Akaike's
        ``p / n``). NaN if it was not fitted.
    separable : bool
        Whether some linear score separates two or more classes exactly (a linear program decides,
        or the group's own fit if there are too many rows).
    alike : AlikeRows
        Floors of the error of any classifier, from rows with equal or similar features.
    verdicts : dict check -> Verdict
    """

    label: Any
    rows: int
    class_counts: Array
    base_loss: float
    base_error: float
    average_loss: float
    average_error: float
    own_loss: float
    own_error: float
    separable: bool
    alike: AlikeRows
    verdicts: dict[str, Verdict]

    @property
    def noise_floor(self) -> float:
        """The loss that a classifier fitted to this group alone would leave."""
        return self.own_loss


@dataclass(frozen=True)
class ClassDiagnosis:
    """The result of :func:`diagnose_classes`; prints as a report.

    ``diagnosis[label]`` is the :class:`GroupClassDiagnosis` of one group.

    Attributes
    ----------
    groups : list of GroupClassDiagnosis
    advice : list of str
        What to do, most pressing first.
    classes : array of shape (C,)
    loss : str
        Name of the loss of the figures.
    sampled : int
        Number of rows in the sample.
    worth : Worth or None
        Whether a worst-group fit pays on these rows.
    """

    groups: list[GroupClassDiagnosis]
    advice: list[str]
    classes: Array
    loss: str
    sampled: int
    worth: Worth | None = None

    def __getitem__(self, label: Any) -> GroupClassDiagnosis:
        for group in self.groups:
            if group.label == label:
                return group
        raise KeyError(label)

    def status(self, check: str) -> str:
        """Return the worst status of a check over all groups."""
        if check not in CHECKS:
            raise KeyError(f"{check!r} is not one of {', '.join(map(repr, CHECKS))}")
        order = (HOLDS, DOUBTFUL, VIOLATED)
        return max((g.verdicts[check].status for g in self.groups), key=order.index)

    @property
    def floors(self) -> dict[Any, float]:
        """Losses of the groups' own fits, for ``reference``; groups without one are left out."""
        return {g.label: g.own_loss for g in self.groups if math.isfinite(g.own_loss)}

    def __str__(self) -> str:
        return f"{self.summary()}\n\nGroup by group\n\n{self.checks()}"

    def summary(self) -> str:
        """The answer, its reasons, and what to do."""
        if self.worth is not None:
            return str(self.worth)
        return "\n".join(f"Advice: {sentence}" for sentence in self.advice)

    def checks(self) -> str:
        """The checks by group, as a table with remarks."""
        shown = self.groups
        if len(shown) > SHOWN:  # those with the most problems, in their order
            trouble = [sum(v.status != HOLDS for v in g.verdicts.values()) for g in shown]
            shown = [
                shown[i] for i in sorted(np.argsort(-np.array(trouble), kind="stable")[:SHOWN])
            ]
        head = ["group", "rows", "rarest", "shares", "average", "own fit", "error", "own", *CHECKS]
        rows = [
            [
                clipped(str(g.label)), str(g.rows), str(int(g.class_counts.min())),
                *(number(x, 3) for x in (g.base_loss, g.average_loss, g.own_loss)),
                percent(g.average_error), percent(g.own_error),
                *(g.verdicts[check].status for check in CHECKS),
            ]
            for g in shown
        ]  # fmt: skip
        lines = [text_table(head, rows, align="<>>>>>>><")]
        if len(shown) < len(self.groups):
            lines.append(f"... and {len(self.groups) - len(shown)} groups with fewer problems")
        lines.append("")
        for check in CHECKS:
            troubled = [g for g in self.groups if g.verdicts[check].status == VIOLATED]
            troubled += [g for g in self.groups if g.verdicts[check].status == DOUBTFUL]
            lines += [f"{check}, {g.label}: {g.verdicts[check]}" for g in troubled[:3]]
            if len(troubled) > 3:
                lines.append(f"{check}: and {len(troubled) - 3} more groups")
        if self.worth is not None:
            lines += [f"Advice: {sentence}" for sentence in self.advice]
        return "\n".join(lines).rstrip()


def check_classes(
    X: Any,
    y: Any,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    loss: Loss | None = None,
    alpha: float = 1e-8,
    fit_intercept: bool = True,
    precondition: str | None = "auto",
    random_state: int = 0,
) -> ClassDiagnosis:
    """Judge for every group what a linear classifier can do, and give advice.

    See :func:`counterpoise.diagnose_classes`, which also answers whether a worst-group fit pays.
    """
    sample, classes, loss = class_sample(
        X, y, groups, sample_weight, loss=loss, random_state=random_state
    )
    options = dict(loss=loss, ridge=alpha, fit_intercept=fit_intercept, precondition=precondition)
    return diagnose_class_sample(sample, classes, options)


def class_sample(
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    *,
    loss: Loss | None = None,
    random_state: int = 0,
    rows: int | None = None,
) -> tuple[RowSample, Array, Loss]:
    """Draw rows whose labels number the classes; return them, the classes and the loss.

    At most about so many ``rows`` are drawn, if given, unless groups overlap.
    """
    if not backend_of(X).is_memory:
        raise TypeError(
            f"diagnose_classes reads arrays and data frames; got {type(X).__name__}. Fit "
            "GroupDROClassifier, whose diagnose_ uses a sample of the rows"
        )
    X, y = given(X, "X"), given(y, "y")
    classes, numbers = encode_classes(y)
    if len(classes) < 2:
        raise ValueError(f"y holds one class, {classes.tolist()!r}; a diagnosis needs two or more")
    X, numbers = check_X_y(
        X,
        numbers,
        accept_sparse="csr",
        dtype=(np.float64, np.float32),
        estimator="diagnose_classes",
    )
    if has_memberships(groups, X):
        engine = open_engine(X, numbers, groups, sample_weight, NeuronLoss(),
                             intercept=False, centred=False)  # fmt: skip
        sample = engine.sample()
    else:
        budget = BUDGET if rows is None else rows * X.shape[1]
        sample = _drawn(X, numbers, groups, sample_weight, random_state, budget)
    if loss is None:
        loss = LogLoss() if len(classes) == 2 else Multinomial(len(classes))
    return sample, classes, loss


def _drawn(X: Any, numbers: Array, groups: Any, weights: Any, seed: int, budget: int) -> RowSample:
    data = GroupedData.build(X, numbers, groups, weights, intercept=False)
    return RowSample.draw(
        data.X, data.y, data.codes, data.labels,
        data.row_weights if data.row_weights.size else None, seed=seed, budget=budget,
    )  # fmt: skip


def diagnose_class_sample(
    sample: RowSample, classes: Array, options: dict[str, Any]
) -> ClassDiagnosis:
    """Diagnose sampled rows whose labels number the ``classes``."""
    asked = FitOptions(**options)
    loss, K = asked.row_loss(), len(sample.labels)
    solver = open_solver(
        sample.X, sample.y, sample.codes, sample.weights, options=asked, check_input=False
    )
    assert isinstance(solver.engine, MemoryEngine)
    data, engine = solver.engine.data, solver.engine
    drawn = np.bincount(sample.codes, minlength=K)
    with running(solver):
        totals = engine.census.totals * sample.counts / drawn
        average = solver.variant(prior=totals / totals.sum()).end(math.inf)[0].coef
        losses = engine.evaluate(average, surrogate=False).loss_K
        fitted = set(np.argsort(-drawn, kind="stable")[:MOST_FITS].tolist())
        alone = [
            fit_alone(solver, engine.group_rows(k)) if k in fitted else Alone(math.nan, None)
            for k in range(K)
        ]
    count, scaled = free_coefficients(engine), _scaled(data)
    groups = []
    for k, label in enumerate(label_list(sample.labels)):
        part = slice(int(data.offsets[k]), int(data.offsets[k + 1]))
        weights = data.weights_of(part.start, part.stop)
        true = data.y[part].astype(np.int64)
        counts = np.bincount(true, minlength=len(classes))
        own = alone[k]
        own_error = 0.0 if own.loss == 0 else _error(loss, data, part, own.coef, weights)
        figures: dict[str, Any] = dict(
            **_of_shares(true, weights, len(classes), loss),
            average_loss=float(losses[k]),
            average_error=_error(loss, data, part, average, weights),
            own_loss=own.loss if own.loss < SEPARATED else own.loss + count / len(true),
            own_error=own_error,
            separable=_separable(scaled[part], true, own_error, len(classes), data.intercept),
            alike=alike_rows(scaled[part], true, len(classes), weights),
        )
        groups.append(
            GroupClassDiagnosis(
                label=label,
                rows=int(sample.counts[k]),
                class_counts=counts,
                verdicts=_verdicts(figures, counts, count, sample.counts[k] / drawn[k], classes),
                **figures,
            )
        )
    return ClassDiagnosis(
        groups=groups,
        advice=advise_classes(groups),
        classes=classes,
        loss=loss.name,
        sampled=sample.n_drawn,
    )


def _separable(X: Array, true: Array, error: float, n_classes: int, intercept: bool) -> bool:
    """Return whether a linear score separates the classes of a group whose own fit nearly does."""
    if not error <= NEARLY or not np.ptp(true):
        return False
    found = separates(X, true, n_classes, intercept=intercept)
    return error == 0.0 if found is None else found


def _scaled(data: GroupedData) -> Array:
    """Return the features as an array with unit variance."""
    X = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X, dtype=float)
    spread = X.std(axis=0)
    return np.asarray(X / np.where(spread > 0, spread, 1.0))


def _of_shares(true: Array, weights: Array, n_classes: int, loss: Loss) -> dict[str, float]:
    """Return loss and error of always predicting the group's class shares."""
    shares = np.bincount(true, weights, n_classes) / weights.sum()
    known = shares > 0
    if loss.name in ("log", "multinomial"):
        base = float(-(shares[known] @ np.log(shares[known])))
    else:  # the best constant score
        scores = np.linspace(-2.0, 2.0, 4001)
        mean = sum(
            share * loss.value(scores, np.full_like(scores, c)) for c, share in enumerate(shares)
        )
        base = float(np.min(mean))
    return dict(base_loss=base, base_error=float(1.0 - shares.max()))


def _error(loss: Loss, data: GroupedData, part: slice, coef: Array | None, weights: Array) -> float:
    """Return the share of a group's rows that some coefficients misclassify."""
    if coef is None:
        return math.nan
    W = coef.reshape(loss.n_scores, -1)
    scores = np.asarray(data.X[part] @ W[:, : data.n_features].T)
    if data.intercept:
        scores = scores + W[:, -1]
    z = scores[:, 0] if loss.n_scores == 1 else scores
    return float(np.average(ErrorRate(loss).amounts(z, data.y[part]), weights=weights))


def _verdicts(
    figures: dict[str, Any], counts: Array, count: int, factor: float, classes: Array
) -> dict[str, Verdict]:
    present = counts > 0
    rarest = float(counts[present].min() * factor) if present.sum() > 1 else 0.0
    return {
        "rows": _rows_verdict(rarest, count, int(present.sum())),
        "classes": _classes_verdict(present, classes),
        "linear": _linear_verdict(figures, int(present.sum())),
        "separable": _separable_verdict(figures),
        "noise": _noise_verdict(figures["alike"]),
    }


def _rows_verdict(rarest: float, count: int, present: int) -> Verdict:
    if present < 2:
        return Verdict(HOLDS, "one class; a constant score serves it")
    evidence = f"{rarest:.0f} rows of the rarest class for {count} coefficients"
    if rarest >= ROWS_PER_COEFFICIENT * count:
        return Verdict(HOLDS, evidence)
    return Verdict(DOUBTFUL if rarest >= count else VIOLATED, evidence)


def _classes_verdict(present: Array, classes: Array) -> Verdict:
    missing = [
        str(label) for label, there in zip(label_list(classes), present, strict=True) if not there
    ]
    if not missing:
        return Verdict(HOLDS, "every class has rows")
    if present.sum() == 1:
        only = label_list(classes)[int(np.argmax(present))]
        return Verdict(DOUBTFUL, f"all rows are of class {only!r}")
    return Verdict(DOUBTFUL, f"no rows of {listed(missing)}")


def _linear_verdict(figures: dict[str, Any], present: int) -> Verdict:
    base, own = figures["base_loss"], figures["own_loss"]
    if present < 2:
        return Verdict(HOLDS, "one class; a constant score serves it")
    if math.isnan(own):
        return Verdict(DOUBTFUL, "not checked: too many groups")
    gain = 1.0 - own / base if base > 0 else 0.0
    evidence = (
        f"fitted to this group alone, a linear score has a loss of {own:.3g}, compared with "
        f"{base:.3g} for the class shares alone"
    )
    if gain > LITTLE_GAIN:
        return Verdict(HOLDS, evidence)
    return Verdict(DOUBTFUL if gain > NO_GAIN else VIOLATED, evidence)


def _separable_verdict(figures: dict[str, Any]) -> Verdict:
    if not figures["separable"]:
        return Verdict(HOLDS, "no linear score separates the classes")
    return Verdict(
        DOUBTFUL,
        "a linear score separates the classes of this group, so that only the ridge keeps "
        "coefficients finite",
    )


def _noise_verdict(alike: AlikeRows) -> Verdict:
    floor = max(alike.tied, 0.0 if math.isnan(alike.bayes) else alike.bayes)
    parts = []
    if alike.tied > 0:
        parts.append(
            f"any classifier of these features errs on at least {alike.tied:.1%} of these rows, "
            "which have equal features and other labels"
        )
    if math.isfinite(alike.neighbours):
        parts.append(
            f"{alike.neighbours:.0%} of the rows have a nearest neighbour of another class, which "
            f"suggests that no classifier errs on less than {alike.bayes:.1%}, if neighbours are "
            "close"
        )
    evidence = "; ".join(parts) or "not measured: too few rows, or too many features"
    if floor < NOISY[0]:
        return Verdict(HOLDS, evidence)
    return Verdict(DOUBTFUL if floor < NOISY[1] else VIOLATED, evidence)


def advise_classes(groups: list[GroupClassDiagnosis]) -> list[str]:
    """Turn the verdicts into advice, most pressing first."""
    out = []

    def named(some: list[GroupClassDiagnosis]) -> str:
        return listed([str(g.label) for g in some])

    def troubled(check: str, *statuses: str) -> list[GroupClassDiagnosis]:
        return [g for g in groups if g.verdicts[check].status in statuses]

    worst = max(groups, key=lambda g: g.average_loss)
    hopeless = troubled("linear", VIOLATED)
    if hopeless:
        out.append(
            f"add features, or another model, for {named(hopeless)}: even fitted to the group "
            "alone, a linear score hardly beats predicting its class shares. A worst-group fit "
            "would sacrifice the others for nothing; reference risks prevent that."
        )
    share = min(worst.own_loss / worst.average_loss, 1.0) if worst.average_loss > 0 else 0.0
    others = [g.own_loss for g in groups if g is not worst and g.own_loss > 0]
    if (
        worst not in hopeless
        and share > 0.9
        and others
        and worst.own_loss > 1.5 * float(np.median(others))
    ):
        out.append(
            f"use reference risks, or the plain average: {share:.0%} of the loss of {worst.label}, "
            "the worst group, remains if the classifier is fitted to it alone."
        )
    noisy = troubled("noise", VIOLATED) or troubled("noise", DOUBTFUL)
    if noisy:
        out.append(
            f"check the labels of {named(noisy)}, or add features: rows with equal or similar "
            "features have different labels there, so no classifier of these features can be much "
            "better."
        )
    apart = troubled("separable", DOUBTFUL, VIOLATED)
    if apart:
        out.append(
            f"raise alpha: a linear score separates the classes of {named(apart)}. Only the ridge "
            "keeps coefficients finite there, and probabilities are overconfident on new rows."
        )
    small = troubled("rows", VIOLATED)
    if small:
        out.append(
            f"merge groups, or raise nu or alpha: {named(small)} have fewer rows of the rarest "
            "class than the fit has coefficients, so which group is worst is largely chance."
        )
    single = [g for g in groups if int((g.class_counts > 0).sum()) == 1]
    if single and len(single) < len(groups):
        out.append(
            f"check the groups: all rows of {named(single)} are of one class, so a constant score "
            "serves them. That is intended only if groups are crossed with the label."
        )
    if not out:
        out.append("proceed: nothing here argues against worst-group training.")
        if share > 0.9:
            out.append(
                f"expect little gain: {share:.0%} of the worst group's loss remains if the "
                "classifier is fitted to it alone."
            )
    return out
