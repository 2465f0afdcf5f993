import io
import sys

import pytest

from counterpoise.lm.model_checks.unattended import panics_as_errors, unattended


def test_no_question_is_answered(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\nyes\n"))
    with unattended(), pytest.raises(EOFError):
        input()
    assert sys.stdin.readline() == "yes\n"


def test_panics_are_errors():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match="index out of range"), panics_as_errors():
        raise panic("index out of range")
    with pytest.raises(KeyboardInterrupt), panics_as_errors():
        raise KeyboardInterrupt
