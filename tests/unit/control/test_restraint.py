"""Policies whose changes lead nowhere are stopped, and it is said why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.modes import RestraintConfig, RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.turn import Turn
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import Status
from tests.living import Living


class OneMore:
    """Wants one more task of the map at every decision; `flips`: now more, now less."""

    name = "one-more"

    def __init__(self, *, flips: bool = False) -> None:
        self._flips, self._number = flips, 0

    def reset(self, jobs, seeds, mask=None) -> None:
        pass

    def decide(self, snapshot) -> ScalingDecision:
        p = snapshot.parallelism.copy()
        self._number += 1
        p[:, 1] = (2 + self._number % 2) if self._flips else min(40, p[0, 1] + 1)
        return ScalingDecision(p, snapshot.memory_level.copy(), ("more",))

    def state(self) -> dict:
        return {}

    def restore(self, state: dict) -> None:
        pass


@pytest.fixture
def living() -> Living:
    return Living()


def started(living: Living, policy, **rest) -> JobAutoscaler:
    writer = JournalWriter(None, "line", policy.name, living.clock)
    return JobAutoscaler(
        living.backend, [GuardedPolicy(policy)], writer, permission=Permission("active"), **rest
    )


def turns(run: JobAutoscaler, number: int) -> list[Turn]:
    return [run.turn() for _ in range(number)]


def test_increases_that_gain_nothing_end(living):
    """A lag that never falls, because the limit is elsewhere."""
    seen = living.seen

    def limited():
        now = seen()
        sources = np.where(np.isnan(now.pending_records), np.nan, 1.0)
        return replace(
            now,
            records_in_per_s=np.full_like(now.records_in_per_s, 800.0),
            pending_records=sources * 500.0 * living.now_s,
            pending_growth_per_s=sources * 500.0,
            latency_p95_s=np.array([60.0]),
        )

    living.seen = limited
    run = started(living, OneMore())
    told = turns(run, 30)
    asked = [turn.number for turn in told if turn.asked]
    assert 3 <= len(asked) <= 4  # the first shows what it gained only when the next is due
    held = [turn for turn in told[asked[-1] :] if turn.held_code == "runaway"]
    assert len(held) >= 20
    assert "3 increases in a row raised the records read by less than 5 %" in held[0].held


def test_increases_that_gain_go_on(living):
    """1,500 records/s against 1,000/s of each task: one more carries the load."""
    told = turns(started(living, OneMore()), 8)
    assert not [turn for turn in told if turn.held_code == "runaway"]


def test_changes_within_an_hour_are_bounded(living):
    """A policy that answers its own changes."""
    run = started(living, OneMore(flips=True))
    told = turns(run, 120)
    times = np.array([turn.t_s for turn in told if turn.asked])
    most = max(((times > t_s) & (times <= t_s + 3600)).sum() for t_s in times - 1)
    assert most == RestraintConfig().changes_per_hour
    held = next(turn for turn in told if turn.held_code == "too_many")
    assert held.held.startswith("12 changes within an hour; the next in ")


def test_a_job_that_fails_whenever_it_is_scaled_is_scaled_ever_more_rarely(living):
    """Every change is followed by an outage until it is taken back."""
    run = started(
        living, OneMore(), roll_back=RollBack(RollBackConfig(return_s=120, cool_down_s=600))
    )
    down_since: list[float] = []
    apply = living.apply

    def fails(guarded) -> None:
        if (guarded.parallelism != living.simulated.state.parallelism).any():
            living.status_shown = Status.RESTARTING
            down_since.append(living.now_s)
        apply(guarded)

    def returns(before, reason) -> None:
        living.status_shown = None
        living.taken_back.append(reason)
        apply(before)

    living.apply, living.roll_back = fails, returns
    turns(run, 240)
    rests = np.diff(down_since)
    assert len(rests) >= 3
    assert (rests[1:] > 1.7 * rests[:-1]).all(), rests


def test_what_was_counted_outlives_a_restart():
    first, second = Restraint(), Restraint()
    now = Living().seen()
    for minute in range(12):
        first.asked(replace(now, t_s=np.array([60.0 * minute])), increases=False)
    second.restore(first.state())
    assert second.state() == first.state()
    later = replace(now, t_s=np.array([800.0]))
    assert second.against(later, increases=False).code == "too_many"
    second.set_back(100.0)
    assert second.against(replace(now, t_s=np.array([3501.0])), increases=False) is None
