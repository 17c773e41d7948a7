"""Windows of a dataset become steady parts, as samples of a recording do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.datasets import TRANSITION_COLUMNS, measured_dataset
from dsp_gym.calibration.model import JobModel
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.calibration.recordings import calibrate
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import load_job

pa = pytest.importorskip("pyarrow")

SPEC = load_job("flink-runs-direct-read")
TASKS = {"source": 1, "split": 2, "state": 4, "sink": 1}


def windows(t_s, rate, growth, *, run="r", tasks=4, seconds=120.0, held=0.0, busy=500.0):
    """All vertices of the job over one window."""
    return [
        {
            "source": "s", "job": SPEC.job, "run": run, "t_s": float(t_s), "vertex": name,
            "parallelism": tasks if name == "state" else p,
            "memory_level": 1 if name == "state" else None,
            "seconds": seconds, "records_in_per_s": rate, "records_out_per_s": rate,
            "busy_ms_per_s": busy, "backpressured_ms_per_s": held,
            "cache_hit_rate": 0.75 if name == "state" else None,
            "state_read_latency_ms": 0.02 if name == "state" else None,
            "state_write_latency_ms": None,
            "selectivity": None if name == "source" else 1.0,
            "pending_growth_per_s": growth if name == "source" else None,
        }
        for name, p in TASKS.items()
    ]  # fmt: skip


def a_dataset(rows, rescales=(), clock="run"):
    tables = {"windows": rows, "rescales": list(rescales)}

    def table(name, split=None, columns=None, *, lenient=False):
        yield from pa.Table.from_pylist(
            [{c: row.get(c) for c in columns} for row in tables[name]]
        ).to_batches()

    return SimpleNamespace(
        folder=Path("ds"),
        specs={SPEC.job: SPEC},
        manifest=SimpleNamespace(
            config={"windows": {"window_s": 120}},
            sources=[SimpleNamespace(clock=clock)],
            partitions=[SimpleNamespace(tables=tables)],
        ),
        table=table,
    )


def test_windows_of_one_configuration_and_load_are_one_part_without_overlap():
    rows = [row for t in (120, 180, 240, 300) for row in windows(t, 1000.0 + t / 10, 0.0)]
    (seen,) = measured_dataset(a_dataset(rows), SPEC).seen
    assert seen.rate_per_s == pytest.approx(1018.0)
    assert (seen.start_s, seen.end_s) == (0, 240)
    assert seen.drift == pytest.approx(np.log(1024 / 1012))
    assert not seen.saturated
    assert seen.offered_per_s == pytest.approx(seen.rate_per_s)
    assert seen.busy == dict.fromkeys(TASKS, 0.5)
    assert seen.hit == {"state": 0.75}
    assert seen.read_us["state"] == pytest.approx(20.0)
    assert set(seen.selectivity) == {"split", "state"}
    assert (seen.parallelism, seen.level["state"], seen.level["split"]) == (TASKS, 1, -1)
    assert seen.latency == "mean"


def test_a_rescale_or_another_load_begins_another_part():
    rows = windows(120, 1000.0, 0.0) + windows(240, 1000.0, 0.0, tasks=8)
    rows += windows(360, 2000.0, 0.0, tasks=8)
    found = measured_dataset(a_dataset(rows), SPEC)
    assert [o.run for o in found.seen] == ["r", "r+1", "r+2"]
    assert [o.parallelism["state"] for o in found.seen] == [4, 8, 8]
    assert [run.name for run in found.runs] == ["r", "r+1", "r+2"]


def test_a_growing_backlog_or_held_back_sources_say_saturated():
    rows = windows(120, 1000.0, 500.0, run="backlog") + windows(120, 900.0, 50.0, run="keeps-up")
    rows += windows(120, 1000.0, None, run="held", held=300.0)
    rows += windows(120, 1000.0, None, run="free", held=50.0)
    seen = {o.run: o for o in measured_dataset(a_dataset(rows), SPEC).seen}
    assert {run: o.saturated for run, o in seen.items()} == {
        "backlog": True, "keeps-up": False, "held": True, "free": False,
    }  # fmt: skip
    assert seen["backlog"].offered_per_s == np.inf
    assert seen["keeps-up"].offered_per_s == pytest.approx(950.0)


def test_catching_up_half_filled_windows_and_other_runs_are_left_out():
    rows = windows(120, 2000.0, -1000.0, run="a") + windows(240, 1000.0, 0.0, run="a")
    rows += windows(360, 1000.0, 0.0, run="a", tasks=8, seconds=60.0)
    rows += windows(120, 1000.0, 0.0, run="b")
    seen = measured_dataset(a_dataset(rows), SPEC, runs=("a*",)).seen
    assert [(o.run, o.rate_per_s) for o in seen] == [("a", 1000.0)]
    with pytest.raises(DatasetError, match=r"no steady window.*flink-runs-direct-read"):
        measured_dataset(a_dataset(rows), SPEC, runs=("c",))


def test_outages_come_from_the_rescales_of_the_dataset():
    down = [{"job": SPEC.job, "cause": "rescale", "downtime_s": s} for s in (20.0, 30.0, 40.0)]
    down.append({"job": SPEC.job, "cause": "restart", "downtime_s": 500.0})
    found = measured_dataset(a_dataset(windows(120, 1000.0, 0.0), down), SPEC).rescale
    assert found.outage_s == pytest.approx((22.0, 30.0, 38.0))
    assert found.starts == 3


@pytest.mark.slow
def test_a_calibration_fits_to_a_dataset_alone_and_states_the_error_of_what_is_held_out():
    rows = []
    for tasks in (1, 2, 4, 8):
        at = SteadyPart(
            "", 0, 120, TASKS | {"state": tasks}, dict.fromkeys(TASKS, -1) | {"state": 1},
            np.inf, 1.0, 0.0, 0.0, True,
        )  # fmt: skip
        said = JobModel(SPEC).predict(at)  # the job as it is: nothing is to be changed by the fit
        made = windows(120, said.rate_per_s, said.rate_per_s, run=f"p{tasks}", tasks=tasks)
        for row in made:
            row["busy_ms_per_s"] = 1000 * said.busy.get(row["vertex"], 0.0)
            row["cache_hit_rate"] = said.hit.get(row["vertex"])
            row["state_read_latency_ms"] = said.read_us.get(row["vertex"], np.nan) / 1000
        rows += made
    config = CalibrationConfig(job=SPEC.job, datasets=("ds",), fit="parallelism", max_parallelism=4)
    report = calibrate(config, opened=lambda folder: a_dataset(rows))
    assert report.runs == ("p1", "p2", "p4")
    assert report.fitted_errors.rate_count == 3
    assert report.fitted_errors.rate_median < 0.01
    assert report.held_out_errors.rate_count == 1
    assert report.held_out_errors.rate_median < 0.02


def test_a_calibration_needs_something_to_fit_to():
    with pytest.raises(ValueError, match="give recordings, or datasets"):
        CalibrationConfig(job="x")


def test_every_column_that_is_read_is_one_of_the_windows():
    schema = pytest.importorskip("spark_pipelines.schema")
    assert set(TRANSITION_COLUMNS) <= set(schema.WINDOWS.names)
