"""Journals of `dsp-gym shadow`: snapshots, decisions and outcomes, as rows of decisions.

Where nothing was enacted (a dry run, a shadow, a job that was held), the job's own way is the
behaviour: the row says policy `observed`, and its decision is the configuration that was seen
running at the next snapshot. A journal is on a Unix clock: a run is a day of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.reward import TERMS, reward_terms
from dsp_gym.errors import DatasetError, did_you_mean
from dsp_gym.job.catalog import load_job
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import INTEGERS, PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_from_json
from dsp_gym.records.base import Body
from dsp_gym.records.journal import Entry
from dsp_gym.records.journal import read as read_journal
from dsp_gym.records.parquet import write_parquet
from spark_pipelines.days import day_of
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import JournalsSource, expanded
from spark_pipelines.sources.staging import hash_of, read_decisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBSERVED = "observed"
HEADROOM = EnvConfig().start_headroom
"""Files that are kept state cost in this unit, so that one file serves every configuration."""

Document = Body
Row = dict[str, object]


@dataclass
class _Turn:
    """Entries of one look at the job."""

    t_s: float
    snapshot: Document
    decided: dict[str, Document] = field(default_factory=dict)  # policy -> what it wanted
    guarded: dict[str, Document] = field(default_factory=dict)
    enacted_by: str | None = None
    outcome: Document | None = None
    sha256: hashlib._Hash = field(default_factory=hashlib.sha256)  # of its entries


def survey(config: JournalsSource, name: str, work: Path) -> SourceFacts:
    """Days of the journal, one piece each, kept as rows of decisions.

    Returns:
        The source's facts; their clock is Unix time, their decisions stand in `work`.
    """
    folder, spec = expanded(config.folder, "journals"), load_job(config.job)
    key = config.key or spec.job
    seen: set[str] = set()
    turns = _turns(read_journal(folder), key, seen)
    pieces: list[Piece] = []
    for day, of_day in groupby(turns, lambda turn: day_of(turn.t_s)):
        # A clock that was set back comes to the same day again: that is another run.
        again = sum(piece.name.partition(".")[0] == day for piece in pieces)
        run = f"{day}.{again}" if again else day
        pieces.append(_piece(work, name, spec, day, run, list(of_day), folder))
    if not pieces:
        raise DatasetError(
            f"source '{name}': the journal has no snapshot of a job '{key}'",
            file=folder,
            key="sources.key",
            value=key,
            remedy=did_you_mean(key, seen),
        )
    return SourceFacts(
        name,
        "journals",
        str(folder),
        "unix",
        tuple(pieces),
        {spec.job: spec},
        decided=True,
        headroom=HEADROOM,
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Decisions; a journal keeps no samples.

    Returns:
        `decisions` only.
    """
    return Inputs(None, None, read_decisions(spark, facts, only), facts.specs, facts)


def _turns(entries: Iterable[Entry], key: str, seen: set[str]) -> Iterator[_Turn]:
    turn: _Turn | None = None
    for entry in entries:
        seen.add(entry.job)
        if entry.job != key:
            continue
        if entry.kind == "snapshot":
            if turn is not None:
                yield turn
            turn = _Turn(entry.t_s, entry.body)
        if turn is None:  # a journal that is bounded in size may begin within a decision
            continue
        turn.sha256.update(entry.line())
        who = entry.policy or ""
        if entry.kind == "decision":
            turn.decided[who] = entry.body
        elif entry.kind == "guard":
            turn.guarded[who] = entry.body
        elif entry.kind == "outcome":
            turn.outcome = entry.body
        elif entry.kind == "actuation" and _is_enacted(entry.body):
            turn.enacted_by = who
    if turn is not None:
        yield turn


def _is_enacted(body: Document) -> bool:
    return bool(body.get("event") == "decided" and body.get("applied") and body.get("held") is None)


def _piece(
    work: Path, source: str, spec: JobSpec, day: str, run: str, turns: list[_Turn], folder: Path
) -> Piece:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_pipelines.schema import DECISIONS

    sha256 = hash_of(source, spec, run, *(turn.sha256.hexdigest() for turn in turns))
    file = work / f"{sha256}.parquet"
    if not file.exists():
        rows = decisions_of(turns, spec, source, day, run, str(folder))
        schema = to_arrow_schema(DECISIONS)
        write_parquet(file, pa.Table.from_pylist(rows, schema=schema))
    return Piece(run, sha256, len(turns), ((spec.job, day),), file)


def decisions_of(
    turns: list[_Turn], spec: JobSpec, source: str, day: str, run: str, where: str
) -> list[Row]:
    """Rows of DECISIONS of one day; a row ends the run with the last snapshot.

    Returns:
        One row per turn, in order of time.
    """
    topology = Topology.of([spec])
    order = [vertex.name for vertex in spec.topological_order()]
    rows: list[Row] = []
    seen = [_snapshot(turn.snapshot, spec, order, where) for turn in turns]
    for step, turn in enumerate(turns):
        following = turns[step + 1] if step + 1 < len(turns) else None
        row: Row = {
            "source": source,
            "job": spec.job,
            "run": run,
            "day": day,
            "step": step,
            "t_s": turn.t_s,
            "snapshot": seen[step],
        }
        if following is not None:
            row |= _decided(turn, following, order) | _rewarded(turn, topology)
            row |= {"terminated": False, "truncated": step + 2 == len(turns)}
        rows.append(row)
    return rows


def _snapshot(document: Document, spec: JobSpec, order: list[str], where: str) -> Row:
    """The nested column, vertices in the job file's order whatever the document's is."""
    seen: MetricsSnapshot = snapshot_from_json([document], where)
    names = seen.topology.names(0)
    if set(names) != set(order):
        raise DatasetError(
            f"a snapshot of the job '{document['job']}' has the vertices {', '.join(names)}; its "
            f"job file has {', '.join(order)}",
            file=where,
            key="sources.job",
            remedy="Name the job file that the loop ran with.",
        )
    column = [names.index(name) for name in order]
    row: Row = {}
    for name in PER_JOB:
        value = getattr(seen, name)[0]
        row[name] = int(value) if name in INTEGERS else float(value)
    for name in PER_VERTEX:
        values = getattr(seen, name)[0, column]
        row[name] = [int(v) if name in INTEGERS else float(v) for v in values]
    return row


def _decided(turn: _Turn, following: _Turn, order: list[str]) -> Row:
    who = turn.enacted_by
    if who is None or who not in turn.guarded:
        came = _configuration(following.snapshot["vertices"], order)
        return {
            "policy": OBSERVED,
            "guardrails": None,
            "propensity": None,
            "action": None,
            "proposed_parallelism": came[0],
            "proposed_memory_level": came[1],
            "parallelism": came[0],
            "memory_level": came[1],
        }
    allowed = turn.guarded[who]
    wanted = turn.decided.get(who, allowed)
    proposed = _configuration(allowed.get("proposed") or wanted["vertices"], order)
    guarded = _configuration(allowed["vertices"], order)
    names = sorted({found["guardrail"] for found in allowed.get("interventions", ())})
    return {
        "policy": who,
        "guardrails": ", ".join(names) or None,
        "propensity": None,
        "action": None,
        "proposed_parallelism": proposed[0],
        "proposed_memory_level": proposed[1],
        "parallelism": guarded[0],
        "memory_level": guarded[1],
    }


def _configuration(vertices: Iterable[Document], order: list[str]) -> tuple[list[int], list[int]]:
    by_name = {vertex["name"]: vertex for vertex in vertices}
    return (
        [int(by_name[name]["parallelism"]) for name in order],
        [int(by_name[name]["memory_level"]) for name in order],
    )


def _rewarded(turn: _Turn, topology: Topology) -> Row:
    """The reward's terms of the interval after the decision; null where it was not looked at."""
    if turn.outcome is None:
        return {"reward_source": None, **dict.fromkeys(TERMS)}
    values = {
        name: np.array([math.nan if turn.outcome.get(name) is None else turn.outcome[name]])
        for name in Outcome.__dataclass_fields__
    }
    unit = reference_cost_per_s(topology.tables, topology.row, HEADROOM)
    terms = reward_terms(Outcome(**values), unit)
    known = {name: float(v[0]) if np.isfinite(v[0]) else None for name, v in terms.items()}
    return {"reward_source": "metrics", **known}
