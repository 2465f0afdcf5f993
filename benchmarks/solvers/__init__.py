"""Who is timed. A solver is a module of this folder; libraries are imported inside functions.

    NAME, TITLE      how it is called in files and in tables
    ENVIRONMENT      "main" or the name of a file in benchmarks/environments
    NOTE             what a reader of the tables must know (optional)
    SAME_MODEL       False if it fits another class of models: then it sets no reference (optional)
    refuses(shape)   why it cannot do a problem, or None

and one of two ways to be timed:

    LEVELS, fit(problem, **level)            a black box, run anew at every level of accuracy
    SETTINGS, run(problem, record, **s)      an iterative method that calls ``record`` every step

``fit`` returns coefficients with the intercept last, or a model that ``score(problem, model)``
understands. ``record`` takes functions that give coefficients; it stops the clock, and calls
them only if the moment is to be kept. The best of all SETTINGS counts, chosen in hindsight.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

# Ours comes first: its time and risk set how long the others may try.
NAMES = (
    "ours",
    "cvxpy_qr",
    "cvxpy_rows",
    "numpy_eg",
    "lbfgs",
    "slsqp",
    "sklearn_logistic",
    "torch_groupdro",
    "torch_response",
    "fairlearn_eg",
    "dro_group",
    "dro_mlp",
)


class Shape(NamedTuple):
    """What a solver is told of a problem when asked whether it can do it."""

    n: int
    d: int
    K: int
    model: str
    nu: float


def get(name: str):
    return import_module(f"solvers.{name}")
