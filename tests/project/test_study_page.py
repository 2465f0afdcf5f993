"""Numbers on the study's page are those of the kept results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "lm"))

from page import DOCS, FIGURE, TABLE, filled, load_study  # noqa: E402

PAGE = (DOCS / "study.md").read_text(encoding="utf-8")
STUDIES = sorted(path.parent.name for path in (ROOT / "experiments" / "lm").glob("*/study.json"))


@pytest.fixture(scope="module")
def now():
    """The page as the kept results make it."""
    return filled(PAGE)


@pytest.mark.slow
def test_tables_are_made_of_the_kept_results(now):
    """Each table on its own, for an error that names it."""
    shown = [match.group(0) for match in TABLE.finditer(PAGE)]
    again = [match.group(0) for match in TABLE.finditer(now)]
    for old, new in zip(shown, again, strict=True):
        assert old == new
    assert {match.group(2) for match in TABLE.finditer(PAGE)} >= set(STUDIES)


@pytest.mark.slow
def test_a_changed_number_is_found(now):
    (first, *_) = TABLE.finditer(PAGE)
    changed = PAGE.replace(first.group(0), first.group(0).replace("0.0", "0.1", 1))
    assert changed != PAGE
    assert filled(changed) == now


def test_figures_are_there():
    names = [name for name, _, _ in FIGURE.findall(PAGE)]
    assert names
    for name in names:
        assert (DOCS / "images" / name).exists()


@pytest.mark.parametrize("name", STUDIES)
def test_studies_are_whole(name):
    """Five seeds of every run, or more, of the same tokens, and the settings that made them."""
    study = load_study(ROOT / "experiments" / "lm" / name)
    results = study.results
    named = [run for group in study.groups.values() for run in group["runs"]]
    assert results.runs == named
    for run in named:
        seeds = results.seeds(run)
        assert len(seeds) >= 5
        assert seeds == list(range(len(seeds)))
    ends = {results.matrix(run, 0)[0][-1] for run in named}
    assert len(ends) == 1
    assert study.references is not None
    assert study.about["command"].startswith("counterpoise lm compare configs/")
