"""Decisions of runs known by their samples alone: the snapshot, and the next configuration.

A run's samples and events are replayed, by the code that takes snapshots of a live job and says
what came of a decision; Spark brings the rows of each run together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.reward import reward_terms
from dsp_gym.errors import DatasetError, did_you_mean
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.base import Body
from dsp_gym.records.manifest import Event, EventKind, RecordedLoad
from dsp_gym.records.recording import Run
from spark_pipelines.days import day_of
from spark_pipelines.schema import DECISIONS, EVENTS, INTEGERS, RAW, expects

POLICY = "observed"
"""The policy is unknown, the running configuration is not."""

Row = dict[str, Any]
"""One decision by column."""

_RUN = ("source", "job", "run")


@dataclass(frozen=True)
class Observing:
    """How runs are looked at."""

    window: WindowConfig  # the metrics window
    interval_s: int  # between decisions
    env: EnvConfig  # of it counts the reference configuration, which the cost is relative to


@expects(RAW, DECISIONS)
def observed_decisions(
    kept: DataFrame,
    events: DataFrame,
    rescales: DataFrame,
    specs: Mapping[str, JobSpec],
    observing: Observing,
) -> DataFrame:
    """One row per run and interval: the snapshot, the configuration that ran next, the reward.

    The reward is measured. A run ends with a row that has a snapshot and no decision.

    Args:
        kept: raw rows that were not quarantined.
        events: `schema.EVENTS`; a run with no `running` event is taken as its samples show it.
        rescales: `schema.RESCALES` of the same runs.
        specs: the jobs by name.
        observing: how they are looked at.

    Returns:
        Rows of `schema.DECISIONS`.

    Raises:
        DatasetError: While Spark runs: a job is not in `specs`.
    """
    known, schema = dict(specs), to_arrow_schema(DECISIONS)
    shown = rescales.select(
        *_RUN,
        "t_s",
        f.lit("_outage").alias("kind"),
        f.to_json(f.struct("downtime_s", "changed")).alias("body"),
    )
    told = events.select(*EVENTS.names).unionByName(_named(shown))

    def of_run(key: tuple[pa.Scalar, ...], seen: pa.Table, about: pa.Table) -> pa.Table:
        source, job, run = (scalar.as_py() for scalar in key)
        if job not in known:
            raise DatasetError(
                f"source '{source}', run '{run}': nothing is known of job '{job}'",
                remedy=did_you_mean(job, known),
            )
        if seen.num_rows == 0:
            return pa.Table.from_pylist([], schema)
        observed = _run(run, known[job], _samples(seen), about.sort_by("t_s").to_pylist())
        name = {"source": source, "job": job, "run": run}
        return pa.Table.from_pylist([name | row for row in _rows(observed, observing)], schema)

    return kept.groupBy(*_RUN).cogroup(told.groupBy(*_RUN)).applyInArrow(of_run, DECISIONS)


def _named(frame: DataFrame) -> DataFrame:
    return frame.select(*(f.col(field.name).cast(field.dataType) for field in EVENTS.fields))


def _samples(seen: pa.Table) -> Samples:
    columns = [seen[name].to_pylist() for name in ("t_s", "vertex", "subtask", "metric", "value")]
    # Of equal keys the last stays, so that order does not matter: the greatest value.
    return Samples.of(sorted(zip(*columns, strict=True)))


def _run(name: str, spec: JobSpec, samples: Samples, about: Sequence[Body]) -> Run:
    """The run as a recording would hold it."""
    kinds = get_args(EventKind)
    events = [_event(name, e) for e in about if e["kind"] in kinds]
    running = [e for e in events if e.kind == "running"]
    if running and "parallelism" in running[0].body:
        first, begin_s = _configuration(spec, running[0].body), running[0].t_s
    else:
        events, first = _shown(name, spec, samples, [e for e in about if e["kind"] == "_outage"])
        begin_s = float(samples.t_s[0]) if len(samples) else math.nan
    return Run(
        name=name,
        spec=spec,
        configuration=first,
        load=RecordedLoad(name="observed", steps=((0.0, 0.0),)),
        repeat=0,
        events=tuple(events),
        t_load_s=begin_s,
        t_running_s=begin_s,
        t_end_s=float(samples.t_s[-1]),
        complete=True,
        given=samples,
    )


def _event(run: str, event: Body) -> Event:
    body = json.loads(event["body"] or "{}")
    return Event(t_s=event["t_s"], run=run, kind=cast("EventKind", event["kind"]), body=body)


def _configuration(spec: JobSpec, body: Body) -> Configuration:
    names = [vertex.name for vertex in spec.vertices]
    levels = body.get("memory_level") or {}
    return Configuration(
        {name: int(body["parallelism"][name]) for name in names},
        {name: int(levels.get(name, -1)) for name in names},
    )


def _shown(
    run: str, spec: JobSpec, samples: Samples, outages: Sequence[Body]
) -> tuple[list[Event], Configuration]:
    """Events and the first configuration of a run that only its samples show.

    A vertex that no subtask number is known of runs as its job file says.
    """
    told = [(float(o["t_s"]), json.loads(o["body"])) for o in outages]
    changes = [json.loads(body["changed"]) for _, body in told]
    until_s = told[0][0] if told else math.inf
    early = samples.between(-math.inf, until_s)
    tasks = {vertex.name: vertex.parallelism for vertex in spec.vertices}
    for vertex in tasks:
        mine = early.subtask[early.vertex == vertex]
        if len(mine) and mine.max() >= 0:
            tasks[vertex] = int(mine.max()) + 1
    for change in changes[:1]:
        tasks |= {vertex: pair[0] for vertex, pair in change.items() if vertex in tasks}
    level = Topology.of([spec]).tables.start_level[0].tolist()
    order = [vertex.name for vertex in spec.topological_order()]
    levels = {vertex.name: level[order.index(vertex.name)] for vertex in spec.vertices}
    first, events = Configuration(dict(tasks), levels), []
    for (down_s, body), change in zip(told, changes, strict=True):
        tasks = tasks | {vertex: pair[1] for vertex, pair in change.items() if vertex in tasks}
        up_s = down_s + float(body["downtime_s"])
        now = {"parallelism": tasks, "memory_level": levels}
        events.append(Event(t_s=down_s, run=run, kind="stopped", body={}))
        events.append(Event(t_s=max(up_s, down_s), run=run, kind="running", body=now))
    return events, first


def _rows(run: Run, observing: Observing) -> Iterator[dict[str, object]]:
    """Rows of `DECISIONS` without what names the run."""
    jobs = ReplayJobs(run, observing.window)
    names = jobs.topology.names(0)
    tables, row = jobs.topology.tables, jobs.topology.row
    unit = reference_cost_per_s(tables, row, observing.env.start_headroom)
    step, snapshot = 0, jobs.snapshot()
    while jobs.t_s + observing.interval_s <= run.t_end_s:
        outcome = jobs.advance(observing.interval_s)
        terms = reward_terms(outcome, unit)
        after = jobs.snapshot()
        next_one = run.configuration_at(jobs.t_s)
        tasks = [next_one.parallelism[name] for name in names]
        levels = [next_one.memory_level[name] for name in names]
        changed = tasks != _whole(snapshot, "parallelism", names) or levels != _whole(
            snapshot, "memory_level", names
        )
        yield _seen(snapshot, step, names) | {
            "proposed_parallelism": tasks,
            "proposed_memory_level": levels,
            "parallelism": tasks,
            "memory_level": levels,
            "reward_source": "metrics",
            **{name: _known(values[0]) for name, values in terms.items()},
            "rescale": max(float(terms["rescale"][0]), float(changed)),
            "terminated": False,
            "truncated": jobs.t_s + observing.interval_s > run.t_end_s,
        }
        step, snapshot = step + 1, after
    if step:
        yield _seen(snapshot, step, names)


def _seen(snapshot: MetricsSnapshot, step: int, names: Sequence[str]) -> dict[str, object]:
    t_s = float(snapshot.t_s[0])
    values: Row = {name: getattr(snapshot, name)[0].item() for name in PER_JOB}
    for name in PER_VERTEX:
        values[name] = getattr(snapshot, name)[0, : len(names)].tolist()
    values |= {name: int(values[name]) for name in PER_JOB if name in INTEGERS}
    return {"day": day_of(t_s), "step": step, "t_s": t_s, "policy": POLICY, "snapshot": values}


def _whole(snapshot: MetricsSnapshot, field: str, names: Sequence[str]) -> list[int]:
    return [int(value) for value in getattr(snapshot, field)[0, : len(names)]]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
