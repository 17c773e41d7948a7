"""The model run forward: its start, its load, and the configurations it follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.journal import OUTCOMES, ObservedRun
from dsp_gym.whatif.journal_history import history_of_run
from dsp_gym.whatif.model import with_outages
from dsp_gym.whatif.rescales import counted, outages_s
from dsp_gym.whatif.stretch import Charge, IncumbentReplay, Stretch, arrival_rates
from tests.simulating import line

SPEC = line()
REDEPLOYED = line(rescale={"mode": "redeploy", "outage_s": [60, 60, 60]})
WINDOW = WindowConfig(window_s=30, stabilization_s=10)
SLOTS, INTERVAL_S = 12, 30.0


def run(**changed) -> ObservedRun:
    """A quiet hour of the line: 500 records/s, one task of the map, nothing waits."""
    t_s = 1000.0 + INTERVAL_S * np.arange(SLOTS)
    outcome = {name: np.zeros(SLOTS) for name in OUTCOMES}
    outcome |= {
        "seconds": np.full(SLOTS, INTERVAL_S),
        "arrived": np.full(SLOTS, 500.0 * INTERVAL_S),
        "latency_p95_s": np.full(SLOTS, 0.1),
        "cost": np.full(SLOTS, 1.0),
    }
    whole = ObservedRun(
        job="line", vertices=("source", "map", "sink"), t_s=t_s, up=np.full(SLOTS, True),
        parallelism=np.tile([4, 1, 1], (SLOTS, 1)), memory_level=np.full((SLOTS, 3), -1),
        running_since_s=np.full(SLOTS, 0.0), outage_s=np.full(SLOTS, np.nan),
        pending=np.tile([0.0, np.nan, np.nan], (SLOTS, 1)), state_mib=np.full((SLOTS, 3), np.nan),
        outcome=outcome, age_s=np.zeros(SLOTS), arrivals=(np.empty((0, 2)),) * SLOTS, decided={},
        savepoints=np.empty((0, 2)), held_s=np.empty(0), interval_s=INTERVAL_S, configuration=None,
    )  # fmt: skip
    return replace(whole, **changed)


def course(spec=SPEC, **changed) -> JobHistory:
    """The history of that hour."""
    return replace(history_of_run(run(**changed), "a journal", spec), window=WINDOW)


def rescaled_at(slot: int, outage_s: float, **changed) -> dict:
    """From a slot on the map has two tasks, after an outage that began with the slot before."""
    parallelism = np.tile([4, 1, 1], (SLOTS, 1))
    parallelism[slot:, 1] = 2
    since_s, outages = np.zeros(SLOTS), np.full(SLOTS, np.nan)
    since_s[slot:], outages[slot:] = 1000.0 + INTERVAL_S * (slot - 1) + outage_s, outage_s
    return {"parallelism": parallelism, "running_since_s": since_s, "outage_s": outages, **changed}


def whole(found: JobHistory) -> slice:
    (part,) = found.stretches()
    return part


def forward(found: JobHistory, policy=None) -> dict[str, np.ndarray]:
    """Outcomes (K, S) of the deployed configurations, two seeds."""
    part = whole(found)
    charge = Charge(policy or IncumbentReplay(found, part))
    stretch = Stretch(found, part, {INCUMBENT: charge}, 2)
    driven = [stretch.step().outcome for _ in range(part.stop - part.start)]
    names = ("pending", "rescales", "down_s", "processed", "slo_s")
    return {name: np.array([getattr(one, name).copy() for one in driven]) for name in names}


def test_a_stretch_begins_with_a_backlog_that_was_seen():
    unseen = np.tile([0.0, np.nan, np.nan], (SLOTS, 1))
    unseen[0] = np.nan
    assert whole(course(pending=unseen)).start == 1
    nowhere = np.full((SLOTS, 3), np.nan)  # a job without a log
    assert whole(course(pending=nowhere)).start == 0


def test_what_arrived_is_counted_from_sample_to_sample():
    """The load doubles with the fourth decision; its samples are 4 s old, so 4 s of it are less."""
    arrived = np.full(SLOTS, 500.0 * INTERVAL_S)
    arrived[4:] = 1000.0 * INTERVAL_S
    arrived[3], arrived[4] = 500.0 * 30, 500.0 * 4 + 1000.0 * 26
    found = course(outcome=run().outcome | {"arrived": arrived}, age_s=np.full(SLOTS, 4.0))
    per_s = arrival_rates(found, whole(found), 10)
    assert len(per_s) == 10 + SLOTS * INTERVAL_S
    at = 10 + 4 * 30
    assert per_s[: at - 4] == pytest.approx(500.0)
    assert per_s[at + 30 :] == pytest.approx(1000.0)
    assert per_s[at - 4 : at + 26].sum() == pytest.approx(arrived[4])


def test_where_samples_tell_the_load_is_as_fine_as_they_are():
    """It doubles in the middle of the fourth interval; samples are 2 s old at its end."""

    def counted(k: int) -> np.ndarray:
        begin = 1000.0 + INTERVAL_S * k
        times = begin - 2.0 + np.arange(0.0, INTERVAL_S + 1, 5.0)
        doubled = 1000.0 + INTERVAL_S * 3 + 13.0
        total = 500.0 * times + 500.0 * np.maximum(0.0, times - doubled)
        return np.column_stack([times, total - total[0]])

    found = course(arrivals=tuple(counted(k) for k in range(SLOTS)))
    per_s = arrival_rates(found, whole(found), 10)
    assert per_s[: 10 + 3 * 30 + 13] == pytest.approx(500.0)
    assert per_s[10 + 3 * 30 + 13 :] == pytest.approx(1000.0)


def test_what_arrived_in_an_outage_is_offered_in_the_outage():
    """Its last sample before is 20 s old when the interval ends; the next one counts the rest."""
    arrived, ages = np.full(SLOTS, 500.0 * INTERVAL_S), np.zeros(SLOTS)
    arrived[3], arrived[4], ages[3] = 500.0 * 10, 500.0 * 50, 20.0
    found = course(outcome=run().outcome | {"arrived": arrived}, age_s=ages)
    assert arrival_rates(found, whole(found), 0) == pytest.approx(500.0)


def test_the_model_s_log_is_looked_at_when_the_job_s_was():
    """One task carries 1,000 of 2,000 records/s; 10 s before the end 10,000 fewer wait."""
    outcome = run().outcome | {"arrived": np.full(SLOTS, 2000.0 * INTERVAL_S)}
    now = course(outcome=outcome)
    before = course(outcome=outcome, age_s=np.full(SLOTS, 10.0))
    pending = []
    for found in (now, before):
        pending.append(forward(found)["pending"])
    # The one that was seen 10 s before the first decision has waited since then.
    assert pending[1][0] - pending[0][0] == pytest.approx(0.0, abs=2500)
    assert np.diff(pending[1], axis=0) == pytest.approx(30_000, abs=2500)


def test_the_model_is_as_long_up_as_the_job_was():
    """A window that is not full shows it: policies see the job as they would have."""
    seen = []

    class Watching(IncumbentReplay):
        def decide(self, snapshot):
            seen.append(snapshot.window_fill.copy())
            return super().decide(snapshot)

    for since_s in (980.0, 0.0):
        young = course(running_since_s=np.full(SLOTS, since_s))
        forward(young, Watching(young, whole(young)))
    assert np.all(seen[0] < 0.5)
    assert np.all(seen[SLOTS] == 1)


def test_the_model_starts_with_the_backlog_that_was_seen():
    pending = np.tile([0.0, np.nan, np.nan], (SLOTS, 1))
    pending[0, 0] = 60_000.0  # worked off at 500/s in two minutes
    found = course(pending=pending)
    said = forward(found)
    assert said["pending"][:, 0] == pytest.approx([45_000, 30_000, 15_000, *[0] * 9], abs=2500)


def test_what_ran_is_followed_though_an_outage_was_seen_between():
    up = np.full(SLOTS, True)
    up[5] = False
    said = forward(course(**rescaled_at(6, 40.0, up=up)))
    assert np.all(said["rescales"].sum(axis=0) == 1)
    assert np.all(said["rescales"][4] == 1)  # asked for before the outage was seen


def seen(outages: dict[int, float]) -> np.ndarray:
    found = np.full(SLOTS, np.nan)
    for slot, seconds in outages.items():
        found[slot] = seconds
    return found


def test_rescales_take_as_long_as_they_were_seen_to():
    assert with_outages(SPEC, course()) is SPEC
    assert outages_s(run(**rescaled_at(6, 3.0))) == pytest.approx(seen({5: 3.0}), nan_ok=True)
    found = course(**rescaled_at(6, 3.0))
    spec = with_outages(SPEC, found)
    assert spec.rescale.outage_s == (3.0, 3.0, 3.0)
    said = forward(replace(found, spec=spec))
    assert np.all(np.abs(said["down_s"].sum(axis=0) - 3.0) <= 1.0)


@pytest.mark.parametrize(
    ("rescales", "those"), [(1, 1), (2, 2), (3, 3), (5, 4), (7, 6), (11, 8), (15, 12), (16, 16)]
)
def test_the_rescales_that_count_change_seldom(rescales, those):
    assert len(counted(list(range(rescales)))) == those


def test_a_policys_rescales_do_not_wait_behind_the_buffers_of_a_saturated_job():
    found = run(**rescaled_at(6, 3.0, savepoints=np.array([[1159.5, 9.0]])))
    once = history_of_run(found, "a journal", SPEC)
    assert with_outages(SPEC, once).rescale.outage_s == (12.0, 12.0, 12.0)
    since_s, outages = found.running_since_s.copy(), found.outage_s.copy()
    tasks = found.parallelism.copy()
    since_s[10:], outages[10:], tasks[10:] = 1274.0, 4.0, tasks[0]
    twice = replace(
        found,
        running_since_s=since_s,
        outage_s=outages,
        parallelism=tasks,
        savepoints=np.array([[1159.5, 9.0], [1275.0, 0.5]]),
    )
    assert outages_s(twice) == pytest.approx(seen({5: 12.0, 9: 4.5}), nan_ok=True)
    drawn = with_outages(SPEC, history_of_run(twice, "a journal", SPEC))
    assert tuple(map(float, drawn.rescale.outage_s)) == pytest.approx((3.6, 4.0, 4.4))


def test_a_restart_of_the_same_configuration_says_nothing_of_rescales():
    since_s, outages = np.zeros(SLOTS), np.full(SLOTS, np.nan)
    since_s[6:], outages[6:] = 1170.0, 16.0
    assert np.isnan(outages_s(run(running_since_s=since_s, outage_s=outages))).all()


def test_what_ran_takes_each_rescale_as_long_as_it_took():
    """The log is not read from the moment the job is asked to stop; its savepoint took 9 s."""
    stopped = rescaled_at(6, 3.0, savepoints=np.array([[1159.5, 9.0]]))
    said = forward(course(REDEPLOYED, **stopped))
    assert said["down_s"].sum(axis=0) == pytest.approx(3.0, abs=0.5)  # down, not stopping
    assert said["processed"][5] == pytest.approx(500.0 * 30, rel=0.01)  # it catches up
    assert np.all(said["slo_s"][5] > 10)  # what waited for 12 s is late
