"""Reports in a real browser: drawn, usable, and deaf to what names say."""

import json
import re
from itertools import pairwise

import pytest
from browser import chromium, visit, visits  # noqa: F401
from report_fits import HOSTILE, class_fit, fitted, long_fit

from counterpoise.report import fit_page

pytestmark = pytest.mark.browser

LABELS = [f"g{i:02d}" for i in range(12)]


@pytest.fixture(scope="module")
def html():
    return fit_page(*fitted(LABELS, cv=True))


@pytest.fixture(scope="module")
def shared(visits, html):  # noqa: F811
    return unfolded(visits.go(html))


def unfolded(opened):
    """The page with all folds open."""
    opened.evaluate("document.querySelectorAll('.fold').forEach((fold) => { fold.open = true; })")
    return opened


@pytest.fixture
def opened(visit, shared):  # noqa: F811
    """One page for many tests, each of which brings it to where it needs it."""
    return shared


def column(opened, table, number):
    cells = opened.locator(f"#{table} tbody tr td:nth-child({number})")
    return cells.all_inner_texts()


def test_landmarks_headings_and_names(opened):
    for landmark in ("header", "nav", "main", "footer"):
        assert opened.locator(landmark).count() == 1
    levels = opened.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    opened.draw_all()
    pictures = opened.locator(".plot svg.main-svg[role=img]")
    assert pictures.count() == opened.locator(".plot").count()
    for picture in pictures.all():
        assert len(picture.get_attribute("aria-label")) > 30
    links = opened.locator("nav a").all()
    assert len(links) == 7
    for link in links:
        assert opened.locator(f"section{link.get_attribute('href')}").count() == 1
    unnamed = opened.evaluate(
        "[...document.querySelectorAll('button, input')].filter((e) => !(e.textContent.trim() || "
        "e.getAttribute('aria-label') || e.closest('label'))).length"
    )
    assert unnamed == 0


def test_boxes_choose_the_curves(opened):
    opened.draw_all()
    opened.locator("#choice-groups").get_by_role("button", name="Reset").click()
    assert opened.chart("weights", "gd.data.length") == 8
    boxes = opened.locator("#choice-groups input[type=checkbox]")
    assert boxes.count() == 12
    first = opened.chart("weights", "gd.data[0].name")
    boxes.first.uncheck()
    assert opened.chart("weights", "gd.data.length") == 7
    assert first not in opened.chart("weights", "gd.data.map((t) => t.name)")
    boxes.last.focus()
    opened.keyboard.press("Space")
    assert opened.chart("weights", "gd.data.length") == 8
    opened.locator("#choice-groups").get_by_role("button", name="None").click()
    assert opened.chart("weights", "gd.data.length") == 0
    opened.locator("#choice-groups").get_by_role("button", name="All").click()
    assert opened.chart("weights", "gd.data.length") == 12
    opened.locator("#choice-groups").get_by_role("button", name="Reset").click()
    assert opened.chart("weights", "gd.data.length") == 8


def test_boxes_can_be_searched(opened):
    opened.locator("#choice-groups input[type=search]").fill("G07")
    shown = opened.locator("#choice-groups .boxes label:visible")
    assert shown.all_inner_texts() == ["g07"]
    opened.locator("#choice-groups input[type=search]").fill("")
    assert shown.count() == 12


def test_tables_sort_by_mouse_and_keyboard(opened):
    heads = opened.locator("#risk-table th")
    heads.nth(1).locator("button").click()
    assert heads.locator("button").count() == 6
    name = heads.nth(0)
    name.locator("button").click()
    assert name.get_attribute("aria-sort") == "ascending"
    assert column(opened, "risk-table", 1) == LABELS
    name.locator("button").press("Enter")
    assert name.get_attribute("aria-sort") == "descending"
    assert column(opened, "risk-table", 1) == LABELS[::-1]
    weight = heads.nth(5)
    weight.locator("button").click()
    assert weight.get_attribute("aria-sort") == "descending"
    assert name.get_attribute("aria-sort") is None
    shares = [float(text.strip("<%").replace(",", "")) for text in column(opened, "risk-table", 6)]
    assert shares == sorted(shares, reverse=True)
    said = opened.locator(".table", has=opened.locator("#risk-table")).locator("[role=status]")
    assert said.inner_text() == "12 of 12 rows, by Weight, descending"


def test_tables_sort_verdicts_and_intervals(opened):
    verdicts = opened.locator("#verdict-table th", has_text="Enough rows")
    verdicts.locator("button").click()
    words = [text.split()[1] for text in column(opened, "verdict-table", 7)]
    rank = {"violated": 0, "doubtful": 1, "holds": 2}
    assert [rank[w] for w in words] == sorted(rank[w] for w in words)
    opened.locator("#risk-table th").nth(2).locator("button").click()
    values = [float(text.split()[0]) for text in column(opened, "risk-table", 3)]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_tables_are_filtered(opened):
    box = opened.locator(".table", has=opened.locator("#risk-table")).locator("input")
    box.fill("g1")
    assert set(column(opened, "risk-table", 1)) == {"g10", "g11"}
    box.fill("")
    assert len(column(opened, "risk-table", 1)) == 12


def test_evidence_opens(opened):
    first = opened.locator("#verdict-table details").first
    assert not first.locator(".evidence").is_visible()
    first.locator("summary").press("Enter")
    assert first.locator(".evidence").is_visible()
    assert len(first.locator(".evidence").inner_text()) > 10


def test_dark_colours_and_paper(visit, html):  # noqa: F811
    """The system's colours until others are chosen; on paper light ones, and every chart."""
    opened = visit(html, scheme="dark")
    worn = "document.documentElement.dataset.theme"
    assert opened.evaluate(worn) == "dark"
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    drawn = opened.locator(".plot svg.main-svg:first-child")
    assert drawn.count() == opened.locator(".plot").count() == 6
    assert opened.evaluate(worn) == "light"
    opened.emulate_media(media="print")
    assert not opened.locator("#theme").is_visible()
    assert not opened.locator("nav").is_visible()
    opened.emulate_media(media="screen", color_scheme="dark")
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.evaluate(worn) == "dark"

    def colours():
        back = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        font, mark = opened.chart("risks", "[gd.layout.font.color, gd.data.at(-1).marker.color]")
        return back, font, mark

    opened.emulate_media(color_scheme="light")
    opened.wait_for_function(f"() => {worn} === 'light'")
    before = colours()
    opened.locator("#theme").click()
    assert opened.evaluate(worn) == "dark"
    assert all(a != b for a, b in zip(before, colours(), strict=True))
    opened.reload()  # remembered, whatever the system says
    assert opened.evaluate(worn) == "dark"


def test_a_phone_draws_charts_as_they_come_near_and_never_scrolls_sideways(visit, html):  # noqa: F811
    opened = visit(html, width=375)
    opened.locator("#chart-risks svg.main-svg").first.wait_for()
    assert opened.locator("#chart-residuals svg").count() == 0
    assert unfolded(opened).draw_all() == 6
    for name in ("risks", "progress", "weights", "group-risks", "frontier", "residuals"):
        assert opened.chart(name, "gd.data.length") >= 2
    for width in (320, 768):
        opened.set_viewport_size({"width": width, "height": 800})
        opened.wait_for_function(
            "(width) => [...document.querySelectorAll('.plot')].every((gd) => "
            "gd.layout.width === gd.clientWidth && gd.clientWidth < width)",
            arg=width,
        )
        assert opened.evaluate("document.scrollingElement.scrollWidth") <= width


def test_without_javascript_the_answer_is_still_there(visit, html, shared):  # noqa: F811
    opened = visit(html, java_script_enabled=False)
    for part in ("h1", ".lead", ".figures", "nav", "footer"):
        texts = opened.locator(part).all_inner_texts()
        assert texts == shared.locator(part).all_inner_texts()
        assert all(texts)
    assert "Charts and tables need JavaScript" in opened.locator("noscript").inner_text()


def test_the_command_can_be_copied(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = opened.locator(".code button")
    button.click()
    opened.wait_for_function(
        "() => document.querySelector('.code button').textContent === 'Copied'"
    )
    assert "counterpoise fit rows.csv" in opened.evaluate("navigator.clipboard.readText()")


def test_hostile_names_stay_text(visit):  # noqa: F811
    opened = unfolded(visit(fit_page(*fitted(HOSTILE))))
    names = {name or "(empty)" for name in HOSTILE}
    opened.draw_all()
    opened.locator("#choice-groups").get_by_role("button", name="All").click()
    # No element was made of them: links are those of the contents, the only <b> is the brand.
    made = {tag: opened.locator(f"body {tag}").count() for tag in ("script", "a", "b", "img")}
    assert made == {"script": 4, "a": 1 + opened.locator("nav a").count(), "b": 1, "img": 0}
    assert opened.locator("iframe, i, form, object").count() == 0
    assert opened.locator(".plot a").count() == 0
    assert opened.evaluate("document.querySelectorAll('[onerror],[onclick],[onload]').length") == 0
    cells = opened.locator("#risk-table tbody td:first-child")
    assert set(cells.evaluate_all("(all) => all.map((e) => e.textContent)")) == names
    # Charts too show what is written, tags and entities included.
    ticks = opened.locator("#chart-risks .yaxislayer-above text")
    shown = ticks.evaluate_all("(all) => all.map((e) => e.textContent)")
    for name in ("<b>bold</b>", "&amp;lt; &quot;", "%{x} ${y} {{z}}", "(empty)"):
        assert name in shown
    assert ticks.locator("[style*='font-weight: bold']").count() == 0
    name = "<a href='javascript:alert(3)'>link</a>"
    where = json.dumps(name)
    at = opened.evaluate(
        "report.page.sections.flatMap((s) => s.blocks).find((b) => b.id === 'risks')"
        f".names.indexOf({where})"
    )
    plot = opened.locator("#chart-risks")
    plot.scroll_into_view_if_needed()
    opened.evaluate(
        "(i) => Plotly.Fx.hover(document.getElementById('chart-risks'), "
        "[{ curveNumber: 1, pointNumber: i }])",
        at,
    )
    plot.locator(".hovertext").first.wait_for()
    assert name in plot.locator(".hovertext").first.text_content()
    assert plot.locator(".hovertext a").count() == 0


def test_hundreds_of_groups(visit):  # noqa: F811
    opened = unfolded(visit(fit_page(*long_fit(groups=200, iterations=1000))))
    assert opened.draw_all() == 5
    assert opened.locator("#risk-table tbody tr").count() == 25
    more = opened.locator(".table", has=opened.locator("#risk-table")).get_by_role(
        "button", name="Show 100 more"
    )
    more.click()
    assert opened.locator("#risk-table tbody tr").count() == 125
    opened.locator("#risk-table th button").first.click()
    assert column(opened, "risk-table", 1)[:2] == ["group 0000", "group 0001"]
    opened.locator("#choice-groups").get_by_role("button", name="All").click()
    assert opened.chart("weights", "gd.data.length") == 40
    assert opened.chart("group-risks", "gd.data.length") == 40


def test_one_group_alone(visit):  # noqa: F811
    opened = unfolded(visit(fit_page(*fitted(["only"], compared=False)), width=375))
    assert opened.draw_all() == 2
    assert "nothing to balance" in opened.locator("h1").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_classes_are_drawn(visit, width, scheme):  # noqa: F811
    opened = unfolded(visit(fit_page(*class_fit()), width=width, scheme=scheme))
    assert opened.draw_all() == 6
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "The worst group's accuracy rises from" in opened.locator("h1").inner_text()
    shown = column(opened, "accuracy-table", 3)
    assert all(re.fullmatch(r"[\d.]+%\s\[[\d.]+%, [\d.]+%\]", text) for text in shown)
    assert all(text.endswith(" pts") for text in column(opened, "accuracy-table", 5))
    assert opened.chart("accuracies", "gd.layout.xaxis.tickformat") == ".0%"
    assert opened.chart("calibration", "gd.data.length") == 4  # three groups and the diagonal
    opened.locator("#choice-calibrated").get_by_role("button", name="None").click()
    assert opened.chart("calibration", "gd.data.length") == 1
    head = opened.locator("#accuracy-table th").nth(3)
    if width < 600:  # cards, too few to be worth sorting
        assert not head.is_visible()
        return
    head.locator("button").click()
    values = [float(text.split("%")[0]) for text in column(opened, "accuracy-table", 4)]
    assert values == sorted(values, reverse=True)


def test_hostile_classes_stay_text(visit):  # noqa: F811
    opened = visit(fit_page(*class_fit(("a", "b"), tuple(HOSTILE[:3]))))
    opened.draw_all()
    said = set(column(opened, "confusion-table", 2))
    assert said == set(HOSTILE[:3])
    assert opened.locator("#confusion-table b, #confusion-table img").count() == 0
