"""fairlearn: ExponentiatedGradient with BoundedGroupLoss, of SquareLoss or of a log loss.

It has no direct min-max. A bound of zero with multipliers up to ``1 / eps`` comes down to the
mean loss plus the worst group's loss times ``1 / eps``, so a small ``eps`` is the worst group.
Its answer is a randomised mixture. Where the loss is convex in the coefficients (identity,
logistic), the mixture's mean model is scored, which is never worse; for ReLU, whose base fit we
have to write ourselves, the better of the mixture and its best member. It has no log loss for
its moments either, so the one of three lines is ours.
"""

from __future__ import annotations

import numpy as np
from objectives.risk import group_losses, risk, risk_of_losses, scores

from solvers.scaled import Scaled

NAME = "fairlearn_eg"
TITLE = "fairlearn EG"
ENVIRONMENT = "fairlearn"
NOTE = "a randomised mixture of models; its ReLU base (L-BFGS) and its log loss are ours"
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
    loss = LogLoss()
    if problem.model != "logistic":
        loss = SquareLoss(2 * low - high, 2 * high - low)  # wide: predictions not to be clipped
    reduction = ExponentiatedGradient(
        _base(scaled), BoundedGroupLoss(loss, upper_bound=1e-9), eps=eps, max_iter=max_iter,
        nu=1e-6, eta0=2.0 / eps,
    )  # fmt: skip
    groups = np.repeat(np.arange(problem.n_groups), scaled.counts)
    reduction.fit(scaled.Z[:, :-1], scaled.t, sensitive_features=groups)
    share = np.asarray(reduction.weights_, float)
    models = [reduction.predictors_[i] for i in reduction.weights_.index]
    return share, [scaled.back(np.append(m.coef_, m.intercept_)) for m in models]


class LogLoss:
    """The log loss of a score, in the manner of fairlearn's losses."""

    min, max = 0.0, np.inf

    def eval(self, y_true, y_pred):
        return np.logaddexp(0.0, y_pred) - y_true * y_pred


def score(problem, mixture):
    share, models = mixture
    if problem.model != "relu":
        return risk(problem, share @ np.array(models))
    losses = np.array([group_losses(problem, scores(problem, w)) for w in models])
    return min(risk_of_losses(each, 0.0) for each in (share @ losses, *losses))


def _base(scaled):
    if scaled.model == "identity":
        from sklearn.linear_model import LinearRegression

        return LinearRegression()
    if scaled.model == "logistic":
        return _scorer()
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


def _scorer():
    """Logistic regression that predicts scores, so that the log loss can be told from them."""
    from sklearn.linear_model import LogisticRegression

    class Scorer(LogisticRegression):
        def predict(self, X):
            return self.decision_function(X)

    return Scorer(C=np.inf, solver="newton-cholesky", tol=1e-8)
