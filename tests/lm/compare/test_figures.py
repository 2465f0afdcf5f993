"""Figures: what is in them, where their labels are, and that the same results give one file."""

from __future__ import annotations

import builtins
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_studies import curves, scores, study
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from paths import printed
from PIL import Image

from counterpoise.lm.compare import figures
from counterpoise.lm.compare.canvas import (
    COLOURS,
    begin_at,
    panels,
    settled_from,
    short,
    spread_out,
)
from counterpoise.lm.compare.summary import paired_differences

COMMAND = "python experiments/report.py --study $main --cost $5"
STUDY = study({"static": 0.0, "uniform": 0.02, "dro": -0.03}, seeds=3, evaluations=6)
FOREST = paired_differences(STUDY, "static", "average")
DRAW = {
    "curves": lambda path, **o: figures.draw_curves(STUDY, "worst", path, "static", **o),
    "differences": lambda path, **o: figures.draw_differences(STUDY, "static", "web", path, **o),
    "weights": lambda path, **o: figures.draw_weights(STUDY, ["dro", "static"], path, **o),
    "domains": lambda path, **o: figures.draw_domains(STUDY, "static", path, **o),
    "forest": lambda path, **o: figures.draw_forest({"Rules": FOREST}, path, **o),
}
WORDS = {
    "curves": ["static", "uniform", "dro", "loss of the worst domain"],
    "differences": ["uniform", "dro", "loss on web", "minus static, seed by seed"],
    "weights": ["dro", "static", "papers", "weight"],
    "domains": ["uniform", "dro", "papers", "average", "final loss minus static"],
    "forest": ["Rules", "uniform", "dro", "3 of 3", "loss, average over domains, minus static"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAW)
def test_figures_hold_their_names_and_the_command(name, tmp_path):
    path = tmp_path / "images" / f"{name}.svg"
    DRAW[name](path, made_by=COMMAND)
    text = path.read_text()
    assert all(f">{word}<" in text for word in WORDS[name]), name
    assert text.count(COMMAND) == 2, "in small print and as metadata"
    DRAW[name](tmp_path / "again.svg", made_by=COMMAND)
    assert (tmp_path / "again.svg").read_text() == text
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_picture_has_150_dots_per_inch_and_knows_its_command(tmp_path):
    DRAW["curves"](tmp_path / "a.png", made_by=COMMAND)
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (1200, 720)
        assert image.info["Description"] == COMMAND
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_curves_are_means_and_a_run_keeps_its_colour():
    colours = []
    for runs in (None, ["dro", "static"]):
        ax = Figure().subplots()
        figures.draw_curves(STUDY, "average", ax, "static", runs=runs)
        lines = {tuple(np.round(line.get_ydata(), 9)): line for line in ax.get_lines()}
        drawn = {}
        for run in runs or STUDY.runs:
            mean = np.mean([STUDY.curve(run, seed, "average")[1] for seed in range(3)], axis=0)
            drawn[run] = to_hex(lines[tuple(np.round(mean, 9))].get_color()).upper()
        colours.append(drawn)
        labels = {text.get_text(): to_hex(text.get_color()).upper() for text in ax.texts}
        assert labels == drawn
    assert colours[0] == dict(zip(STUDY.runs, COLOURS, strict=False))
    assert colours[1].items() <= colours[0].items()


def test_labels_do_not_cover_each_other_nor_leave_the_figure():
    fig = Figure(figsize=(8, 4.8), layout="constrained")
    ax = fig.subplots()
    figures.draw_curves(study(evaluations=8), "average", ax)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without their thin lines
    assert len(boxes) == 8
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(box.x1 <= fig.bbox.x1 and box.y0 > ax.get_window_extent().y0 - 5 for box in boxes)


@pytest.mark.slow
def test_one_seed_and_many_runs_are_drawn_without_intervals(tmp_path):
    domains = ("web", "code")
    many = study({f"run {i}": 0.01 * i for i in range(10)}, seeds=1, evaluations=2, domains=domains)
    figures.draw_curves(many, "average", tmp_path / "a.png")
    figures.draw_differences(many, "run 0", "average", tmp_path / "b.png")
    figures.draw_weights(many, many.runs[:2], tmp_path / "c.png")
    figures.draw_domains(many, "run 0", tmp_path / "d.png", runs=many.runs[:3])
    figures.draw_forest(paired_differences(many, "run 0", "worst"), tmp_path / "e.svg")
    assert len(list(tmp_path.iterdir())) == 5
    assert "interval" not in (tmp_path / "e.svg").read_text()
    ax = Figure().subplots()
    figures.draw_curves(many, "average", ax)
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.get_lines()}
    assert len(looks) == 10


def test_what_cannot_be_drawn_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"path must end in one of \.png"):
        DRAW["curves"](tmp_path / "a.gif")
    with pytest.raises(ValueError, match="'other' is not known"):
        figures.draw_weights(STUDY, ["other"], tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one run besides 'static'"):
        figures.draw_domains(STUDY, "static", tmp_path / "a.png", runs=["static"])
    with pytest.raises(ValueError, match="at least one difference"):
        figures.draw_forest([], tmp_path / "a.png")
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install"):
        DRAW["weights"](tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_results_need_neither_torch_nor_matplotlib():
    code = (
        "import sys, counterpoise.lm.compare.figures; print([m for m in ('torch', 'pandas', "
        "'matplotlib', 'sklearn', 'scipy.stats') if m in sys.modules])"
    )
    assert printed(code) == "[]"


def test_panels_with_none_below_them_show_their_numbers():
    axes = panels(Figure(), list("abcdefg"), "tokens")
    shown = [ax.xaxis.get_tick_params()["labelbottom"] for ax in axes]
    assert shown == [False, False, False, True, True, True, True]
    assert [bool(ax.get_xlabel()) for ax in axes] == [False] * 4 + [True] * 3


@pytest.mark.slow
def test_a_forest_of_several_baselines_names_them(tmp_path):
    other = paired_differences(STUDY, "uniform", "average", runs=["dro"])
    figures.draw_forest({"A": FOREST, "B": other}, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert ">A: minus static<" in text
    assert ">B: minus uniform<" in text
    figures.draw_forest([*FOREST, *other], tmp_path / "b.svg")
    text = (tmp_path / "b.svg").read_text()
    assert ">dro vs static<" in text
    assert ">dro vs uniform<" in text
    assert "minus baseline<" in text


@given(st.lists(st.floats(0.0, 1.0), max_size=9), st.floats(0.01, 0.3))
def test_labels_keep_their_order_distance_and_bounds(wanted, gap):
    wanted = np.sort(wanted)
    places = spread_out(wanted, gap, 0.0, 1.0)
    room = min(gap, 1.0 / max(len(wanted) - 1, 1))
    assert (np.diff(places) >= room - 1e-9).all()
    assert ((places >= -1e-9) & (places <= 1.0 + 1e-9)).all()
    if (np.diff(wanted) >= gap).all():
        np.testing.assert_allclose(places, wanted, atol=1e-9)


def test_labels_that_are_too_near_give_way_to_both_sides():
    np.testing.assert_allclose(spread_out(np.array([0.5, 0.5]), 0.1, 0.0, 1.0), [0.45, 0.55])
    np.testing.assert_allclose(
        spread_out(np.array([0.1, 0.5, 0.5]), 0.2, 0.0, 1.0), [0.1, 0.4, 0.6]
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (2.5e8, "250M"), (999.7e6, "1B"), (1.5e9, "1.5B")],
)
def test_tokens_in_short(count, text):
    assert short(count) == text


def test_early_losses_do_not_set_the_heights():
    ax = Figure().subplots()
    figures.draw_curves(study({"a": 0.0}, seeds=2, evaluations=50), "average", ax, start=0.5)
    tokens, values = study({"a": 0.0}, seeds=2, evaluations=50).curve("a", 0, "average")
    low, high = ax.get_ylim()
    assert values[0] > high > values[tokens >= 2e8].max() - 0.3
    assert low < values[-1]
    assert math.isclose(ax.get_xlim()[0], 2e8)


def test_the_figure_says_how_many_evaluations_are_cut_off():
    ax = Figure().subplots()
    results = study({"a": 0.0}, seeds=2, evaluations=50)
    figures.draw_curves(results, "average", ax, start=0.5)
    tokens, _ = results.curve("a", 0, "average")
    cut = int((tokens < 2e8).sum())
    note = f"not shown: the first {cut} of {len(tokens)} evaluations, before 200M tokens"
    assert ax.get_title("right") == note
    figures.draw_curves(results, "average", ax := Figure().subplots(), start=0.0)
    assert ax.get_title("right") == ""


def test_differences_begin_where_all_means_stay_on_the_scale():
    tokens = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    ax = Figure().subplots()
    ax.set_ylim(-1.0, 1.0)
    late = (tokens, np.array([0.0, 5.0, 0.5, 0.0, 0.0]))
    early = (tokens, np.array([-3.0, 0.0, 0.0, 0.0, 0.0]))
    assert settled_from(ax, [early]) == 10.0
    assert settled_from(ax, [early, late]) == 20.0
    assert settled_from(ax, [(tokens, np.zeros(5))]) == 0.0
    begin_at(ax, 20.0, tokens)
    assert ax.get_xlim()[0] == 20.0
    assert ax.get_title("right") == "not shown: the first 2 of 5 evaluations, before 20 tokens"


@pytest.mark.slow
def test_differences_show_everything_that_fits(tmp_path):
    """A gap that only the first evaluations have is cut off; an even one is not."""
    figures.draw_differences(STUDY, "static", "average", tmp_path / "even.svg")
    assert "not shown" not in (tmp_path / "even.svg").read_text()
    late = curves(
        {
            "a": [[5.0 + 0.01 * seed] * 12 for seed in range(3)],
            "b": [[7.0, 7.0] + [5.0 + 0.02 * seed] * 10 for seed in range(3)],
        }
    )
    figures.draw_differences(late, "a", "average", tmp_path / "late.svg", start=0.3)
    assert (
        ">not shown: the first 2 of 12 evaluations, before 300 tokens<"
        in (tmp_path / "late.svg").read_text()
    )


def test_every_scored_checkpoint_is_shown():
    """Scores of tasks do not fall steeply at first as losses do, so nothing is cut off."""
    rows = [("a", 0, 100 * i, "qa", "acc", 0.3 + 0.01 * i) for i in range(1, 12)]
    results = study({"a": 0.0}, seeds=1, evaluations=5).with_tasks(scores(rows))
    ax = Figure().subplots()
    figures.draw_curves(results, "task average", ax)
    assert ax.get_xlim()[0] <= 100
    low, high = ax.get_ylim()
    assert low < 0.31 < 0.41 < high
