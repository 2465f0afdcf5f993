"""Reports as text: what is in them, and that nothing in them can be anything but text."""

import dataclasses
import json
import re
import subprocess
import sys
import warnings
from copy import copy
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_fits import (
    HOSTILE,
    blocks_of,
    by_id,
    class_rows,
    data_of,
    fit,
    fitted,
    long_fit,
    rows_of,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

import counterpoise
from counterpoise import assess, baselines
from counterpoise.common.jsonable import plain
from counterpoise.common.text import figure
from counterpoise.report import blocks, fit_page, page, write_page, write_report
from counterpoise.report.curves import CURVES, POINTS, foremost, thin, wide
from counterpoise.report.fit.page import SECTIONS
from counterpoise.report.fit.path import LEAST
from counterpoise.report.page import json_text
from counterpoise.report.words import with_thousands
from counterpoise.storage.models import save

CSS = (Path(page.__file__).parent / "page.css").read_text()


class Outline(HTMLParser):
    """Elements and scripts of a file, as a browser would find them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.scripts = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script" and self.scripts:
            self.scripts[-1] += data


def own(html):
    """The page without the charting library, which is large."""
    return html.replace(page.plotly_js(), "")


# Thinning ------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 399, 400, 401, 1000, 10_000, 100_003])
def test_thinning_keeps_ends_and_extremes(n):
    values = np.cumsum(np.random.default_rng(n).normal(size=n))
    kept = thin(values)
    assert len(kept) <= POINTS
    assert kept[0] == 0
    assert kept[-1] == n - 1
    assert (np.diff(kept) > 0).all()
    assert values[kept].min() == values.min()
    assert values[kept].max() == values.max()


def test_thinning_keeps_every_spike_of_its_own_stretch():
    values = np.zeros(20_000)
    spikes = np.arange(500, 20_000, 500)
    values[spikes] = 1.0 + np.arange(len(spikes))
    assert set(spikes) <= set(thin(values).tolist())


def test_thinning_is_fine_at_the_beginning():
    kept = thin(np.arange(10_000.0))
    assert np.diff(kept[:20]).max() <= 3
    assert (kept < 100).sum() > 40


def test_thinning_takes_gaps():
    values = np.full(5000, np.nan)
    assert thin(values)[-1] == 4999
    values[2000] = 7.0
    assert 2000 in thin(values)


def test_thinning_to_too_few_points_is_refused():
    with pytest.raises(ValueError, match="most must be at least 8; got 3"):
        thin(np.arange(100.0), most=3)


def test_the_foremost_of_each_score_are_kept():
    weights = np.linspace(0, 1, 100)
    risks = np.linspace(1, 0, 100)
    kept = foremost(weights, risks, most=4)
    assert sorted(kept) == [0, 1, 98, 99]


def test_wide_ranges_ask_for_a_logarithmic_axis():
    assert wide(np.array([1.0, 100.0]))
    assert not wide(np.array([1.0, 10.0]))
    assert not wide(np.array([0.0, 100.0]))
    assert not wide(np.array([np.nan]))


# Escaping ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HOSTILE)
def test_json_cannot_leave_its_element(name):
    text = json_text({name: [name]})
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == {name: [name]}


def test_what_is_not_finite_becomes_null():
    assert plain([np.nan, np.inf, -np.inf, 1.0]) == [None, None, None, 1.0]
    assert plain(np.float32(0.1), digits=5) == 0.1
    assert json.loads(json_text({"a": np.arange(3), "b": np.bool_(True)})) == {
        "a": [0, 1, 2],
        "b": True,
    }


@pytest.fixture(scope="module")
def hostile():
    return fit_page(*fitted(HOSTILE))


def test_hostile_names_are_data_and_nothing_else(hostile):
    """The file has the same elements and scripts as one about groups with plain names."""
    tame = Outline(own(fit_page(*fitted([f"g{i}" for i in range(len(HOSTILE))]))))
    found = Outline(own(hostile))
    assert found.tags == tame.tags
    assert found.attributes == tame.attributes
    assert [s for i, s in enumerate(found.scripts) if i] == tame.scripts[1:]
    names = by_id(data_of(hostile), "groups")["names"]
    assert sorted(names) == sorted(name or "(empty)" for name in HOSTILE)


def test_hostile_columns_and_files_too():
    model, record = fitted()
    bad = "</script><script>alert(1)</script>"
    data = dataclasses.replace(record.data, path=bad, target=bad, group=[bad], notes=[bad])
    html = fit_page(model, dataclasses.replace(record, command=bad, data=data, versions={bad: bad}))
    assert Outline(own(html)).tags == Outline(own(fit_page(model, record))).tags
    assert f"error in {bad} falls" in data_of(html)["title"]


def test_a_path_that_is_no_text_can_be_written(tmp_path):
    model, record = fitted()
    bad = dataclasses.replace(record.data, path="rows\udcff.csv")
    write_page(fit_page(model, dataclasses.replace(record, data=bad)), tmp_path)
    assert "rows\\udcff.csv" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_only_the_pages_own_scripts_may_run(hostile):
    (policy,) = [
        a[2] for a in Outline(own(hostile)).attributes if a[1] == "content" and "src" in a[2]
    ]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert "unsafe-eval" not in policy
    assert policy.count("'sha256-") == 3
    assert not re.search(r"\b(?:src|href)=[\"']?(?:https?:)?//", own(hostile))


# Content -------------------------------------------------------------------------------------
TITLES = [
    "Error by group",
    "What robustness costs",
    "Residuals by group",
    "Do the theory's assumptions hold for this data?",
    "Certificate",
    "Convergence",
    "Data and provenance",
]


@pytest.mark.parametrize("cv", [False, True])
@pytest.mark.parametrize("compared", [False, True])
def test_a_page_has_all_its_parts(cv, compared):
    model, record = fitted(cv=cv, compared=compared)
    html = fit_page(model, record)
    data = data_of(html)
    assert [part["title"] for part in data["sections"]] == TITLES
    assert (
        f"Counterpoise {counterpoise.__version__}. The fit was made 2 January 2026, 03:04 UTC."
        in html
    )
    ids = [block["id"] for block in blocks_of(data) if "id" in block]
    assert len(ids) == len(set(ids))
    assert {"risks", "risk-table", "weights", "residuals", "verdict-table"} <= set(ids)
    assert ("frontier-table" in ids) == cv
    text = json.dumps(data)
    assert ("--cv" in text) == (not cv)
    assert record.command in [b["text"] for b in blocks_of(data) if b["is"] == "code"]
    assert with_thousands(str(model.certificate_)) in text.encode().decode("unicode_escape")
    assert ("fitted to these rows" in " ".join(data["lead"])) == (not compared)


def test_the_lead_says_what_came_of_it():
    model, record = fitted()
    compared = record.comparison
    (lead, setting, *_) = data_of(fit_page(model, record))["lead"]
    worst = [compared.plain.worst.value, compared.ours.worst.value]
    for value in (*worst, compared.plain_average, compared.ours_average):
        assert figure(value**0.5) in lead, "root mean squared errors, in units of the target"
        assert figure(value) not in lead
    assert "lower than with least squares" in lead
    assert "g = a" in lead
    assert compared.how in setting


def test_a_worse_fit_is_called_worse():
    model, record = fitted()
    compared = record.comparison
    turned = dataclasses.replace(
        compared,
        plain=compared.ours,
        ours=compared.plain,
        plain_average=compared.ours_average,
        ours_average=compared.plain_average,
    )
    data = data_of(fit_page(model, dataclasses.replace(record, comparison=turned)))
    assert data["title"].startswith("The worst group's error in y rises by ")
    assert any("fares worse" in words for words in data["lead"])
    assert data["figures"][0]["tone"] == "bad"


def test_numbers_are_those_of_the_record():
    model, record = fitted()
    table = by_id(data_of(fit_page(model, record)), "risk-table")
    assert table["columns"][0]["name"] == "Group"
    found = {row[0]: row for row in table["rows"]}
    for label in model.groups_.tolist():
        _, rows, before, after, change, weight = found[label]
        assert rows == 60
        assert before == pytest.approx(np.sqrt(record.comparison.plain[label]), rel=1e-4)
        assert after == pytest.approx(np.sqrt(record.comparison.ours[label]), rel=1e-4)
        assert change == pytest.approx(after[0] / before[0] - 1, rel=1e-3, abs=1e-4)
        at = model.groups_.tolist().index(label)
        assert weight == pytest.approx(model.group_weights_[at], rel=1e-4, abs=1e-12)


def test_without_held_out_rows_risks_are_those_of_the_fit():
    model, record = fitted(compared=False)
    table = by_id(data_of(fit_page(model, record)), "risk-table")
    found = {row[0]: row for row in table["rows"]}
    for k, label in enumerate(model.groups_.tolist()):
        assert found[label][2] == pytest.approx(record.plain_risks[k] ** 0.5, rel=1e-4)
        assert found[label][3] == pytest.approx(model.group_risks_[k] ** 0.5, rel=1e-4)


def test_squared_errors_are_folded_away():
    model, record = fitted()
    data = data_of(fit_page(model, record))
    (risks,) = [part for part in data["sections"] if part["id"] == "risks"]
    chart, table, fold = risks["blocks"][1:]
    assert chart["x"] == "root mean squared error of y, lower is better"
    assert [column["name"] for column in table["columns"]] == [
        "Group", "Rows", "Least squares", "This fit", "Change", "Weight",
    ]  # fmt: skip
    assert fold["is"] == "fold"
    (squared,) = fold["blocks"]
    for name, _, before, after, change in squared["rows"]:
        assert before == pytest.approx(list(record.comparison.plain[name]), rel=1e-4)
        assert after == pytest.approx(list(record.comparison.ours[name]), rel=1e-4)
        assert change == pytest.approx(after[0] / before[0] - 1, rel=1e-3, abs=1e-4)
    said = json.dumps([data["title"], data["lead"], data["figures"]])
    assert "mean squared error" not in said.replace("root mean squared error", "")
    assert "risk" not in said


def test_noise_floors_are_in_units_of_the_target():
    model, record = fitted()
    table = by_id(data_of(fit_page(model, record)), "verdict-table")
    for group in record.diagnosis.groups:
        (row,) = [row for row in table["rows"] if row[0] == group.label]
        assert row[-1] == pytest.approx(group.noise_floor**0.5, rel=1e-4)


def test_the_frontier_is_in_units_of_the_target():
    model, record = fitted(cv=True)
    found, data = model.frontier_, data_of(fit_page(model, record))
    rows = by_id(data, "frontier-table")["rows"]
    for k, (_, nu, average, worst, error) in enumerate(rows):
        assert nu is None or nu == pytest.approx(found.nu[k], rel=1e-4)
        assert average**2 == pytest.approx(found.average[k], rel=1e-3)
        assert worst**2 == pytest.approx(found.worst[k], rel=1e-3)
        # One standard error up and down spans as much as it does in squares, to first order.
        assert (worst + error) ** 2 - (worst - error) ** 2 == pytest.approx(
            2 * found.error[k], rel=1e-3
        )
    chart = by_id(data, "frontier")
    assert chart["y"] == "root mean squared error, worst group"
    assert figure(float(found.worst[found.chosen] ** 0.5)) in chart["summary"]
    assert figure(float(found.worst[found.plain] ** 0.5)) in chart["summary"]
    assert (
        f"The chosen strength, nu = {figure(float(found.nu[found.chosen]))}, " in chart["summary"]
    )
    assert model.verdict_ not in data["lead"]
    (fold,) = [b for b in blocks_of(data) if b["is"] == "fold" and "candidates" in b["title"]]
    assert fold["blocks"][0]["paragraphs"] == [with_thousands(model.verdict_)]


def test_a_choice_without_a_strength_is_named_by_its_family():
    model, record = fitted(cv=True)
    chosen = copy(model)
    nu = model.frontier_.nu.copy()
    nu[model.frontier_.chosen] = np.nan
    family = ["by group" for _ in nu]
    chosen.frontier_ = dataclasses.replace(model.frontier_, nu=nu, family=family)
    summary = by_id(data_of(fit_page(chosen, record)), "frontier")["summary"]
    assert summary.startswith("The chosen fit, by group, has a root mean squared error of ")


def test_a_certificate_is_a_sentence_and_the_rest_is_folded():
    model, record = fitted()
    (part,) = [p for p in data_of(fit_page(model, record))["sections"] if p["id"] == "certificate"]
    first, fold = part["blocks"]
    assert first["paragraphs"] == [
        "Proved: no other coefficients lower the objective of this fit by more than 0.001 %."
    ]
    assert fold["title"] == "The whole certificate"
    assert fold["blocks"][0]["paragraphs"] == [with_thousands(str(model.certificate_))]


def test_a_gap_that_proves_nothing_is_not_called_a_proof():
    model, record = fitted()
    for gap in (np.inf, 10.0 * abs(model.certificate_.risk)):
        loose = copy(model)
        loose.certificate_ = dataclasses.replace(model.certificate_, duality_gap=gap)
        data = data_of(fit_page(loose, record))
        (part,) = [p for p in data["sections"] if p["id"] == "certificate"]
        assert "could not be bounded" in part["blocks"][0]["paragraphs"][0]
        assert data["figures"][-1]["value"] == "no bound"


def test_few_iterations_have_no_charts():
    """Four points and a jump show nothing; from eight on, charts are folded away."""
    model, record = fitted()
    for iterations, drawn in ((LEAST - 2, False), (LEAST - 1, True)):
        short = copy(model)
        short.history_ = {
            key: np.resize(values, (iterations, *np.shape(values)[1:]))
            for key, values in model.history_.items()
        }
        data = data_of(fit_page(short, record))
        (part,) = [p for p in data["sections"] if p["id"] == "path"]
        assert part["blocks"][0]["paragraphs"] == [model.status_]
        assert [block["title"] for block in part["blocks"][1:]] == (
            ["How the fit converged"] if drawn else []
        )


@pytest.mark.parametrize(
    ("engine", "words"), [("memory", "read into memory"), ("chunked", "read in chunks")]
)
def test_how_rows_were_read_is_said_in_plain_words(engine, words):
    model, record = fitted()
    data = dataclasses.replace(record.data, engine=engine, rows=1_234_567)
    html = fit_page(model, dataclasses.replace(record, data=data))
    assert f'["Rows","1,234,567, {words}"]' in html
    assert "engine" not in own(html).split('id="data">')[1].split("</script>")[0]


def test_advice_is_given_at_the_top_without_its_evidence():
    model, record = fitted()
    for said, expected in (
        ("raise nu: groups are small (3 rows)", "Advice: raise nu: groups are small."),
        ("proceed: nothing here argues against it.", None),
    ):
        advised = dataclasses.replace(record.diagnosis, advice=[said])
        lead = data_of(fit_page(model, dataclasses.replace(record, diagnosis=advised)))["lead"]
        assert [words for words in lead if words.startswith("Advice")] == (
            [expected] if expected else []
        )


def test_curves_end_at_the_returned_fit():
    model, record = fitted()
    chart = by_id(data_of(fit_page(model, record)), "weights")
    for series in chart["series"]:
        k = model.groups_.tolist().index(series["name"])
        assert series["y"][-1] == pytest.approx(model.group_weights_[k], rel=1e-4, abs=1e-12)
        assert series["y"][0] == pytest.approx(model.history_["weights"][0, k], rel=1e-4)


@pytest.mark.parametrize(
    "labels",
    [[0], ["only"], [3, 1, 2], [1.5, -2.0], ["z", "é", "中"], [True, False]],
    ids=str,
)
def test_groups_of_any_kind(labels):
    model, record = fitted(labels)
    names = {str(label) for label in model.groups_.tolist()}
    data = data_of(fit_page(model, record))
    assert set(by_id(data, "risks")["names"]) == names
    assert {row[0] for row in by_id(data, "risk-table")["rows"]} == names
    assert {row[0] for row in by_id(data, "verdict-table")["rows"]} == names


def test_a_record_with_nothing_but_the_fit():
    model, record = fitted(compared=False, diagnosed=False, residuals=None)
    data = data_of(fit_page(model, record))
    assert [part["title"] for part in data["sections"]] == [t for t in TITLES if "Resid" not in t]
    assert "over all rows is not known" in data["lead"][0]
    assert len(data["figures"]) == 3


def test_arrays_have_a_page_without_files_and_commands(tmp_path):
    model, (X, y, groups) = fit(("a", "b", "c", "d"))
    record = dataclasses.replace(assess(model, X, y, groups, folds=2), options={})
    html = record.report(tmp_path / "page.html").read_text(encoding="utf-8")
    data = data_of(html)
    assert data["title"].startswith("The worst group's error falls by ")
    assert '<p class="subject">Label by groups</p>' in html
    assert figure(record.comparison.ours.worst.value**0.5) in data["lead"][0]
    assert not [block for block in blocks_of(data) if block["is"] == "code"]
    shown = html.split(page.plotly_js())[0].split("<body>")[1].split("<script>")[0]
    assert "None" not in shown
    assert "--cv" not in shown
    assert "GroupDRONeuronCV" in shown


@pytest.mark.parametrize("kind", [getattr(baselines, name) for name in baselines.__all__])
def test_baselines_have_a_page(kind):
    """Methods without a certificate or weights along the way leave these parts out."""
    classifies = "Classifier" in kind.__name__
    X, y, groups = class_rows(["a", "b"], ["no", "yes"]) if classifies else rows_of(["a", "b"])
    first = "log" if classifies else "identity"
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model = kind(first, max_iter=20).fit(X, y, groups=groups)
        record = assess(model, X, y, groups, folds=None, diagnosis=False)
    data = data_of(fit_page(model, record))
    parts = [part["id"] for part in data["sections"]]
    assert ("certificate" in parts) == hasattr(model, "certificate_")
    assert parts[0] == "risks"
    assert parts[-1] == "repeat"


def test_a_pipeline_is_shown_by_its_last_step():
    model, record = fitted()
    assert fit_page(Pipeline([("neuron", model)]), record) == fit_page(model, record)


def test_a_section_is_one_function():
    def loudest(fit):
        return blocks.section("own", "My own", blocks.text(f"hardest: {fit.names[fit.order[0]]}"))

    model, record = fitted()
    data = data_of(fit_page(model, record, sections=[*SECTIONS, loudest, lambda fit: None]))
    assert [part["title"] for part in data["sections"]] == [*TITLES, "My own"]
    assert data["sections"][-1]["blocks"][0]["paragraphs"] == ["hardest: a"]


def test_groups_that_were_not_judged_are_told_apart():
    """A group without held-out rows: unknown, and last."""
    model, record = fitted()
    compared = record.comparison

    def without(found):
        kept = slice(1, None)
        columns = {n: getattr(found, n)[kept] for n in ("labels", "sizes", "values", "low", "high")}
        return dataclasses.replace(found, **columns)

    compared = dataclasses.replace(
        compared, plain=without(compared.plain), ours=without(compared.ours)
    )
    data = data_of(fit_page(model, dataclasses.replace(record, comparison=compared)))
    *_, last = by_id(data, "risk-table")["rows"]
    assert last[:4] == [str(model.groups_[0]), 0, [None] * 3, [None] * 3]


@pytest.mark.slow
def test_many_groups_and_iterations_stay_small():
    html = fit_page(*long_fit())
    data = data_of(html)
    assert len(own(html)) < 3e6
    chart = by_id(data, "weights")
    assert len(chart["series"]) == CURVES
    assert max(len(series["x"]) for series in chart["series"]) <= POINTS
    assert "at most 400 are drawn" in chart["caption"]
    assert f"{CURVES} of 1,000 groups" in chart["caption"]
    assert len(by_id(data, "risks")["names"]) <= 60
    assert len(by_id(data, "risk-table")["rows"]) == 1000
    assert sum(map(len, [by_id(data, "groups")["on"]])) == 8


# Style ---------------------------------------------------------------------------------------
def colours(theme):
    rule = re.search(rf":root{re.escape(theme)} {{(.*?)}}", CSS, re.S).group(1)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rule))


def contrast(one, other):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["", '[data-theme="dark"]'])
def test_text_stands_out(theme):
    known = colours(theme)
    pairs = [(t, b) for t in ("text", "soft", "link", "good", "bad") for b in ("back", "raised")]
    pairs += [(name, f"{name}-back") for name in ("good", "doubt", "bad")]
    for text, back in pairs:
        assert contrast(known[text], known[back]) >= 4.5, (text, back)
    for mark in ("ours", "plain"):
        assert contrast(known[mark], known["back"]) >= 3.0, mark


# Files ---------------------------------------------------------------------------------------
def test_a_folder_of_nothing_is_an_error(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ValueError, match=r"holds no model\.json"):
            write_report(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cv", [False, True])
def test_a_stored_fit_has_the_page_of_the_fit_itself(tmp_path, cv):
    model, record = fitted(HOSTILE, cv=cv)
    save(model, tmp_path / "fit", record)
    file = write_report(tmp_path / "fit")
    assert file == tmp_path / "fit" / "report.html"
    data = data_of(file.read_text(encoding="utf-8"))
    assert data == data_of(fit_page(model, record))
    assert by_id(data, "group-risks")["series"][0]["y"][-1] > 0


def test_a_file_that_stands_there_stays_whole(tmp_path):
    """What cannot be written leaves the report of before, and nothing beside it."""
    model, record = fitted()
    save(model, tmp_path / "fit", record)
    write_report(tmp_path / "fit")
    before = sorted(path.name for path in (tmp_path / "fit").iterdir())
    (tmp_path / "fit" / "model.json").write_text("{")
    with pytest.raises(ValueError, match=r"model\.json"):
        write_report(tmp_path / "fit")
    assert sorted(path.name for path in (tmp_path / "fit").iterdir()) == before
    assert data_of((tmp_path / "fit" / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["plotly", "jinja2"])
def test_without_its_libraries_the_error_says_what_to_install(monkeypatch, name):
    model, record = fitted()
    needs = {"plotly": page.plotly_js, "jinja2": page._template}[name]
    needs.cache_clear()
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"need {name}: pip install {name}$"):
        fit_page(model, record)


@pytest.mark.slow
def test_importing_reports_imports_no_heavy_library():
    code = (
        "import sys, counterpoise.report.fit.page, counterpoise.lm.report.run\n"
        "import counterpoise.lm.report.comparison\n"
        "print([m for m in ('jinja2', 'plotly', 'torch', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
