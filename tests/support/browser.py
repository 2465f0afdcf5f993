"""A real browser for tests: Chromium, driven by Playwright.

A file of tests imports the fixtures ``chromium``, ``visits`` and ``visit`` from here.
"""

import os
import shutil
from dataclasses import dataclass, field

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    """Find the browser: the variable CHROMIUM, or one of the usual names; None without one."""
    asked = os.environ.get("CHROMIUM")
    if asked:
        return shutil.which(asked)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def lacking(what):
    """Skip tests that need a browser; fail them where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; CI is set, so the tests in a browser must run")
    pytest.skip(what)


@pytest.fixture(scope="module")
def chromium():
    """A running browser for one file of tests.

    A browser for the whole session would save a second, but Playwright keeps an event loop running
    in the main thread, in which other tests could not run their own.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("there is no Playwright: pip install playwright")
    with sync_playwright() as playwright:
        path = find_chromium() or playwright.chromium.executable_path  # of Playwright's own
        if not os.path.exists(path):
            lacking("there is no Chromium: apt install chromium, or set CHROMIUM to its path")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page opened from a file, and everything that went wrong in it."""

    page: object
    troubles: list = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.page, name)

    def draw_all(self):
        """Scroll through the page until every chart is drawn."""
        charts = self.page.locator(".plot")
        for i in range(charts.count()):
            charts.nth(i).scroll_into_view_if_needed()
            charts.nth(i).locator("svg.main-svg").first.wait_for()
        return charts.count()

    def chart(self, name, what):
        """An expression of the chart's element, called ``gd``."""
        return self.page.evaluate(f"(id) => {{ const gd = document.getElementById(id); return {what} }}", f"chart-{name}")  # fmt: skip # noqa: E501


class Visits:
    """Pages that a file of tests has opened, each in a context of its own."""

    def __init__(self, chromium, folder):
        self.chromium, self.folder, self.all = chromium, folder, []

    def go(self, html, *, width=1280, scheme="light", **context):
        """Open the text of a page from a file, in a context with these options."""
        file = self.folder / f"page-{len(self.all)}.html"
        file.write_text(html, encoding="utf-8")
        size = {"width": width, "height": 900}
        context = self.chromium.new_context(viewport=size, color_scheme=scheme, **context)
        seen = Visit(context.new_page())
        self.all.append(seen)
        note = seen.troubles.append
        seen.page.on("console", lambda m: note(f"console: {m.text}"))
        seen.page.on("pageerror", lambda error: note(f"error: {error}"))
        seen.page.on("dialog", lambda dialog: (note(f"dialog: {dialog.message}"), dialog.accept()))
        local = ("file:", "data:", "blob:")
        seen.page.on(
            "request", lambda r: None if r.url.startswith(local) else note(f"request: {r.url}")
        )
        seen.page.goto(file.as_uri())
        return seen


@pytest.fixture(scope="module")
def visits(chromium, tmp_path_factory):
    """Pages that tests of a file share: to open one takes seconds."""
    opened = Visits(chromium, tmp_path_factory.mktemp("pages"))
    yield opened
    for seen in opened.all:
        seen.page.context.close()


@pytest.fixture
def visit(visits):
    """Opens a page; when the test ends, nothing may have gone wrong in any."""
    yield visits.go
    troubles = [trouble for seen in visits.all for trouble in seen.troubles]
    assert not troubles, troubles
