"""Dataclasses from TOML and back: strict, and nothing is lost on the way."""

import tomllib
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoise.common.toml import (
    as_table,
    build,
    parse_changes,
    read_toml,
    to_toml,
    with_changes,
)


@dataclass(frozen=True)
class Inner:
    size: int = 1
    rate: float = 0.5
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    start: str | dict[str, float] | None = None
    flag: bool = False


def test_a_whole_file_becomes_objects():
    found = build(
        Outer,
        tomllib.loads(
            """
            name = "a"
            start = { x = 1 }
            shares = { x = 0.5, y = 1 }
            [inner]
            size = 2e3
            names = ["p", "q"]
            [[many]]
            rate = 2
            """
        ),
    )
    inner = Inner(size=2000, names=("p", "q"))
    assert found == Outer("a", inner, (Inner(rate=2.0),), {"x": 0.5, "y": 1.0}, {"x": 1.0})
    assert isinstance(found.inner.size, int)
    assert isinstance(found.shares["y"], float)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nam": "a"}, r"no setting 'nam'; did you mean 'name'\?"),
        ({"name": "a", "qqq": 1}, "no setting 'qqq'; choose one of 'name', 'inner'"),
        ({"name": "a", "inner": {"siz": 1}}, r"'inner.siz'; did you mean 'size'\?"),
        # a typo is named before what is missing because of it, wherever it is
        ({"inner": {"siz": 1}}, r"'inner.siz'; did you mean 'size'\?"),
        ({"many": [{}, {"rat": 1}]}, r"'many\[1\].rat'; did you mean 'rate'\?"),
        ({}, "'name' has no default; add it"),
        ({"name": 1}, "name must be a string; got 1"),
        ({"name": "a", "flag": 1}, "flag must be true or false; got 1"),
        ({"name": "a", "inner": {"size": True}}, "inner.size must be a whole number; got True"),
        ({"name": "a", "inner": {"size": 1.5}}, "inner.size must be a whole number; got 1.5"),
        ({"name": "a", "inner": {"rate": "fast"}}, "inner.rate must be a number; got 'fast'"),
        ({"name": "a", "inner": {"names": "pq"}}, "inner.names must be a list; got 'pq'"),
        ({"name": "a", "inner": 3}, "inner must be a table; got 3"),
        ({"name": "a", "shares": {"x": "y"}}, "shares.x must be a number; got 'y'"),
        ({"name": "a", "start": 3}, "start must be a string; got 3; or start must be a table"),
        ({"name": "a", "many": [{"size": "b"}]}, r"many\[0\].size must be a whole number"),
        (7, "the configuration must be a table; got 7"),
    ],
)
def test_what_does_not_fit_is_named(table, message):
    with pytest.raises(ValueError, match=message):
        build(Outer, table)


def test_changes_leave_the_original_alone():
    table = {"inner": {"size": 1, "names": ["p"]}}
    changed = with_changes(table, {"inner.size": 2, "inner.names": ["q"], "name": "b"})
    assert changed == {"inner": {"size": 2, "names": ["q"]}, "name": "b"}
    changed["inner"]["names"].append("r")
    assert table == {"inner": {"size": 1, "names": ["p"]}}
    with pytest.raises(ValueError, match=r"cannot set 'inner.size.x': 'size' is not a table"):
        with_changes(table, {"inner.size.x": 1})


def test_changes_on_the_command_line():
    found = parse_changes(["a.b=1e-3", "a.c=[1, 2]", 'a.d="x"', "a.e=pd-kl", "f = true"])
    assert found == {"a.b": 1e-3, "a.c": [1, 2], "a.d": "x", "a.e": "pd-kl", "f": True}
    for wrong in ("a.b", "=1"):
        with pytest.raises(ValueError, match="must have the form"):
            parse_changes([wrong])


texts = st.text(alphabet="ab.é#=-_'\" \\\n\t\x01\x7f", max_size=6)
plain = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), texts)
values = st.recursive(
    plain,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(texts, v, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_toml_is_read_as_it_was_written(table):
    assert tomllib.loads(to_toml(table)) == table


def test_objects_are_read_as_they_were_written(tmp_path):
    one = Outer("a", Inner(3), (Inner(1), Inner(2, names=("x",))), {"d.e": 0.5}, None, True)
    path = tmp_path / "a.toml"
    path.write_text(to_toml(as_table(one), "Head\n\nline"))
    assert build(Outer, read_toml(path)) == one
    assert path.read_text().startswith("# Head\n#\n# line\n")
    assert "start" not in read_toml(path)  # what is None is not written


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="no configuration file"):
        read_toml(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("a = \n")
    with pytest.raises(ValueError, match=r"bad.toml' is not TOML: .*line 1"):
        read_toml(bad)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000 + "]" * 100_000,
        "x = " + "{a = " * 5000 + "1" + "}" * 5000,
        ".".join(["a"] * 5000) + " = 1",
        "[" + ".".join(["a"] * 5000) + "]\nb = 1",
    ],
)
def test_deep_files_are_refused_with_their_name(tmp_path, text):
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ValueError, match=r"deep\.toml' is not TOML: it is nested more than 50"):
        read_toml(tmp_path / "deep.toml")


def test_deep_changes_are_refused_by_name():
    with pytest.raises(ValueError, match=r"cannot set 'train\.seed': it is nested more than 50"):
        parse_changes(["train.seed=" + "[" * 100_000])
