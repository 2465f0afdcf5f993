"""Fits and their records, for tests of reports, and what is in a page."""

import functools
import json
import re
from copy import copy
from html import unescape

import numpy as np

from counterpoise import (
    GroupDROClassifier,
    GroupDRONeuron,
    GroupDRONeuronCV,
    assess,
    risk_intervals,
)
from counterpoise.assessment.record import (
    QUANTILES,
    DataFacts,
    FitRecord,
    Residuals,
    RiskComparison,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "<b>bold</b>",
    "<a href='javascript:alert(3)'>link</a>",
    "&amp;lt; &quot;",
    "%{x} ${y} {{z}}",
    "é中🚀\u2028\u2029\u202e",
    "back\\slash 'quote' \"double\"",
    "",
    "x" * 300,
)


def rows_of(labels, rows=60, seed=0):
    """Linear labels with a slope of each group's own."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(labels)), rows)
    X = rng.normal(size=(len(codes), 3))
    y = X @ [1.0, 0.5, -0.5] + X[:, 0] * (codes == 0) + 0.3 * rng.normal(size=len(codes))
    return X, y, np.array(labels)[codes]


def record_of(model, X, y, groups, *, compared=True, diagnosed=True, **changes):
    """What ``counterpoise fit`` would keep of a fit to these rows."""
    plain = GroupDRONeuron(model.activation, nu=np.inf, prior="rows").fit(X, y, groups=groups)
    said = {"plain": plain.predict(X), "ours": model.predict(X)}
    quantiles = {
        side: np.array([np.quantile((y - p)[groups == g], QUANTILES) for g in model.groups_])
        for side, p in said.items()
    }
    data = DataFacts(
        path="rows.csv", format="csv", bytes=12_345, digest="sha256:0123", rows=len(y),
        target="y", group=["g"], weight=None, features=["a", "b", "c"], encoded=3,
        engine="memory", notes=["nothing was dropped"],
    )  # fmt: skip
    risks = {side: risk_intervals(y, p, groups=groups) for side, p in said.items()}
    means = {f"{side}_average": float(np.mean((y - p) ** 2)) for side, p in said.items()}
    known = dict(
        command="counterpoise fit rows.csv --target y --group g",
        made="2026-01-02T03:04:05+00:00",
        versions={"counterpoise": "0.1.0", "numpy": np.__version__},
        seconds=1.5,
        options=model.get_params(),
        data=data,
        risks=model.group_risks_,
        plain_risks=plain.group_risks_,
        comparison=RiskComparison(how="rows held out, in 5 folds", held_out=True, **risks, **means)
        if compared
        else None,
        residuals=Residuals(labels=model.groups_, levels=QUANTILES, **quantiles),
        diagnosis=model.diagnose_ if diagnosed else None,
    )
    return FitRecord(**(known | changes))


@functools.cache
def fit(labels=("a", "b", "c", "d"), *, cv=False, rows=60):
    """A fit to rows of these groups, and the rows."""
    X, y, groups = rows_of(labels, rows)
    kind = GroupDRONeuronCV if cv else GroupDRONeuron
    return kind("identity").fit(X, y, groups=groups), (X, y, groups)


def fitted(labels=("a", "b", "c", "d"), *, cv=False, rows=60, **record):
    """A fit and its record."""
    model, data = fit(tuple(labels), cv=cv, rows=rows)
    return model, record_of(model, *data, **record)


def long_fit(groups=1000, iterations=10_000):
    """As large as a report is to stand: its history is made up, all else is of a real fit."""
    model, record = fitted([f"group {i:04d}" for i in range(groups)], rows=8)
    rng = np.random.default_rng(0)
    grown = copy(model)
    weights = rng.random((iterations, groups))
    grown.history_ = {
        "risk": 1.0 + 1.0 / np.arange(1, iterations + 1),
        "worst": 2.0 + 1.0 / np.arange(1, iterations + 1),
        "weights": weights / weights.sum(axis=1, keepdims=True),
        "group_risks": 1.0 + rng.random((iterations, groups)),
    }
    return grown, record


def data_of(html):
    """What a page is drawn from: its JSON, and the title, lead and key figures of its head."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    head = html[: found.start()]

    def texts(pattern):
        return [unescape(text) for text in re.findall(pattern, head, re.S)]

    (title,) = texts(r"<h1>(.*?)</h1>")
    figures = [
        dict(zip(("tone", "name", "value", "remark"), map(unescape, one), strict=True))
        for one in re.findall(
            r'<div(?: class="(\w+)")?><dt>(.*?)</dt><dd class="value">(.*?)</dd>'
            r'<dd class="remark">(.*?)</dd>',
            head,
        )
    ]
    lead = texts(r'<p class="lead">(.*?)</p>')
    return json.loads(found.group(1)) | {"title": title, "lead": lead, "figures": figures}


def blocks_of(data):
    """All blocks of a page, those that are folded away too."""

    def walk(blocks):
        for block in blocks:
            yield block
            yield from walk(block.get("blocks", []))

    return [block for part in data["sections"] for block in walk(part["blocks"])]


def by_id(data, name):
    (found,) = [block for block in blocks_of(data) if block.get("id") == name]
    return found


def class_rows(labels, classes, rows=120, seed=0):
    """Classes by a linear score; in the first group, the first feature means the opposite."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(labels)), rows)
    X = rng.normal(size=(len(codes), 3))
    score = X @ [1.5, 0.5, -0.5] - 2.0 * X[:, 0] * (codes == 0) + rng.logistic(size=len(codes))
    ends = np.quantile(score, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return X, np.array(classes)[np.digitize(score, ends)], np.array(labels)[codes]


@functools.cache
def class_fit(labels=("a", "b", "c"), classes=("no", "yes"), rows=120, crossed=False, **options):
    """A classifier for rows of these groups, and its record."""
    X, y, groups = class_rows(labels, classes, rows)
    if crossed:
        groups = np.array([f"{g} | {c}" for g, c in zip(groups, y, strict=True)])
    model = GroupDROClassifier(nu=0.02, **options).fit(X, y, groups=groups)
    facts = DataFacts(rows=len(y), encoded=3, target="y", group=["g", "y"] if crossed else ["g"])
    command = "counterpoise fit rows.csv --target y --group g"
    return model, assess(model, X, y, groups, folds=3, data=facts, command=command)
