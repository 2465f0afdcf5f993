"""Counterpoise on raw rows: checks, sorting, fit and certificate are all in its time."""

import numpy as np

NAME = "ours"
TITLE = "counterpoise"
ENVIRONMENT = "main"
LEVELS = [{"tol": tol} for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)]
SHIPPED = {"tol": 1e-6}  # the default, shown in a line of its own


def refuses(shape):
    return None


def fit(problem, tol):
    if problem.model == "logistic":
        from counterpoise import GroupDROClassifier

        model = GroupDROClassifier(nu=problem.nu, tol=tol)
        model.fit(problem.X, problem.y, groups=problem.groups)
        return np.append(model.coef_, model.intercept_)
    from counterpoise import solve

    found = solve(
        problem.X, problem.y, problem.groups, activation=problem.model, divergence="kl",
        nu=problem.nu, tol=tol,
    )  # fmt: skip
    return np.append(found.coef, found.intercept)
