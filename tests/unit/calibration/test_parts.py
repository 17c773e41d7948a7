from __future__ import annotations

import math

import pytest

from dsp_gym.calibration.recordings import parts_of
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.manifest import Event, RecordedLoad
from dsp_gym.records.recording import Run

SPEC = load_job("flink-runs-read")
ONE = Configuration({"source": 1, "split": 2, "state": 1, "sink": 1},
                    {"source": -1, "split": -1, "state": 0, "sink": -1})  # fmt: skip


def run(events, **rest) -> Run:
    rows = [(float(t), "source", 0, "emitted_records_total", 10.0 * t) for t in range(100, 301, 5)]
    load = RecordedLoad(name="steps", steps=((0.0, 100.0), (120.0, 200.0)))
    given = {
        "t_load_s": 100.0, "t_running_s": 103.0, "t_end_s": 300.0, "complete": True,
        "given": Samples.of(rows),
    } | rest  # fmt: skip
    return Run("r", SPEC, ONE, load, 0, tuple(events), **given)


def event(t_s, kind, **body) -> Event:
    return Event(t_s=t_s, run="r", kind=kind, body=body)


def test_a_run_without_rescale_is_one_part_whose_times_count_from_running():
    (part,) = parts_of(run([event(100, "submitted"), event(103, "running"),
                            event(300, "savepoint", seconds=0.7)]))  # fmt: skip
    assert part.offered == ((0.0, 100.0), (117.0, 200.0))
    assert part.samples.t_s[0] == 105.0 - 103.0
    assert (part.start_s, part.stop_s) == (3.0, 0.7)
    assert part.parallelism == ONE.parallelism


def test_a_rescale_cuts_a_run_and_the_outage_belongs_to_no_part():
    more = {"parallelism": ONE.parallelism | {"state": 4}, "memory_level": ONE.memory_level}
    first, second = parts_of(run([
        event(100, "submitted"), event(103, "running"), event(200, "rescale_asked"),
        event(202, "savepoint", seconds=1.5), event(203, "submitted"),
        event(210, "running", **more),
    ]))  # fmt: skip
    assert first.samples.t_s[-1] == 200.0 - 103.0
    assert second.samples.t_s[0] == 215.0 - 210.0
    assert (first.stop_s, second.start_s) == (1.5, 7.0)
    assert second.parallelism["state"] == 4
    assert first.offered == ((0.0, 100.0), (117.0, 200.0))
    assert second.offered == ((0.0, 100.0), (10.0, 200.0))
    assert (first.name, second.name) == ("r", "r+1")


def test_an_aborted_run_is_named_and_empty():
    (part,) = parts_of(run([event(100, "submitted")], complete=False, t_running_s=math.nan))
    assert not part.complete
    assert len(part.samples) == 0


def test_times_nobody_wrote_are_unknown():
    (part,) = parts_of(run([]))
    assert math.isnan(part.start_s)
    assert math.isnan(part.stop_s)
    assert part.samples.t_s[-1] == pytest.approx(197.0)
