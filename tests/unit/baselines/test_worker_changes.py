"""The last change of a job's workers, dated to the begin of its outage."""

from __future__ import annotations

from baselines.worker_changes import WorkerChanges
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, spec_of

JOBS = Topology.of(
    [
        spec_of(
            "pair",
            {"name": "source", "kind": "source"},
            {"name": "sink", "kind": "sink", "inputs": [{"from": "source"}]},
        )
    ]
)


def changed(made, t_s, workers, since_s=100.0, **values):
    seen = blank_snapshot(JOBS, t_s, parallelism=workers, running_since_s=since_s, **values)
    return made.changed_s(seen)[0]


def fresh():
    made = WorkerChanges()
    made.reset(JOBS)
    return made


def test_the_first_workers_came_with_the_start_of_the_job():
    assert changed(fresh(), 600.0, 4) == 100.0


def test_a_change_counts_from_the_begin_of_its_outage():
    made = fresh()
    changed(made, 600.0, 4)
    assert changed(made, 660.0, 6, since_s=650.0, outage_s=20.0) == 630.0
    assert changed(made, 720.0, 6, since_s=650.0, outage_s=20.0) == 630.0


def test_a_restart_of_the_same_workers_is_no_change():
    made = fresh()
    changed(made, 600.0, 4)
    assert changed(made, 660.0, 4, since_s=650.0, outage_s=20.0) == 100.0


def test_a_change_without_a_restart_is_dated_to_when_it_is_seen():
    made = fresh()
    changed(made, 600.0, 4)
    assert changed(made, 660.0, 6) == 660.0


def test_while_the_job_is_down_nothing_is_noted():
    made = fresh()
    changed(made, 600.0, 4)
    assert changed(made, 610.0, 6, status=2) == 100.0
