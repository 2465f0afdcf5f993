"""`Reweighter`: the dual update for a model trained elsewhere.

It turns a loss per domain into weights of the domains, by the solver's own dual step
(`counterpoise.dual.step`) and one of several rules (`counterpoise.reweight.rules`). It handles
numbers only: no model, no optimiser, no torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.common.arguments import (
    check_counts,
    check_reference,
    check_version,
    check_weights,
    check_whole,
    one_each,
)
from counterpoise.dual.divergences import SimplexPoint, check_nu, get_divergence
from counterpoise.dual.step import DualState, project, smooth
from counterpoise.reweight.account import Account, Round
from counterpoise.reweight.certificate import WeightCertificate, certify
from counterpoise.reweight.checks import (
    check_bounds,
    check_domains,
    check_errors,
    check_pieces,
    check_total,
    finite,
    frozen,
    number_between,
)
from counterpoise.reweight.rules import Rule, RuleState, Setting, get_rule

Array = np.ndarray

STATE_VERSION = 3
# States of earlier versions have no account of this form; one is opened when they are read.
READABLE = (1, 2, 3)
# Excess losses that differ by less than this share of the losses are taken to be equal.
ROUNDING = 1e-12
# Domains that `repr` shows at most.
SHOWN = 6


class ReweightWarning(UserWarning):
    """A domain was left out of an update because it had no usable loss, or updates are missing."""


@dataclass(frozen=True)
class Update:
    """Input and output of an update, with one entry per domain, in order.

    ``losses`` are as given (NaN for a missing loss), ``excess`` is the input of the rule, and
    ``errors`` are standard errors, if they were given.
    """

    step: int | None
    losses: Array
    reference: Array
    excess: Array
    present: Array
    weights: Array
    errors: Array | None = None


class Reweighter:
    """Domain weights that follow the domains' losses.

    Parameters
    ----------
    domains : sequence of str or int
        Names of the domains, in the order of all arrays.
    rule : str or Rule, default "pd-kl"
        ``"pd-kl"`` and ``"pd-chi2"`` are the paper's dual update. ``"adaptive"`` is the same update
        with a pull and a step that it measures; it is the default of language-model training, where
        losses are of evaluations. ``"static"``,
        ``"temperature"``, ``"sheared"``, ``"doremi"``, ``"group-dro"`` and ``"odm"`` are rules
        from other work. To set a rule's own options, pass an object: ``Temperature(3.0)``.
    step : float or callable, default 1.0
        Size of the dual step, or a function of the number of the update (1, 2, ...). The function
        is also called for the following update.
    nu : float, default 0.0
        Strength of the pull towards the prior, in units of the loss (pd rules).
    extrapolation : float, default 1.0
        How far to extrapolate the weights along their last change (pd rules). With a callable
        ``step`` it is multiplied by ``a_t / a_{t+1}``, as in Algorithm 1. The factor 1 for language
        models comes from the authors' code; the paper does not state one.
    smoothing : float, default 1e-4
        Share of the uniform mixture in the weights (pd rules, sheared, doremi).
    prior : sequence or mapping, optional
        Weights that ``nu`` pulls towards; uniform if None. They must sum to one.
    start : sequence or mapping, optional
        The first weights; the prior if None.
    reference : sequence or mapping, optional
        Loss that each domain can be expected to reach. It is subtracted from the losses.
    clip : bool, optional
        Whether a negative excess loss counts as zero. None leaves it to the rule: True for
        sheared and doremi, False for all others.
    ema : float, optional
        Decay in [0, 1) of a running average of the excess losses, which replaces them as input of
        the rule. Use it for losses of single batches.
    floor, cap : float, sequence or mapping, optional
        Smallest and largest weight of each domain.

    Attributes
    ----------
    weights : array of shape (K,)
        The current weights, which sum to one; read-only.
    average_weights : array of shape (K,)
        Mean of the weights over all updates so far; the final answer of DoReMi.
    updates : int
        Number of updates.
    projections : int
        Number of times that extrapolated weights were negative and were projected.
    missed : dict
        Number of times that each domain had no usable loss.
    repeated : int
        Number of calls of `update` for a global step that was already counted.
    last : Update or None

    Examples
    --------
    >>> r = Reweighter(["web", "code"], extrapolation=0.0, smoothing=0.0)
    >>> r.update({"web": 2.0, "code": 3.0}).round(3).tolist()
    [0.269, 0.731]
    >>> r
    Reweighter({'web': 0.269, 'code': 0.731}, rule='pd-kl', updates=1, global_step=0)
    """

    def __init__(
        self,
        domains: Iterable[str | int],
        rule: str | Rule = "pd-kl",
        *,
        step: float | Callable[[int], float] = 1.0,
        nu: float = 0.0,
        extrapolation: float = 1.0,
        smoothing: float = 1e-4,
        prior: Any = None,
        start: Any = None,
        reference: Any = None,
        clip: bool | None = None,
        ema: float | None = None,
        floor: Any = None,
        cap: Any = None,
    ) -> None:
        self.domains = check_domains(domains)
        K = len(self.domains)
        self.rule = get_rule(rule)
        self._check_step(step(1) if callable(step) else step)
        self.step = step
        self.nu = check_nu(nu)
        if math.isinf(self.nu):
            raise ValueError("nu must be finite; for weights that never move use rule='static'")
        self.extrapolation = number_between("extrapolation", extrapolation, 0.0, 100.0)
        self.smoothing = number_between("smoothing", smoothing, 0.0, 1.0)
        names = self.domains
        self.prior = np.full(K, 1.0 / K) if prior is None else check_weights(prior, names, "prior")
        self.start = self.prior if start is None else check_weights(start, names, "start")
        self.reference = np.zeros(K) if reference is None else self._check_reference(reference)
        if clip is not None and not isinstance(clip, bool):
            raise ValueError(f"clip must be True, False or None; got {clip!r}")
        self.clip = self.rule.clips if clip is None else clip
        self.ema = None if ema is None else number_between("ema", ema, 0.0, 1.0)
        if self.ema == 1.0:
            raise ValueError("ema must be below 1; with 1 no loss would ever count")
        self._bounds = check_bounds(floor, cap, self.domains)
        if self.rule.measures:
            for name, value, usual in (
                ("step", step, 1.0), ("nu", nu, 0.0), ("extrapolation", extrapolation, 1.0),
            ):  # fmt: skip
                if value != usual:
                    raise ValueError(
                        f"{name}={value!r} has no effect on the rule {self.rule.name!r}, which "
                        "measures its step and pull; leave it out, or use rule='pd-kl'"
                    )
        self.reset()

    def reset(self) -> None:
        """Forget all losses and return to the first weights."""
        K = len(self.domains)
        self._state = self.rule.start(self.start, self.prior)
        self.weights = frozen(self._bounded(self._state.dual.weights))
        self.updates = self.projections = self.repeated = self.global_step = 0
        self.missed = dict.fromkeys(self.domains, 0)
        self._sum_of_weights = np.zeros(K)
        self._averages = np.full(K, np.nan)
        self._account = Account.open(K)
        self._told_of_start = False
        self.last: Update | None = None

    @property
    def dual(self) -> DualState:
        """``lam_t``, ``lam_{t-1}``, ``A_t`` and ``t``, before extrapolation and smoothing."""
        return self._state.dual

    @property
    def average_weights(self) -> Array:
        return self._sum_of_weights / self.updates if self.updates else self.weights

    def codes(self, names: Iterable[str | int]) -> Array:
        """Return the positions of domains by name; raise ValueError for an unknown name."""
        known = {name: i for i, name in enumerate(self.domains)}
        names = list(names)
        unknown = sorted({repr(n) for n in names if n not in known})
        if unknown:
            raise ValueError(
                f"unknown domain(s) {', '.join(unknown[:5])}; known are {list(self.domains)[:10]!r}"
            )
        return np.array([known[n] for n in names], dtype=np.int64)

    def memberships(self, names: Any) -> Array:
        """Return memberships (n, K) of examples that belong to several domains, or to none.

        ``names`` lists the domains of every example, or is a :class:`counterpoise.Memberships`.

        >>> Reweighter(["north", "women"]).memberships([["women"], ["north", "women"], []])
        array([[0., 1.],
               [1., 1.],
               [0., 0.]])
        """
        if hasattr(names, "matrix") and hasattr(names, "labels"):
            shares = np.zeros((len(names), len(self.domains)))
            shares[:, self.codes(names.labels.tolist())] = names.matrix.toarray()
            return shares
        rows = [[name] if isinstance(name, (str, int)) else list(name) for name in names]
        out = np.zeros((len(rows), len(self.domains)))
        codes = self.codes([name for row in rows for name in row])
        out[np.repeat(np.arange(len(rows)), [len(row) for row in rows]), codes] = 1.0
        return out

    def as_dict(self) -> dict[Any, float]:
        """Return the weights by name."""
        return dict(zip(self.domains, self.weights.tolist(), strict=True))

    def update(
        self,
        losses: Any,
        counts: Any = None,
        step: int | None = None,
        *,
        reference: Any = None,
        errors: Any = None,
        pieces: Any = None,
        total: float | None = None,
        absent_ok: bool = False,
    ) -> Array:
        """Update the weights with one round of losses.

        Parameters
        ----------
        losses : sequence or mapping
            Mean loss of each domain. NaN and infinite losses are left out, with a warning. Domains
            may overlap: an example then counts in the mean of each of its domains.
        counts : sequence or mapping, optional
            Tokens or examples behind each loss. A domain with none is left out, with a warning.
        step : int, optional
            Global training step. The last step counted (0 at first) makes no second update, so an
            evaluation at start-up or after a resume changes nothing. An earlier step is an error.
        reference : sequence or mapping, optional
            Reference losses for this round only, instead of the Reweighter's.
        errors : sequence or mapping, optional
            Standard errors of the losses, NaN where unknown. They tell noise from differences in
            `certificate`, and in the rule ``"adaptive"``.
        pieces : sequence or mapping, optional
            Independent pieces of text behind each standard error, if they are few: such errors are
            uncertain themselves, and the certificate allows for that. `domain_losses` knows them.
        total : float, optional
            Tokens or examples in all domains together. Counts with another sum are an error:
            something was lost or counted twice.
        absent_ok : bool, default False
            Whether domains without tokens are routine (small batches). They are then counted
            without a warning.

        Returns
        -------
        weights : array of shape (K,)
            A copy: writing to it, or sharing its memory with a tensor, changes nothing here.
        """
        loss_K = one_each(losses, self.domains, "losses")
        count_K = np.ones(len(loss_K)) if counts is None else check_counts(counts, self.domains)
        reference_K = self.reference if reference is None else self._check_reference(reference)
        error_K = None if errors is None else check_errors(errors, self.domains)
        if pieces is not None and errors is None:
            raise ValueError("pieces are those behind errors; give errors, too")
        piece_K = None if pieces is None else check_pieces(pieces, self.domains)
        if total is not None:
            check_total(count_K, total, counts)
        if step is not None:
            step = check_whole("step", step)
            if not self.counts_step(step):
                self._repeat(step)
                return self.weights.copy()

        with np.errstate(over="ignore", invalid="ignore"):
            excess_K = loss_K - reference_K
        finite, counted = np.isfinite(excess_K), count_K > 0
        present = finite & counted
        missed = self._report(~finite & counted, ~counted, absent_ok)
        sizes = np.abs(np.concatenate([loss_K[present], reference_K[present]]))
        setting = self._setting(error_K, ROUNDING * float(sizes.max(initial=0.0)))
        shown, averages = self._shown(excess_K, present)
        state, entry = self._state, None
        if present.any():
            if present.all():
                move = self.rule.proximal(state, shown, present, setting)
                entry = Round(excess_K, shown, self.weights, move, error_K, piece_K)
            state = self.rule.advance(state, shown, present, setting)
        proposed = self.rule.propose(state, setting)
        negative = bool(proposed.min() < 0)
        weights = project(proposed) if negative else proposed
        if self.rule.smooths:
            weights = smooth(weights, self.smoothing)
        weights = self._bounded(weights)
        weights = weights / weights.sum()

        weights = frozen(weights)
        last = Update(step, loss_K, reference_K, shown, present, weights, error_K)
        # All at once: an interrupt, as by Ctrl-C, finds the update made or not made.
        self.__dict__.update(
            _state=state,
            _averages=averages,
            _account=self._account.after(entry),
            _sum_of_weights=self._sum_of_weights + weights,
            weights=weights,
            missed=missed,
            projections=self.projections + negative,
            updates=self.updates + 1,
            global_step=self.global_step if step is None else step,
            last=last,
        )
        return self.weights.copy()

    def counts_step(self, step: int) -> bool:
        """Return whether an update for this global step would count; an earlier one is an error."""
        if 0 < step < self.global_step:
            raise ValueError(
                f"step={step} comes after step {self.global_step}: steps must not go backwards. If "
                "a new run counts its steps from the start, call begin_run(); to go back to a "
                "checkpoint, load its state_dict"
            )
        return step > self.global_step

    def certificate(self, *, confidence: float = 0.95, fresh: bool = False) -> WeightCertificate:
        """Return what the updates so far show about the weights; print it to read it.

        Parameters
        ----------
        confidence : float, default 0.95
            Of the bands around the domains' mean excess losses: all of them hold together, at all
            numbers of updates.
        fresh : bool, default False
            Whether every round measures other text, so that errors average out over rounds. By
            default nothing is assumed of how the errors of rounds depend on one another, as befits
            a held-out set that is measured again and again.

        Notes
        -----
        Bands and the word on noise rest on the standard errors, so on pieces of text that are
        independent of one another within a round, and numerous enough, or with losses of so little
        skew, that their mean is nearly normal.
        """
        if self._account.rounds == 0:
            raise RuntimeError(
                "there is no certificate yet: it needs an update with a loss of every domain"
            )
        return certify(
            self._account,
            self.domains,
            get_divergence(self.rule.divergence),
            self.prior,
            number_between("confidence", confidence, 0.5, 1.0 - 1e-9),
            fresh,
        )

    @property
    def certifies(self) -> bool:
        """Whether there is a `certificate`."""
        return self._account.rounds > 0

    def begin_run(self, step: int = 0, *, quiet: bool = False) -> None:
        """Count global steps from ``step`` again, keeping all weights.

        Call this when a new run continues the training of the model and counts its own steps. With
        ``step=-1``, an evaluation at step 0, before the first batch, makes an update as well;
        ``quiet`` says that it is known to make none.
        """
        self.global_step = min(self.global_step, step)
        self._told_of_start = self._told_of_start or quiet

    def state_dict(self) -> dict[str, Any]:
        """Return everything a resume needs, as plain numbers, lists and strings."""
        dual = self._state.dual
        return {
            "version": STATE_VERSION,
            "rule": self.rule.name,
            "options": repr(self.rule),
            "domains": list(self.domains),
            "prior": self.prior.tolist(),
            "weights": self.weights.tolist(),
            "dual": {
                "weights": dual.weights.tolist(),
                "logs": finite(dual.point.logs),
                "previous": dual.previous.tolist(),
                "step": dual.step,
                "total": dual.total,
                "iteration": dual.iteration,
            },
            "extra": {name: finite(values) for name, values in self._state.extra.items()},
            "averages": {
                "excess": finite(self._averages),
                "sum_of_weights": self._sum_of_weights.tolist(),
            },
            "global_step": self.global_step,
            "updates": self.updates,
            "projections": self.projections,
            "repeated": self.repeated,
            "missed": [self.missed[name] for name in self.domains],
            "account": self._account.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; after an error, nothing has changed.

        The rule and the domains must be the same; the domains' order may differ. With another
        prior, the certificate begins anew.
        """
        check_version(state, *READABLE)
        try:
            self._load(state)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"state is damaged: {type(error).__name__} {error}") from None

    def _load(self, state: Mapping[str, Any]) -> None:
        if (state["rule"], state["options"]) != (self.rule.name, repr(self.rule)):
            raise ValueError(
                f"state is of rule {state['rule']!r}, {state['options']}; this Reweighter has "
                f"{self.rule.name!r}, {self.rule!r}. Make one with the same rule, or start again "
                "with start=old.weights"
            )
        if sorted(map(repr, state["domains"])) != sorted(map(repr, self.domains)):
            raise ValueError(
                f"state is of domains {state['domains']!r}, this Reweighter has "
                f"{list(self.domains)!r}; make one with the same domains"
            )
        order = [state["domains"].index(name) for name in self.domains]

        def numbers(values: Any, missing: float = -np.inf) -> Array:
            found = np.array([missing if v is None else v for v in values], dtype=float)
            if found.shape != (len(order),):
                raise ValueError(f"state is damaged: {len(order)} numbers expected, got {values!r}")
            return found[order]

        saved = state["dual"]
        dual = DualState(
            point=SimplexPoint(numbers(saved["weights"]), numbers(saved["logs"])),
            previous=numbers(saved["previous"]),
            step=float(saved["step"]),
            total=float(saved["total"]),
            iteration=int(saved["iteration"]),
        )
        extra = dict(self.rule.start(self.start, self.prior).extra)
        lacking = set(extra) - set(state["extra"])
        if lacking and state["version"] == STATE_VERSION:
            raise ValueError(f"state is damaged: the rule's own {sorted(lacking)!r} are not in it")
        extra |= {name: numbers(values) for name, values in state["extra"].items()}
        weights = numbers(state["weights"])
        for values in (weights, dual.weights, dual.previous):
            if not ((values >= 0).all() and abs(values.sum() - 1.0) < 1e-6):
                raise ValueError(f"state is damaged: {values.tolist()!r} are not valid weights")
        averages = numbers(state["averages"]["excess"], np.nan)
        sum_of_weights = numbers(state["averages"]["sum_of_weights"])
        missed = numbers(state["missed"]).astype(int).tolist()
        account = Account.open(len(order))
        if state["version"] == STATE_VERSION:
            if np.allclose(numbers(state["prior"]), self.prior, rtol=1e-9, atol=0.0):
                account = Account.from_state(state["account"], order)
            else:
                warnings.warn(
                    "the state is of another prior; the certificate begins anew from here",
                    ReweightWarning,
                    stacklevel=3,
                )
        counters = {k: int(state[k]) for k in ("updates", "projections", "repeated", "global_step")}
        self._state = RuleState(dual, extra)
        self.weights = frozen(self._bounded(weights))  # the bounds may be new
        self._averages, self._sum_of_weights = averages, sum_of_weights
        self.missed = dict(zip(self.domains, missed, strict=True))
        for name, value in counters.items():
            setattr(self, name, value)
        self._account, self.last = account, None

    def __repr__(self) -> str:
        shown = zip(self.domains[:SHOWN], self.weights[:SHOWN].tolist(), strict=True)
        weights = [f"{name!r}: {weight:.3g}" for name, weight in shown]
        hidden = len(self.domains) > SHOWN
        rule = repr(self.rule) if vars(self.rule) else repr(self.rule.name)
        return (
            f"{type(self).__name__}({{{', '.join([*weights, *['...'] * hidden])}}}, "
            f"{f'domains={len(self.domains)}, ' * hidden}rule={rule}, updates={self.updates}, "
            f"global_step={self.global_step})"
        )

    def _check_reference(self, reference: Any) -> Array:
        return check_reference(one_each(reference, self.domains, "reference"), len(self.domains))

    def _setting(self, errors: Array | None, rounding: float) -> Setting:
        number = self.updates + 1
        size = self._check_step(self.step(number)) if callable(self.step) else float(self.step)
        factor = self.extrapolation
        if callable(self.step) and factor > 0:
            factor *= size / self._check_step(self.step(number + 1))
        return Setting(
            size, self.nu, factor, self.smoothing, self.prior, self.weights, errors, rounding
        )

    def _shown(self, excess: Array, present: Array) -> tuple[Array, Array]:
        """Return the input of the rule, and the updated running averages."""
        averages = self._averages
        if self.ema is not None:
            new = np.isnan(averages)
            with np.errstate(invalid="ignore", over="ignore"):
                mixed = np.where(new, excess, self.ema * averages + (1.0 - self.ema) * excess)
            averages = np.where(present, mixed, averages)
            excess = averages
        shown = np.where(present, excess, 0.0)
        return (np.maximum(shown, 0.0) if self.clip else shown), averages

    def _bounded(self, weights: Array) -> Array:
        if self._bounds is not None:
            low, high = self._bounds
            if (weights < low - 1e-12).any() or (weights > high + 1e-12).any():
                return project(weights, low, high)
        return weights

    def _repeat(self, step: int) -> None:
        """Count an update that is none, and say once why an evaluation at step 0 is none."""
        self.repeated += 1
        if step == 0 and self.updates == 0 and not self._told_of_start:
            self._told_of_start = True
            warnings.warn(
                "losses of step 0, before the first batch, make no update; call begin_run(-1) "
                "first (Steering: update_at_start=True) if they should",
                ReweightWarning,
                stacklevel=3,
            )

    @staticmethod
    def _check_step(step: Any) -> float:
        return number_between("step", step, 0.0, positive=True)

    def _report(self, broken: Array, absent: Array, absent_ok: bool) -> dict[Any, int]:
        """Warn of domains without a usable loss; return how often each has had none by now."""
        for bad, what in ((broken, "a loss that is not a finite number"), (absent, "no tokens")):
            if bad.any() and not (absent_ok and bad is absent):
                names = [self.domains[i] for i in np.flatnonzero(bad)]
                warnings.warn(
                    f"domain(s) {names!r} had {what} in this round and are left out of the update",
                    ReweightWarning,
                    stacklevel=4,
                )
        lacking = (broken | absent).tolist()
        return {
            name: self.missed[name] + lacks
            for name, lacks in zip(self.domains, lacking, strict=True)
        }
