"""Rules by which a `Reweighter` updates weights, all built on the solver's dual step.

A rule is a small class. `advance` computes the next state from the current state and this round's
losses; `propose` computes the weights from a state. Both are pure. A rule that says in `proximal`
which step it makes gets a bound on its regret (`Reweighter.certificate`). To write your own:

>>> class Halfway(Rule):
...     '''Half of the way to the weights that exponential ascent would give.'''
...     name = "halfway"
...     def advance(self, state, losses, present, setting):
...         return state.moved(ascend(state.dual, losses, present, setting))
...     def propose(self, state, setting):
...         return 0.5 * (state.dual.weights + state.dual.previous)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from counterpoise.common.arguments import chosen, is_number
from counterpoise.dual.divergences import SimplexPoint, get_divergence
from counterpoise.dual.step import (
    DualState,
    Proximal,
    dual_step,
    extrapolate,
    proximal_of,
    proximal_weights,
    smooth,
)

Array = np.ndarray

# The paper's listing uses log(lam + LIFT), so that a vanished weight can recover.
LIFT = 1e-6
# Numbers that differ by less than this share of them are equal.
EQUAL = 1e-12
# A measured pull stays within this and its inverse, whatever the losses.
LARGEST = 1e300


@dataclass(frozen=True)
class Setting:
    """Options of one update: those of the Reweighter, and this round's step size."""

    step: float
    nu: float
    extrapolation: float
    smoothing: float
    prior: Array
    used: Array
    """Weights in use when the losses were measured."""
    errors: Array | None = None
    """Standard errors of the losses, if they are known; NaN for those that are not."""
    rounding: float = 0.0
    """Losses that differ by less are equal but for rounding."""


@dataclass(frozen=True)
class RuleState:
    """The state of the dual, and numbers per domain that a rule adds."""

    dual: DualState
    extra: Mapping[str, Array] = field(default_factory=dict)

    def moved(self, dual: DualState, **extra: Array) -> RuleState:
        return RuleState(dual, {**self.extra, **extra})


class Rule:
    """A rule by which weights follow losses.

    Attributes
    ----------
    name : str
    divergence : str
        The divergence of its objective and its steps.
    clips : bool
        Whether negative excess losses count as zero, unless ``clip`` is set.
    smooths : bool
        Whether the proposed weights are mixed with uniform weights, by ``smoothing``.
    measures : bool
        Whether the rule finds its own step and pull, so that ``step`` and ``nu`` are refused.
    """

    name: str
    divergence = "kl"
    clips = False
    smooths = False
    measures = False

    def start(self, weights: Array, prior: Array) -> RuleState:
        """Return the state before the first update."""
        return RuleState(DualState.start(weights))

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        """Return the next state; ignore entries of ``losses`` that are not ``present``."""
        raise NotImplementedError(type(self).__name__)

    def propose(self, state: RuleState, setting: Setting) -> Array:
        """Return weights that sum to one; negative weights are projected and counted."""
        return state.dual.weights

    def proximal(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> Proximal | None:
        """Return the proximal step that `advance` makes; None if it makes another one."""
        return None

    def __repr__(self) -> str:
        """Show all options; `load_state_dict` compares them."""
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"


def ascend(dual: DualState, losses: Array, present: Array, setting: Setting) -> DualState:
    """Make a step of exponential ascent: ``lam' = lam exp(step losses)``, normalised."""
    return dual_step(
        dual, losses, step=setting.step, nu=0.0, nu0=1.0, prior=setting.prior, present=present
    )


class ProximalRule(Rule):
    """A rule whose update is one proximal step; a subclass says which, in `proximal`."""

    def proximal(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> Proximal:
        raise NotImplementedError(type(self).__name__)

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        if not state.dual.weights[present].sum() > 0:
            return state
        move = self.proximal(state, losses, present, setting)
        return state.moved(state.dual.moved(move.respond(losses, present), setting.step))


class PrimalDual(ProximalRule):
    """The paper's dual update with extrapolation.

    The paper's experiments on language models do not state the extrapolation factor; the factor 1,
    `Reweighter`'s default, is that of the authors' code.
    """

    smooths = True

    def proximal(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> Proximal:
        return proximal_of(
            self.centred(state.dual, setting),
            step=setting.step,
            nu=setting.nu,
            nu0=1.0,
            prior=setting.prior,
            divergence=self.divergence,
        )

    def centred(self, dual: DualState, setting: Setting) -> DualState:
        """Return the state from which the step starts."""
        return dual

    def propose(self, state: RuleState, setting: Setting) -> Array:
        return extrapolate(state.dual, setting.extrapolation)


class PrimalDualKL(PrimalDual):
    """PD-KL: with ``nu = 0`` the paper's ``softmax(log(lam + 1e-6) + step * excess)``."""

    name = "pd-kl"

    def centred(self, dual: DualState, setting: Setting) -> DualState:
        if setting.nu > 0:
            return dual  # the prior keeps weights positive
        return replace(dual, point=SimplexPoint(dual.weights, np.log(dual.weights + LIFT)))


class PrimalDualChiSquare(PrimalDual):
    """PD-chi2: with ``nu = 0``, ``lam + step/2 * prior * excess`` projected onto the simplex.

    The projection is in the norm of the prior. A step of 0.3 for language models comes from the
    authors' code, not from the paper.
    """

    name = "pd-chi2"
    divergence = "chi2"


class Static(Rule):
    """Weights that stay at their start."""

    name = "static"

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        return state


class Temperature(Static):
    """Weights proportional to ``prior ** (1 / temperature)``.

    They lie between the prior (temperature 1) and uniform (infinity). The prior is each domain's
    share of the corpus.
    """

    name = "temperature"

    def __init__(self, temperature: float = 2.0) -> None:
        if not (is_number(temperature) and temperature > 0):
            raise ValueError(f"temperature must be a positive number; got {temperature!r}")
        self.temperature = float(temperature)

    def start(self, weights: Array, prior: Array) -> RuleState:
        centre = SimplexPoint.of(np.full(len(prior), 1.0 / len(prior)))
        logs = np.log(prior)
        if math.isinf(self.temperature):
            return RuleState(DualState.start(centre.weights))
        tempered = proximal_weights(
            logs, centre, nu=0.0, kappa=self.temperature, prior=prior, divergence="kl"
        )
        return RuleState(DualState.start(tempered.weights))


class GroupDRO(ProximalRule):
    """Online group DRO: exponential ascent on the losses.

    Its authors use a step of 0.01 at every training step.
    """

    name = "group-dro"

    def proximal(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> Proximal:
        return proximal_of(state.dual, step=setting.step, nu=0.0, nu0=1.0, prior=setting.prior)


class Sheared(GroupDRO):
    """The dynamic batch loading of Sheared LLaMA.

    It makes exponential ascent on the excess losses, clipped at zero, and keeps smoothed weights.
    Its paper clips; its code, LLM-Shearing, does not (``clip=False``).
    """

    name = "sheared"
    clips = True

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        moved = super().advance(state, losses, present, setting)
        if setting.smoothing > 0:
            kept = smooth(moved.dual.weights, setting.smoothing, present)
            return moved.moved(replace(moved.dual, point=SimplexPoint.of(kept)))
        return moved


class DoReMi(Sheared):
    """The ascent of DoReMi, at every training step.

    Its final answer is `Reweighter.average_weights`. Its authors use ``smoothing=1e-3`` and clip
    each token's excess loss before averaging. To do the same, pass such averages as ``losses``,
    without a ``reference``.
    """

    name = "doremi"


class Adaptive(ProximalRule):
    """The dual update of PD-KL with a pull and a step that are measured; nothing to tune.

    The pull towards the prior is ``nu = spread / strength``, where ``spread`` is the standard
    deviation of the excess losses over the domains. The weights' logarithms therefore respond to
    standardised losses: nats or tenths of a nat make no difference. Two parts of the spread move
    nothing: what the standard errors of the losses explain, where they are known, and what is no
    more than the *drift*, the root mean square change of the excess losses since the last update.
    While losses change by more than they differ, as in a model that begins to learn, the next
    evaluation orders the domains anew.

    The first update goes all the way to the prior, because nothing is known about the drift, and
    the first weights come from no measurement. Later ones go ``share`` of the way, in logarithms,
    which averages the responses and damps weights that swing.

    Parameters
    ----------
    strength : float, default 0.5
        Logarithm of the factor by which a domain's weight, relative to its prior, exceeds that of a
        domain with the mean excess if its own is one standard deviation higher.
    share : float in (0, 1], default 0.5
    """

    name = "adaptive"
    measures = True

    def __init__(self, strength: float = 0.5, share: float = 0.5) -> None:
        if not (is_number(strength) and 0 < strength < math.inf):
            raise ValueError(f"strength must be a positive number; got {strength!r}")
        if not (is_number(share) and 0 < share <= 1):
            raise ValueError(f"share must be a number in (0, 1]; got {share!r}")
        self.strength, self.share = float(strength), float(share)

    def start(self, weights: Array, prior: Array) -> RuleState:
        return RuleState(DualState.start(weights), {"last": np.full(len(prior), -np.inf)})

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        moved = super().advance(state, losses, present, setting)
        return moved.moved(moved.dual, last=np.where(present, losses, state.extra["last"]))

    def proximal(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> Proximal:
        errors = None if setting.errors is None else setting.errors[present]
        drift = max(self.drift(state.extra["last"], losses, present, setting), setting.rounding)
        nu = self.pull(losses[present], setting.prior[present], errors, drift)
        blind = math.isinf(nu)
        nu = 1.0 if blind else nu
        share = 1.0 if state.dual.iteration == 0 else self.share
        kappa = min(nu * ((1.0 - share) / share), LARGEST)
        return Proximal(state.dual.point, nu, kappa, setting.prior, get_divergence("kl"), blind)

    def drift(self, last: Array, losses: Array, present: Array, setting: Setting) -> float:
        """Return how much the excess losses have changed; infinite if that is unknown."""
        known = present & np.isfinite(last)
        if not known.any():
            return math.inf
        share = setting.prior[known] / setting.prior[known].sum()
        with np.errstate(over="ignore"):
            change = np.minimum(np.abs(losses[known] - last[known]), LARGEST)
        size = float(change.max()) or 1.0  # so that no square overflows
        return size * math.sqrt(float(share @ (change / size) ** 2))

    def pull(
        self, losses: Array, prior: Array, errors: Array | None = None, drift: float = 0.0
    ) -> float:
        """Return ``nu`` for losses and, where they are known, their standard errors.

        It is infinite if noise and drift explain the spread. An unknown standard error counts as
        the largest known one.

        >>> rule = Adaptive(strength=0.5)
        >>> rule.pull(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
        2.0
        """
        share = prior / prior.sum()
        size = float(np.abs(losses).max()) or 1.0  # so that no square overflows
        scaled = losses / size
        variance = float(share @ (scaled - share @ scaled) ** 2)
        signal = variance - min(drift / size, 1e6) ** 2
        if errors is not None and np.isfinite(errors).any():
            noise = np.where(np.isfinite(errors), errors, np.nanmax(errors)) / size
            signal -= float(share @ np.minimum(noise, 1e6) ** 2)
        if signal <= EQUAL * variance or variance <= EQUAL**2:
            return math.inf
        nu = size * (variance / math.sqrt(signal) / self.strength)
        return min(max(nu, 1.0 / LARGEST), LARGEST)


class OnlineDataMixing(Rule):
    """ODM: Exp3 with the loss as reward.

    ``R_i <- decay R_i + (1 - decay) loss_i / p_i`` for domains with a loss; the others keep their
    rewards. ``p = (1 - K e_t) softmax(e_{t-1} R) + e_t`` with
    ``e_t = min(1/K, sqrt(log K / (K t)))``.
    """

    name = "odm"

    def __init__(self, decay: float = 0.9) -> None:
        if not (is_number(decay) and 0 <= decay < 1):
            raise ValueError(f"decay must be a number in [0, 1); got {decay!r}")
        self.decay = float(decay)

    def start(self, weights: Array, prior: Array) -> RuleState:
        return RuleState(DualState.start(weights), {"rewards": np.zeros(len(weights))})

    def advance(
        self, state: RuleState, losses: Array, present: Array, setting: Setting
    ) -> RuleState:
        dual, rewards = state.dual, state.extra["rewards"]
        K = len(rewards)
        used = np.maximum(setting.used, 1e-12)
        with np.errstate(over="ignore"):  # clipped below
            seen = self.decay * rewards + (1.0 - self.decay) * np.where(present, losses, 0.0) / used
        rewards = np.where(present, np.clip(seen, -1e300, 1e300), rewards)
        uniform = SimplexPoint.of(np.full(K, 1.0 / K))
        point = proximal_weights(
            rewards,
            uniform,
            nu=0.0,
            kappa=1.0 / self.exploration(K, dual.iteration + 1),
            prior=uniform.weights,
            divergence="kl",
        )
        return state.moved(dual.moved(point), rewards=rewards)

    def propose(self, state: RuleState, setting: Setting) -> Array:
        if state.dual.iteration == 0:
            return state.dual.weights
        K = len(state.dual.weights)
        least = self.exploration(K, state.dual.iteration + 1)
        return smooth(state.dual.weights, K * least)

    @staticmethod
    def exploration(K: int, t: int) -> float:
        """Return ``e_t``; with a single domain, 1."""
        return min(1.0 / K, math.sqrt(math.log(K) / (K * t))) if K > 1 else 1.0


NAMED: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        Adaptive,
        PrimalDualKL,
        PrimalDualChiSquare,
        Static,
        Temperature,
        Sheared,
        DoReMi,
        GroupDRO,
        OnlineDataMixing,
    )
}


def get_rule(rule: str | Rule) -> Rule:
    """Return the rule with this name, or the object itself."""
    own = ", or an object of a class derived from counterpoise.reweight.Rule"
    return chosen("rule", rule, Rule, NAMED, own)
