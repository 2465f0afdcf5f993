"""The baselines as scikit-learn sees them."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise.baselines import (
    AverageNeuron,
    ExponentiatedGradientNeuron,
    GroupCVaRNeuron,
    PrimalExtrapolationNeuron,
    RowChiSquareNeuron,
    StochasticMirrorNeuron,
    TiltedNeuron,
)

DRAWN = "rows are drawn: weighted and repeated rows are alike in distribution only"


def expected_failures(estimator):
    if getattr(estimator, "batch_size", None) is None:
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": DRAWN,
        "check_sample_weight_equivalence_on_sparse_data": DRAWN,
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
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conformance(estimator, check):
    check(estimator)
