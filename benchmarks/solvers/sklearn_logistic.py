"""scikit-learn's logistic regression: the plain average over rows, the least effort there is."""

from __future__ import annotations

import numpy as np

from solvers.scaled import Scaled

NAME = "sklearn_logistic"
TITLE = "scikit-learn LogisticRegression"
ENVIRONMENT = "main"
NOTE = "minimises the average over rows, so its excess is what the worst group pays"
LEVELS = [{"solver": "newton-cholesky"}, {"solver": "lbfgs"}]


def refuses(shape):
    return None if shape.model == "logistic" else "a classifier"


def fit(problem, solver):
    from sklearn.linear_model import LogisticRegression

    scaled = Scaled(problem)
    model = LogisticRegression(C=np.inf, solver=solver, max_iter=1000)
    model.fit(scaled.Z[:, :-1], scaled.t)
    return scaled.back(np.append(model.coef_, model.intercept_))
