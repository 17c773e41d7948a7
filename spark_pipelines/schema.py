"""Every table of the pipeline: its columns, once, and the check that a DataFrame has them.

    raw ──► windows ──► snapshots ─┐
     └────► rescales               ├──► decisions ──► transitions
    journals, rollouts ────────────┘

A **run** is one job under one observation without a break in identity: a run of a recording, an
episode of a rollout, a job in a journal or a Prometheus. Times are seconds on its clock; `day`
is the UTC day of a Unix time, and `0000-00-00` plus the run's day number where the clock is a
simulation's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from dsp_gym.envs.reward import TERMS
from dsp_gym.errors import DatasetError, did_you_mean
from dsp_gym.loop.snapshot import INTEGERS, PER_JOB, PER_VERTEX

__all__ = [
    "DECISIONS",
    "EVENTS",
    "INTEGERS",
    "QUARANTINE",
    "RAW",
    "RESCALES",
    "SNAPSHOT",
    "TRANSITIONS",
    "WINDOWS",
    "expects",
]

_DOUBLE, _FLOAT, _INT, _TEXT = DoubleType(), FloatType(), IntegerType(), StringType()
_BOOL, _LONG = BooleanType(), LongType()


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_TERMS = dict.fromkeys(TERMS, _DOUBLE)

_IDENTITY = {"source": _TEXT, "job": _TEXT, "run": _TEXT}

RAW = _table(
    **_IDENTITY,
    day=_TEXT,
    t_s=_DOUBLE,
    vertex=_TEXT,  # "" for a TaskManager
    subtask=_INT,  # -1 for a value of the whole vertex
    metric=_TEXT,  # names of dsp_gym.metrics.flink
    value=_DOUBLE,
)
"""One sample: a recording's, with where it comes from."""

EVENTS = _table(**_IDENTITY, t_s=_DOUBLE, kind=_TEXT, body=_TEXT)
"""What happened to a run, kinds as in a recording's events.jsonl; `body` is JSON."""

WINDOWS = _table(
    **_IDENTITY,
    day=_TEXT,
    t_s=_DOUBLE,  # end of the window
    vertex=_TEXT,
    parallelism=_INT,
    memory_level=_INT,
    seconds=_DOUBLE,  # covered by samples
    records_in_per_s=_DOUBLE,
    records_out_per_s=_DOUBLE,
    busy_ms_per_s=_DOUBLE,  # mean over subtasks
    busy_max_ms_per_s=_DOUBLE,  # hottest subtask
    busy_std_ms_per_s=_DOUBLE,  # over the window's samples
    backpressured_ms_per_s=_DOUBLE,
    idle_ms_per_s=_DOUBLE,
    true_processing_rate=_DOUBLE,  # DS2 (OSDI 2018): records processed over useful time
    true_output_rate=_DOUBLE,
    selectivity=_DOUBLE,
    cache_hit_rate=_DOUBLE,
    state_read_latency_ms=_DOUBLE,
    state_write_latency_ms=_DOUBLE,
    state_mib=_DOUBLE,
    pending_records=_DOUBLE,
    pending_growth_per_s=_DOUBLE,
    latency_p95_s=_DOUBLE,
)
"""One vertex over one decision window."""

RESCALES = _table(
    **_IDENTITY,
    day=_TEXT,
    t_s=_DOUBLE,  # when the job went down
    cause=_TEXT,  # "rescale" or "restart": whether the configuration changed
    changed=_TEXT,  # JSON: vertex -> [parallelism before, after, level before, after]
    downtime_s=_DOUBLE,
    savepoint_s=_DOUBLE,
    savepoint_bytes=_DOUBLE,
    catch_up_s=_DOUBLE,  # until the backlog is back to what it was
)
"""One outage of a run, and whether a change of configuration came with it."""

SNAPSHOT = StructType(
    [StructField(name, _LONG if name in INTEGERS else _DOUBLE) for name in PER_JOB]
    + [StructField(name, ArrayType(_LONG if name in INTEGERS else _DOUBLE)) for name in PER_VERTEX]
)
"""A `MetricsSnapshot` of one job; per vertex an array in topological order."""

DECISIONS = _table(
    **_IDENTITY,
    day=_TEXT,
    step=_INT,  # from 0 in its run
    t_s=_DOUBLE,
    policy=_TEXT,  # who decided
    guardrails=_TEXT,  # what decisions passed through; null: nothing
    propensity=_DOUBLE,  # probability of the action under its policy; null: not known
    snapshot=SNAPSHOT,
    # The environment's, (2 V,) or of a capacity (1,), where one was taken; null, or one of the
    # other kind than is encoded: the valid one nearest to the proposal.
    action=ArrayType(_INT),
    proposed_parallelism=ArrayType(_LONG),
    proposed_memory_level=ArrayType(_LONG),
    parallelism=ArrayType(_LONG),  # guarded
    memory_level=ArrayType(_LONG),
    reward_source=_TEXT,  # "outcome" or "metrics"
    **_TERMS,  # unweighted
    terminated=_BOOL,
    truncated=_BOOL,
)
"""One decision, and the outcome of the interval after it."""

TRANSITIONS = _table(
    **_IDENTITY,
    day=_TEXT,
    split=_TEXT,
    step=_INT,
    t_s=_DOUBLE,
    policy=_TEXT,
    propensity=_DOUBLE,
    observation=ArrayType(_FLOAT),
    action=ArrayType(_INT),  # the environment's, (2 V,); of a capacity (1,)
    action_mask=ArrayType(_BOOL),  # (10 V,); of a capacity (11,)
    reward=_FLOAT,
    reward_source=_TEXT,
    **_TERMS,  # unweighted
    next_observation=ArrayType(_FLOAT),
    terminated=_BOOL,
    truncated=_BOOL,
    return_to_go=_FLOAT,  # discounted, to the end of the run
)
"""One step of the environment, encoded by the environment's own code."""

QUARANTINE = _table(**{f.name: f.dataType for f in RAW.fields}, check=_TEXT, reason=_TEXT)
"""A raw row that was kept out, and why."""


def expects(
    given: StructType, made: StructType
) -> Callable[[Callable[..., DataFrame]], Callable[..., DataFrame]]:
    """Say of a step what it takes and what it makes, and hold it to that.

    More columns than expected pass; a missing one or another type does not.

    Returns:
        A decorator; the decorated step raises where the columns of its input or output are wrong.
    """

    def decorate(step: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        def checked(frame: DataFrame, *args: object, **kwargs: object) -> DataFrame:
            _check(frame, given, f"{step.__name__}: input")
            result = step(frame, *args, **kwargs)
            _check(result, made, f"{step.__name__}: output")
            return result

        checked.__name__, checked.__doc__ = step.__name__, step.__doc__
        return checked

    return decorate


def _check(frame: DataFrame, schema: StructType, where: str) -> None:
    have: Mapping[str, DataType] = {field.name: field.dataType for field in frame.schema.fields}
    for field in schema.fields:
        if field.name not in have:
            raise DatasetError(
                f"{where} has no column '{field.name}'", remedy=did_you_mean(field.name, have)
            )
        found, wanted = have[field.name].simpleString(), field.dataType.simpleString()
        if found != wanted:
            raise DatasetError(f"{where}: column '{field.name}' is {found}, expected {wanted}")
