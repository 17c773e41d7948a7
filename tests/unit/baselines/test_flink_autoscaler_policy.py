"""The autoscaler in the gym: its own window from snapshots, batches, state, gates, speed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, spec_of

QUICK = {
    "metrics.window": "3 min",
    "stabilization.interval": "1 min",
    "scale-down.interval": "0 s",
    "restart.time": "1 min",
}


def policy(version: str = "1.15.0", **conf: str):
    keys = {f"job.autoscaler.{name}": value for name, value in (QUICK | conf).items()}
    params = {"flink_configuration": keys, "version": version}
    return make(PolicyConfig(policy="flink-autoscaler", params=params))


def chain(**rest):
    """source -> map -> sink; the source cannot be scaled."""
    return spec_of(
        "chain",
        {"name": "source", "kind": "source"},
        {"name": "map", "inputs": [{"from": "source", "ship": "REBALANCE"}], "parallelism": 2},
        {"name": "sink", "kind": "sink", "parallelism": 2,
         "inputs": [{"from": "map", "ship": "REBALANCE"}]},
        **rest,
    )  # fmt: skip


def minute(
    topology,
    i: int,
    *,
    busy=(300.0, 900.0, 500.0),
    per_s=1000.0,
    since_s=0.0,
    pending=0.0,
    **values,
):
    """A snapshot at minute i of a job that has read `per_s` all the time."""
    total = per_s * max(60.0 * i - since_s, 0.0)
    values = {"parallelism": [1, 2, 2]} | values
    return blank_snapshot(
        topology, 60.0 * i, running_since_s=since_s, records_in_total=total,
        records_out_total=total, records_in_per_s=per_s, busy_now_ms_per_s=busy,
        backpressured_now_ms_per_s=0.0, pending_records=[pending, np.nan, np.nan], **values,
    )  # fmt: skip


def run(made, snapshots):
    snapshots = list(snapshots)
    made.reset(snapshots[0].topology, np.zeros(1, dtype=np.int64))
    return [made.decide(snapshot) for snapshot in snapshots]


TOPOLOGY = Topology.of([chain()])


def test_it_decides_once_the_window_is_full_after_stabilisation():
    # Samples count from minute 1; three minutes later, at minute 4, the window is full.
    done = run(policy(), (minute(TOPOLOGY, i) for i in range(5)))
    assert [d.parallelism[0].tolist() for d in done[:4]] == [[1, 2, 2]] * 4
    # map: 2000/1800 per busy share: rate 1111/s for 1000/s at 0.7, 1000 * 60 / 1800 for a
    # restart: 1462 / 1111.111 * 2 = 2.63 tasks; 1111 > 1000: within, but sink is 2000/s:
    # 1462 / 2000 * 2 = 1.46, within 1000 .. 2533 too. Nothing moves.
    assert done[4].parallelism[0].tolist() == [1, 2, 2]
    done = run(policy(), (minute(TOPOLOGY, i, busy=(300.0, 1000.0, 300.0)) for i in range(5)))
    # sink: 1000 / 0.3 = 3333 > 2533 is outside; map goes along: 2 * 1462 / 1000 = 2.92.
    assert done[3].parallelism[0].tolist() == [1, 2, 2]
    assert done[4].parallelism[0].tolist() == [1, 3, 1]
    said = "map 2 at level 0 -> 3 at level 0 (true rate 1,000/s, target 1,000/s"
    assert said in done[4].reasons[0]


def test_overrides_are_applied_again_until_the_job_runs_them():
    busy = (300.0, 1000.0, 300.0)
    steps = [minute(TOPOLOGY, i, busy=busy) for i in range(5)]
    steps.append(minute(TOPOLOGY, 4.5, busy=busy))  # before the next pass
    steps.append(minute(TOPOLOGY, 5, busy=busy, status=int(Status.RESTARTING)))
    steps.append(minute(TOPOLOGY, 7, since_s=390.0, parallelism=[1, 3, 1]))
    done = run(made := policy(), steps)
    assert done[5].parallelism[0].tolist() == [1, 3, 1]
    assert "stored override, applied again" in done[5].reasons[0]
    assert done[6].parallelism[0].tolist() == [1, 2, 2]  # nothing is asked of a job that restarts
    assert done[7].parallelism[0].tolist() == [1, 3, 1]
    assert done[7].reasons == ("hold",)
    assert made.counters[0].tolist() == [1, 0, 0]  # scaled once, no errors


def test_the_hottest_subtask_counts_unless_the_average_is_asked_for():
    hot = {"busy_ms_per_s": 500.0, "busy_max_ms_per_s": 1000.0}
    steps = [minute(TOPOLOGY, i, busy=(300.0, 500.0, 500.0), **hot) for i in range(5)]
    made = policy()
    run(made, steps)
    report = made.metrics(0, ("source", "map", "sink"))
    assert report["AutoScaler.jobVertexID.map.LOAD.Average"] == 1.0
    made = policy(**{"metrics.busy-time.aggregator": "AVG"})
    run(made, steps)
    report = made.metrics(0, ("source", "map", "sink"))
    assert report["AutoScaler.jobVertexID.map.LOAD.Average"] == 0.5
    assert report["AutoScaler.jobVertexID.map.TRUE_PROCESSING_RATE.Average"] == 2000.0


def test_it_reports_under_the_operators_names():
    made = policy()
    run(made, (minute(TOPOLOGY, i) for i in range(5)))
    report = made.metrics(0, ("source", "map", "sink"))
    assert {name for name in report if ".map." in name} == {
        f"AutoScaler.jobVertexID.map.{metric}"
        for metric in ("LOAD.Average", "TRUE_PROCESSING_RATE.Average", "TARGET_DATA_RATE.Average",
                       "CATCH_UP_DATA_RATE.Current", "LAG.Current",
                       "SCALE_UP_RATE_THRESHOLD.Current", "SCALE_DOWN_RATE_THRESHOLD.Current",
                       "RECOMMENDED_PARALLELISM.Current", "EXPECTED_PROCESSING_RATE.Current")
    }  # fmt: skip
    assert report["AutoScaler.balanced"] == 1.0
    assert report["AutoScaler.jobVertexID.map.TARGET_DATA_RATE.Average"] == 1000.0
    assert report["AutoScaler.jobVertexID.map.SCALE_UP_RATE_THRESHOLD.Current"] == 1000.0


@pytest.mark.parametrize(
    "conf",
    [
        {"scaling.enabled": "false"},
        {"enabled": "false"},
        {"excluded.periods": "* * * * * ?"},
        {"vertex.exclude.ids": "sink"},
        {"memory.gc-pressure.threshold": "0.5"},
        {"memory.heap-usage.threshold": "0.5"},
        {"quota.cpu": "1"},
        {"quota.memory": "1 gb"},
    ],
)
def test_a_gate_holds_the_job(conf):
    values = {"tm_gc_ms_per_s": 600.0, "tm_heap_used_mib": 60.0, "tm_heap_max_mib": 100.0}
    spec = chain(taskmanager={"slots": 1}, slot_sharing=False)
    topology = Topology.of([spec])
    # 1000/s read, 200/s of growing lag, 48000 records to catch up at minute 4: 1200 / 0.7 +
    # 1200 * 60 / 1800 + 48000 / 1800 = 1781/s for vertices that manage 1111/s with two tasks.
    steps = [
        minute(topology, i, busy=(300.0, 900.0, 900.0), pending=12_000.0 * i, **values)
        for i in range(5)
    ]
    assert run(policy(), steps)[-1].parallelism[0].tolist() == [1, 4, 4]
    left = 4 if "vertex.exclude.ids" in conf else 2
    assert run(policy(**conf), steps)[-1].parallelism[0].tolist() == [1, left, 2]


def test_an_advisor_recommends_and_asks_for_nothing():
    made = policy(**{"scaling.enabled": "false"})
    done = run(made, (minute(TOPOLOGY, i, busy=(300.0, 1000.0, 300.0)) for i in range(5)))
    assert done[-1].parallelism[0].tolist() == [1, 2, 2]
    assert made.recommended()[0].tolist() == [1, 3, 1]


def test_a_pass_is_made_once_per_interval():
    thrice = [minute(TOPOLOGY, i / 3, busy=(300.0, 1000.0, 300.0)) for i in range(15)]
    done = run(made := policy(), thrice)
    assert made.window_samples[0] == 4
    moved = [i for i, d in enumerate(done) if d.parallelism[0].tolist() != [1, 2, 2]]
    assert moved[0] == 12


def test_nothing_known_is_an_error_and_no_sample():
    made = policy()
    run(made, (blank_snapshot(TOPOLOGY, 60.0 * i) for i in range(3)))
    assert made.counters[0].tolist() == [0, 3, 0]
    assert made.window_samples[0] == 0


def test_the_windows_room_grows_with_the_samples():
    slow = policy(**{"metrics.window": "90 min"})
    run(slow, (minute(TOPOLOGY, i) for i in range(100)))
    assert slow.window_samples[0] == 91


JOBS = ("nexmark-q5", "nexmark-q11", "nexmark-q3")


def played(made, minutes: int = 24):
    """Snapshots and decisions of three simulated jobs with a load that doubles and halves."""
    jobs = SimulatedJobs(Topology.of([load_job(name) for name in JOBS]))
    rate = jobs.topology.tables.rate_per_s[jobs.topology.row][:, None]
    share = np.repeat([0.3, 1.0, 0.3], minutes * 20)[None, :]
    jobs.reset(np.arange(3), rate * share)
    loop = ControlLoop(jobs, made, None, 60)
    loop.reset(np.arange(3))
    steps = [loop.step() for _ in range(minutes)]
    return [s.snapshot for s in steps], [s.decision for s in steps]


@pytest.mark.parametrize("version", ["1.15.0", "main"])
def test_a_batch_decides_what_its_jobs_decide_alone(version):
    seen, done = played(policy(version))
    assert any((d.parallelism != s.parallelism).any() for s, d in zip(seen, done, strict=True))
    for job in range(3):
        rows = np.array([job])
        alone = policy(version)
        alone.reset(seen[0].topology.take(rows), np.zeros(1, dtype=np.int64))
        for snapshot, whole in zip(seen, done, strict=True):
            one = alone.decide(snapshot.take(rows))
            np.testing.assert_array_equal(one.parallelism[0], whole.parallelism[job])
            assert one.reasons[0] == whole.reasons[job]


@pytest.mark.parametrize("stop", [2, 7, 15])
def test_its_state_as_json_goes_on_where_it_stopped(stop):
    conf = {"scale-down.interval": "4 min", "restart.time-tracking.enabled": "true"}
    seen, done = played(policy(**conf))
    half = policy(**conf)
    half.reset(seen[0].topology, np.arange(3))
    for snapshot in seen[:stop]:
        half.decide(snapshot)
    saved = json.loads(json.dumps(half.state(), allow_nan=False))
    other = policy(**conf)
    other.reset(seen[0].topology, np.arange(3))
    other.restore(saved)
    for snapshot, wanted in zip(seen[stop:], done[stop:], strict=True):
        np.testing.assert_array_equal(other.decide(snapshot).parallelism, wanted.parallelism)


def test_reset_of_some_rows_starts_those_anew():
    seen, _ = played(policy())
    old, made = policy(), policy()
    for one in (old, made):
        one.reset(seen[0].topology, np.arange(3))
        for snapshot in seen[:5]:
            one.decide(snapshot)
    made.reset(seen[0].topology, np.arange(3), np.array([True, False, True]))
    assert made.window_samples.tolist() == [0, old.window_samples[1], 0]


def test_scale_downs_that_wait_keep_to_their_vertex_however_many_they_are():
    job = spec_of(
        "twins",
        {"name": "source", "kind": "source", "parallelism": 2},
        {"name": "map", "inputs": [{"from": "source", "ship": "REBALANCE"}]},
        {"name": "twin", "inputs": [{"from": "map", "ship": "REBALANCE"}]},
        {"name": "sink", "kind": "sink", "scalable": False,
         "inputs": [{"from": "twin", "ship": "REBALANCE"}]},
        max_parallelism_per_vertex=40,
    )  # fmt: skip
    topology = Topology.of([job, job])
    # They run far above the limit, and the load falls: one recommendation for each parallelism.
    made = policy(
        **{"vertex.max-parallelism": "4", "stabilization.interval": "0 s", "restart.time": "0 s",
           "scale-down.interval": "1 h"}
    )  # fmt: skip
    made.reset(topology, np.array([0, 1]))
    total = 0.0
    for i in range(1, 71):
        busy = max(0.66 - 0.008 * i, 0.1)
        total += 60e3 * busy
        made.decide(
            blank_snapshot(
                topology, 60.0 * i, parallelism=[2, 30, 30, 1], records_in_total=total,
                records_out_total=total, records_in_per_s=1e3 * busy, running_since_s=0.0,
                records_out_per_s=1e3 * busy, busy_now_ms_per_s=1e3 * busy,
                busy_max_ms_per_s=1e3 * busy, backpressured_now_ms_per_s=0.0,
                pending_records=[0.0, np.nan, np.nan, np.nan],
            )
        )  # fmt: skip
    assert (made.recommended()[:, 1] == made.recommended()[:, 2]).all()
    assert (made.recommended()[:, 1] > 4).all()
    waiting = made.state()["memory"]["delayed.parallelism"]
    assert len(waiting[0][1]) > 6
    assert waiting[0][1] == waiting[0][2] == waiting[1][1]
    assert sorted(waiting[0][1], reverse=True) == waiting[0][1]
