"""The documentation site: it builds without a warning, and has what it should have."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from browser import chromium  # noqa: F401  (a fixture)
from public_names import PACKAGES

from counterpoise.cli.main import cli

ROOT = Path(__file__).parents[2]
MADE = shutil.ignore_patterns("auto_gallery", "generated", "__pycache__")

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built from a copy, so that what is made on the way does not lie about in the repository."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=MADE)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)
    ended = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", "html"],
        cwd=folder, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return folder / "html"


class Page(HTMLParser):
    """Ids, addresses and pictures of a page, and what a reader sees."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.sources, self.words = set(), [], [], []
        self.pictures = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "img":
            self.pictures.append(found)
        if tag in ("img", "script", "link"):
            self.sources.append(found.get("src") or found.get("href") or "")

    def handle_data(self, data):
        self.words.append(data)


def test_pages_are_there(site):
    pages = [path.stem for path in (ROOT / "docs").glob("*.md")]
    assert {"index", "start", "mathematics", "limits", "coming-from"} <= set(pages)
    for page in [*pages, "api", "search", "genindex", "auto_gallery/index"]:
        assert (site / f"{page}.html").exists(), page
    for script in (ROOT / "docs" / "gallery").glob("*.py"):
        page = Page(site / "auto_gallery" / f"{script.stem}.html")
        assert any("sphx_glr" in source for source in page.sources), f"{script.stem} has no picture"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_one_page_and_one_line(package, site):
    """A name that is missing goes into a table of docs/api.rst."""
    listed = re.findall(r"^   (\w+)$", (ROOT / "docs" / "api.rst").read_text(), re.M)
    for name in importlib.import_module(package).__all__:
        assert listed.count(name) == 1, f"{name} is in docs/api.rst {listed.count(name)} times"
        assert f"{package}.{name}" in Page(site / "generated" / f"{package}.{name}.html").ids


def test_every_command_is_explained(site):
    def paths(command, path):
        yield path
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from paths(command.get_command(context, name), f"{path} {name}")

    page = Page(site / "command-line.html")
    for path in paths(cli, "counterpoise"):
        assert path.replace(" ", "-") in page.ids, path
        assert f"Usage: {path}" in "".join(page.words)


def test_links_lead_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            where, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", where):
                continue
            target = (path.parent / where).resolve() if where else path
            assert target.exists(), (path.name, link)
            if anchor and target in pages:
                assert anchor in pages[target].ids, (path.name, link)


def test_pages_need_no_connection(site):
    """Scripts, styles and pictures are files of the site."""
    for path in site.rglob("*.html"):
        for source in Page(path).sources:
            assert not source.startswith(("http:", "https:", "//")), (path.name, source)


def test_no_page_tells_where_it_was_built(site):
    places = (str(ROOT), str(site.parent), str(Path.home()), sys.prefix)
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for place in places:
            assert place == "/" or place not in text, (path.name, place)


def test_formulas_are_drawn_by_the_browser(site):
    text = (site / "mathematics.html").read_text(encoding="utf-8")
    assert "<math" in text
    assert "$$" not in text


def test_pictures_have_words_for_those_who_cannot_see_them(site):
    """Those of the gallery's cards may go without: the card's title is next to them."""
    for path in site.rglob("*.html"):
        for picture in Page(path).pictures:
            if "_thumb" not in picture["src"]:
                assert picture.get("alt", "").strip(), (path.name, picture["src"])


def test_thumbnails_are_drawn_for_their_size(site):
    """They are not figures made small: letters in them would be too small to read."""
    from PIL import Image

    files = sorted(site.glob("_images/*_thumb.png"))
    assert len(files) == len(list((ROOT / "docs" / "gallery").glob("*.py")))
    for file in files:
        with Image.open(file) as image:
            assert image.size == (720, 504), file.name


def test_the_first_page_says_how_to_install_and_when_not_to(site):
    words = "".join(Page(site / "index.html").words)
    assert words.index("pip install") < words.index("import") < words.index("When not to use it")


# -- in a browser ------------------------------------------------------------------------------

SEEN = [
    "index", "start", "installing", "study", "coming-from", "genindex", "search",
    "auto_gallery/index", "auto_gallery/plot_05_corrupted_labels",
    "generated/counterpoise.GroupDRONeuron",
]  # fmt: skip


@pytest.fixture(params=[(1400, "light"), (900, "light"), (390, "dark")], ids=str)
def window(request, chromium):  # noqa: F811
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.mark.browser
def test_pages_fit_the_window(window, site):
    for name in SEEN:
        window.goto((site / f"{name}.html").as_uri())
        wide = window.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], (name, wide)
        assert window.locator("article h1").first.is_visible(), name


@pytest.mark.browser
def test_the_reference_is_in_sight(chromium, site):  # noqa: F811
    """In a window of usual height, the navigation shows the reference without scrolling."""
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    page.goto((site / "generated" / "counterpoise.GroupDRONeuron.html").as_uri())
    link = page.locator(".sidebar-drawer a", has_text="API reference")
    assert 0 < link.bounding_box()["y"] < 900
    page.close()


@pytest.mark.browser
def test_folded_tables_open(chromium, site):  # noqa: F811
    page = chromium.new_page()
    page.goto((site / "study.html").as_uri())
    folded = page.locator("details.tables")
    assert folded.count() >= 8
    table = folded.first.locator("table").first
    assert not table.is_visible()
    folded.first.locator("summary").click()
    assert table.is_visible()
    page.close()


@pytest.mark.browser
def test_pages_are_accessible(window, site):
    """By axe-core's rules, nothing serious is wrong."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for name in SEEN:
        window.goto((site / f"{name}.html").as_uri())
        found = [
            (violation["id"], [node["html"][:120] for node in violation["nodes"]][:3])
            for violation in axe.run(window).response["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        assert not found, (name, found)
