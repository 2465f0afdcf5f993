"""What the guard against slower code says, from ratios that were made up."""

import json

import pytest

from benchmarks import ratios
from benchmarks.ratios import Ratio

QUIET = Ratio(2.0, 0.0)


def test_the_least_times_count_and_halves_of_the_runs_say_how_sure_they_are():
    found = ratios.ratio_of([3.0, 2.0, 9.0, 2.4], [1.0, 1.0, 5.0, 1.0])
    assert found.value == 2.0
    assert found.spread == pytest.approx(0.5)  # runs 1 and 3: 3; runs 2 and 4: 2
    assert ratios.ratio_of([3.0], [1.5]) == Ratio(2.0, 0.0)


@pytest.mark.parametrize(
    ("recorded", "now", "kind"),
    [
        (QUIET, Ratio(2.29, 0.0), "as before"),
        (QUIET, Ratio(2.31, 0.0), "slower"),
        (QUIET, Ratio(1.73, 0.0), "faster"),
        (QUIET, Ratio(1.75, 0.0), "as before"),
        (Ratio(2.0, 0.1), Ratio(2.31, 0.0), "as before"),  # the record was noisy
        (QUIET, Ratio(2.31, 0.1), "as before"),
        (Ratio(2.0, 5.0), Ratio(3.3, 5.0), "slower"),  # noise excuses no more than 60 %
        (None, QUIET, "new"),
        (QUIET, None, "not measured"),
        (QUIET, Ratio(float("nan"), 0.0), "not measured"),
    ],
)
def test_changes_beyond_the_noise_are_told_from_others(recorded, now, kind):
    assert ratios.judged("pass", recorded, now).kind == kind


def test_a_ratio_that_looks_worse_is_measured_again():
    runs = iter([Ratio(3.0, 0.0), Ratio(2.1, 0.0)])
    found = ratios.checked("pass", QUIET, lambda: next(runs))
    assert (found.kind, found.now) == ("as before", Ratio(2.1, 0.0))
    assert next(runs, None) is None


def test_a_ratio_that_stays_worse_is_blamed_with_its_least_value():
    runs = iter([Ratio(3.0, 0.0), Ratio(2.8, 0.0), Ratio(3.5, 0.0)])
    found = ratios.checked("pass", QUIET, lambda: next(runs))
    assert (found.kind, found.now.value) == ("slower", 2.8)
    assert next(runs, None) is None


def test_a_ratio_that_is_fine_is_measured_once():
    runs = iter([Ratio(2.0, 0.0)])
    assert ratios.checked("pass", QUIET, lambda: next(runs)).kind == "as before"
    assert ratios.checked("new", None, lambda: QUIET).kind == "new"


def test_the_first_line_answers():
    recorded = {"pass": QUIET, "fit": Ratio(0.5, 0.0)}
    fine = ratios.compare(recorded, {"pass": QUIET, "fit": Ratio(0.5, 0.0)})
    assert ratios.headline(fine) == "nothing got slower (2 ratios)"
    assert ratios.exit_code(fine) == 0
    worse = ratios.compare(recorded, {"pass": Ratio(3.0, 0.0), "fit": Ratio(0.5, 0.0)})
    assert ratios.headline(worse) == "1 of 2 ratios got worse: pass (+50%)"
    assert ratios.exit_code(worse) == 1
    absent = ratios.compare(recorded, {"pass": QUIET, "fit": None, "other": QUIET})
    assert ratios.headline(absent) == "nothing got slower (1 ratios; 1 could not be measured)"
    assert [v.kind for v in absent] == ["as before", "not measured", "new"]
    assert ratios.headline(ratios.compare({}, {"pass": QUIET})).startswith("nothing to compare")


def test_the_table_has_a_line_for_each_ratio():
    found = ratios.compare({"pass": QUIET}, {"pass": Ratio(3.0, 0.02), "new one": QUIET})
    head, first, second = ratios.table(found).splitlines()
    assert head.split() == ["ratio", "recorded", "now", "change", "spread", "verdict"]
    assert first.split() == ["pass", "2", "3", "+50%", "2%", "slower"]
    assert second.split() == ["new", "one", "-", "2", "-", "0%", "new"]


def test_a_record_is_read_as_it_was_written():
    found = {"pass": Ratio(1.23456, 0.012345), "absent": None}
    content = json.loads(json.dumps(ratios.to_record(found, {"machine": {"cores": 2}})))
    assert content["machine"] == {"cores": 2}
    assert ratios.from_record(content) == {"pass": Ratio(1.235, 0.0123)}
    with pytest.raises(ValueError, match="version 9, and 1 is known; record again"):
        ratios.from_record({**content, "version": 9})


def test_two_measurements_of_one_ratio_say_how_far_they_are_apart():
    assert ratios.merged(Ratio(2.2, 0.01), Ratio(2.0, 0.02)).value == 2.0
    assert ratios.merged(Ratio(2.2, 0.01), Ratio(2.0, 0.02)).spread == pytest.approx(0.1)
