"""The picture of a frontier: its words, its error bars, and names that cover nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from counterpoise.estimators.frontier import COLOURS, Frontier

AVERAGE = [137, 147, 148.5, 151.5, 160.5, 193, 225, 247, 259, 266]
WORST = [933, 447, 430, 405, 367, 334, 326, 330, 335, 338]


def a_frontier(chosen=6, plain=0, scale=1.0, **options):
    """A frontier of least squares and two families, one slightly above the other."""
    average = np.array(AVERAGE + [a + 3 for a in AVERAGE[1:]], dtype=float) * scale
    worst = np.array(WORST + [w + 15 for w in WORST[1:]], dtype=float) * scale
    family = ["average"] + ["plain"] * 9 + ["reference risks"] * 9
    nu = np.array([np.inf, *np.geomspace(1000, 1, 9), *np.geomspace(1000, 1, 9)])
    error = np.full(len(nu), 0.05 * worst.min())
    return Frontier(family, nu, average, worst, error, chosen, plain, **options)


def names_of(ax):
    return {text.get_text(): text for text in ax.texts}


@pytest.mark.parametrize(
    ("measure", "axis"), [("risk", "mean squared error"), ("log loss", "log loss")]
)
def test_title_and_axes_say_what_is_measured(measure, axis):
    ax = a_frontier(measure=measure).plot()
    assert ax.get_xlabel() == f"{axis}, average over rows"
    assert ax.get_ylabel() == f"{axis}, worst group"
    assert ax.get_title() == "Worst group against average, held out (lower is better)"


@pytest.mark.parametrize("chosen", [6, 0])
def test_the_main_points_have_error_bars(chosen):
    found = a_frontier(chosen)
    (bars,) = found.plot().collections
    ends = {(round(x, 6), round(low, 6), round(high, 6)) for (x, low), (_, high) in
            bars.get_segments()}  # fmt: skip
    assert ends == {
        (found.average[i], found.worst[i] - found.error[i], found.worst[i] + found.error[i])
        for i in {0, chosen}
    }


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e9])
@pytest.mark.parametrize("chosen", range(1, 19))
def test_names_cover_no_point_no_bar_and_not_each_other(chosen, scale):
    found = a_frontier(chosen, scale=scale)
    ax = found.plot()
    ax.figure.draw_without_rendering()
    texts = names_of(ax)
    assert set(texts) == {"plain average", f"chosen: nu = {found.nu[chosen]:.3g}"}
    boxes = [Text.get_window_extent(text) for text in texts.values()]
    assert not boxes[0].overlaps(boxes[1])
    points = ax.transData.transform(np.column_stack([found.average, found.worst]))
    bars = ax.transData.transform(np.concatenate(ax.collections[0].get_segments()))
    frame, legend = ax.get_window_extent(), ax.get_legend().get_window_extent()
    for box in boxes:
        assert not any(box.contains(*point) for point in [*points, *bars])
        assert not box.overlaps(legend)
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1


def test_the_plain_average_can_be_the_choice():
    ax = a_frontier(0).plot()
    assert set(names_of(ax)) == {"chosen: the plain average"}


def test_a_choice_without_a_strength_is_named_by_its_family():
    found = a_frontier(6)
    family = [*found.family[:6], "own fits", *found.family[7:]]
    nu = np.where(np.arange(len(found)) == 6, np.inf, found.nu)
    ax = replace(found, family=family, nu=nu).plot()
    assert set(names_of(ax)) == {"plain average", "chosen: own fits"}


def test_large_numbers_have_separators():
    ax = a_frontier(scale=1000.0).plot()
    ax.figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        assert all("," in label.get_text() for label in axis.get_ticklabels())


def test_many_families_differ_and_other_averages_are_hollow():
    found = a_frontier(6)
    family = ["average", "average, group as a feature", *(f"family {i}" for i in range(17))]
    lines = {line.get_label(): line for line in replace(found, family=family).plot().get_lines()}
    looks = [(lines[name].get_color(), lines[name].get_marker()) for name in family[2:]]
    assert len(set(looks)) == 17
    fills = [lines[name].get_markerfacecolor() for name in family[:2]]
    assert fills == ["black", "white"]


def test_families_differ_in_colour_and_marker():
    lines = {line.get_label(): line for line in a_frontier().plot().get_lines()}
    plain, reference = lines["plain"], lines["reference risks"]
    assert (plain.get_color(), reference.get_color()) == COLOURS[:2]
    assert plain.get_marker() != reference.get_marker()


def test_axes_of_ones_own_are_used(tmp_path):
    half, other = Figure(figsize=(12, 4)).subfigures(1, 2)
    left, right = half.subplots(), other.subplots()
    left.scatter([150], [400])
    assert a_frontier().plot(left) is left
    assert left.get_title()
    assert not right.get_title()
    a_frontier().plot(path=tmp_path / "alone.png")
    assert (tmp_path / "alone.png").stat().st_size > 0
