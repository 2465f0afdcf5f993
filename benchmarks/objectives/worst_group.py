"""The largest mean loss of any group."""

NAME = "worst"
TITLE = "worst group"


def nu(y, model) -> float:
    return 0.0
