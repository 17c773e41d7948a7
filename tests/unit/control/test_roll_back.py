"""What a change did is judged on what the configuration carries; what waited before is not its."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.roll_back import RollBack
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from tests.simulating import constant, exact, keyed, line, wanted
from tests.strategies import random_snapshot, random_topology, seeds

ASKED_S = 1000.0
MINUTE_S = 60.0


@pytest.fixture(scope="module")
def seen() -> MetricsSnapshot:
    """source -> map(4 tasks, memory level 1) -> sink."""
    jobs = SimulatedJobs(Topology.of([keyed()]), exact())
    jobs.reset(np.arange(1), np.array([[5000.0]]), parallelism=np.array([[4, 4, 1]]),
               memory_level=np.array([[-1, 1, -1]]))  # fmt: skip
    jobs.advance(300)
    return jobs.snapshot()


def running(
    seen: MetricsSnapshot, t_s: float, tasks: int, level: int, **metrics: float
) -> MetricsSnapshot:
    values = {"status": Status.RUNNING, "latency_p95_s": 0.1, "pending_growth_per_s": 0.0}
    values |= metrics
    p, levels = seen.parallelism.copy(), seen.memory_level.copy()
    p[0, 1], levels[0, 1] = tasks, level
    pending = np.full(p.shape, np.nan)
    growth = pending.copy()
    pending[0, 0] = values.pop("pending_records", 0.0)
    growth[0, 0] = values.pop("pending_growth_per_s")
    given = {name: np.array([value]) for name, value in values.items()}
    return replace(
        seen, t_s=np.array([t_s]), parallelism=p, memory_level=levels, pending_records=pending,
        pending_growth_per_s=growth, **given,
    )  # fmt: skip


def outcome(late_share: float, down_s: float = 0.0) -> Outcome:
    values = dict.fromkeys(Outcome.__dataclass_fields__, np.zeros(1))
    late_s = down_s + late_share * (MINUTE_S - down_s)
    return Outcome(**values | {"seconds": np.array([MINUTE_S]), "slo_s": np.array([late_s]),
                               "down_s": np.array([down_s])})  # fmt: skip


def late_for(
    watch: RollBack, seen: MetricsSnapshot, minutes: int, tasks: int, level: int, **metrics: float
) -> list[int]:
    """The minutes after the change at which a roll-back is due, each of them late."""
    due = []
    for minute in range(1, minutes + 1):
        t_s = ASKED_S + MINUTE_S * minute
        watch.happened(t_s, outcome(1.0, down_s=30.0 if minute == 1 else 0.0))
        late = {"latency_p95_s": 9.0} | metrics
        if watch.due(running(seen, t_s, tasks, level, **late)) is not None:
            due.append(minute)
    return due


def change(seen: MetricsSnapshot, tasks: int, level: int):
    now = running(seen, ASKED_S, tasks, level)
    return wanted(now.parallelism, now.memory_level)


def restarted(watch: RollBack) -> RollBack:
    """The same in another process."""
    other = RollBack(watch.config)
    other.restore(watch.state())
    return other


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(("tasks", "level"), [(5, 1), (4, 2), (16, -1), (8, 0)])
def test_what_carries_more_is_never_taken_back_for_being_late(seen, crashes, tasks, level):
    watch = RollBack()
    watch.asked(running(seen, ASKED_S, 4, 1))
    watch = restarted(watch) if crashes else watch
    assert late_for(watch, seen, 20, tasks, level) == []


@pytest.mark.parametrize(("tasks", "level"), [(3, 1), (4, 0), (5, -1), (2, 2)])
def test_what_carries_less_is_taken_back(seen, tasks, level):
    """Five tasks without memory carry less than four whose state is in the cache."""
    watch = RollBack()
    watch.asked(running(seen, ASKED_S, 4, 1))
    assert late_for(watch, seen, 20, tasks, level) != []


def test_what_waited_before_a_change_is_not_blamed_on_it(seen):
    fresh, behind = RollBack(), RollBack()
    fresh.asked(running(seen, ASKED_S, 4, 1))
    # Two minutes of arrivals wait: six minutes are granted to work them off.
    behind.asked(running(seen, ASKED_S, 4, 1, pending_records=600_000.0))
    early, late = (min(late_for(watch, seen, 15, 3, 1)) for watch in (fresh, behind))
    assert late - early == pytest.approx(6, abs=1)


def test_a_time_in_which_nobody_watched_is_not_blamed_on_a_change(seen):
    watch = RollBack(RollBackConfig(return_s=60))
    watch.asked(running(seen, ASKED_S, 4, 1))
    watch = restarted(watch)
    down = [
        running(seen, ASKED_S + after_s, 3, 1, status=Status.RESTARTING)
        for after_s in (600.0, 659.0, 661.0)
    ]
    assert [watch.due(one) is not None for one in down] == [False, False, True]


def test_a_backlog_that_is_soon_worked_off_is_waited_for(seen):
    watch = RollBack()
    watch.asked(running(seen, ASKED_S, 4, 1))
    drains = {"pending_records": 100_000.0, "pending_growth_per_s": -1000.0}
    assert late_for(watch, seen, 15, 3, 1, **drains) == []


def test_a_late_job_gets_more_though_its_policy_rests(seen):
    watch, permission = RollBack(), Permission("active")
    now = running(seen, ASKED_S, 3, 1, latency_p95_s=9.0)
    watch.due(now)
    permission.rest(ASKED_S, 3600.0)
    assert watch.carried.is_less(now, change(seen, 5, 1))
    assert not watch.carried.is_less(now, change(seen, 2, 1))
    assert permission.against(ASKED_S, changes=True, rescues=True) is None
    assert permission.against(ASKED_S, changes=True).code == "rests"
    permission.rest(ASKED_S, 3600.0, even_late=True)  # it did not run with more
    assert permission.against(ASKED_S, changes=True, rescues=True).code == "rests"


@given(seed=seeds(), late=st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_no_roll_back_takes_from_what_a_late_job_runs_with(seed, late):
    rng = np.random.default_rng(seed)
    jobs = random_topology(rng, 1)
    watch = RollBack(RollBackConfig(slo_share=0.0))
    before = random_snapshot(rng, jobs, ASKED_S)
    watch.due(before)
    watch.asked(before)
    for minute in range(1, 8):
        t_s = ASKED_S + MINUTE_S * minute
        now = random_snapshot(rng, jobs, t_s, previous=before)
        now = replace(now, status=np.array([int(Status.RUNNING)]))
        watch.happened(t_s, outcome(late))
        due = watch.due(now)
        if due is not None and behind(now).is_behind[0]:
            assert watch.carried.is_less(now, due.before)
            assert not watch.carried.is_less(due.before, now)


def test_a_job_is_behind_where_it_is_late_or_work_has_waited_for_a_minute():
    jobs = constant(line(), 500.0, exact(), map=3)
    jobs.advance(300)
    calm = jobs.snapshot()

    def is_behind(seen: MetricsSnapshot) -> bool:
        return bool(behind(seen).is_behind[0])

    assert not is_behind(calm)
    assert is_behind(replace(calm, latency_p95_s=np.array([2.1])))
    waiting = np.where(np.isnan(calm.pending_records), np.nan, 31_000.0)
    assert is_behind(replace(calm, pending_records=waiting))
    assert not is_behind(replace(calm, pending_records=waiting - 2_000.0))
