"""The simulation against values worked out by hand: fluid queues, latency, and the MST."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.catalog import list_jobs
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.rescaling import outage_draw
from dsp_gym.simulation.state import X
from tests.simulating import ask, constant, exact, keyed, line

HOP_MS = 20.0


def backlog(jobs: SimulatedJobs) -> float:
    return float(jobs.state.vertex[0, 0, X.pending])


def test_a_job_below_capacity_keeps_up_and_owes_nothing():
    jobs = constant(line(), 600.0, exact())  # the map carries 1,000/s
    outcome = jobs.advance(100)
    assert outcome.processed[0] == outcome.arrived[0] == 60_000
    assert outcome.pending[0] == 0


def test_a_job_above_capacity_takes_its_capacity_and_owes_the_rest():
    jobs = constant(line(buffer_records=10), 1500.0, exact())
    jobs.advance(10)
    outcome = jobs.advance(100)
    assert outcome.processed[0] == pytest.approx(100 * 1000)
    assert outcome.pending[0] == pytest.approx(110 * 500, rel=0.01)
    assert outcome.pending_s[0] == pytest.approx(outcome.pending[0] / 1500)


def test_backlog_after_an_outage_is_rate_times_its_length_and_drains_with_what_is_spare():
    jobs = constant(line(buffer_records=10), 600.0, exact())
    jobs.advance(10)
    ask(jobs, level=-1)  # nobody has state: the same job comes back
    outage = 0
    while jobs.state.status[0] != Status.RUNNING:
        outage += int(jobs.advance(1).down_s[0])
    assert 16 <= outage <= 20  # ten per cent of outages are shorter than the lowest quantile
    assert backlog(jobs) == 600 * outage
    jobs.advance(10)
    assert backlog(jobs) == pytest.approx(600 * outage - 400 * 10, abs=20)
    drained = 10
    while backlog(jobs) > 0:
        jobs.advance(1)
        drained += 1
    assert drained == pytest.approx(600 * outage / (1000 - 600), abs=1)


def test_latency_of_a_queue_is_what_waits_over_what_leaves():
    jobs = constant(line(buffer_records=10), 1500.0, exact())
    jobs.advance(200)
    latency = jobs.advance(1).latency_p95_s[0]
    # The source could do 4,000,000/s, the map does 1,000/s: that is what a record waits for.
    assert backlog(jobs) == pytest.approx(201 * 500, rel=0.01)
    assert latency == pytest.approx(backlog(jobs) / 1000, rel=0.01)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.95])
def test_latency_below_capacity_is_hops_and_the_waiting_of_a_single_server(load):
    jobs = constant(line(), 1000.0 * load, exact())
    seen = jobs.advance(60).latency_p95_s[0]
    # 1 ms of service; source (4 tasks) and sink take 1 us and hardly queue
    waiting_s = 3.0 * 1e-3 * load / (1 - load)
    assert seen == pytest.approx(3 * HOP_MS / 1000 + waiting_s, rel=1e-3)


def test_latency_grows_by_a_second_per_second_while_the_job_is_down():
    jobs = constant(line(), 100.0, exact())
    jobs.advance(10)
    ask(jobs, map=2)
    before, after = jobs.advance(3).latency_max_s[0], jobs.advance(5).latency_max_s[0]
    assert after - before == pytest.approx(5.0)


def test_busy_time_is_rate_times_service_time():
    jobs = constant(line(), 600.0, exact())
    jobs.advance(300)
    seen = jobs.snapshot().job(0)
    assert seen.vertex("map", "busy_ms_per_s") == pytest.approx(600)
    assert seen.vertex("map", "records_in_per_s") == pytest.approx(600)
    assert seen.vertex("source", "busy_ms_per_s") == pytest.approx(600 * 1e-6 * 1000 / 4)


def test_a_full_job_is_busy_at_the_bottleneck_and_backpressured_before_it():
    jobs = constant(line(), 5000.0, exact())
    jobs.advance(300)
    seen = jobs.snapshot().job(0)
    assert seen.vertex("map", "busy_ms_per_s") == pytest.approx(1000)
    assert seen.vertex("source", "backpressured_ms_per_s") == pytest.approx(1000, abs=1)
    assert seen.vertex("sink", "idle_ms_per_s") > 990
    assert seen.vertex("source", "pending_growth_per_s") == pytest.approx(4000)


def test_a_cache_fills_by_one_block_per_miss():
    spec = keyed({"writes": 0, "value_bytes": 1000, "keys": 1e6})
    jobs = constant(spec, 10.0, exact())
    jobs.advance(5)  # cold: 50 misses of 4 KiB
    assert jobs.state.vertex[0, 1, X.cached] == pytest.approx(50 * 4 / 1024)


def test_a_savepoint_takes_what_is_buffered_and_the_state_to_write_and_the_outage_to_read():
    spec = keyed(
        {"keys": 1e6, "value_bytes": 1048.576},  # 1,000 MiB
        rescale={"outage_s": [30, 30, 30], "savepoint_mib_per_s": 50, "restore_mib_per_s": 25},
    )
    jobs = constant(spec, 100.0, exact())
    jobs.advance(10)
    ask(jobs, map=2)
    outcome = jobs.advance(200)
    # state is written while the job runs; 24..30 s of outage and 40 s of reading state
    assert jobs.state.outage_begun[0] == pytest.approx(10 + 1000 / 50, abs=1)
    assert 64 <= outcome.down_s[0] <= 71
    assert jobs.snapshot().outage_s[0] == pytest.approx(outcome.down_s[0], abs=1)


def test_outages_have_the_quantiles_of_the_job_file():
    tables = Topology.of([line(rescale={"outage_s": [56, 76, 93]})]).tables
    drawn = [outage_draw(tables, 0, u) for u in (0.1, 0.3, 0.5, 0.9)]
    assert drawn == pytest.approx([56, 66, 76, 93])
    every = [outage_draw(tables, 0, u) for u in np.linspace(0, 0.9999, 1000)]
    assert np.all(np.diff(every) >= 0)


def _carried(specs, parallelism, shares):
    """Processed over offered in the last 20 of 60 minutes at shares of the MST."""
    topology = Topology.of(specs)
    tables = topology.tables
    limit = [mst_per_s(tables, k, parallelism[k], tables.start_level[k]) for k in range(len(specs))]
    carried = []
    for share in shares:
        jobs = SimulatedJobs(topology, exact())
        rates = share * np.array(limit)[:, None]
        jobs.reset(np.arange(len(specs)), rates, parallelism=parallelism)
        jobs.advance(2400)
        outcome = jobs.advance(1200)
        carried.append(outcome.processed / outcome.arrived)
    return carried


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 8, 2048])
def test_the_simulation_sustains_the_mst_of_every_shipped_job_and_not_more(scale):
    specs = list_jobs()
    tables = Topology.of(specs).tables
    parallelism = np.minimum(tables.start_parallelism * scale, tables.max_parallelism)
    below, just_above, above = _carried(specs, parallelism, (0.97, 1.03, 1.05))
    for k, spec in enumerate(specs):
        assert below[k] > 0.999, spec.job
        assert just_above[k] < 0.99, spec.job
        assert above[k] < 0.97, spec.job
