"""Diagnosis of classifiers: each trouble is found, named, and answered with advice."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from counterpoise import Chunks, GroupDROClassifier, GroupDROClassifierCV, diagnose_classes
from counterpoise.assessment.diagnosis.classes import CHECKS


def rows(n=600, seed=0, **laws):
    """A linear law for group "fine"; ``laws`` give the scores of other groups."""
    rng = np.random.default_rng(seed)
    laws = {"fine": lambda X: 2 * X[:, 0], **laws}
    g = np.repeat(list(laws), n)
    X = rng.normal(size=(len(g), 3))
    score = np.concatenate([law(X[g == label]) for label, law in laws.items()])
    return X, np.where(score + rng.logistic(size=len(g)) > 0, "yes", "no"), g


def test_nothing_wrong():
    found = diagnose_classes(*rows(other=lambda X: 2 * X[:, 0] + X[:, 1]))
    assert [found.status(check) for check in CHECKS] == ["holds"] * 4 + [found.status("noise")]
    assert set(found.floors) == {"fine", "other"}


def test_figures_against_scikit_learn():
    X, y, g = rows(other=lambda X: -X[:, 1])
    found = diagnose_classes(X, y, g)
    whole = LogisticRegression(C=np.inf).fit(X, y)
    for label in ("fine", "other"):
        own, group = g == label, found[label]
        alone = LogisticRegression(C=np.inf).fit(X[own], y[own])
        shares = np.mean(y[own] == "yes")
        entropy = log_loss(y[own], np.full(own.sum(), shares), labels=["no", "yes"])
        assert group.base_loss == pytest.approx(entropy)
        assert group.base_error == pytest.approx(min(shares, 1 - shares))
        assert group.average_loss == pytest.approx(
            log_loss(y[own], whole.predict_proba(X[own])), rel=1e-3
        )
        assert group.average_error == pytest.approx(1 - whole.score(X[own], y[own]), abs=5e-3)
        assert group.own_loss == pytest.approx(
            log_loss(y[own], alone.predict_proba(X[own])) + 4 / own.sum(), rel=2e-3
        )
        assert group.own_error == pytest.approx(1 - alone.score(X[own], y[own]), abs=1e-2)
        assert group.class_counts.tolist() == [np.sum(y[own] == c) for c in ("no", "yes")]


def test_a_group_that_no_linear_score_can_serve():
    found = diagnose_classes(*rows(circle=lambda X: 3 * (X**2).sum(axis=1) - 8))
    assert found["circle"].verdicts["linear"].status == "violated"
    assert found["fine"].verdicts["linear"].status == "holds"
    assert found.advice[0].startswith("add features, or another model, for circle")


def test_separable_groups_are_told():
    X, y, g = rows(apart=lambda X: 1e6 * X[:, 0])
    found = diagnose_classes(X, y, g)
    assert found["apart"].separable
    assert not found["fine"].separable
    assert found.status("separable") == "doubtful"
    assert any("raise alpha" in sentence and "apart" in sentence for sentence in found.advice)


def test_noisy_labels():
    X, y, g = rows(noisy=lambda X: 1e6 * X[:, 0], n=1500)
    rng = np.random.default_rng(0)
    flipped = (g == "noisy") & (rng.random(len(g)) < 0.35)
    y = np.where(flipped, np.where(y == "yes", "no", "yes"), y)
    X[g == "fine", 0] *= 20  # hardly any noise
    y[g == "fine"] = np.where(X[g == "fine", 0] > 0, "yes", "no")
    found = diagnose_classes(X, y, g)
    assert found["noisy"].verdicts["noise"].status == "violated"
    assert found["fine"].verdicts["noise"].status == "holds"
    assert any("check the labels of noisy" in sentence for sentence in found.advice)
    assert any("reference risks" in sentence and "noisy" in sentence for sentence in found.advice)


def test_few_rows_and_one_class():
    X, y, g = rows(rare=lambda X: X[:, 0], one=lambda X: np.full(len(X), 1e6))
    y[g == "rare"] = np.where(np.arange(600) < 3, "yes", "no")
    found = diagnose_classes(X, y, g)
    assert found["rare"].verdicts["rows"].status == "violated"
    assert found["one"].verdicts["classes"].status == "doubtful"
    assert found["one"].own_loss == 0.0
    assert not found["one"].separable
    text = str(found)
    assert "all rows are of class 'yes'" in text
    assert "merge groups" in text


def test_three_classes_and_sparse_rows():
    X, y, g = rows(other=lambda X: X[:, 1])
    y = np.where(X[:, 2] > 0.8, "zoo", y)
    dense, thin = diagnose_classes(X, y, g), diagnose_classes(sparse.csr_matrix(X), y, g)
    assert dense.classes.tolist() == ["no", "yes", "zoo"]
    assert thin["other"].own_loss == pytest.approx(dense["other"].own_loss, rel=1e-3)
    assert dense["other"].own_loss < dense["other"].base_loss


def test_estimators_diagnose_their_rows():
    X, y, g = rows(circle=lambda X: 3 * (X**2).sum(axis=1) - 8)
    model = GroupDROClassifier().fit(X, y, groups=g)
    assert model.diagnose_["circle"].verdicts["linear"].status == "violated"
    chosen = GroupDROClassifierCV(nus=[0.1], reference=False).fit(X, y, groups=g)
    assert chosen.diagnose_["circle"].verdicts["linear"].status == "violated"
    hinge = GroupDROClassifier("squared_hinge").fit(X, y, groups=g)
    assert hinge.diagnose_.loss == "squared_hinge"
    assert hinge.diagnose_["circle"].verdicts["linear"].status != "holds"
    assert hinge.diagnose_["fine"].verdicts["linear"].status == "holds"
    chunks = GroupDROClassifier().fit(
        Chunks([(X[::2], y[::2], g[::2]), (X[1::2], y[1::2], g[1::2])])
    )
    assert chunks.diagnose_["circle"].verdicts["linear"].status == "violated"


def test_bad_input():
    X, y, g = rows()
    with pytest.raises(ValueError, match="one class"):
        diagnose_classes(X, np.zeros(len(y)), g)
    with pytest.raises(TypeError, match="diagnose_ uses a sample"):
        diagnose_classes(Chunks([(X, y, g)]), y)
    found = diagnose_classes(X, y, g)
    with pytest.raises(KeyError, match="tails"):
        found.status("tails")
    with pytest.raises(KeyError):
        found["nobody"]
