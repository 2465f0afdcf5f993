"""The record of a fit: its data, its options, and its risks compared with the plain average."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.assessment.classes import ClassComparison, ClassScores
from counterpoise.assessment.diagnosis.classes import ClassDiagnosis
from counterpoise.assessment.diagnosis.diagnose import Diagnosis
from counterpoise.assessment.intervals import RiskIntervals
from counterpoise.common.task_words import TaskWords, words_of
from counterpoise.common.text import amount, clipped, number, percent, text_table
from counterpoise.rows.groups import label_list
from counterpoise.solver.certificate import RegionProof

Array = np.ndarray

# Levels of the stored quantiles of each group's residuals.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Most groups that are printed; a report has all of them.
SHOWN = 30
THIS_FIT = "this fit"
# What joins the values of several columns to one label.
CROSSED = " | "


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The data of a fit; facts that rows in memory do not have are None.

    Attributes
    ----------
    rows : int, rows used
    encoded : int, features after categories became indicators
    path : str, as given
    format : {"csv", "parquet", "arrow", "npz"}
    bytes : int, size of the file or files
    digest : str, identifies the content of the files
    target, weight : str, names of columns
    group : list of str, names of the columns whose values are the groups
    overlapping : bool, whether their levels are groups side by side, not crossed
    features : list of str, columns used
    engine : {"memory", "chunked"}
    notes : list of str, remarks for the reader
    """

    rows: int
    encoded: int
    path: str | None = None
    format: str | None = None
    bytes: int | None = None
    digest: str | None = None
    target: str | None = None
    group: list[str] = field(default_factory=list)
    weight: str | None = None
    features: list[str] = field(default_factory=list)
    overlapping: bool = False
    engine: str = "memory"
    notes: list[str] = field(default_factory=list)

    def group_name(self, label: Any, *, alone: bool = False) -> str:
        """A group as it is printed; one that crosses columns names each of them.

        A group of one column has its name only where it stands ``alone``, without a heading.

        >>> DataFacts(rows=3, encoded=1, group=["sex", "town"]).group_name("f | Bern")
        'sex=f, town=Bern'
        """
        values = str(label).split(CROSSED) if len(self.group) > 1 else [str(label)]
        few = len(self.group) < (1 if alone else 2)
        if self.overlapping or few or len(values) != len(self.group):
            return str(label)
        return ", ".join(
            f"{column}={value}" for column, value in zip(self.group, values, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class AbsoluteErrors:
    """Mean absolute errors by group (NaN without rows), and over all rows, of both models."""

    plain: Array
    ours: Array
    plain_average: float
    ours_average: float


@dataclass(frozen=True, kw_only=True)
class GroupBeside:
    """The plain average with the group as a feature, on held-out rows.

    ``worst`` and ``average`` are risks or, for classes, accuracies: of the worst group, and over
    all rows.
    """

    worst: float
    average: float


@dataclass(frozen=True, kw_only=True)
class RiskComparison:
    """Risks by group of the plain average ("plain") and of the fit ("ours"), on the same rows.

    Attributes
    ----------
    how : str, which rows, in words
    held_out : bool, whether neither model was fitted to them
    plain, ours : RiskIntervals
    plain_average, ours_average : float, mean risk over all rows
    absolute : AbsoluteErrors or None, mean absolute errors of predictions of numbers
    """

    how: str
    held_out: bool
    plain: RiskIntervals
    ours: RiskIntervals
    plain_average: float
    ours_average: float
    absolute: AbsoluteErrors | None = None


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Quantiles of ``label - prediction`` by group, for the fits to all rows.

    Attributes
    ----------
    labels : array of shape (K,)
    levels : tuple of float
    plain, ours : arrays of shape (K, levels)
    """

    labels: Array
    levels: tuple[float, ...]
    plain: Array
    ours: Array


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """The record of a fit, from :func:`counterpoise.assess`; prints as a table of groups.

    The *plain average* is the same model fitted to the average over rows: least squares for a
    linear neuron, logistic regression for a classifier.

    Attributes
    ----------
    data : DataFacts
    risks, plain_risks : arrays of shape (K,)
        Risks of the fit and of the plain average on the rows of the fit, with labels as given.
    options : mapping, options of the estimator
    command : str, the command that makes the fit again; empty if there is none
    made : str, date and time (UTC, ISO 8601)
    versions : mapping package -> version
    seconds : float or None, duration of the fit
    comparison : RiskComparison or None
    residuals : Residuals or None
    diagnosis : Diagnosis, ClassDiagnosis or None
    classes : ClassComparison or None
        For a classifier, accuracies, calibration and confusion of both models by group.
    proof : RegionProof or None
        For a neuron, what is proved about the risk of coefficients near the fit.
    beside : GroupBeside or None
        The plain average with the group as a feature, for comparison.
    model : the fitted model
        A neuron, or a pipeline that ends in one. It is stored beside the record, not in it.
    """

    data: DataFacts
    risks: Array
    plain_risks: Array
    options: Mapping[str, Any]
    command: str = ""
    made: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    comparison: RiskComparison | None = None
    residuals: Residuals | None = None
    diagnosis: Diagnosis | ClassDiagnosis | None = None
    classes: ClassComparison | None = None
    proof: RegionProof | None = None
    beside: GroupBeside | None = None
    model: Any = field(default=None, repr=False, compare=False, metadata={"stored": False})

    @property
    def neuron(self) -> Any:
        """The fitted neuron, which is the model or the last step of a pipeline."""
        return self.model.steps[-1][1] if hasattr(self.model, "steps") else self.model

    @property
    def words(self) -> TaskWords:
        """The words for the loss of the model."""
        return words_of(self.neuron)

    @property
    def plain_name(self) -> str:
        """What the plain average is called; "least squares" for a linear model."""
        return self.words.plain

    @property
    def answer(self) -> str:
        """The outcome for the worst group on one line, of the plain average and of the fit."""
        several = len(self.risks) > 1
        if self.classes is not None:
            before, after = self._class_scores()
            own, others = (scores.accuracies.worst.value for scores in (before, after))
            what = "Worst group's accuracy" if several else "Accuracy"
            return f"{what}: {percent(own)} -> {percent(others)}."
        say, (before_, after_) = self.words, self._worst()
        what = f"Worst group's {say.rate}" if several else say.rate[:1].upper() + say.rate[1:]
        return (
            f"{what}: {say.figure(before_)} -> {say.figure(after_)} "
            f"({say.change(before_, after_)})."
        )

    @property
    def price(self) -> str:
        """What the fit costs on one line, by the average and the groups that get worse.

        Empty for a single group, or if nothing was compared.
        """
        found = self.comparison
        if len(self.risks) < 2 or found is None:
            return ""
        if self.classes is not None:
            before, after = self._class_scores()
            mean, own = 1.0 - before.average_error, 1.0 - after.average_error
            falls = before.accuracies.values - after.accuracies.values
            begin = f"Price: accuracy over all rows {percent(mean)} -> {percent(own)}"
            return f"{begin}; {self._losers(falls, after.labels, 0.0005, points=True)}."
        say = self.words
        plain, ours = found.plain.values, found.ours.values
        shown = [np.array([say.shown(float(risk)) for risk in side]) for side in (plain, ours)]
        with np.errstate(invalid="ignore", divide="ignore"):
            rises = shown[1] / shown[0] - 1.0
        mean, own = found.plain_average, found.ours_average
        # The choice of a cross-validated fit has its own, paired test.
        chance = (
            self.most_get_worse
            and self.helps_worst_group
            and not hasattr(self.neuron, "verdict_")
            and found.ours.worst.high >= found.plain.worst.value
        )
        beware = ", for a gain that may be chance" if chance else ""
        return (
            f"Price: {say.rate} over all rows {say.figure(mean)} -> {say.figure(own)} "
            f"({say.change(mean, own)}); {self._losers(rises, found.ours.labels, 0.005)}{beware}."
        )

    def _losers(self, rises: Array, labels: Array, least: float, *, points: bool = False) -> str:
        """Say how many groups get worse, and which one the most."""
        rises = np.nan_to_num(rises, nan=-1.0)
        worse = int(np.sum(rises > least))
        if not worse:
            return "no group gets worse"
        k = int(np.argmax(rises))
        most = f"{100 * rises[k]:.1f} points" if points else f"{rises[k]:.0%}"
        name = clipped(self.data.group_name(label_list(labels)[k], alone=True))
        verb = "gets" if worse == 1 else "get"
        return f"{worse} of {len(rises)} groups {verb} worse, {name} the most (by {most})"

    def _class_scores(self) -> tuple[ClassScores, ClassScores]:
        """The scores of the plain average and of the fit."""
        assert self.classes is not None
        plain, *others = self.classes.scores.values()
        return plain, others[-1]

    @property
    def unit(self) -> str:
        """A sentence that explains the figures of `answer` and `price`."""
        if self.classes is not None:
            rows = "held-out rows" if self.classes.held_out else "the rows of the fit"
            return f"Share of {rows} whose class is right; {self.plain_name} -> this fit."
        held_out = self.comparison is not None and self.comparison.held_out
        of = self.words.of_target(self.data.target)
        rows = "held-out rows" if held_out else "the rows of the fit"
        return f"{self.words.shown_title} on {rows}{of}; {self.plain_name} -> this fit."

    @property
    def if_known(self) -> str:
        """What the group as a feature would do, if that is better than this fit; else empty.

        It begins with the group's column: "town is known when you predict, use it: ...".
        """
        beside, found = self.beside, self.comparison
        if beside is None or found is None or getattr(self.neuron, "uses_group_", None):
            return ""
        if self.classes is not None:
            ours = self._class_scores()[1]
            own = ours.accuracies.worst.value, 1.0 - ours.average_error
            better = beside.worst >= own[0] and beside.average > own[1]
            figures = f"{percent(beside.worst)} on its worst group, {percent(beside.average)} over"
            kind = "an accuracy"
        else:
            say = self.words
            worse = beside.worst > 1.02 * found.ours.worst.value
            better = not worse and beside.average < found.ours_average
            figures = (
                f"{say.figure(beside.worst)} on its worst group, {say.figure(beside.average)} over"
            )
            kind = f"{'an' if say.rate[:1] in 'aeiou' else 'a'} {say.rate}"
        if not better:
            return ""
        column = " and ".join(self.data.group) or "the group"
        several = len(self.data.group) > 1
        known = f"{column} {'are' if several else 'is'} known when you predict, use "
        known += "them" if several else "it"
        return (
            f"{known}: {self.plain_name} with {column} as {'features' if several else 'a feature'} "
            f"has {kind} of {figures} all rows"
        )

    @property
    def most_get_worse(self) -> bool:
        """Whether more than half of the groups have a higher error than with the plain average."""
        found = self.comparison
        if found is None:
            return False
        return bool(np.mean(found.ours.values > found.plain.values * (1.0 + 1e-3)) > 0.5)

    @property
    def helps_worst_group(self) -> bool:
        """Whether the worst group's risk is no higher than that of the plain average."""
        before, after = self._worst()
        return not after > before * (1.0 + 1e-6)

    def _worst(self) -> tuple[float, float]:
        if self.comparison is not None:
            return self.comparison.plain.worst.value, self.comparison.ours.worst.value
        return float(np.nanmax(self.plain_risks)), float(np.nanmax(self.risks))

    def table(self, most: int = SHOWN) -> str:
        """Errors by group as text, the group that was hardest before first.

        Of squared errors, the roots, which are in units of the target.
        """
        if self.classes is not None:
            return self._class_table(most)
        labels, weights = label_list(self.neuron.groups_), self.neuron.group_weights_
        found, say = self.comparison, self.words
        plain = self.plain_risks if found is None else found.plain.values
        ours = self.risks if found is None else found.ours.values
        head = ["group", self.plain_name, THIS_FIT, "change", "weight"]
        if found is not None:
            head.insert(3, f"{100 * found.ours.level:g}% interval")
            head.insert(1, "rows" if self.data.weight is None else "eff. rows")
        order = np.argsort(-np.nan_to_num(plain, nan=-1.0), kind="stable")
        rows = []
        for k in order[:most]:
            name = clipped(self.data.group_name(labels[k]))
            both = float(plain[k]), float(ours[k])
            row = [name, *(amount(say.shown(risk)) for risk in both)]
            if found is not None:
                ends = (say.shown(float(bound[k])) for bound in (found.ours.low, found.ours.high))
                row.append(" .. ".join(map(amount, ends)))
                row.insert(1, f"{found.ours.sizes[k]:,.0f}")
            rows.append(
                [*row, _signed(say.shown(both[0]), say.shown(both[1])), f"{weights[k]:.3f}"]
            )
        lines = [text_table(head, rows)]
        if len(order) > most:
            lines.append(
                f"... and {len(order) - most:,} groups with a lower error of {self.plain_name}"
            )
        return "\n".join(lines)

    def _class_table(self, most: int) -> str:
        """Accuracies and log losses by group as text, the lowest accuracy before first."""
        sides = self._class_scores()
        before, after = (scores.accuracies for scores in sides)
        labels, weights = (
            label_list(after.labels),
            dict(zip(label_list(self.neuron.groups_), self.neuron.group_weights_, strict=True)),
        )
        losses = [s.log_losses for s in sides if s.log_losses is not None]
        head = ["group", "rows" if self.data.weight is None else "eff. rows", "accuracy"]
        head += [f"{100 * after.level:g}% interval"]
        head += ["log loss"] if len(losses) == 2 else []
        order = np.argsort(np.nan_to_num(before.values, nan=2.0), kind="stable")
        rows = []
        for k in order[:most]:
            row = [clipped(self.data.group_name(labels[k])), f"{after.sizes[k]:,.0f}"]
            row.append(f"{percent(before.values[k])} -> {percent(after.values[k])}")
            row.append(f"{percent(after.low[k])} .. {percent(after.high[k])}")
            if len(losses) == 2:
                row.append(" -> ".join(number(one.values[k], 3) for one in losses))
            rows.append([*row, f"{weights[labels[k]]:.3f}"])
        lines = [text_table([*head, "weight"], rows)]
        if len(order) > most:
            lines.append(f"... and {len(order) - most} groups with a higher accuracy before")
        return "\n".join(lines)

    def __str__(self) -> str:
        if self.model is None:
            return repr(self)
        lines = [self.answer, *([self.price] if self.price else [])]
        return "\n".join([*lines, "", f"{self.caption}:", "", self.table()])

    @property
    def caption(self) -> str:
        """What the table shows, and on which rows."""
        if self.classes is not None:
            how = self.classes.how
            return f"Accuracy and log loss by group on {how}, {self.plain_name} -> this fit"
        how = "the rows of the fit" if self.comparison is None else self.comparison.how
        of = self.words.of_target(self.data.target)
        return f"{self.words.shown_title} by group{of}, on {how}"

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as one HTML page, which needs no other file, and return its path.

        Parameters
        ----------
        path : path
            The file to write, or a folder, which gets a ``report.html``.
        """
        from counterpoise.report import fit_page, write_page

        return write_page(fit_page(self.model, self), Path(path).parent, path)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Store the model and this record in a folder.

        :func:`counterpoise.load` loads the model; ``counterpoise report FOLDER`` writes the page.
        """
        from counterpoise.storage.models import save

        return save(self.model, folder, self)


def _signed(before: float, after: float) -> str:
    """A relative change in percent, with its sign."""
    if not (before > 0 and np.isfinite(after)):
        return "-"
    return f"{100.0 * (after / before - 1.0):+.0f}%"
