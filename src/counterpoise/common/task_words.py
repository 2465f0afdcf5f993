"""The words of a task: what its loss is called, how it is shown, and what it is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from counterpoise.common.text import change, figure

# Names of losses for labels that are classes or numbers, the default one first.
CLASS_LOSSES, NUMBER_LOSSES = ("log", "squared_hinge"), ("squared", "huber", "poisson")


@dataclass(frozen=True)
class TaskWords:
    """The words for the loss of a model.

    Attributes
    ----------
    loss : str
        Its name within a sentence.
    plain : str
        What the plain average over rows is called.
    classifies : bool
        Whether the model predicts classes.
    rooted : bool
        Whether the root of a mean loss is an error in units of the target.
    rate : str
        What the answer calls a mean loss, or its root.
    """

    loss: str
    plain: str = "plain average"
    classifies: bool = False
    rooted: bool = False
    rate: str = "error"

    @property
    def title(self) -> str:
        """The name of the loss at the beginning of a sentence."""
        return self.loss[:1].upper() + self.loss[1:]

    @property
    def risk(self) -> str:
        """The heading of a column of mean losses."""
        return "risk" if self.rooted else self.loss

    @property
    def risk_title(self) -> str:
        """The same at the beginning of a sentence."""
        return self.risk[:1].upper() + self.risk[1:]

    @property
    def risks(self) -> str:
        """The plural of that."""
        return "Risks" if self.rooted else self.title

    @property
    def shown_title(self) -> str:
        """The name of what `shown` shows, at the beginning of a sentence."""
        return f"Root {self.loss}" if self.rooted else self.title

    def shown(self, risk: float) -> float:
        """A mean loss in the units of an answer."""
        if not self.rooted:
            return risk
        return math.sqrt(risk) if risk >= 0 else math.nan

    def figure(self, risk: float) -> str:
        """A mean loss in the units of an answer, as text."""
        return figure(self.shown(risk))

    def change(self, before: float, after: float) -> str:
        """A relative change in the units of an answer, in words."""
        return change(self.shown(before), self.shown(after))

    def of_target(self, target: str | None) -> str:
        """The units of an answer, to end a sentence with; nothing if it has none."""
        return f", in units of {target}" if self.rooted and target else ""

    def squared_unit(self, unit: str) -> str:
        """The units of a mean loss, to follow its name; nothing if it has none."""
        return f" in squared {unit}" if self.rooted else ""


# By the name of the loss.
WORDS = {
    "squared": TaskWords("mean squared error", "least squares", rooted=True),
    "huber": TaskWords("Huber loss", rate="Huber loss"),
    "poisson": TaskWords("Poisson loss", "Poisson regression", rate="Poisson loss"),
    "log": TaskWords("log loss", "logistic regression", classifies=True, rate="log loss"),
    "squared_hinge": TaskWords("squared hinge loss", classifies=True, rate="squared hinge loss"),
}
OTHER = TaskWords("mean loss", rate="loss")


def words_of(model: Any) -> TaskWords:
    """The words for a fitted model.

    A neuron has squared errors, and its plain average is least squares if it is linear. A model
    with another loss has its name in ``loss``, which may be an object with a ``name``.
    """
    activation = getattr(model, "activation_", None)
    loss = getattr(model, "loss", "squared")
    name = getattr(loss, "name", loss)
    found = WORDS.get("log" if name == "multinomial" else name, OTHER)
    if activation is not None and not activation.is_identity:
        return replace(found, plain=OTHER.plain)
    return found
