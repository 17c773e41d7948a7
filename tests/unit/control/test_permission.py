"""Permission to enact: its conditions, and roll-backs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.control.modes import CanaryConfig, RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.roll_back import RollBack
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import Status
from tests.simulating import constant, exact, line, wanted

MIDNIGHT = 20_000 * 86_400.0


@pytest.fixture
def seen():
    jobs = constant(line(), 500.0, exact(), map=3)
    jobs.advance(300)
    return jobs.snapshot()


def outcome(late_share: float, seconds: float = 60.0, down_s: float = 0.0) -> Outcome:
    values = dict.fromkeys(Outcome.__dataclass_fields__, np.zeros(1))
    late = down_s + late_share * (seconds - down_s)
    return Outcome(**values | {"seconds": np.array([seconds]), "slo_s": np.array([late]),
                               "down_s": np.array([down_s])})  # fmt: skip


def change(seen, tasks: int):
    parallelism = seen.parallelism.copy()
    parallelism[:, 1] = tasks
    return wanted(parallelism, seen.memory_level.copy())


def at(seen, t_s: float, status: Status = Status.RUNNING, tasks: int | None = None):
    values = {"t_s": np.array([t_s]), "status": np.array([int(status)])}
    if tasks is not None:
        values["parallelism"] = change(seen, tasks).parallelism
    return replace(seen, **values)


def test_an_active_policy_may_always_act():
    assert Permission("active").against(0.0, changes=True) is None


def test_a_stop_file_holds_everything_while_it_exists(tmp_path):
    file = tmp_path / "stop"
    permission = Permission("active", stop_file=file)
    assert permission.pause() is None
    file.touch()
    assert permission.against(0.0, changes=True).code == "paused"
    assert str(file) in permission.pause()
    file.unlink()
    assert permission.against(0.0, changes=True) is None


def test_whoever_stops_it_says_why():
    held = Permission("active", stopped=lambda: "annotation dsp-gym.io/stop").against(0.0, True)
    assert held == ("paused", "annotation dsp-gym.io/stop")


def test_a_share_of_the_changes_is_enacted_and_keeping_is_never_held():
    permission = Permission("canary", CanaryConfig(share=0.25))
    enacted = [permission.against(60.0 * i, changes=True) is None for i in range(400)]
    assert sum(enacted) == 100
    assert sum(enacted[:40]) == 10
    assert permission.against(0.0, changes=False) is None


@pytest.mark.parametrize(
    ("hours", "inside"), [(8.9, False), (9.0, True), (17.4, True), (17.5, False), (23.0, True),
                          (1.9, True), (2.0, False)]
)  # fmt: skip
def test_windows_are_times_of_day_also_over_midnight(hours, inside):
    canary = CanaryConfig(windows=("09:00-17:30", "22:00-02:00"))
    held = Permission("canary", canary).against(MIDNIGHT + 3600 * hours, changes=True)
    assert (held is None) == inside


@pytest.mark.parametrize("windows", [("9-17",), ("09:00",), ("25:00-26:00",)])
def test_what_is_no_time_of_day_is_refused(windows):
    with pytest.raises(ValueError, match="no time of day"):
        CanaryConfig(windows=windows)


def test_after_a_roll_back_nothing_is_enacted_for_a_while():
    permission = Permission("active")
    permission.rest(100.0, 50.0)
    assert permission.against(149.0, changes=True).code == "rests"
    assert permission.against(150.0, changes=True) is None


def test_a_job_that_does_not_come_back_is_rolled_back(seen):
    watch = RollBack(RollBackConfig(return_s=120))
    watch.asked(at(seen, 1000.0))
    assert watch.due(at(seen, 1100.0, Status.RESTARTING)) is None
    before, reason, *_ = watch.due(at(seen, 1121.0, Status.RESTARTING, tasks=5))
    assert before.parallelism[0, 1] == 3
    assert "RESTARTING 121 s after" in reason
    assert watch.due(at(seen, 1200.0, Status.RESTARTING, tasks=5)) is None  # once


def test_a_roll_back_that_was_put_off_stays_due_and_rests_as_long(seen):
    watch = RollBack(RollBackConfig(return_s=120, cool_down_s=600))
    watch.asked(at(seen, 1000.0))
    for t_s in (1130.0, 1190.0, 1250.0):
        due = watch.due(at(seen, t_s, Status.RESTARTING, tasks=5))
        assert (due.before.parallelism[0, 1], due.rest_s) == (3, 600.0)
        watch.put_off(due)


def test_a_failure_long_after_the_change_is_not_its_fault(seen):
    watch = RollBack(RollBackConfig(return_s=120))
    watch.asked(at(seen, 1000.0))
    assert watch.due(at(seen, 1060.0, tasks=5)) is None  # it came back
    assert watch.due(at(seen, 1200.0, Status.RESTARTING, tasks=5)) is None


def test_fewer_tasks_that_made_it_late_are_rolled_back(seen):
    watch = RollBack(RollBackConfig(slo_share=0.1, return_s=120))
    for t_s in (940.0, 1000.0):
        watch.happened(t_s, outcome(0.02))
    watch.asked(at(seen, 1000.0))
    for t_s, down_s in ((1060.0, 10.0), (1120.0, 0.0)):
        watch.happened(t_s, outcome(0.5, down_s=down_s))
        assert watch.due(at(seen, t_s, tasks=2)) is None
    watch.happened(1180.0, outcome(0.5))
    before, reason, *_ = watch.due(at(seen, 1180.0, tasks=2))
    assert before.parallelism[0, 1] == 3
    assert "50 % of the seconds" in reason
    assert "2 % were before" in reason


def test_the_outage_of_the_change_itself_does_not_count(seen):
    watch = RollBack()
    watch.asked(at(seen, 1000.0))
    for t_s in (1060.0, 1120.0, 1180.0):
        watch.happened(t_s, outcome(0.0, down_s=50.0))
        assert watch.due(at(seen, t_s, tasks=2)) is None


def test_a_job_that_has_caught_up_is_left_alone(seen):
    """A second restart would make it late once more."""
    watch = RollBack(RollBackConfig(slo_share=0.1))
    watch.asked(at(seen, 1000.0))
    for t_s, late in ((1030.0, 0.9), (1060.0, 0.9), (1090.0, 0.0), (1120.0, 0.0)):
        watch.happened(t_s, outcome(late, down_s=2.0 if t_s == 1030.0 else 0.0))
        assert watch.due(at(seen, t_s, tasks=2)) is None
    watch.happened(1150.0, outcome(0.9))  # late again, by itself
    assert watch.due(at(seen, 1150.0, tasks=2)) is not None


def test_what_an_outage_left_is_worked_off_in_three_times_its_length(seen):
    watch = RollBack(RollBackConfig(slo_share=0.1))
    watch.asked(at(seen, 1000.0))
    watch.happened(1060.0, outcome(0.0, down_s=60.0))
    due = []
    for minute in range(2, 7):
        watch.happened(1000.0 + 60.0 * minute, outcome(1.0))
        due.append(watch.due(at(seen, 1000.0 + 60.0 * minute, tasks=2)) is not None)
    assert due == [False, False, False, True, False]  # once


def test_more_tasks_are_not_taken_back_for_being_late(seen):
    watch = RollBack()
    watch.asked(at(seen, 1000.0))
    for t_s in (1060.0, 1120.0, 1180.0, 1240.0):
        watch.happened(t_s, outcome(1.0))
        assert watch.due(at(seen, t_s, tasks=6)) is None


def test_a_change_is_watched_for_its_time_only(seen):
    watch = RollBack(RollBackConfig(return_s=60, watch_s=120))
    watch.asked(at(seen, 1000.0))
    assert watch.due(at(seen, 1181.0, tasks=2)) is None
    for t_s in (1240.0, 1300.0, 1360.0):
        watch.happened(t_s, outcome(1.0))
    assert watch.due(at(seen, 1360.0, tasks=2)) is None


def test_a_change_is_watched_as_long_where_the_clock_goes_back(seen):
    roll_back = RollBack(RollBackConfig(return_s=90, watch_s=300))
    roll_back.asked(at(seen, 10_000.0))
    roll_back.happened(9_990.0, outcome(0.5))
    roll_back.set_back(9_000.0)
    down = {"status": Status.RESTARTING, "tasks": 5}
    assert roll_back.due(at(seen, 1_080.0, **down)) is None
    assert roll_back.state()["outcomes"] == [[990.0, 60.0, 30.0, 0.0]]
    before, reason, *_ = roll_back.due(at(seen, 1_100.0, **down))
    assert before.parallelism[0, 1] == 3
    assert "RESTARTING 100 s after" in reason
