"""Histories from the windows and rescales of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dsp_gym.errors import DatasetError, MetricsError
from dsp_gym.whatif.datasets import dataset_histories
from tests.simulating import line

SPEC = line()
NAMES = [vertex.name for vertex in SPEC.vertices]


@dataclass
class Rows:
    """Tables in memory; a dataset's reader gives the same batches from files."""

    rows: dict[str, list[dict[str, Any]]]
    clock: str = "unix"
    specs: dict[str, Any] = field(default_factory=lambda: {SPEC.job: SPEC})
    folder: Path = Path("here")

    @property
    def manifest(self):
        return SimpleNamespace(
            config={"windows": {"interval_s": 60, "window_s": 120}},
            partitions=[SimpleNamespace(tables=dict.fromkeys(self.rows))],
            sources=[SimpleNamespace(name="prometheus", clock=self.clock)],
        )

    def table(self, name, split=None, columns=None, *, lenient=False):
        rows = [{column: row.get(column) for column in columns} for row in self.rows[name]]
        yield SimpleNamespace(to_pylist=lambda: rows)


def windows(slots, run="a", tasks=lambda k: 2, load=1500.0, missing=(), latency=None, first=1):
    """A window of every vertex at each slot but those that are missing."""
    for k in set(range(slots)) - set(missing):
        for vertex in SPEC.vertices:
            is_source = vertex.kind == "source"
            yield {
                "job": SPEC.job,
                "source": "prometheus",
                "run": run,
                "t_s": 60.0 * (k + first),
                "vertex": vertex.name,
                "parallelism": 1 if vertex.name != "map" else tasks(k),
                "records_in_per_s": 0.0 if is_source else load,
                "records_out_per_s": load,
                "busy_ms_per_s": 300.0,
                "pending_records": 3000.0 if is_source else None,
                "pending_growth_per_s": 5.0 if is_source else None,
                "latency_p95_s": latency if vertex.kind == "sink" else None,
            }


def outage(t_s, seconds, run="a"):
    return {"job": SPEC.job, "source": "prometheus", "run": run, "t_s": t_s, "downtime_s": seconds}


def test_windows_tell_load_configuration_lateness_and_backlog():
    (found,) = dataset_histories(Rows({"windows": list(windows(20, latency=9.0))}))
    assert (found.name, len(found), found.is_dated) == (SPEC.job, 20, True)
    assert found.t_s[0] == 0.0
    assert found.load_per_s == pytest.approx(np.full(20, 1505.0))
    assert found.late.tolist() == [1.0] * 20
    assert found.lag_s == pytest.approx(np.full(20, 3000 / 1505))
    assert found.wanted[:, 1].tolist() == [2] * 20
    assert found.parts[0].busy["map"] == pytest.approx(0.3)
    assert "the load is a mean over 120 s" in found.notes[0]


def test_a_rescale_has_its_outage_and_a_restart_is_cut_out():
    rows = {
        "windows": list(windows(40, tasks=lambda k: 2 if k < 10 else 3, missing=(10, 11))),
        "rescales": [outage(600.0, 45.0), outage(1510.0, 20.0)],
    }
    (found,) = dataset_histories(Rows(rows))
    assert np.flatnonzero(found.rescales).tolist() == [10]
    assert found.outage_s[10] == 45.0
    assert np.flatnonzero(np.isnan(found.load_per_s)).tolist() == [25]  # 1,510 s to 1,530 s
    assert "the job restarted once without a rescale" in found.notes[-1]


def test_a_change_without_an_outage_on_record_is_a_rescale():
    rows = {"windows": list(windows(30, tasks=lambda k: 2 if k < 10 else 3))}
    (found,) = dataset_histories(Rows(rows))
    assert np.flatnonzero(found.rescales).tolist() == [10]
    assert np.isnan(found.outage_s).all()


def test_days_on_a_unix_clock_are_one_history_and_runs_on_their_own_are_several():
    days = [*windows(12, "day-1"), *windows(12, "day-2", first=14)]
    (found,) = dataset_histories(Rows({"windows": days}))
    assert len(found) == 25
    assert len(found.stretches()) == 1  # the window across midnight is bridged
    runs = dataset_histories(Rows({"windows": days}, clock="run"))
    assert [one.name for one in runs] == [f"{SPEC.job} day-1", f"{SPEC.job} day-2"]
    assert not runs[0].is_dated


def test_a_named_model_stays_as_it_is():
    rows = Rows({"windows": list(windows(20))})
    (found,) = dataset_histories(rows, SPEC)
    assert not found.parts
    with pytest.raises(DatasetError, match="the job file is of 'other'"):
        dataset_histories(rows, SPEC.model_copy(update={"job": "other"}))


def test_what_cannot_be_supported_is_refused():
    with pytest.raises(DatasetError, match="no table 'windows"):
        dataset_histories(Rows({"transitions": []}))
    lacks = [row for row in windows(20) if row["vertex"] != "map"]
    with pytest.raises(MetricsError, match="no window of the dataset holds all of source, map"):
        dataset_histories(Rows({"windows": lacks}))
