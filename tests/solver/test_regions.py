"""Regions around a fit: nothing in them is below their bound, and the bounds say something."""

import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from counterpoise import Activation, Chunks, GroupDRONeuron, GroupDRONeuronCV, load, side_by_side
from counterpoise.losses import minorants
from counterpoise.rows.engines.minorants import SumMinorants
from counterpoise.solver.certificate import Region, RegionProof
from experiments.regions.attack import attack
from experiments.regions.problems import random_problem

PROBLEMS, PARTS = 200, 8


def gaussian(n=2000, d=10, K=5, noise=0.3, seed=0, corrupt=0.0):
    """Groups whose ReLU neurons differ a little."""
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(K * n, d)), np.repeat(np.arange(K), n)
    w = rng.normal(size=d)
    own = w / np.linalg.norm(w) + 0.3 * rng.normal(size=(K, d)) / np.sqrt(d)
    y = np.maximum(np.sum(X * own[groups], axis=1), 0.0) + noise * rng.normal(size=K * n)
    bad = (groups == 0) & (rng.random(K * n) < corrupt)
    return X, np.where(bad, 5.0 * rng.normal(size=K * n), y), groups


def fitted(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these are too hard to converge
        model = GroupDRONeuron(**problem.options, certificate="region")
        return model.fit(problem.X, problem.y, problem.groups, problem.weights)


# -- truth ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_in_a_region_is_below_its_bound(part):
    regions = 0
    for seed in range(part, PROBLEMS, PARTS):
        problem = random_problem(seed)
        model = fitted(problem)
        found, _ = attack(problem, model, starts=2)
        assert not found, str(found[0])
        regions += len(model.certificate_.regions)
    assert regions > PROBLEMS // PARTS


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["intervals", "bends", "values"])
def test_the_attack_finds_a_proof_that_is_wrong(lie, monkeypatch):
    """Intervals too short, parabolas that bend too little or lie too high: all are found out."""
    true = minorants.minorants_below

    def wrong(sigma, z, y, low, high, norm, widths):
        if lie == "intervals":
            low, high = z - 0.3 * (z - low), z + 0.3 * (high - z)
        found = true(sigma, z, y, low, high, norm, widths)
        if lie == "bends":
            found = found._replace(bend=found.bend + 0.5)
        if lie == "values":
            found = found._replace(value=found.value * 1.01)
        return found

    monkeypatch.setattr("counterpoise.losses.neuron.minorants_below", wrong)
    for seed in range(60):
        problem = random_problem(seed)
        if attack(problem, fitted(problem), starts=2)[0]:
            return
    pytest.fail("no breach was found")


def exact_risk(X, y, groups, coef):
    """The risk of the worst group of a ReLU neuron, without rounding."""
    losses = []
    for k in np.unique(groups):
        own = np.flatnonzero(groups == k)
        squares = []
        for i in own:
            score = sum(
                Fraction(float(a)) * Fraction(float(b)) for a, b in zip(X[i], coef, strict=True)
            )
            squares.append((max(score, Fraction(0)) - Fraction(float(y[i]))) ** 2)
        losses.append(sum(squares) / len(squares))
    return max(losses)


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_without_rounding(seed):
    """Rows with offsets and units that lose digits; risks in exact rational numbers."""
    rng = np.random.default_rng(seed)
    n, d = 12, 2
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 7) + 10.0 ** rng.integers(-2, 3)
    groups = np.arange(n) % 2
    truth = rng.normal(size=d)
    y = np.maximum(X @ truth, 0.0) * (1.0 + 0.1 * (seed % 3) * rng.normal(size=n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GroupDRONeuron(nu=0.0, fit_intercept=False, certificate="region")
        model.fit(X, y, groups)
    assert model.certificate_.regions
    share = np.stack([(groups == k) / np.sum(groups == k) for k in (0, 1)])
    for region in model.certificate_.regions:
        for _ in range(20):
            step = rng.normal(size=d)
            away = math.sqrt(float(np.mean(share @ (X @ step) ** 2)))
            t = region.radius * rng.choice([0.0, 1e-12, 1e-6, 1e-2, 0.5, 0.99]) / away
            risk = exact_risk(X, y, groups, model.coef_ + t * step)
            assert risk >= Fraction(region.lower_bound)
        if math.sqrt(float(np.mean(share @ (X @ (truth - model.coef_)) ** 2))) < region.radius:
            assert exact_risk(X, y, groups, truth) >= Fraction(region.lower_bound)


def test_twelve_rows_without_noise():
    """Another point of risk 0 lies 0.37 away; the certificate claims no distance."""
    rng = np.random.default_rng(14)
    X, w = rng.normal(size=(12, 5)), rng.normal(size=5)
    model = GroupDRONeuron("relu", nu=0.0, fit_intercept=False, certificate="region")
    model.fit(X, np.maximum(X @ w, 0.0))
    assert model.certificate_.regions
    assert all(region.lower_bound <= 0 for region in model.certificate_.regions)
    assert "within" not in str(model.certificate_)
    assert "as low as it can be" in str(model.certificate_)


# -- strength ------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "share"), [(10, 1.0), (50, 0.1)])
@pytest.mark.parametrize("nu", [0.0, "auto"])
def test_gaussian_rows_are_as_good_as_solved(d, share, nu):
    X, y, groups = gaussian(d=d)
    model = GroupDRONeuron(nu=nu, certificate="region").fit(X, y, groups)
    near = model.certificate_.proof.within(share * model.certificate_.proof.spread)
    assert near.gap <= 1e-4 * model.risk_
    assert model.certificate_.proof.widest().radius >= near.radius


def test_corrupted_labels():
    X, y, groups = gaussian(corrupt=0.2)
    model = GroupDRONeuron().fit(X, y, groups)
    [region] = model.certify(X, y, groups, radii=[0.1 * float(np.std(y))])
    assert region.gap <= 1e-2 * model.risk_


@pytest.mark.parametrize("activation", ["leaky_relu", "softplus", "elu", "huber_relu"])
def test_other_activations(activation):
    X, y, groups = gaussian(n=400, d=4)
    model = GroupDRONeuron(activation, certificate="region").fit(X, y, groups)
    assert model.certificate_.proof.within(0.1 * float(np.std(y))).gap <= 1e-3 * model.risk_


def test_a_ball_of_coefficients_without_an_intercept_is_covered():
    """The proof is about all coefficients of norm up to the radius."""
    X, y, groups = gaussian(n=400, d=3)
    model = GroupDRONeuron(radius=1.2, fit_intercept=False, certificate="region")
    model.fit(X, y, groups)
    whole = model.certificate_.regions[-1]
    assert whole.radius == math.inf
    assert whole.gap <= 1e-4 * model.risk_
    assert "No coefficients of norm up to 1.2 have a risk more" in str(model.certificate_)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_a_ball_of_coefficients_with_an_intercept_is_covered(activation):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(400, 1)), np.arange(400) % 2
    y = np.maximum(2.0 * X[:, 0] + 3.0, 0.0) + 0.1 * rng.normal(size=400)
    model = GroupDRONeuron(activation, radius=2.5, certificate="region").fit(X, y, groups)
    whole = model.certificate_.regions[-1]
    assert whole.radius == math.inf
    slopes, intercepts = np.meshgrid(np.linspace(-2.5, 2.5, 101), np.linspace(-9, 9, 181))
    z = X * slopes.ravel() + intercepts.ravel()
    squares = (model.activation_.value(z) - y[:, None]) ** 2
    losses = [squares[groups == k].mean(axis=0) / model.nu_ for k in (0, 1)]
    risks = model.nu_ * (np.logaddexp(*losses) - math.log(2.0))
    assert whole.lower_bound <= risks.min()
    assert whole.gap <= 0.01 * model.risk_


def test_cuts_tighten_regions_of_two_coefficients(monkeypatch):
    """One feature and an intercept, large noise: a ball alone proves little; halves prove more."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 1))
    y = np.maximum(1.5 * X[:, 0] - 0.5, 0.0) + 0.8 * rng.normal(size=60)
    model = GroupDRONeuron(nu=0.0).fit(X, y)
    radius = 2.0 * float(np.std(y))
    [found] = model.certify(X, y, radii=[radius])
    monkeypatch.setattr("counterpoise.solver.prover.CUT_LIMIT", 0)
    [without] = model.certify(X, y, radii=[radius])
    assert found.gap < 0.7 * without.gap
    # The least risk in the region, on a fine grid.
    reach = 3.0 * radius
    a, b = np.meshgrid(np.linspace(-reach, reach, 401), np.linspace(-reach, reach, 401))
    a, b = a.ravel() + model.coef_[0], b.ravel() + model.intercept_
    change = X * (a - model.coef_[0]) + (b - model.intercept_)
    near = np.sqrt(np.mean(change**2, axis=0)) <= radius
    risks = np.mean((np.maximum(X * a[near] + b[near], 0.0) - y[:, None]) ** 2, axis=0)
    assert found.lower_bound <= risks.min()


def test_at_most_as_many_passes_as_the_fit():
    X, y, groups = gaussian(n=400, d=6)
    plain = GroupDRONeuron().fit(X, y, groups)
    proved = GroupDRONeuron(certificate="region").fit(X, y, groups)
    assert plain.n_passes_ < proved.n_passes_ <= 2 * plain.n_passes_ + 2


@pytest.mark.slow
def test_the_certificate_finds_a_better_fit():
    """With few rows, a descent from the weakest point of a proof finds a lower risk."""
    better = 0
    for seed in range(5, 150, 6):  # few rows
        problem = random_problem(seed)
        if problem.options["activation"] == "identity":
            continue
        proved = fitted(problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = GroupDRONeuron(**problem.options)
            plain.fit(problem.X, problem.y, problem.groups, problem.weights)
        assert proved.risk_ <= plain.risk_ + 1e-9 * abs(plain.risk_)
        better += proved.risk_ < plain.risk_ - 1e-5 * abs(plain.risk_)
    assert better >= 1


# -- rows of any kind ----------------------------------------------------------------------


def test_every_engine_proves_the_same():
    import dask.array as da
    import torch

    X, y, groups = gaussian(n=200, d=4)

    def chunks():
        for lo in range(0, len(X), 300):
            yield X[lo : lo + 300], y[lo : lo + 300], groups[lo : lo + 300]

    model = GroupDRONeuron().fit(X, y, groups)
    expected = model.certify(X, y, groups, radii=[0.1, 0.5])
    for rows in (
        (sparse.csr_matrix(X), y, groups),
        (X.astype(np.float32), y, groups),
        (torch.tensor(X), torch.tensor(y), torch.tensor(groups)),
        (Chunks(chunks),),
        tuple(da.from_array(a, chunks=(250, *a.shape[1:])) for a in (X, y, groups)),
    ):
        found = model.certify(*rows, radii=[0.1, 0.5])
        for one, other in zip(found, expected, strict=True):
            assert one.lower_bound == pytest.approx(other.lower_bound, rel=1e-6)


def test_overlapping_groups_and_shares():
    X, y, groups = gaussian(n=200, d=4)
    rng = np.random.default_rng(0)
    for found in (
        side_by_side({"a": groups, "b": rng.integers(0, 3, size=len(y))}),
        rng.random((len(y), 3)),
    ):
        model = GroupDRONeuron(certificate="region").fit(X, y, found)
        assert model.certificate_.proof.widest() is not None


def test_other_rows_than_those_of_the_fit():
    """Bounds are then about these rows; descent in the ball comes close to them."""
    X, y, groups = gaussian(n=300, d=3)
    model = GroupDRONeuron(nu=0.0).fit(X, y, groups)
    X2, y2, groups2 = gaussian(n=300, d=3, seed=5)
    radii = [0.05, 0.3, 2.0]
    found = model.certify(X2, y2, groups2, radii=radii)
    proof = model.certificate_.proof
    z = X2 @ model.coef_ + model.intercept_
    there = max(np.mean((np.maximum(z, 0) - y2)[groups2 == k] ** 2) for k in range(5))
    assert proof.risk == pytest.approx(there)
    assert [region.radius for region in found] == radii
    other = GroupDRONeuron(nu=0.0).fit(X2, y2, groups2)
    assert found[-1].lower_bound <= other.risk_
    # In a small ball, the bound is close to what a short step achieves.
    step = other.coef_ - model.coef_, other.intercept_ - model.intercept_
    change = X2 @ step[0] + step[1]
    away = math.sqrt(np.mean([np.mean(change[groups2 == k] ** 2) for k in range(5)]))
    z = z + change * (0.05 / away)
    closer = max(np.mean((np.maximum(z, 0) - y2)[groups2 == k] ** 2) for k in range(5))
    assert found[0].lower_bound <= closer
    assert found[0].gap <= 2.5 * (there - closer)


@pytest.mark.parametrize("precondition", ["scale", None])
def test_radii_do_not_depend_on_coordinates(precondition):
    X, y, groups = gaussian(n=200, d=4)
    X = X * [1.0, 30.0, 0.2, 1.0]
    white = GroupDRONeuron(tol=1e-9).fit(X, y, groups)
    other = GroupDRONeuron(precondition=precondition, tol=1e-9).fit(X, y, groups)
    far = 40.0 * float(np.std(y))
    for near, wide in ((white, other), (other, white)):
        regions = [model.certify(X, y, groups, radii=[0.3, far]) for model in (near, wide)]
        assert regions[0][1].gap > 0.1 * white.risk_  # a gap that depends on the radius
        for one, two in zip(*regions, strict=True):
            assert one.lower_bound == pytest.approx(two.lower_bound, rel=1e-2)


def test_duplicated_columns_and_wide_rows():
    X, y, groups = gaussian(n=200, d=3)
    X = np.column_stack([X, X[:, 0], np.ones(len(X))])
    model = GroupDRONeuron(certificate="region").fit(X, y, groups)
    assert model.certificate_.proof.widest() is not None
    few = GroupDRONeuron(certificate="region").fit(X[:12], y[:12])
    assert few.certificate_.regions
    wide = np.random.default_rng(0).normal(size=(40, 600))
    big = GroupDRONeuron(certificate="region", tol=1e-3).fit(wide, y[:40])
    assert "601 coefficients are too many" in str(big.certificate_)
    assert big.certificate_.regions == ()


# -- the interface -------------------------------------------------------------------------


def test_regions_are_ordered_and_stored(tmp_path):
    X, y, groups = gaussian(n=200, d=4)
    model = GroupDRONeuron().fit(X, y, groups)
    assert model.certificate_.regions == ()
    found = model.certify(X, y, groups)
    assert model.certificate_.regions == found
    radii, gaps = [r.radius for r in found], [r.gap for r in found]
    assert radii == sorted(radii)
    assert gaps == sorted(gaps)
    model.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    assert again.certificate_.regions == found
    assert str(again.certificate_) == str(model.certificate_)
    assert again.certify(X, y, groups) == found


def test_cross_validated_neurons_certify_the_chosen_fit():
    X, y, groups = gaussian(n=60, d=3)
    model = GroupDRONeuronCV(nus=[0.0, 0.1], truncate=None, reference=False, cv=2,
                             certificate="region").fit(X, y, groups)  # fmt: skip
    assert model.certificate_.proof.widest() is not None
    [region] = model.certify(X, y, groups, radii=[0.1])
    assert model.certificate_.regions == (region,)
    assert model.best_estimator_.certificate_.regions == (region,)


def test_a_linear_model_is_certified_everywhere():
    X, y, groups = gaussian(n=100, d=3)
    model = GroupDRONeuron("identity", certificate="region").fit(X, y, groups)
    [region] = model.certificate_.regions
    assert region.radius == math.inf
    assert region.gap <= 1e-9 * model.risk_
    [again] = model.certify(X, y, groups, radii=[1.0])
    assert again.radius == math.inf
    assert again.lower_bound == pytest.approx(region.lower_bound, rel=1e-9)


def test_your_own_activation():
    ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    X, y, groups = gaussian(n=100, d=3)
    model = GroupDRONeuron(ramp, certificate="region").fit(X, y, groups)
    assert "define its method most_bend" in str(model.certificate_)
    with pytest.raises(ValueError, match="'ramp' does not bound its second derivative"):
        model.certify(X, y, groups)

    class Bowl(Activation):
        """``t + t^2 / 8`` near zero, linear beyond."""

        name, alpha, beta = "bowl", 1.0, 1.5

        def value(self, t):
            inner = np.clip(t, -2.0, 2.0)
            return inner + inner**2 / 8 + (t - inner) * (1 + inner / 4)

        def slope(self, t):
            return 1.0 + np.clip(t, -2.0, 2.0) / 4

        def most_bend(self, low, high):
            return np.where((high >= -2.0) & (low <= 2.0), 0.25, 0.0)

    known = GroupDRONeuron(Bowl(), certificate="region").fit(X, y, groups)
    assert known.certificate_.proof.widest().radius > 0.1


def test_the_theorem_on_request():
    X, y, groups = gaussian(n=400, d=4)
    model = GroupDRONeuron(certificate="theorem").fit(X, y, groups)
    text = str(model.certificate_)
    assert model.certificate_.rho >= 20.0
    assert "If the sharpness in every direction is at least" in text
    assert "an estimate" in text
    # A distance and its premise are in one sentence.
    [sentence] = [s for s in text.split(". ") if "of any minimiser, as" in s]
    assert sentence.startswith("If the sharpness")
    model.certify(X, y, groups)
    given = model.certificate_.at_sharpness(model.certificate_.c1)
    proof = model.certificate_.proof
    # Wider regions were tried, but their bounds are not worth a sentence.
    assert proof.widest().radius < given.returned_bound < proof.regions[-1].radius
    assert "In that case" not in str(model.certificate_)


def test_the_theorem_and_a_region_that_covers_it():
    X, y, groups = gaussian(n=400, d=4, noise=0.0)
    model = GroupDRONeuron(certificate="theorem", nu=0.0).fit(X, y, groups)
    proof = model.region_proof(sparse.csr_matrix(X), y, groups, radii=[0.5])
    proof = replace(proof, regions=(Region(1e9, 0.0, proof.risk),))
    certificate = replace(model.certificate_, proof=proof)
    assert "no coefficients at all have a risk below" in str(certificate)
    limited = replace(proof, limit=2.0, dropped=1)
    text = str(replace(model.certificate_, proof=limited))
    assert "no coefficients of norm up to 2 without a component in the 1 direction(s)" in text
    elsewhere = replace(proof, risk=proof.risk + 1.0)
    assert "at all" not in str(replace(model.certificate_, proof=elsewhere))


def test_sentences():
    regions = (Region(0.5, 1e-9, 1.0), Region(2.0, 0.004, 0.996), Region(8.0, 0.3, 0.7))
    proof = RegionProof(1.0, 1.5, regions)
    assert str(proof) == (
        "No coefficients whose scores differ from this fit's by less than 2 (root mean square; the "
        "labels spread by 1.5) have a risk more than 0.4 % below this fit's. This rests on the "
        "rows alone."
    )
    assert proof.widest() == regions[1]
    assert proof.within(0.4) == regions[0]
    assert proof.within(9.0) is None
    loose = RegionProof(1.0, 1.5, (Region(0.5, 0.001, 0.999), Region(2.0, 0.31, 0.69)))
    assert "by less than 0.5" in str(loose)
    assert "have a risk below 0.69, 31 % lower" in str(loose)
    assert "none that was asked for is bounded" in str(RegionProof(1.0, 1.0, ()))


@pytest.mark.parametrize("radii", [[0.0], [-1.0], [math.nan], ["a"]])
def test_radii_must_be_positive(radii):
    X, y, groups = gaussian(n=50, d=2)
    model = GroupDRONeuron().fit(X, y, groups)
    with pytest.raises(ValueError, match="radii must be positive numbers"):
        model.certify(X, y, groups, radii=radii)


def test_errors_name_what_is_wrong():
    X, y, groups = gaussian(n=50, d=2)
    with pytest.raises(ValueError, match="certificate='proof' is not known"):
        GroupDRONeuron(certificate="proof").fit(X, y, groups)
    model = GroupDRONeuron().fit(X, y, groups)
    with pytest.raises(ValueError, match="X has 1 features"):
        model.certify(X[:, :1], y, groups)


def test_a_question_skips_groups_without_weight():
    question = SumMinorants(
        w=np.zeros(3), at=np.zeros(3), loss=None, share_K=np.zeros(2), shift=np.zeros(2),
        basis=np.eye(3), sizes=np.ones(3), intercept=True, widths=(1.0,), truncate=None,
        rounding=1e-16,
    )  # fmt: skip
    assert not question.of_rows(np.ones((4, 2)), np.ones(4), np.ones(4), 1).any()


# -- rounding and special cases ---------------------------------------------------------------


def solved_exactly(A, b):
    """The least squares solution and its mean squared error, in rational numbers."""
    n, d = A.shape
    rows = [[Fraction(float(v)) for v in row] for row in A]
    labels = [Fraction(float(v)) for v in b]
    normal = [[sum(r[i] * r[j] for r in rows) for j in range(d)] for i in range(d)]
    right = [sum(r[i] * v for r, v in zip(rows, labels, strict=True)) for i in range(d)]
    for i in range(d):  # Gaussian elimination; the matrix is positive definite
        for k in range(i + 1, d):
            share = normal[k][i] / normal[i][i]
            normal[k] = [a - share * c for a, c in zip(normal[k], normal[i], strict=True)]
            right[k] -= share * right[i]
    w = [Fraction(0)] * d
    for i in reversed(range(d)):
        rest = sum(normal[i][j] * w[j] for j in range(i + 1, d))
        w[i] = (right[i] - rest) / normal[i][i]
    scores = [sum(a * c for a, c in zip(r, w, strict=True)) for r in rows]
    squares = sum((z - v) ** 2 for z, v in zip(scores, labels, strict=True))
    return w, squares / n, scores


@pytest.mark.slow
def test_nearly_equal_columns_against_exact_least_squares():
    """Where all rows are active at the exact minimum, no bound may exceed it."""
    checked = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 20))
        a, b = rng.normal(size=(2, n))
        e, units = 10.0 ** rng.uniform(-13, 0), 10.0 ** rng.uniform(-6, 6, size=2)
        X = (np.column_stack([a, a + e * b]) + 10.0 ** rng.uniform(-2, 6) * rng.integers(2)) * units
        y = rng.normal() * a + rng.normal() * b * rng.choice([1.0, e])
        y = y + 10.0 ** rng.uniform(-8, 0) * rng.normal(size=n)
        y = y - y.min() + rng.uniform(0, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GroupDRONeuron(nu=math.inf, certificate="region").fit(X, y)
        A = np.column_stack([X, np.ones(n)])
        w, least, scores = solved_exactly(A, y)
        if min(scores) < 0 or model.certificate_.dropped:
            continue
        fit = [Fraction(float(v)) for v in (*model.coef_, model.intercept_)]
        moved = [
            sum(Fraction(float(v)) * (p - q) for v, p, q in zip(row, w, fit, strict=True))
            for row in A
        ]
        away = math.sqrt(sum(m * m for m in moved) / n)
        for region in model.certificate_.regions:
            if away <= region.radius * (1 - 1e-6):
                checked += 1
                assert Fraction(region.lower_bound) <= least
    assert checked > 100


@pytest.mark.parametrize("units", [(1e-16, 1e-16), (1.0, 1e-16), (1e16, 1.0)])
def test_coefficients_are_found_by_their_scores(units):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(200, 2)), np.arange(200) % 2
    y = np.maximum(X @ [1.0, 2.0] + 3.0, 0.0) + 0.1 * rng.normal(size=200)
    model = GroupDRONeuron(nu=0.0).fit(X * units, y, groups)
    [region] = model.certify(X * units, y, groups, radii=[0.5])
    assert model.certificate_.proof.risk == pytest.approx(model.risk_, rel=1e-9)
    assert region.gap <= 1e-4 * model.risk_


def test_sparse_rows_with_a_constant_column():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    y = np.maximum(X @ [1.0, 2.0] + 1.0, 0.0) + 0.1 * rng.normal(size=200)
    model = GroupDRONeuron(nu=0.0).fit(X, y)
    X[:, 1] = 0.7
    y = np.maximum(X @ [1.0, 2.0] + 1.0, 0.0) + 0.1 * rng.normal(size=200)
    dense = model.region_proof(X, y, radii=[0.5])
    thin = model.region_proof(sparse.csr_matrix(X), y, radii=[0.5])
    assert thin.risk == pytest.approx(dense.risk, rel=1e-9)
    assert thin.regions[0].lower_bound == pytest.approx(dense.regions[0].lower_bound, rel=1e-4)


def test_a_proof_names_the_coefficients_that_it_is_about():
    X, y, groups = gaussian(n=200, d=3)
    model = GroupDRONeuron(nu=0.0, radius=0.5, fit_intercept=False, certificate="region")
    model.fit(X, y, groups)
    longer = X @ (1.3 * model.coef_)
    squares = (np.maximum(longer, 0.0) - y) ** 2
    assert max(squares[groups == k].mean() for k in range(5)) < model.risk_
    assert all("of norm up to 0.5" in s for s in str(model.certificate_.proof).split(". ")[:-1])
    twice = np.column_stack([X, X[:, 0]])
    flat = GroupDRONeuron(certificate="region").fit(twice, y, groups)
    assert flat.certificate_.proof.dropped == 1
    assert "without a component in the 1 direction(s)" in str(flat.certificate_.proof)
    # Scores of two columns that differ by 1e-12 are lost in rounding.
    nearly = np.column_stack([X, X[:, 0] + 1e-15 * np.arange(len(X))])
    lost = GroupDRONeuron(certificate="region").fit(nearly, y, groups)
    assert "lost in rounding" in str(lost.certificate_.proof)


def test_the_average_over_rows_of_uneven_groups_is_certified_as_itself():
    X, y, _ = gaussian(n=100, d=3)
    shares = np.random.default_rng(0).random((len(y), 3))
    model = GroupDRONeuron(nu=math.inf, prior="rows").fit(X, y, shares)
    model.certify(X, y, shares, radii=[0.1])
    assert model.certificate_.proof.risk == pytest.approx(model.risk_, rel=1e-9)


def test_negative_risks_are_not_as_low_as_can_be():
    """Three of five rows are off; with references, turning two rows off instead is better."""
    X, y = np.array([[1.0], [1.0], [-1.0], [-1.0], [-1.0]]), np.ones(5)
    model = GroupDRONeuron(nu=0.0, fit_intercept=False, reference=[0.6 - 5e-13]).fit(X, y)
    model.coef_ = np.array([1.0])
    model.certify(X, y, radii=[0.5])
    assert "no coefficients are better" not in str(model.certificate_.proof)


def test_other_rows_are_named():
    X, y, groups = gaussian(n=100, d=3)
    model = GroupDRONeuron().fit(X, y, groups)
    model.certify(X + 1.0, y, groups, radii=[0.1])
    assert "On the rows given to certify, the risk is" in str(model.certificate_)


def test_radii_that_cannot_be_covered():
    X, y, groups = gaussian(n=50, d=2)
    model = GroupDRONeuron().fit(X, y, groups)
    with pytest.raises(ValueError, match="this fit has no radius"):
        model.certify(X, y, groups, radii=[math.inf])
    smooth = GroupDRONeuron("softplus", radius=3.0).fit(X, y, groups)
    with pytest.raises(ValueError, match="cannot be covered"):
        smooth.certify(X, y, groups, radii=[math.inf])
    with pytest.raises(ValueError, match="radii is empty"):
        model.certify(X, y, groups, radii=[])
