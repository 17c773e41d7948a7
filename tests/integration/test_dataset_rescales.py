"""Rescales found in data with known ones: simulations, real Flink, an 18 h run of Demeter."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.backends.simulated.recording import simulated_samples
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import WindowConfig, snapshot_of
from dsp_gym.records.flink_runs import read_flink_runs
from dsp_gym.records.manifest import Event, RecordedLoad
from dsp_gym.records.recording import Run
from tests.simulating import ask, constant, exact, keyed

pytestmark = [pytest.mark.slow, pytest.mark.spark]

CONFIGURATIONS = [{"map": 4}, {"map": 7}, {"map": 7}, {"map": 3}]
"""One after the other; the third changes memory only."""


def frames(spark, runs: dict[str, tuple[JobSpec, Samples, list[tuple[Any, ...]]]]):
    """Raw rows and events of runs, by name, as DataFrames."""
    from spark_pipelines.schema import EVENTS, RAW

    raw = [
        ("test", spec.job, run, "0000-00-00", *row)
        for run, (spec, samples, _) in runs.items()
        for row in samples.rows()
    ]
    told = [
        ("test", spec.job, run, t_s, kind, json.dumps(body))
        for run, (spec, _, events) in runs.items()
        for t_s, kind, body in events
    ]
    return spark.createDataFrame(raw, RAW), spark.createDataFrame(told, EVENTS)


def found(spark, raw, events) -> list[dict[str, Any]]:
    from spark_pipelines.config import QualityConfig
    from spark_pipelines.quality.checks import flag, judge
    from spark_pipelines.steps.align import align, increases
    from spark_pipelines.steps.rescales import rescales

    quality = QualityConfig()
    grid = flag(align(judge(raw, quality)), quality)
    rows = rescales(increases(grid, quality.max_gap_s), events, quality.max_gap_s).collect()
    made = [row.asDict() | {"changed": json.loads(row["changed"])} for row in rows]
    return sorted(made, key=lambda row: (row["run"], row["t_s"]))


def words(spec: JobSpec, tasks: list[int], levels: list[int]) -> dict[str, dict[str, int]]:
    names = Topology.of([spec]).names(0)
    return {
        "parallelism": dict(zip(names, tasks, strict=True)),
        "memory_level": dict(zip(names, levels, strict=True)),
    }


def simulated(mode: str) -> tuple[JobSpec, Samples, list[tuple[Any, ...]], list[dict[str, Any]]]:
    """A simulated job that is rescaled three times, with its events and the truth."""
    spec = keyed(rescale={"mode": mode, "outage_s": [20, 35, 60]})
    jobs = constant(spec, 2000.0, exact(), **CONFIGURATIONS[0])
    state, parts, truth = jobs.state, [], []
    events = [(0.0, "running", now(spec, jobs))]
    for number, configuration in enumerate(CONFIGURATIONS):
        if number:
            before = now(spec, jobs)
            ask(jobs, level=number % 2, **configuration)
            parts.append(simulated_samples(jobs, 150))
            up_s = float(state.running_since[0])
            down_s = up_s - float(state.outage_s[0])
            after = now(spec, jobs)
            events += [(down_s, "stopped", {}), (up_s, "running", after)]
            truth.append({"down_s": down_s, "up_s": up_s, "changed": changed(before, after)})
        else:
            parts.append(simulated_samples(jobs, 150))
    return spec, Samples.joined(parts), events, truth


def now(spec: JobSpec, jobs: Any) -> dict[str, dict[str, int]]:
    state = jobs.state
    return words(spec, state.parallelism[0].tolist(), state.level[0].tolist())


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[int]]:
    both = {
        name: [before[key][name] for key in ("parallelism", "memory_level") for _ in (0,)]
        + [after[key][name] for key in ("parallelism", "memory_level")]
        for name in before["parallelism"]
    }
    ordered = {name: [v[0], v[2], v[1], v[3]] for name, v in both.items()}
    return {name: v for name, v in ordered.items() if (v[0], v[2]) != (v[1], v[3])}


@pytest.fixture(scope="module")
def of_simulations(spark) -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """What is found in a simulation of each mode, and in samples alone; and the truth, by run."""
    runs, truths = {}, {}
    for mode in ("redeploy", "in_place"):
        *runs[mode], truths[mode] = simulated(mode)
    runs["samples"], truths["samples"] = [*runs["redeploy"][:2], []], truths["redeploy"]
    rows = found(spark, *frames(spark, runs))
    return {name: ([row for row in rows if row["run"] == name], truths[name]) for name in runs}


@pytest.mark.parametrize("mode", ["redeploy", "in_place"])
def test_rescales_of_a_simulation_are_found_exactly_from_events(of_simulations, mode):
    rows, truth = of_simulations[mode]
    assert len(rows) == len(CONFIGURATIONS) - 1
    assert [row["t_s"] for row in rows] == [t["down_s"] for t in truth]
    assert [row["downtime_s"] for row in rows] == [t["up_s"] - t["down_s"] for t in truth]
    assert [row["changed"] for row in rows] == [t["changed"] for t in truth]
    assert {row["cause"] for row in rows} == {"rescale"}


def test_rescales_of_a_simulation_are_found_from_samples_alone_within_a_sample(of_simulations):
    rows, truth = of_simulations["samples"]
    assert len(rows) == len(truth)
    for row, real in zip(rows, truth, strict=True):
        assert abs(row["t_s"] - real["down_s"]) <= 5.0
        assert abs(row["downtime_s"] - (real["up_s"] - real["down_s"])) <= 5.0
        widths = {v: c[:2] for v, c in real["changed"].items() if c[0] != c[1]}
        assert {v: c[:2] for v, c in row["changed"].items()} == widths
        # A change of memory alone shows in no subtask.
        assert row["cause"] == ("rescale" if widths else "restart")


def dynamic(folder: Path) -> tuple[JobSpec, Samples, list[tuple[Any, ...]], list[float]]:
    """Three runs of a real Flink, from savepoint to savepoint, on one clock."""
    spec = load_job("flink-runs-direct-update")
    runs = {run.name: run for run in read_flink_runs(folder / "flink_runs", spec)}
    parts, events, downtimes, clock_s, stopped_s = [], [], [], 0.0, 0.0
    for number in range(3):
        run = runs[f"dyn-a-{number}"]
        clock_s += -run.events[0].t_s
        if number:
            downtimes.append(clock_s - stopped_s)
        s = run.samples()
        parts.append(Samples(s.t_s + clock_s, s.vertex, s.subtask, s.metric, s.value))
        body = {
            "parallelism": dict(run.configuration.parallelism),
            "memory_level": dict(run.configuration.memory_level),
        }
        events.append((clock_s, "running", body))
        stopped_s = clock_s + run.t_end_s
        events.append((stopped_s, "stopped", {}))
        clock_s = stopped_s + run.events[-1].body["seconds"]
    return spec, Samples.joined(parts), events, downtimes


def test_every_rescale_of_a_real_flink_is_found_with_its_events_and_without(spark, data_folder):
    spec, samples, events, downtimes = dynamic(data_folder)
    runs = {"told": (spec, samples, events), "untold": (spec, samples, [])}
    both = found(spark, *frames(spark, runs))
    for name in runs:
        rows = [row for row in both if row["run"] == name]
        assert [row["cause"] for row in rows] == ["rescale", "rescale"]
        assert [row["changed"]["state"][:2] for row in rows] == [[2, 4], [4, 2]]
        assert [list(row["changed"]) for row in rows] == [["state"], ["state"]]
        if name == "told":
            assert [row["changed"]["state"][2:] for row in rows] == [[1, 2], [2, 1]]
        assert [row["downtime_s"] for row in rows] == pytest.approx(downtimes, abs=5.0)


def test_rescales_of_demeter_are_found_in_means_over_30_s(spark, data_folder, tmp_path):
    from spark_pipelines.sources import reader_of
    from spark_pipelines.sources.config import SeriesSource

    with (data_folder / "demeter_cars_outages.csv").open(newline="") as stream:
        known = [
            (float(line["t_s"]), float(line["outage_s"]))
            for line in csv.DictReader(stream)
            if line["policy"] == "flink_operator_autoscaler" and line["run"] == "1"
            and line["slots_before"] != line["slots_after"]
        ]  # fmt: skip
    assert len(known) == 35
    file = data_folder / "demeter_cars_flink_operator_autoscaler.csv"
    reader = reader_of("series")
    source = SeriesSource(kind="series", file=str(file), job="demeter-cars")
    inputs = reader.read(spark, reader.survey(source, "demeter", tmp_path), None)
    rows = found(spark, inputs.rows(), inputs.events)
    hits = []
    for t_s, outage_s in known:
        near = [r for r in rows if abs(r["t_s"] - t_s) <= 60 and r["cause"] == "rescale"]
        hits.append(any(abs(row["downtime_s"] - outage_s) <= 30 for row in near))
    assert np.mean(hits) >= 0.9


def test_decisions_observed_are_what_a_replay_of_the_run_shows(spark, data_folder):
    from dsp_gym.envs.config import EnvConfig
    from spark_pipelines.schema import RESCALES
    from spark_pipelines.steps.snapshots import Observing, observed_decisions

    spec, samples, events, _ = dynamic(data_folder)
    raw, told = frames(spark, {"dyn-a": (spec, samples, events)})
    window = WindowConfig(window_s=60, stabilization_s=10)
    none = spark.createDataFrame([], RESCALES)
    rows = observed_decisions(
        raw, told, none, {spec.job: spec}, Observing(window, 30, EnvConfig())
    ).collect()
    rows.sort(key=lambda row: row["step"])
    assert rows[-1]["proposed_parallelism"] is None
    assert [row["truncated"] for row in rows[:-1]] == [False] * (len(rows) - 2) + [True]
    body = events[0][2]
    run = Run(
        name="dyn-a", spec=spec, repeat=0, t_load_s=events[0][0], t_running_s=events[0][0],
        configuration=Configuration(body["parallelism"], body["memory_level"]),
        load=RecordedLoad(name="x", steps=((0.0, 1.0),)), t_end_s=float(samples.t_s[-1]),
        events=tuple(Event(t_s=t, run="dyn-a", kind=k, body=b) for t, k, b in events),
        complete=True, given=samples,
    )  # fmt: skip
    jobs, names = ReplayJobs(run, window), Topology.of([spec]).names(0)
    for row in rows:
        observed = jobs.observed(row["t_s"])
        expected = snapshot_of(
            jobs.topology, [observed], [samples.between(-np.inf, row["t_s"])], window
        )
        for name in ("records_in_per_s", "busy_ms_per_s", "cache_hit_rate", "parallelism"):
            assert row["snapshot"][name] == pytest.approx(
                getattr(expected, name)[0].tolist(), rel=1e-9, nan_ok=True
            )
        ran = run.configuration_at(row["t_s"] + 30)
        if row["parallelism"] is not None:
            assert row["parallelism"] == [ran.parallelism[name] for name in names]
    moves = [row["step"] for row in rows[:-1] if row["rescale"] > 0]
    assert len(moves) == 2
