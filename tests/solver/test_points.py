"""Fits for several nu without certificates: descent alone does not decide where they end."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise import GroupDRONeuronCV
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running


def inactive_minority():
    """Rows of a small group where a ReLU that is fitted to the others is off."""
    rng = np.random.default_rng(0)
    large = np.arange(1000) < 950
    x = np.where(large, rng.uniform(-1, 1, 1000), rng.uniform(-1, -0.5, 1000))
    y = np.where(large, np.maximum(x, 0), 2.0) + 0.1 * rng.normal(size=1000)
    return x[:, None], y, np.where(large, "A", "B")


def test_a_path_leaves_the_basin_of_the_average():
    solver = open_solver(*inactive_minority(), options=FitOptions(activation="relu"))
    nus = [3.0, 0.3, 0.03, 0.0]
    with running(solver):
        average, found = solver.average()
        assert found.loss_K[1] > 3.5  # the rows of the small group are off
        ends = solver.points(nus, average, tol=1e-5)
        for nu in nus:
            problem = solver.set_up(nu).problem
            risk = problem.risk(solver.engine.evaluate(ends[nu], surrogate=False).loss_K)
            # Descent may end in another minimum, but not where the small group is off.
            assert risk <= solver.fit(nu).risk * (1.2 if nu else 1.001)


def test_cross_validation_finds_what_a_fit_finds():
    X, y, groups = inactive_minority()
    options = dict(truncate=None, reference=False, cv=3)
    model = GroupDRONeuronCV("relu", **options).fit(X, y, groups=groups)
    assert model.best_params_["nu"] < np.inf
    assert min(model.cv_results_["worst_group_risk"]) < 0.7
    assert model.group_risks_.max() == pytest.approx(0.561, abs=0.01)
