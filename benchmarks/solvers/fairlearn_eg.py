"""fairlearn: ExponentiatedGradient with BoundedGroupLoss(SquareLoss).

It has no direct min-max. A bound of zero with multipliers up to ``1 / eps`` comes down to the
mean loss plus the worst group's loss times ``1 / eps``, so a small ``eps`` is the worst group.
Its answer is a randomised mixture. For the linear neuron the mixture's mean model is scored,
which is never worse; for ReLU, whose base fit we have to write ourselves, the better of the
mixture and its best member.
"""

from __future__ import annotations

import numpy as np
from objectives.risk import group_losses, predict

from solvers.scaled import Scaled

NAME = "fairlearn_eg"
TITLE = "fairlearn EG"
ENVIRONMENT = "fairlearn"
NOTE = "a randomised mixture of models; its ReLU base is ours (L-BFGS)"
LEVELS = [{"eps": eps, "max_iter": steps} for eps, steps in ((0.01, 10), (1e-3, 30))]
LARGEST = 10_000_000


def refuses(shape):
    if shape.nu:
        return "no divergence between groups"
    if shape.n * shape.d > LARGEST:
        return f"not tried: more than {LARGEST:,} numbers, refitted at every step"
    return None


def fit(problem, eps, max_iter):
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, SquareLoss

    scaled = Scaled(problem)
    low, high = scaled.t.min(), scaled.t.max()
    loss = SquareLoss(2 * low - high, 2 * high - low)  # wide: predictions are not to be clipped
    reduction = ExponentiatedGradient(
        _base(scaled), BoundedGroupLoss(loss, upper_bound=1e-9), eps=eps, max_iter=max_iter,
        nu=1e-6, eta0=2.0 / eps,
    )  # fmt: skip
    groups = np.repeat(np.arange(problem.n_groups), scaled.counts)
    reduction.fit(scaled.Z[:, :-1], scaled.t, sensitive_features=groups)
    share = np.asarray(reduction.weights_, float)
    models = [reduction.predictors_[i] for i in reduction.weights_.index]
    return share, [scaled.back(np.append(m.coef_, m.intercept_)) for m in models]


def score(problem, mixture):
    from objectives.risk import risk, risk_of_losses

    share, models = mixture
    if problem.activation == "identity":
        return risk(problem, share @ np.array(models))
    losses = np.array([group_losses(problem, predict(problem, w)) for w in models])
    return min(risk_of_losses(each, 0.0) for each in (share @ losses, *losses))


def _base(scaled):
    if not scaled.relu:
        from sklearn.linear_model import LinearRegression

        return LinearRegression()
    from scipy.optimize import minimize
    from sklearn.base import BaseEstimator, RegressorMixin

    class Neuron(RegressorMixin, BaseEstimator):
        """Weighted least squares for one ReLU neuron."""

        def fit(self, X, y, sample_weight=None):
            X, y = np.asarray(X, float), np.asarray(y, float)
            share = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
            share = share / share.sum()

            def loss(v):
                z = X @ v[:-1] + v[-1]
                r = np.maximum(z, 0.0) - y
                g = 2.0 * share * r * (z > 0)
                return share @ r**2, np.append(g @ X, g.sum())

            v = minimize(
                loss, np.append(np.zeros(X.shape[1]), y.mean()), jac=True, method="L-BFGS-B"
            ).x
            self.coef_, self.intercept_ = v[:-1], v[-1]
            return self

        def predict(self, X):
            return np.maximum(np.asarray(X, float) @ self.coef_ + self.intercept_, 0.0)

    return Neuron()
