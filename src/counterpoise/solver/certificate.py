"""The certificate: what is proved about one fit, and under which assumptions.

Notation: distances are measured in the solver's coordinates ``u``. After whitening,
``||u - u'||^2`` is the mean squared difference of the two linear scores, averaged over groups.
``w*`` is any minimiser of the risk, ``OPT`` is the largest group loss at ``w*``, and ``Lambda``
is the largest eigenvalue of any group's second moment (the paper's ``6B``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.common.text import count, figure, percent_at_most, rounded_down
from counterpoise.dual.objective import Objective
from counterpoise.solver.slack import SlackAccount

Array = np.ndarray

# Where a sharpness comes from. The last two bound nothing beyond the run's own path.
EXACT = "exact: the smallest eigenvalue of any group's second moment"
MEASURED = (
    "measured between this run's iterates and the returned coefficients, which stand in for "
    "the unknown minimiser"
)
ASSUMED = "assumed by the step sizes"
# The gap, as a share of the risk, that the widest region may have.
SMALL = 1e-2
# Risks below this share of the labels' square are zero up to rounding.
NOTHING = 1e-12


@dataclass(frozen=True)
class Region:
    """A proved bound on the risk of all coefficients near a fit.

    If the fit has a ``radius``, the bound is on coefficients that this admits.

    Attributes
    ----------
    radius : float
        How far scores may differ from the fit's: the root mean square, averaged over groups by the
        prior. Infinite if they may differ by any amount.
    gap : float
        The fit's risk minus ``lower_bound``.
    lower_bound : float
        No coefficients in the region have a lower risk.
    """

    radius: float
    gap: float
    lower_bound: float


@dataclass(frozen=True)
class RegionProof:
    """What is proved about the risk of coefficients near a fit, from the rows alone.

    Attributes
    ----------
    risk : float
        The risk of the fit on the rows of the proof, which need not be those of the fit.
    spread : float
        The labels' spread, for comparison with radii.
    regions : tuple of Region
        From the smallest to the widest.
    missing : str
        Why nothing could be proved; empty if it could.
    limit : float or None
        The bound ``radius`` on the norm of coefficients, which the regions respect.
    dropped : int
        Number of directions along which the features hardly vary. Regions hold coefficients without
        a component in these.
    floor : float
        The risk if all losses were zero.
    """

    risk: float
    spread: float
    regions: tuple[Region, ...]
    missing: str = ""
    limit: float | None = None
    dropped: int = 0
    floor: float = 0.0

    def share(self, region: Region) -> float:
        """Return the gap as a share of the risk."""
        return region.gap / abs(self.risk) if self.risk else math.inf

    def widest(self) -> Region | None:
        """Return the widest region in which the gap is at most 1 % of the risk."""
        good = [region for region in self.regions if self.share(region) <= SMALL]
        return good[-1] if good else None

    def within(self, radius: float) -> Region | None:
        """Return the bound that holds within a radius, if any."""
        return next((region for region in self.regions if region.radius >= radius), None)

    def __str__(self) -> str:
        return " ".join(self.sentences())

    def sentences(self) -> list[str]:
        """Say what is proved, in one to three sentences."""
        if self.missing:
            return [f"No region around the fit is certified: {self.missing}."]
        if not self.regions:
            return ["No region around the fit is certified: none that was asked for is bounded."]
        if self.risk - self.floor <= NOTHING * self.spread**2:
            return ["The risk is as low as it can be, up to rounding: no coefficients are better."]
        widest, last = self.widest(), self.regions[-1]
        region, out = self.within(self.spread) or last, []
        if widest is not None:
            out.append(
                f"No coefficients{self._which(widest)} have a risk more than "
                f"{percent_at_most(self.share(widest))} below this fit's."
            )
        if widest is None or (widest.radius < self.spread and region is not widest):
            lower = f", {percent_at_most(self.share(region))} lower" if self.risk > 0 else ""
            out.append(
                f"No coefficients{self._which(region)} have a risk below "
                f"{rounded_down(region.lower_bound, 4)}{lower}."
            )
        out.append("This rests on the rows alone.")
        return out

    def _which(self, region: Region) -> str:
        """Name the coefficients of a region."""
        if math.isinf(region.radius):
            return self.kind()
        return (
            f"{self.kind()} whose scores differ from this fit's by less than "
            f"{rounded_down(region.radius, 3)} (root mean square; the labels spread by "
            f"{self.spread:.3g})"
        )

    def kind(self) -> str:
        """Name the coefficients that all regions are about; empty for any."""
        norm = "" if self.limit is None else f" of norm up to {self.limit:.3g}"
        return norm + (without(self.dropped) if self.dropped else "")


def without(dropped: int) -> str:
    """Name the coefficients that a claim covers if directions are too flat to judge."""
    return f" without a component in the {dropped} direction(s) too flat to judge"


@dataclass(frozen=True)
class Certificate:
    """A summary of what is proved about a fit; prints as a paragraph.

    Attributes
    ----------
    risk : float
        ``R`` at the returned coefficients.
    duality_gap : float or None
        For the identity activation, a proved bound on ``risk - min R`` (infinite above 4,096
        coefficients, where it is not computed). None for other activations: the problem is
        not convex, so there is no such bound.
    running_slack : float
        Sum of the steps' slacks at ``c1_assumed``. If it is not positive, the theorem's bound
        holds for this run with its own constants.
    rho : float
        ``rho_n = 1 + c1 A_n / 2``. The larger it is, the less the starting point matters.
    c1_assumed : float
        Sharpness that the step sizes assume.
    c1 : float
        Sharpness that the bounds below use.
    c1_source : str
        How ``c1`` was obtained.
    opt_bound : float
        An upper bound on ``OPT``, derived from ``risk``.
    theorem_bound : float
        Bound on ``||u_n - w*||`` for the last iterate of Algorithm 1, given ``c1``; infinite if
        the theorem gives none, or if ``c1`` is only measured.
    returned_bound : float
        Bound on ``||u - w*||`` for the returned coefficients. For the identity activation it rests
        on the duality gap, without any assumption. For others it is infinite, unless
        :meth:`at_sharpness` supplies a sharpness.
    iterate_norm : float
        Distance from the first to the last iterate of Algorithm 1.
    metric : str
        How distances are measured, in words.
    label_scale : float
        Mean squared deviation of the labels, for comparison.
    dropped : int
        Number of directions too flat to judge: the features hardly vary along them, or not in
        the groups that carry the weight. The claims cover coefficients without a component in
        these directions.
    constants : CertificateConstants
        The constants behind the bounds.
    group_sharpness : K floats, or None
        For each group, the smallest ``mean (sigma(w_t.x) - sigma(w.x))^2 / ||w_t - w||^2``
        between this run's iterates and the returned coefficients; None if the iterates never
        moved.
    iterations : int
        Iterations of Algorithm 1.
    iterate_to_fit : float
        Distance from the last iterate of Algorithm 1 to the returned coefficients.
    asked : bool
        Whether Algorithm 1 ran for the theorem's sake (``certificate="theorem"``).
    proof : RegionProof or None
        What is proved about the risk of coefficients near the fit, without any assumption; see
        ``regions``.
    """

    risk: float
    duality_gap: float | None
    running_slack: float
    rho: float
    c1_assumed: float
    c1: float
    c1_source: str
    opt_bound: float
    theorem_bound: float
    returned_bound: float
    iterate_norm: float
    metric: str
    label_scale: float
    dropped: int
    constants: CertificateConstants
    group_sharpness: tuple[float, ...] | None = None
    iterations: int = 0
    iterate_to_fit: float = math.inf
    asked: bool = False
    proof: RegionProof | None = None

    @property
    def metric_is_scores(self) -> bool:
        """Whether distances are root mean squares of scores, as radii of regions are."""
        return "linear score" in self.metric

    @property
    def same_rows(self) -> bool:
        """Whether the fit has the same risk on the rows of the region proof, up to rounding."""
        rounding = 1e-6 * abs(self.risk) + NOTHING * self.label_scale
        return self.proof is None or abs(self.proof.risk - self.risk) <= rounding

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions around the fit, from the smallest, each with a lower bound on the risk."""
        return () if self.proof is None else self.proof.regions

    def __post_init__(self) -> None:
        # Measured along a path, sharpness says nothing about other directions.
        if self.c1_source in (MEASURED, ASSUMED):
            object.__setattr__(self, "theorem_bound", math.inf)
            if self.duality_gap is None:
                object.__setattr__(self, "returned_bound", math.inf)

    @property
    def claims_distance(self) -> bool:
        """Whether a distance to any minimiser is claimed at all."""
        return self.duality_gap is not None or self.c1_source not in (MEASURED, ASSUMED)

    def at_sharpness(self, c1: float, source: str = "given") -> Certificate:
        """Return what the theorem says about this run if the sharpness is ``c1``.

        The sharpness is the smallest ratio, over all coefficients, of the mean squared difference
        of outputs to that of coefficients. The claims are as good as the reason for ``c1``.
        """
        if not (math.isfinite(c1) and c1 > 0):
            raise ValueError(f"c1 must be a positive number; got {c1!r}")
        k = self.constants
        returned = self.returned_bound
        if self.duality_gap is None:
            returned = k.returned_distance(c1, self.opt_bound, self.risk - k.risk_floor)
        return replace(
            self,
            c1=c1,
            c1_source=source,
            theorem_bound=k.theorem_distance(c1, self.opt_bound, self.iterate_norm),
            returned_bound=returned,
        )

    def __str__(self) -> str:
        return " ".join(self._sentences())

    def _kept(self) -> str:
        if not self.dropped:
            return ""
        return without(self.dropped)

    def _sentences(self) -> list[str]:
        out = [f"Risk {self.risk:.6g}."]
        if self.duality_gap is not None and math.isinf(self.duality_gap):
            out.append(
                "The problem is convex, but has too many coefficients to compute a duality gap."
            )
        elif self.duality_gap is not None:
            share = ""
            if self.risk and self.duality_gap <= abs(self.risk):
                share = f" ({self.duality_gap / abs(self.risk):.1g} of the risk)"
            floor = max(self.risk - self.duality_gap, self.constants.risk_floor)
            out.append(
                f"The problem is convex and solved to a duality gap of {self.duality_gap:.2g}"
                f"{share}: no coefficients{self._kept()} have a risk below {floor:.6g}."
            )
        elif self.proof is not None:
            if not self.same_rows:
                out.append(f"On the rows given to certify, the risk is {self.proof.risk:.6g}.")
            out.extend(self.proof.sentences())
        else:
            out.append(
                "The activation makes the problem nonconvex, so the fit may not be globally "
                "optimal; certificate='region' proves what can be proved near it."
            )
        if self.claims_distance:
            out += [self._inequality(), *self._distances()]
        else:
            out += self._theorem()
        return out

    def _inequality(self) -> str:
        if self.running_slack <= 0:
            return (
                f"The theorem's inequality holds for this run if the sharpness is at least "
                f"{self.c1_assumed:.3g}, because the steps paid for their errors (running slack "
                f"{self.running_slack:.3g})."
            )
        return (
            f"The steps did not pay for all their errors (running slack {self.running_slack:.3g}); "
            "the theorem's bounds include the excess."
        )

    def _theorem(self) -> list[str]:
        """Say what the theorem adds if the sharpness is only an estimate, if that was asked for."""
        out = [self._inequality()]
        if not self.asked:
            return [*out, "certificate='theorem' runs Algorithm 1 until that bounds a distance."]
        estimate = f"{self.c1:.3g}, an estimate from this run's own path"
        spread, given = math.sqrt(self.label_scale), self
        if self.c1 > 0:
            given = self.at_sharpness(self.c1)
        if not math.isfinite(given.theorem_bound):
            least = 0.25 * self.c1_assumed
            why = f"rho is only {self.rho:.3g}"
            if self.c1 <= least:
                why = (
                    f"the sharpness is only {estimate}, and the theorem needs more than "
                    f"{least:.3g}, a quarter of what the steps assumed"
                )
            return [*out, f"It bounds no distance here, because {why}."]
        out.append(
            f"If the sharpness in every direction is at least {estimate}, the last of "
            f"{count(self.iterations, 'iteration')} of Algorithm 1 (rho = {self.rho:.3g}) lies "
            f"within {figure(given.theorem_bound)} of any minimiser, {self.metric} (the labels "
            f"spread by {spread:.3g})."
        )
        proof, reach = self.proof, given.theorem_bound + self.iterate_to_fit
        if proof is None or not (self.same_rows and self.metric_is_scores):
            return out
        region = proof.within(min(reach, given.returned_bound))
        if region is not None and proof.share(region) <= SMALL:
            which = proof.kind() or " at all"
            out.append(
                f"In that case any minimiser lies in a certified region, so no coefficients{which} "
                f"have a risk below {rounded_down(region.lower_bound, 6)}."
            )
        return out

    def _distances(self) -> list[str]:
        less = ", less than the steps assumed" if self.c1 < self.c1_assumed else ""
        out = [f"The sharpness is c1 = {self.c1:.3g}{less} ({self.c1_source})."]
        if not self.constants.moment_exact:
            out.append("Power iteration estimated the largest second moment of the features.")
        spread = math.sqrt(self.label_scale)
        if math.isfinite(self.theorem_bound):
            out.append(
                f"With this sharpness, the last iterate of Algorithm 1 lies within "
                f"{self.theorem_bound:.3g} of any minimiser of the risk."
            )
        elif self.c1_source in (MEASURED, ASSUMED):
            out.append("That is an estimate from this run's own path, so it bounds no distance.")
        elif self.c1 <= 0.25 * self.c1_assumed:
            out.append(
                f"The step sizes assumed {self.c1_assumed:.3g}, too much for the theorem to bound "
                "the last iterate of Algorithm 1."
            )
        else:
            out.append(
                f"Algorithm 1 stopped too early (rho = {self.rho:.3g}, not above 2) for the "
                "theorem to bound its last iterate."
            )
        if not math.isfinite(self.returned_bound):
            out.append("There is no bound on the distance from the returned coefficients.")
            return out
        basis = "The" if self.duality_gap is None else "By the duality gap alone, the"
        out.append(
            f"{basis} returned coefficients lie within {self.returned_bound:.3g} of any "
            f"minimiser{self._kept()}, {self.metric} (the labels' own spread is {spread:.3g})."
        )
        if min(self.theorem_bound, self.returned_bound) > spread:
            out.append("This bound exceeds the spread of the labels, so it says little here.")
        return out


@dataclass(frozen=True)
class CertificateConstants:
    """The constants behind the bounds; none of them depends on ``c1``."""

    account: SlackAccount
    beta: float
    moment: float
    dual_start: float
    risk_floor: float
    moment_exact: bool = True
    mean_moment: float = 1.0

    def slack(self, c1: float) -> float:
        """Return the sum of slacks at sharpness ``c1``; infinite if ``c1`` is too small."""
        spare = c1 - 0.25 * self.account.c1
        if spare <= 0:
            return math.inf
        return self.account.direct + self.account.coupling * 3.0 / (8.0 * spare)

    def theorem_rhs(self, c1: float, opt: float, start_distance: float, dual_start: float) -> float:
        """Return the right side of the theorem's inequality.

        The inequality is

            rho_n/4 ||w* - w_n||^2 + (nu0 + nu A_n) D(lam*, lam_n) <= rhs

        with ``||w* - w_0|| <= start_distance`` and ``D(lam*, lam_0) <= dual_start``.

        ``c1`` may differ from the sharpness that the steps assumed. Each term
        ``c1 ||w* - w_{t-1}||^2`` is split: ``c1_steps/4`` pays for the growth of ``rho``, one
        third of the rest for the linearisation (``2 beta sqrt(Lambda OPT) ||.||`` by Young's
        inequality) and two thirds for the coupling. At ``c1 = c1_steps`` these are the shares of
        the paper's proof.
        """
        acc = self.account
        spare = c1 - 0.25 * acc.c1
        if spare <= 0:
            return math.inf
        noise = self.beta**2 * self.moment * opt * acc.total * (3.0 / spare + 2.0 / c1)
        tail = acc.boundary**2 / acc.rho
        start = acc.unit * (0.5 * start_distance**2 + acc.nu0 * dual_start)
        return start + noise + max(self.slack(c1), 0.0) + tail

    def theorem_distance(self, c1: float, opt: float, iterate_norm: float) -> float:
        """Bound ``||w* - w_n||``, using ``||w* - w_0|| <= ||w* - w_n|| + ||w_n - w_0||``."""
        acc = self.account
        fixed = self.theorem_rhs(c1, opt, 0.0, self.dual_start)
        quarter, half = 0.25 * acc.rho, 0.5 * acc.unit
        if not math.isfinite(fixed) or quarter <= half:
            return math.inf
        # quarter D^2 <= half (N + D)^2 + fixed, solved for D.
        a, b, c = quarter - half, -2.0 * half * iterate_norm, -(half * iterate_norm**2 + fixed)
        return (-b + math.sqrt(b * b - 4.0 * a * c)) / (2.0 * a)

    def returned_distance(self, c1: float, opt: float, above: float) -> float:
        """Bound ``||u - w*||`` for a point whose risk exceeds the minimum by at most ``above``.

        ``R(u) >= L(u, lam*)`` and sharpness give
        ``c1 D^2 - 2 beta sqrt(Lambda OPT) D <= R(u) - R(w*)``.
        """
        slope = self.beta * math.sqrt(self.moment * opt)
        return (slope + math.sqrt(slope**2 + c1 * max(above, 0.0))) / c1


def largest_loss_at_optimum(objective: Objective, risk: float) -> float:
    """Bound ``OPT`` from above by the largest loss a group can have at this risk.

    Losses are not negative. The risk is at least the value of the mixture at the prior, so
    ``prior_i loss_i <= risk + prior.reference``. It is also at least the value at the corner of
    group ``i``, so ``loss_i <= risk + reference_i + nu phi(e_i)``.
    """
    prior, reference = objective.prior, objective.reference
    by_mean = (risk + float(prior @ reference)) / prior
    corners = objective.divergence.corners(prior)
    allowed = np.isfinite(corners)
    by_corner = np.full(len(prior), np.inf)
    by_corner[allowed] = risk + reference[allowed] + objective.nu * corners[allowed]
    return max(float(np.minimum(by_mean, by_corner).max()), 0.0)
