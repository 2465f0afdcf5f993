"""Reports on classifiers: accuracies, log losses, calibration and confusion by group."""

import numpy as np
import pytest
from report_fits import blocks_of, by_id, class_fit, data_of

from counterpoise.report import fit_page, write_report
from counterpoise.storage.models import load_fit


def sections(data):
    return [part["id"] for part in data["sections"]]


def test_numbers_are_those_of_the_record():
    model, record = class_fit()
    data = data_of(fit_page(model, record))
    plain, ours = record.classes.scores.values()
    before, after = (100 * s.accuracies.worst.value for s in (plain, ours))
    assert data["title"] == f"The worst group's accuracy rises from {before:.1f}% to {after:.1f}%"
    assert f"{after:.1f}% of the rows get the right class" in data["lead"][0]
    assert "log loss" in data["lead"][1]
    assert [figure["name"] for figure in data["figures"]][:3] == [
        "Accuracy of the worst group", "Accuracy over all rows", "Log loss of the worst group",
    ]  # fmt: skip
    assert len(data["figures"]) == 4
    rows = {row[0]: row for row in by_id(data, "accuracy-table")["rows"]}
    for k, label in enumerate(ours.labels.tolist()):
        size, old, new, moved, difference, balanced = rows[label][1:]
        assert size == round(ours.errors.sizes[k])
        assert new == pytest.approx(list(ours.accuracies[label]), rel=1e-4)
        assert old == pytest.approx(list(plain.accuracies[label]), rel=1e-4)
        assert moved == pytest.approx(new[0] - old[0], abs=1e-4)
        assert balanced == pytest.approx(1 - ours.balanced_errors[k], rel=1e-4)
        verdict = record.classes.errors["ours"].verdict(k)
        assert (difference == "not clear") == (verdict == "not distinguishable")
    risks = {row[0]: row[3] for row in by_id(data, "risk-table")["rows"]}
    assert risks["a"][0] == pytest.approx(record.comparison.ours["a"].value, rel=1e-4)
    assert by_id(data, "risks")["x"] == "log loss, lower is better"
    assert "squared-table" not in [block.get("id") for block in blocks_of(data)]


def test_confusion_adds_up():
    _, record = class_fit(("a", "b"), ("x", "y", "z"))
    data = data_of(fit_page(*class_fit(("a", "b"), ("x", "y", "z"))))
    table = by_id(data, "confusion-table")
    assert [c["name"] for c in table["columns"]][-3:] == [f"Taken for {c}" for c in "xyz"]
    ours = record.classes.scores["ours"]
    for group, label, rows, right, *told in table["rows"]:
        k, c = ours.labels.tolist().index(group), "xyz".index(label)
        assert rows == ours.confusion[k, c].sum()
        assert sum(told) == pytest.approx(1.0, abs=1e-3)
        assert right == told[c]
    rights = [row[3] for row in table["rows"]]
    assert rights == sorted(rights)
    assert "largest probability" in str(by_id(data, "calibration"))
    heads = [column["name"] for column in by_id(data, "calibration-table")["columns"]]
    assert heads == ["Group", "Rows", "Slope", "Calibration error", "By chance"]


def test_many_classes_have_a_table_that_is_not_wide():
    names = tuple(f"c{i:02d}" for i in range(14))
    table = by_id(data_of(fit_page(*class_fit(("a", "b"), names, 300))), "confusion-table")
    assert [column["name"] for column in table["columns"]][-1] == "Most taken for"
    assert table["rows"][0][4].startswith("c")


def test_calibration_is_of_groups_with_several_classes():
    data = data_of(fit_page(*class_fit()))
    curves = by_id(data, "calibration")["series"]
    assert curves[0]["name"] == "perfect"
    assert len(curves) == 4
    crossed = data_of(fit_page(*class_fit(crossed=True)))
    assert "calibration" in sections(data)
    assert "calibration" not in sections(crossed), "a group of one class has nothing to calibrate"
    assert '<p class="subject">y by g and class</p>' in fit_page(*class_fit(crossed=True))
    scores = class_fit(crossed=True)[1].classes.scores
    before, after = (s.labels[np.argmin(s.accuracies.values)] for s in scores.values())
    names = ["g={}, y={}".format(*label.split(" | ")) for label in (before, after)]
    assert f"In the worst group, {names[1]}, " in crossed["lead"][0]
    assert f" in its worst, {names[0]}." in crossed["lead"][0]


def test_a_hinge_has_accuracies_without_probabilities():
    data = data_of(fit_page(*class_fit(loss="squared_hinge")))
    assert "accuracies" in sections(data)
    assert "calibration" not in sections(data)
    assert by_id(data, "risks")["x"] == "squared hinge loss, lower is better"


def test_the_certificate_and_the_diagnosis_are_those_of_classifiers():
    model, record = class_fit()
    data = data_of(fit_page(model, record))
    titles = {part["id"]: part["title"] for part in data["sections"]}
    assert titles["assumptions"] == "What can a linear classifier do for each group?"
    assert titles["risks"] == "Log loss by group"
    facts = [item for block in blocks_of(data) if block["is"] == "facts" for item in block["items"]]
    words = dict(facts)
    assert "the paper's theorem is on neurons" in words["Loss"]
    assert "No coefficients can have a risk lower" in words["Duality gap"]


def test_a_stored_classifier_has_the_page_of_the_fit_itself(tmp_path):
    model, record = class_fit()
    record.save(tmp_path)
    again, same = load_fit(tmp_path)
    np.testing.assert_array_equal(
        same.classes.scores["ours"].confusion, record.classes.scores["ours"].confusion
    )
    assert str(same) == str(record)
    html = write_report(tmp_path).read_text(encoding="utf-8")
    assert data_of(html) == data_of(fit_page(model, record))
    assert again.classes_.tolist() == ["no", "yes"]


def test_the_record_prints_the_answer_first():
    _, record = class_fit()
    lines = str(record).splitlines()
    assert lines[0] == record.answer
    assert lines[1] == record.price
    assert lines[1].startswith("Price: accuracy over all rows ")
    assert lines[5].split() == [
        "group",
        "rows",
        "accuracy",
        "95%",
        "interval",
        "log",
        "loss",
        "weight",
    ]
    assert lines[6].startswith("a ")
