"""The certified regions of a neuron in its report and its record."""

import math

import numpy as np
import pytest
from report_fits import blocks_of, data_of, rows_of

from counterpoise import Chunks, GroupDRONeuron, assess, load
from counterpoise.common.text import percent_at_most
from counterpoise.report import write_report


@pytest.fixture(scope="module")
def rows():
    X, y, groups = rows_of(("a", "b", "c"), rows=100)
    return X, np.maximum(y, 0.0), groups


@pytest.mark.parametrize("certificate", ["run", "region"])
def test_a_report_draws_the_gap_against_the_radius(rows, certificate, tmp_path):
    X, y, groups = rows
    model = GroupDRONeuron("relu", certificate=certificate).fit(X, y, groups)
    record = assess(model, X, y, groups, folds=None)
    html = record.report(tmp_path / "page.html").read_text(encoding="utf-8")
    [chart] = [b for b in blocks_of(data_of(html)) if b.get("id") == "regions"]
    radii = [region.radius for region in record.proof.regions if math.isfinite(region.radius)]
    drawn = chart["series"][0]
    assert drawn["x"][1:] == pytest.approx(radii, rel=1e-3)
    # A bound holds in every smaller region: the picture rises in steps, at the smaller radius.
    assert drawn["shape"] == "vh"
    assert drawn["y"] == sorted(drawn["y"])
    assert chart["series"][1]["x"] == pytest.approx([record.proof.spread] * 2, rel=1e-3)
    assert record.proof.sentences()[0] in html
    widest = record.proof.widest()
    assert f"≤ {percent_at_most(record.proof.share(widest))}" in html


def test_assess_leaves_the_model_as_it_is_and_stores_the_proof(rows, tmp_path):
    X, y, groups = rows
    model = GroupDRONeuron("relu").fit(X, y, groups)
    record = assess(model, X, y, groups, folds=None)
    assert model.certificate_.proof is None
    record.save(tmp_path / "fit")
    assert load(tmp_path / "fit").certificate_.proof is None
    page = write_report(tmp_path / "fit")
    assert record.proof.sentences()[0] in page.read_text(encoding="utf-8")


def test_assess_without_regions(rows):
    X, y, groups = rows
    model = GroupDRONeuron("relu").fit(X, y, groups)
    assert assess(model, X, y, groups, folds=None, regions=False).proof is None
    chunks = Chunks(lambda: iter([(X, y, groups)]))
    assert assess(model, chunks).proof is None


def test_a_linear_model_needs_no_picture(rows, tmp_path):
    X, y, groups = rows
    model = GroupDRONeuron("identity").fit(X, y, groups)
    html = assess(model, X, y, groups, folds=None).report(tmp_path / "page.html").read_text("utf-8")
    assert not [b for b in blocks_of(data_of(html)) if b.get("id") == "regions"]
