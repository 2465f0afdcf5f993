"""Solved: what estimators that call the solver share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from counterpoise.common.progress import PassBar
from counterpoise.estimators.base import GroupEstimator
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solution import Solution, Start
from counterpoise.solver.solve import solve

if TYPE_CHECKING:
    from counterpoise.assessment.diagnosis.classes import ClassDiagnosis
    from counterpoise.assessment.diagnosis.diagnose import Diagnosis
    from counterpoise.rows.sample import RowSample

Array = np.ndarray


class Solved(GroupEstimator):
    """An estimator whose fit is one call of the solver, and that keeps a sample of its rows."""

    nu: float | str
    fit_intercept: bool
    warm_start: bool
    checkpoint: str | os.PathLike[str] | None
    verbose: int
    _found: Solution | None
    # Options that affect a diagnosis.
    SEEN: ClassVar[tuple[str, ...]] = ()

    def _solve(
        self, X: Any, y: Any, groups: Any, sample_weight: Any, options: FitOptions
    ) -> Solution:
        """Fit checked rows, and set the fitted attributes."""
        if not isinstance(self.verbose, (Integral, np.bool_)) or self.verbose < 0:
            raise ValueError(f"verbose must be 0, 1 or 2; got {self.verbose!r}")
        bar = PassBar() if self.verbose else None
        with _logging(int(self.verbose)):
            found = solve(
                X,
                y,
                groups,
                sample_weight,
                nu=self.nu,
                start=self._start() if self.warm_start else None,
                options=options,
                checkpoint=self.checkpoint,
                progress=bar,
                check_input=False,
            )
            if bar is not None:
                bar.close()
        self._keep(X, (y, groups, sample_weight), found)
        self._found = found
        self.__dict__.pop("_diagnosis", None)
        return found

    @property
    def diagnose_(self) -> Diagnosis | ClassDiagnosis:
        """What argues for or against this fit in every group, with advice.

        For a neuron, whether the theory's assumptions hold (:func:`diagnose`); for a classifier,
        what a linear score can do for every group (:func:`diagnose_classes`).

        Computed on first access, from a sample of the rows that the fit keeps. A stored model
        keeps no rows: access this before storing, or call ``diagnose`` with the rows.
        """
        check_is_fitted(self)
        if not hasattr(self, "_diagnosis"):
            found = self.diagnosis(getattr(self, "feature_names_in_", None))
            if found is None and self.kept_sample() is not None:
                raise AttributeError(
                    "a diagnosis is of neurons, classifiers and squared errors; this fit has "
                    "another loss"
                )
            if found is None:
                raise AttributeError(
                    "a stored model keeps no rows to diagnose; call counterpoise.diagnose(X, y, "
                    "groups), or access diagnose_ before storing"
                )
            self._diagnosis = found
        return self._diagnosis

    def diagnosis(
        self, feature_names: Sequence[str] | None = None
    ) -> Diagnosis | ClassDiagnosis | None:
        """Diagnose the sample that the fit keeps; None for a stored model."""
        sample = self.kept_sample()
        if sample is None:
            return None
        from counterpoise.assessment.diagnosis.diagnose import diagnose_sample

        options = {name: getattr(self, name) for name in self.SEEN}
        return diagnose_sample(sample, options, found=self._found, names=feature_names)

    def kept_sample(self) -> RowSample | None:
        """Return the sample of rows that the fit keeps; None for a stored model."""
        found = getattr(self, "_found", None)
        return None if found is None else found.sample

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_found"}

    def _start(self) -> Start | None:
        """Return the last fit, if any, as a start for the next."""
        if not hasattr(self, "coef_") or np.isnan(self.group_weights_).any():
            return None
        coef = self.coef_
        if self.fit_intercept:
            coef = np.concatenate([coef, np.asarray(self.intercept_)[..., None]], axis=-1)
        return Start(coef.reshape(-1), self.group_weights_)


@contextmanager
def _logging(verbose: int) -> Iterator[None]:
    """Log to standard error while fitting, unless a handler exists or ``verbose`` is 0."""
    logger = logging.getLogger("counterpoise")
    if not verbose:
        yield
        return
    level, handler = logger.level, None
    logger.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        terminal = getattr(sys.stderr, "isatty", lambda: False)()
        clear = "\r\x1b[K" if terminal else ""  # overwrites a progress bar
        handler.setFormatter(logging.Formatter(clear + "[counterpoise] %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)
