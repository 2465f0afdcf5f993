"""Numbers on the study's page are those of the kept results."""

import re
from pathlib import Path

import pytest

from counterpoise.lm.study.report import headline, load_study

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
TABLES = re.findall(r"<!-- headline (\w+) -->\n(.*?)<!-- end -->", PAGE, re.S)


def test_the_page_has_tables():
    assert TABLES


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[name for name, _ in TABLES])
def test_tables_are_made_of_the_kept_results(name, table):
    assert table == headline(load_study(ROOT / "experiments" / "lm" / name))
