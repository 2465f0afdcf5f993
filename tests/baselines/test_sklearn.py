"""The baselines as scikit-learn sees them."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise.baselines import (
    AverageClassifier,
    AverageNeuron,
    ExponentiatedGradientClassifier,
    ExponentiatedGradientNeuron,
    GroupCVaRNeuron,
    PrimalExtrapolationNeuron,
    RowChiSquareClassifier,
    RowChiSquareNeuron,
    RowCVaRClassifier,
    StochasticMirrorNeuron,
    SubsampledClassifier,
    TiltedClassifier,
    TiltedNeuron,
)

DRAWN = "rows are drawn: weighted and repeated rows are alike in distribution only"
KINKS = "roundings decide where L-BFGS stops: such fits agree to 1e-5, on some machines to 1e-7"


def expected_failures(estimator):
    reason = DRAWN
    if isinstance(estimator, (RowCVaRClassifier, RowChiSquareClassifier, TiltedClassifier)):
        reason = KINKS
    elif getattr(estimator, "batch_size", None) is None:
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@pytest.mark.slow
@parametrize_with_checks(
    [
        AverageNeuron("identity", gradient="true", prior=None),
        ExponentiatedGradientNeuron("leaky_relu", adjustment=0.5, batch_size=8, max_iter=50),
        PrimalExtrapolationNeuron("identity", extrapolation="none", divergence="kl", nu=0.0),
        StochasticMirrorNeuron("leaky_relu", batch_size=2, max_iter=50),
        TiltedNeuron("softplus", level="row", fit_intercept=False),
        GroupCVaRNeuron(),
        RowChiSquareNeuron("identity", nu=1.0),
        AverageClassifier(prior=None),
        SubsampledClassifier(n_draws=2, random_state=0),
        ExponentiatedGradientClassifier(max_iter=50),
        ExponentiatedGradientClassifier(batch_size=8, max_iter=50),
        TiltedClassifier("squared_hinge", level="row", alpha=1.0, tol=1e-13),
        RowCVaRClassifier(fit_intercept=False),
        RowChiSquareClassifier(alpha=1.0, tol=1e-13),
    ],
    expected_failed_checks=expected_failures,
    xfail_strict=False,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conformance(estimator, check):
    check(estimator)
