"""Wrappers of any estimator that use a known group: as a feature, one fit per group, or weights."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from counterpoise.assessment.folds import fit_arguments
from counterpoise.common.arguments import check_whole
from counterpoise.rows.frames import given
from counterpoise.rows.group_indicators import with_indicators
from counterpoise.rows.groups import as_labels, check_sample_weight, encode_groups, label_list
from counterpoise.rows.memberships import RowGroups, as_memberships

Array = np.ndarray


class _Wrapper(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """The rows, classes and tags that all wrappers share."""

    estimator: Any
    classes_: Array
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.input_tags.sparse = own.input_tags.sparse
        tags.input_tags.allow_nan = own.input_tags.allow_nan
        return tags

    def _rows(
        self, X: Any, y: Any, groups: Any, sample_weight: Any
    ) -> tuple[Any, Array, Any, Array | None]:
        """Check the rows of a fit, and leave out those of weight zero."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        if groups is None:
            raise ValueError(
                f"{name} needs the group of every row; got None. Pass fit(X, y, groups=...)"
            )
        X, y = self._features(X, reset=True), column_or_1d(given(y, "y"))
        check_consistent_length(X, y)
        weights = check_sample_weight(sample_weight, len(y))
        groups = given(groups, "groups")
        if weights is not None:
            if not fit_arguments(self.estimator, sample_weight=weights):
                raise TypeError(self._unweighted("leave out sample_weight"))
            found, kept = RowGroups.of(groups, len(y)), np.flatnonzero(weights > 0)
            if not len(kept):
                raise ValueError("sample_weight is zero for every row; leave it out, or correct it")
            X, y, groups, weights = X[kept], y[kept], found.take(kept).given, weights[kept]
        if is_classifier(self.estimator):
            self.classes_ = np.unique(y)
        return X, y, groups, weights

    def _features(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self, given(X, "X"), reset=reset, accept_sparse="csr",
            dtype=(np.float64, np.float32), ensure_all_finite="allow-nan",
        )  # fmt: skip

    def _unweighted(self, remedy: str) -> str:
        kind = type(self.estimator).__name__
        return f"{kind}.fit takes no sample_weight; {remedy}, or wrap another estimator"

    def _probabilities(self, model: Any, X: Any) -> Array:
        """Probabilities of all classes; zero for those that the fit did not see."""
        found = np.asarray(model.predict_proba(X))
        out = np.zeros((len(found), len(self.classes_)))
        out[:, np.searchsorted(self.classes_, model.classes_)] = found
        return out


def _has_probabilities(wrapper: Any) -> bool:
    return hasattr(wrapper.estimator, "predict_proba")


class _UsesGroup(_Wrapper):
    """The codes of groups in fits that need the group of every row to predict, too."""

    groups_: Array
    uses_group_: str

    def _codes_of_fit(self, groups: Any, n: int) -> Array:
        self._check_one_label(groups, n)
        self.groups_, codes = encode_groups(groups, n)
        return codes

    def _codes(self, groups: Any, n: int) -> Array:
        """Number the groups of rows to predict; K for those that the fit did not see."""
        name = type(self).__name__
        if groups is None:
            raise ValueError(
                f"{name} needs the group of every row to predict; got None. Pass "
                "predict(X, groups=...)"
            )
        groups = given(groups, "groups")
        self._check_one_label(groups, n)
        values = as_labels(groups)
        if values.ndim == 2 and 1 in values.shape:
            values = values.ravel()
        if values.shape != (n,):
            raise ValueError(
                f"groups must hold one label for each of the {n} rows; got shape {values.shape}"
            )
        own, rows = label_list(self.groups_), label_list(values)
        number = {label: k for k, label in enumerate(own)}
        codes = np.fromiter((number.get(label, len(own)) for label in rows), np.intp, n)
        said = [label for label in rows if label is not None]
        kinds = [{isinstance(label, (str, bytes)) for label in some} for some in (own, said)]
        if said and not kinds[0] & kinds[1]:
            raise TypeError(
                f"groups has labels such as {said[0]!r}, but those of the fit are such as "
                f"{own[0]!r}, so they never agree; give labels of the same type"
            )
        return codes

    def _check_one_label(self, groups: Any, n: int) -> None:
        if as_memberships(groups, n) is not None:
            raise ValueError(
                f"{type(self).__name__} needs one group per row; got groups that overlap. Add the "
                "memberships to X as features instead"
            )

    def predict(self, X: Any, groups: Any = None) -> Array:
        """Predict rows of the given groups.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n, d)
        groups : array of shape (n,)
            The group of every row; a group that the fit did not see is allowed.
        """
        check_is_fitted(self)
        X = self._features(X, reset=False)
        return self.answers("predict", X, self._codes(groups, X.shape[0]))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Return probabilities of shape (n, C), in the order of ``classes_``."""
        check_is_fitted(self)
        X = self._features(X, reset=False)
        return self.answers("predict_proba", X, self._codes(groups, X.shape[0]))

    def answers(self, method: str, X: Any, codes: Array) -> Array:
        """Predict checked rows by ``method``; ``codes`` index ``groups_``, K for others."""
        raise NotImplementedError(type(self).__name__)


class WithGroup(_UsesGroup):
    """Any estimator, with the group as a feature.

    An indicator of every group is appended to the features. If the estimator has an intercept
    (``fit_intercept=True``), the largest group needs none. A group that the fit did not see gets no
    indicator; where the largest group has none either, the two are predicted alike.

    Parameters
    ----------
    estimator : estimator of scikit-learn's kind
        It gets ``groups`` and ``sample_weight`` if its ``fit`` takes them.

    Attributes
    ----------
    estimator_ : the fitted estimator
    groups_ : array of shape (K,)
    classes_ : array of shape (C,), for classifiers
    uses_group_ : str
        How predictions use the group; they need ``groups``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> X, groups = np.arange(6.0)[:, None], ["a", "a", "a", "b", "b", "b"]
    >>> model = WithGroup(LinearRegression()).fit(X, [0, 1, 2, 13, 14, 15], groups=groups)
    >>> model.predict([[7.0], [7.0]], groups=["a", "b"]).round(6).tolist()
    [7.0, 17.0]
    """

    estimator_: Any
    group_base_: int | None

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the estimator to the features and the indicators of the groups."""
        X, y, groups, weights = self._rows(X, y, groups, sample_weight)
        codes = self._codes_of_fit(groups, len(y))
        intercept = getattr(self.estimator, "fit_intercept", False)
        self.group_base_ = int(np.argmax(np.bincount(codes))) if intercept else None
        model = clone(self.estimator)
        said = fit_arguments(model, groups=groups, sample_weight=weights)
        self.estimator_ = model.fit(self._beside(X, codes), y, **said)
        self.uses_group_ = "group as a feature"
        return self

    def _beside(self, X: Any, codes: Array) -> Any:
        """Append the indicators; none for the base group and for groups not seen by the fit."""
        K = len(self.groups_)
        if self.group_base_ is None:
            return with_indicators(X, codes, K + 1, K)
        return with_indicators(X, np.where(codes < K, codes, self.group_base_), K, self.group_base_)

    def answers(self, method: str, X: Any, codes: Array) -> Array:
        wide = self._beside(X, codes)
        if method == "predict_proba":
            return self._probabilities(self.estimator_, wide)
        return np.asarray(self.estimator_.predict(wide))


class PerGroup(_UsesGroup):
    """Any estimator, fitted to every group by itself.

    A group gets its own fit if it has at least ``least`` rows for each of ``d + 1`` coefficients
    and, in classification, rows of two classes. The others, and groups that the fit did not see,
    are predicted by :class:`WithGroup`, which is fitted to all rows.

    Parameters
    ----------
    estimator : estimator of scikit-learn's kind
    least : int, default=5

    Attributes
    ----------
    estimators_ : dict label -> fitted estimator
        Only of groups with a fit of their own.
    pooled_ : fitted WithGroup, for the others
    groups_ : array of shape (K,)
    classes_ : array of shape (C,), for classifiers
    uses_group_ : str
        How predictions use the group; they need ``groups``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> x = np.arange(20.0)
    >>> groups = np.repeat(["a", "b"], 10)
    >>> y = np.where(groups == "a", x, -x)
    >>> model = PerGroup(LinearRegression()).fit(x[:, None], y, groups=groups)
    >>> model.predict([[7.0], [7.0]], groups=["a", "b"]).round(6).tolist()
    [7.0, -7.0]
    """

    estimators_: dict[Any, Any]
    pooled_: WithGroup

    def __init__(self, estimator: Any, *, least: int = 5) -> None:
        self.estimator = estimator
        self.least = least

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the estimator to all rows with the group as a feature, and to every large group."""
        least = check_whole("least", self.least, 1)
        X, y, groups, weights = self._rows(X, y, groups, sample_weight)
        codes = self._codes_of_fit(groups, len(y))
        labels = self.groups_[codes]
        self.pooled_ = WithGroup(self.estimator).fit(X, y, labels, weights)
        self.estimators_ = {}
        for k, label in enumerate(label_list(self.groups_)):
            own = np.flatnonzero(codes == k)
            few = len(own) < least * (X.shape[1] + 1)
            if few or (is_classifier(self.estimator) and len(np.unique(y[own])) < 2):
                continue
            model = clone(self.estimator)
            part = None if weights is None else weights[own]
            said = fit_arguments(model, groups=labels[own], sample_weight=part)
            self.estimators_[label] = model.fit(X[own], y[own], **said)
        self.uses_group_ = "one fit per group"
        return self

    def answers(self, method: str, X: Any, codes: Array) -> Array:
        shape = (len(codes), len(self.classes_)) if method == "predict_proba" else len(codes)
        kept = method == "predict" and is_classifier(self.estimator)
        out = np.empty(shape, dtype=self.classes_.dtype if kept else float)
        rest = np.ones(len(codes), dtype=bool)
        for k, label in enumerate(label_list(self.groups_)):
            rows = np.flatnonzero(codes == k)
            if label not in self.estimators_ or not len(rows):
                continue
            model, rest[rows] = self.estimators_[label], False
            if method == "predict_proba":
                out[rows] = self._probabilities(model, X[rows])
            else:
                out[rows] = model.predict(X[rows])
        if rest.any():
            out[rest] = self.pooled_.answers(method, X[rest], codes[rest])
        return out


class Balanced(_Wrapper):
    """Any estimator, with row weights that give every group the same total.

    Within a group, rows keep the proportions of ``sample_weight``. Groups may overlap: a row then
    has the sum of its weights in its groups. The group is not needed to predict.

    Parameters
    ----------
    estimator : estimator of scikit-learn's kind
        Its ``fit`` must take ``sample_weight``.

    Attributes
    ----------
    estimator_ : the fitted estimator
    groups_ : array of shape (K,)
    classes_ : array of shape (C,), for classifiers

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyRegressor
    >>> groups = np.repeat(["a", "b"], [9, 1])
    >>> model = Balanced(DummyRegressor()).fit(np.zeros((10, 1)), groups == "b", groups=groups)
    >>> model.predict([[0.0]]).tolist()
    [0.5]
    """

    estimator_: Any
    groups_: Array

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the estimator with the same total weight for every group."""
        if not fit_arguments(self.estimator, sample_weight=1.0):
            raise TypeError(self._unweighted("it cannot be balanced"))
        X, y, groups, weights = self._rows(X, y, groups, sample_weight)
        found = RowGroups.of(groups, len(y))
        self.groups_ = found.labels
        model = clone(self.estimator)
        said = fit_arguments(
            model, groups=groups, sample_weight=balanced_row_weights(found, weights)
        )
        self.estimator_ = model.fit(X, y, **said)
        return self

    def predict(self, X: Any, groups: Any = None) -> Array:
        """Predict rows; ``groups`` are ignored."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(self._features(X, reset=False)))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Return probabilities of shape (n, C), in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(self._features(X, reset=False)))


def balanced_row_weights(groups: RowGroups, weights: Array | None = None) -> Array:
    """Return row weights that give every group the same total; their mean is one.

    >>> balanced_row_weights(RowGroups.of(["a", "a", "a", "b"], 4)).round(4).tolist()
    [0.6667, 0.6667, 0.6667, 2.0]
    """
    each = groups.weights(weights)
    each = np.ones(len(groups.codes)) if each is None else each
    totals = np.bincount(groups.codes, each, groups.n_groups)
    share = each / totals[groups.codes]
    rows = np.bincount(groups.index, share, groups.n_rows)
    return rows * (groups.n_rows / rows.sum())
