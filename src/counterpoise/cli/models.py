"""Which estimator a command fits: the options say it, and the target where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.options import Amount, OptionGroup
from counterpoise.common.task_words import CLASS_LOSSES, NUMBER_LOSSES

if TYPE_CHECKING:
    from counterpoise.tabular.layout import TableLayout

LINEAR = "identity"
# Names that the library knows, written down because importing them takes long; a test compares.
ACTIVATIONS = ("identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu")
DIVERGENCES = ("kl", "chi2", "cvar")
CLASSIFY, REGRESS = "classify", "regress"
LOSSES = {CLASSIFY: CLASS_LOSSES, REGRESS: NUMBER_LOSSES}

model_options = OptionGroup()
model_options.add(
    "--loss", type=click.Choice([name for names in LOSSES.values() for name in names]),
    help="Loss of a row; the first two are for classes, the others for numbers.  "
    "[default: log or squared]",
)  # fmt: skip
model_options.add(
    "--alpha", type=Amount(0),
    help="Strength of the ridge on standardised coefficients, for all models but neurons.",
)  # fmt: skip
model_options.add(
    "--activation", "-a", type=click.Choice(list(ACTIVATIONS)), default=LINEAR,
    show_default=True, help="Activation of a neuron for numbers; identity is a linear model.",
)  # fmt: skip
model_options.add(
    "--divergence", type=click.Choice(list(DIVERGENCES)), default="kl", show_default=True,
    help="Penalty on group weights far from the prior.",
)  # fmt: skip


# Options of cross-validation alone.
CHOOSING = ("group_known", "max_cost", "max_group_cost")

# How cross-validation judges held-out rows of classes.
scoring_option = click.option(
    "--scoring", type=click.Choice(["loss", "error", "balanced_error"]),
    help="What cross-validation compares on held-out rows of classes: the loss, the share of wrong "
    "classes, or its mean over classes.  [default: loss]",
)  # fmt: skip


@dataclass(frozen=True)
class ModelRequest:
    """The model that a command was asked for, before the table is known."""

    loss: str | None
    alpha: float | None
    activation: str
    divergence: str
    task: str | None

    @classmethod
    def of(cls, options: dict[str, Any]) -> ModelRequest:
        """Take the options of a model out of those of a command, and fill in the task they imply.

        The task stays among the options, where `TableRequest` finds it.
        """
        found = model_options.taken(options)
        task = options["task"]
        implied = cls._implied(found, task)
        options["task"] = task or implied
        return cls(**found, task=task or implied)

    @staticmethod
    def _implied(found: dict[str, Any], task: str | None) -> str | None:
        loss, curved = found["loss"], found["activation"] != LINEAR
        if curved and (loss not in (None, "squared") or found["alpha"] is not None):
            option = "--alpha" if found["alpha"] is not None else f"--loss {loss}"
            raise click.UsageError(
                f"--activation {found['activation']} makes a neuron for squared errors; leave out "
                f"{option} or --activation"
            )
        if curved and task == CLASSIFY:
            raise click.UsageError(
                f"--activation {found['activation']} is for numbers; leave it out, or use --task "
                f"{REGRESS}"
            )
        implied = REGRESS if curved else None
        if loss is not None:
            implied = next(name for name, losses in LOSSES.items() if loss in losses)
        if task is not None and implied is not None and implied != task:
            kind = "classes" if implied == CLASSIFY else "numbers"
            raise click.UsageError(
                f"--loss {loss} is for {kind}; leave it out, or use --task {implied}"
            )
        return implied

    def estimator(
        self, layout: TableLayout, *, cv: bool = False, proves: str = "run", **options: Any
    ) -> Any:
        """The estimator for the target of a table, with further options of its own.

        Options that are None are left out. ``proves`` is the certificate of a neuron unless another
        is asked for.
        """
        given = {"divergence": self.divergence, **options}
        if not cv:
            for name in CHOOSING:
                given.pop(name, None)
        if "folds" in given:
            given["cv"] = given.pop("folds")
        if given.get("scoring") and not (cv and layout.classes):
            why = "classes, and the target is a number" if cv else "cross-validation; use --cv"
            raise click.UsageError(f"--scoring is for {why}")
        certificate = given.pop("certificate", None)
        neuron = not layout.classes and self.loss in (None, "squared") and self.alpha is None
        if certificate is not None and not neuron:
            raise click.UsageError(
                "--certificate is for neurons; the duality gap of other models is always proved"
            )
        if layout.classes:
            loss = self.loss or LOSSES[CLASSIFY][0]
            self._check_classes(loss, layout)
            return self._classifier(cv, {"loss": loss, "alpha": self.alpha, **given})
        if neuron:
            given["certificate"] = certificate or proves
            return self._neuron(cv, {"activation": self.activation, **given})
        return self._regressor(cv, {"loss": self.loss or "squared", "alpha": self.alpha, **given})

    def baseline_options(self) -> dict[str, Any]:
        """The options that every classifier has, for methods to compare with."""
        return _said({"loss": self.loss, "alpha": self.alpha})

    def _check_classes(self, loss: str, layout: TableLayout) -> None:
        if loss != "squared_hinge" or len(layout.classes) == 2:
            return
        raise click.UsageError(
            f"--loss {loss} is for two classes, and {layout.target!r} has {len(layout.classes)}; "
            "use --loss log"
        )

    def _neuron(self, cv: bool, options: dict[str, Any]) -> Any:
        from counterpoise.estimators.cross_validation import GroupDRONeuronCV
        from counterpoise.estimators.neuron import GroupDRONeuron

        return (GroupDRONeuronCV if cv else GroupDRONeuron)(**_said(options))

    def _classifier(self, cv: bool, options: dict[str, Any]) -> Any:
        import counterpoise

        kind = counterpoise.GroupDROClassifierCV if cv else counterpoise.GroupDROClassifier
        if cv and (alpha := options.pop("alpha")) is not None:
            options["alphas"] = (alpha,)
        return kind(**_said(_without_truncation(options, "classes cannot be clipped")))

    def _regressor(self, cv: bool, options: dict[str, Any]) -> Any:
        import counterpoise

        if cv:
            raise click.UsageError(
                "--cv chooses among neurons and classifiers; leave out --loss and --alpha, or --cv"
            )
        why = "--loss huber is robust to outliers without it"
        return counterpoise.GroupDRORegressor(**_said(_without_truncation(options, why)))


def _without_truncation(options: dict[str, Any], why: str) -> dict[str, Any]:
    if options.pop("truncate", None) is not None:
        raise click.UsageError(f"--truncate is for squared errors, and {why}; leave it out")
    return options


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """Options without those that were not given."""
    return {name: value for name, value in options.items() if value is not None}
