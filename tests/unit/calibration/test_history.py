"""A fit gets a few dozen of weeks of steady parts, and reports what they cannot determine."""

from __future__ import annotations

import math

from dsp_gym.calibration.datasets import steady_parts
from dsp_gym.calibration.history import (
    MOST_PARTS,
    measured_history,
    not_identifiable,
    thinned,
)
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec
from tests.scraped_managers import ALWAYS, HOUR_S, PER_S, SPEC, Fetched, managed
from tests.simulating import line


def part(
    number: int, tasks: int = 2, rate: float = 100.0, *, saturated: bool = False
) -> SteadyPart:
    offered = math.inf if saturated else rate
    running = {"source": 4, "map": tasks, "sink": 1}
    level = dict.fromkeys(running, -1)
    return SteadyPart(
        f"part-{number}", 600.0 * number, 600.0 * number + 480.0, running, level, offered, rate,
        0.0, 0.0, saturated, busy={"source": 0.1, "map": min(1.0, rate / 1000.0), "sink": 0.0},
    )  # fmt: skip


def kinds(spec: JobSpec, *seen: SteadyPart) -> dict[str, str]:
    return {one.kind: one.sentence for one in not_identifiable(spec, seen)}


def test_every_configuration_and_the_ends_of_its_loads_are_kept():
    seen = [part(n, tasks=1 + n % 3, rate=10.0 + n) for n in range(3000)]
    seen.append(part(3000, tasks=2, rate=1.0, saturated=True))
    kept = thinned(seen)
    assert len(kept) <= MOST_PARTS
    assert {o.parallelism["map"] for o in kept} == {1, 2, 3}
    assert {o.rate_per_s for o in kept} >= {10.0, 11.0, 12.0, 3007.0, 3008.0, 3009.0}
    assert [o.run for o in kept if o.saturated] == ["part-3000"]
    assert kept == sorted(kept, key=lambda o: o.start_s)


def test_few_parts_are_all_kept():
    seen = [part(n, rate=100.0 + n) for n in range(5)]
    assert thinned(seen) == seen


def test_each_limit_of_a_history_is_a_sentence():
    told = kinds(line(), part(0, rate=500.0), part(1, rate=620.0))
    assert "only ran with 2 tasks of 'map'" in told["tasks"]
    assert "'map' was busy 62 % at the most" in told["capacity"]
    assert "memory" not in told  # nothing keeps state
    told = kinds(line(), part(0, tasks=1), part(1, tasks=4, saturated=True))
    assert "never ran with more than 4 tasks of 'map'" in told["tasks"]
    assert "capacity" not in told


def window(busy: float, waiting: float, growth: float):
    """Two minutes at 500 records/s."""
    unknown = ("backpressured_ms_per_s", "cache_hit_rate", "pending_growth_per_s")
    row = dict.fromkeys(unknown, math.nan)
    row |= dict.fromkeys(("state_read_latency_ms", "state_write_latency_ms"), math.nan)
    row |= {"records_in_per_s": 500.0, "records_out_per_s": 500.0, "selectivity": 1.0}
    row |= {"seconds": 120.0, "parallelism": 2, "memory_level": -1, "busy_ms_per_s": 10.0}
    source = {**row, "pending_records": waiting, "pending_growth_per_s": growth}
    return {"source": source, "map": {**row, "busy_ms_per_s": 1000 * busy}, "sink": row}


def parts(*windows):
    return steady_parts(
        line(), {120.0 * n: one for n, one in enumerate(windows, 1)}, 120.0, "median"
    )


def test_a_full_job_with_a_backlog_is_at_its_capacity_whether_it_grows_or_not():
    for growth in (0.0, -400.0, 3.0):
        (found,) = parts(*[window(1.0, 1.7e6, growth)] * 3)
        assert found.saturated, growth
        assert found.rate_per_s == 500.0
        assert "capacity" not in kinds(line(), found)


def test_a_job_with_time_left_or_without_a_backlog_is_not():
    for one in (window(0.6, 1.7e6, 0.0), window(1.0, 40.0, 0.0)):
        (found,) = parts(one, one)
        assert not found.saturated
        assert "capacity" in kinds(line(), found)


def measured(*managers):
    fetched = Fetched(managed(*managers), HOUR_S)
    return measured_history(fetched, SPEC, 3 / 24, now_s=3 * HOUR_S)


def test_a_taskmanager_that_is_not_scraped_is_no_configuration_and_no_rescale():
    found = measured((ALWAYS, ()), (ALWAYS, ((4200.0, 4800.0),)))
    assert {tuple(part.parallelism.values()) for part in found.seen} == {(2, 2, 2)}
    assert {round(part.rate_per_s) for part in found.seen} == {round(2 * PER_S)}
    assert found.rescale.outage_s is None


def test_a_restart_between_two_chunks_is_told():
    runs = ((-5000.0, 3595.0), (3605.0, math.inf))
    found = measured((runs, ()), (runs, ()))
    assert [one.kind for one in found.problems if one.kind == "restarts"] == ["restarts"]
