"""The table of supported releases, from the tests that ran."""

from __future__ import annotations

import json

import pytest

from dsp_gym.backends.flink.versions import TABLE
from dsp_gym.studies.validation import releases
from dsp_gym.studies.validation.releases import Acting, Compared, Reading, Release


def reading(*, passed: bool = True, windows: int = releases.WINDOWS) -> Reading:
    return Reading(passed, "2026-11-26", "2 cores", windows, 16, 7, {})


def test_the_table_is_what_the_tests_that_ran_say():
    found = releases.read(releases.figures_file())
    hint = "run python -m dsp_gym.studies.validation.releases"
    assert TABLE.read_text(encoding="utf-8") == releases.table(found), hint


def test_a_release_is_read_where_every_window_was_right():
    rows = json.loads(
        releases.table(
            {
                "1.18.1": Release(reading()),
                "1.19.3": Release(reading(passed=False)),
                "1.20.3": Release(reading(windows=99)),
                "2.0.1": Release(),
            }
        )
    )
    assert {version: row["reading"] for version, row in rows.items()} == {
        "1.18": True, "1.19": False, "1.20": False, "2.0": False,
    }  # fmt: skip


def test_a_job_is_changed_where_every_test_of_that_passed():
    acting = {"in_place": Acting(True, "2026-11-26", 7), "redeploy": Acting(False, "2026-11-26", 9)}
    rows = json.loads(releases.table({"2.1.0": Release(reading(), acting)}))
    row = {"reading": True, "in_place": True, "redeploy": False, "memory": False}
    assert rows == {"2.1": row}


def test_what_was_tested_is_kept_beside_what_is_tested_now(tmp_path):
    file = tmp_path / "releases.json"
    releases.record_acting("2.1.0", {"in_place": Acting(True, "2026-11-25", 7)}, file)
    releases.record_reading("2.1.0", reading(), file)
    releases.record_reading("1.20.3", reading(passed=False), file)
    releases.record_acting("2.1.0", {"memory": Acting(True, "2026-11-26", 2)}, file)
    found = releases.read(file)
    assert list(found) == ["1.20.3", "2.1.0"]
    assert set(found["2.1.0"].acting) == {"in_place", "memory"}
    assert found["2.1.0"].reading == reading()


def test_errors_are_summed_up_apart_from_what_was_not_read():
    errors = [(0.001 * n, 0.03) for n in range(100)] + [(float("inf"), 0.03)]
    found = Compared.of(errors)
    assert (found.numbers, found.unread, found.bar, found.p99, found.worst) == (
        101, 1, 0.03, pytest.approx(0.098), pytest.approx(0.099),
    )  # fmt: skip
    assert found.wrong == 69 + 1
