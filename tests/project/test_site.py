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
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
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
