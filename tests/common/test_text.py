"""Messages of other packages on one line."""

import pytest

from counterpoise.common.text import LONGEST, one_line


class Foreign(Exception):
    """As packages define them."""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (ValueError("two\n   lines\tand a tab"), "two lines and a tab"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError 'a'"),
        (IndexError("out of range"), "IndexError out of range"),
        (Foreign("speaks for itself"), "speaks for itself"),
        (Foreign(), "Foreign"),
        ("plain\ntext", "plain text"),
        (OSError("\x1b]0;title\x07 \u202egnp.exe"), r"\x1b]0;title\x07 \u202egnp.exe"),
    ],
)
def test_one_line(said, shown):
    assert one_line(said) == shown


@pytest.mark.parametrize("letter", ["x", "\x1b", " x", "\n"])
def test_long_messages_are_cut(letter):
    assert len(one_line(ValueError(letter * 1_000_000))) <= LONGEST + 3
