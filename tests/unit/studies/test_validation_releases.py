"""The table of supported releases, from the tests that ran."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dsp_gym.backends.flink.versions import TABLE
from dsp_gym.studies.validation import releases
from dsp_gym.studies.validation.releases import Acting, Reading, ReadingErrors, Release

RIGHT = ReadingErrors(1000, 0, 0, 0.03, 0.001, 0.02)
TRUE_RATES = ReadingErrors(1000, 5, 0, 0.05, 0.04, 0.2)
"""Five are off, as on a busy machine."""


def reading(troubles: int = 0, **compared: ReadingErrors) -> Reading:
    found = {"records/s": RIGHT, releases.TRUE_RATE: TRUE_RATES, **compared}
    return Reading(True, "2026-11-26", "2 cores", 100, 16, 7, found, troubles)


def test_the_table_is_what_the_tests_that_ran_say():
    written = releases.table(releases.read(releases.figures_file()))
    hint = "run python -m dsp_gym.studies.validation.releases"
    assert json.loads(TABLE.read_text("utf-8")) == json.loads(written), hint


@pytest.mark.parametrize(
    ("tested", "is_read"),
    [
        (reading(), True),
        (reading(**{"records/s": replace(RIGHT, wrong=1)}), False),
        (reading(**{releases.TRUE_RATE: replace(TRUE_RATES, p99=0.06)}), False),
        (reading(**{releases.TRUE_RATE: replace(TRUE_RATES, unread=1)}), False),
        (reading(troubles=1), False),
        (replace(reading(), compared={}), True),
        (replace(reading(), compared={}, passed=False), False),
        (None, False),
    ],
)
def test_a_release_is_read_where_every_window_was_right(tested, is_read):
    rows = json.loads(releases.table({"1.20.3": Release(tested)}))
    assert rows == {
        "1.20": {"reading": is_read, "in_place": False, "redeploy": False, "memory": False}
    }


def test_a_job_is_changed_where_every_test_of_that_passed():
    acting = {"in_place": Acting(True, "2026-11-26", 7), "redeploy": Acting(False, "2026-11-26", 9)}
    rows = json.loads(releases.table({"2.1.0": Release(reading(), acting)}))
    row = {"reading": True, "in_place": True, "redeploy": False, "memory": False}
    assert rows == {"2.1": row}


def test_what_was_tested_is_kept_beside_what_is_tested_now(tmp_path):
    file = tmp_path / "releases.json"
    releases.record_acting("2.1.0", {"in_place": Acting(True, "2026-11-25", 7)}, file)
    releases.record_reading("2.1.0", reading(), file)
    releases.record_reading("1.20.3", reading(troubles=1), file)
    releases.record_acting("2.1.0", {"memory": Acting(True, "2026-11-26", 2)}, file)
    found = releases.read(file)
    assert list(found) == ["1.20.3", "2.1.0"]
    assert set(found["2.1.0"].acting) == {"in_place", "memory"}
    assert found["2.1.0"].reading == reading()


def test_errors_are_summed_up_apart_from_what_was_not_read():
    errors = [(0.001 * n, 0.03) for n in range(100)] + [(float("inf"), 0.03)]
    found = ReadingErrors.of(errors)
    assert (found.numbers, found.unread, found.bar, found.p99, found.worst) == (
        101, 1, 0.03, pytest.approx(0.098), pytest.approx(0.099),
    )  # fmt: skip
    assert found.wrong == 69 + 1
