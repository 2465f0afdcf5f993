"""Reports for every reader and screen: axe-core finds no fault, and nothing is cut."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import chromium, visit, visits  # noqa: F401
from report_fits import class_fit, fitted

from counterpoise.report import blocks as b
from counterpoise.report import fit_page
from counterpoise.report.page import Page

pytestmark = pytest.mark.browser

LABELS = [f"group {i:02d}" for i in range(12)]
WIDTHS = (1400, 768, 390)
KINDS = {
    "numbers": lambda: fit_page(*fitted(LABELS, cv=True)),
    "classes": lambda: fit_page(*class_fit()),
    "nothing compared": lambda: fit_page(*fitted(["only"], compared=False, diagnosed=False)),
}


@pytest.fixture(scope="module")
def pages():
    return {name: make() for name, make in KINDS.items()}


def faults(opened):
    """What axe-core objects to, and where."""
    found = Axe().run(opened.page).response["violations"]
    return {fault["id"]: [node["target"] for node in fault["nodes"]] for fault in found}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("kind", KINDS)
def test_no_accessibility_violations(visit, pages, kind, width, scheme):  # noqa: F811
    opened = visit(pages[kind], width=width, scheme=scheme, reduced_motion="reduce")
    assert faults(opened) == {}, "as the page opens"
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.draw_all() >= 1
    assert faults(opened) == {}, "with every fold open and every chart drawn"


def test_the_checker_finds_what_is_wrong(visit, pages):  # noqa: F811
    opened = visit(pages["classes"], reduced_motion="reduce")
    opened.evaluate(
        "document.querySelector('main section').append(document.createElement('button'))"
    )
    assert list(faults(opened)) == ["button-name"]


def test_a_chart_is_a_picture_with_words(visit, pages):  # noqa: F811
    opened = visit(pages["classes"], width=768)
    waiting = opened.locator("#chart-calibration")
    assert waiting.get_attribute("role") == "img"
    said = waiting.get_attribute("aria-label")
    waiting.scroll_into_view_if_needed()
    picture = waiting.locator("[role=img]")
    assert picture.get_attribute("aria-label") == said
    assert waiting.get_attribute("role") is None, "its buttons are no part of the picture"
    assert picture.evaluate("(one) => one.tagName") == "svg"
    buttons = waiting.locator(".modebar-btn").evaluate_all(
        "(all) => all.map((one) => one.getAttribute('aria-label'))"
    )
    assert buttons == ["Download plot as a PNG", "Reset axes"], "none that uploads anything"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_without_a_hint(visit, pages, kind, width):  # noqa: F811
    """A table fits, or says that it scrolls, by keyboard too; the page itself never scrolls."""
    opened = visit(pages[kind], width=width)
    opened.evaluate("document.querySelectorAll('.fold').forEach((one) => { one.open = true; })")
    opened.wait_for_timeout(100)
    assert opened.evaluate("document.scrollingElement.scrollWidth") <= width
    tables = opened.locator(".table").all()
    assert len(tables) >= 2
    for table in tables:
        box = table.locator(".scroll")
        scrolls = box.evaluate("(one) => one.scrollWidth > one.clientWidth + 1")
        assert table.locator(".hint").is_visible() == scrolls
        assert box.get_attribute("tabindex") == ("0" if scrolls else None)
        assert bool(box.get_attribute("aria-label")) == scrolls
        if width == 390:
            assert not scrolls, "cards"
    for main in opened.locator(".table", has=opened.locator("#risk-table, #accuracy-table")).all():
        assert not main.locator(".hint").is_visible(), "the tables with the answer always fit"


def test_a_phone_shows_rows_as_cards_with_the_names_of_columns(visit, pages):  # noqa: F811
    opened = visit(pages["numbers"], width=390)
    rows = opened.locator("#risk-table tbody tr")
    assert rows.count() == 12
    cells = rows.first.locator("td")
    for i in range(cells.count()):
        box = cells.nth(i).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    shown = cells.evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one, '::before').content)"
    )
    assert shown == ["none", '"Rows"', '"Least squares"', '"This fit"', '"Change"', '"Weight"']
    # To a screen reader it is still a table, and its headings still sort.
    assert opened.get_by_role("table").first.get_by_role("columnheader").count() == 6
    opened.get_by_role("button", name="Weight").click()
    assert opened.locator("#risk-table th").nth(5).get_attribute("aria-sort") == "descending"


def wide_page(tiles=4, columns=30):
    """A table with more columns than cards have room for."""
    heads = [("Run", "text"), *((f"column {i}", "number") for i in range(columns))]
    rows = [[f"row {k}", *(1000.0 * k + i for i in range(columns))] for k in range(3)]
    part = b.section("all", "All", b.table("all-table", "All runs.", heads, rows))
    figures = [b.key_figure(f"Figure {i}", "1,234", "a remark") for i in range(tiles)]
    page = Page(
        kind="run",
        title="Title",
        subject="Subject",
        lead=["Lead"],
        figures=figures,
        sections=[part],
    )
    return page.html()


def test_a_wide_table_is_scrolled_by_keyboard(visit):  # noqa: F811
    opened = visit(wide_page(), width=390, reduced_motion="reduce")
    box, edge = opened.locator(".scroll"), opened.locator(".edge")
    assert opened.locator(".hint").is_visible()
    assert edge.get_attribute("data-more") == "", "a shadow at the right end"
    assert faults(opened) == {}
    box.focus()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function("() => document.querySelector('.scroll').scrollLeft > 0")
    name = opened.locator("td.name").first
    assert name.bounding_box()["x"] >= 0, "names stay in view"
    box.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
    opened.wait_for_function("() => !document.querySelector('.edge').hasAttribute('data-more')")
    assert opened.locator("td", has_text="2,029").is_visible()


@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5])
def test_no_tile_is_left_alone_beside_a_gap(visit, tiles):  # noqa: F811
    opened = visit(wide_page(tiles))
    for width in WIDTHS:
        opened.set_viewport_size({"width": width, "height": 900})
        whole = opened.locator(".figures").bounding_box()
        rows = {}
        for tile in opened.locator(".figures > div").all():
            box = tile.bounding_box()
            rows.setdefault(round(box["y"]), []).append(box)
        for row in rows.values():
            last = max(row, key=lambda box: box["x"])
            end = whole["x"] + whole["width"]
            assert last["x"] + last["width"] == pytest.approx(end, abs=1), (width, tiles)
        if width == 1400:
            assert len(rows) == 1
