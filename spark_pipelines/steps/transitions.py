"""From decisions to transitions, encoded by the environment's own code.

Spark brings the rows of a run together; what is computed from them is NumPy, the very functions
`dsp_gym.envs.core` calls, over all runs of a group at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from dsp_gym.arrays import Bools, Floats32
from dsp_gym.datasets.encoding import EncodingConfig
from dsp_gym.datasets.transitions import floats_of, snapshots_of
from dsp_gym.envs.reward import TERMS, reward
from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import simulated_topology
from spark_pipelines.schema import DECISIONS, TRANSITIONS, expects
from spark_pipelines.steps.encoders import encode

USES: Mapping[str, str] = {
    "transition": "became a transition",
    "final": "shows what came of the decision before it, and decides nothing itself",
    "no_next": "what came of it was not observed: the run was cut here",
    "no_reward": "what came of it has no reward",
    "no_snapshot": "what was seen is not known",
    "duplicate": "another row of its run has the same step",
}
"""What becomes of a row of decisions."""

ENCODED = ("transition", "final", "no_next", "no_reward")
"""Of these uses are the rows that `encoded` takes."""

SEGMENTED = StructType(
    [
        *DECISIONS.fields,
        StructField("split", StringType()),  # null where decisions come without one
        StructField("segment", IntegerType()),
        StructField("use", StringType()),
    ]
)
"""Decisions with their unbroken stretch of a run, and one of `USES`."""

_GROUPS = 32  # per job; a group is what one call of the encoder holds in memory
_RUN = ("source", "job", "run")


@expects(DECISIONS, SEGMENTED)
def segments(decisions: DataFrame) -> DataFrame:
    """Cut runs where a decision is missing or the split changes; say what becomes of each row.

    Encoding looks back on what was observed before, so nothing is carried across a gap: what
    follows it is a separate segment, which begins as an episode does.

    Returns:
        Rows of `SEGMENTED`.
    """
    order = Window.partitionBy(*_RUN).orderBy("step", "t_s")
    same = Window.partitionBy(*_RUN, "step").orderBy("t_s")
    known = f.col("snapshot").isNotNull() & f.col("snapshot.parallelism").isNotNull()
    decided = f.col("proposed_parallelism").isNotNull()
    rewarded = _all_known(TERMS)
    first = f.row_number().over(same)
    own = f.col("split") if "split" in decisions.columns else f.lit(None).cast("string")
    frame = decisions.withColumn("split", own).withColumns(
        {
            "_first": first,
            "_known": known,
            "_decided": decided,
            "_whole": known & decided & rewarded,
        }
    )
    usable = frame.withColumn("_usable", f.col("_known") & (f.col("_first") == 1))
    # Within usable rows only: a row that is not is a gap like one that is missing.
    within = Window.partitionBy(*_RUN, "_usable").orderBy("step", "t_s")
    follows = (f.lag("step").over(within) == f.col("step") - 1) & f.lag("_whole").over(within)
    follows &= f.lag("split").over(within).eqNullSafe(f.col("split"))
    begun = usable.withColumn(
        "_begins", (f.col("_usable") & ~f.coalesce(follows, f.lit(False))).cast("int")
    )
    cut = begun.withColumn("segment", f.sum("_begins").over(order).cast("int"))
    inside = Window.partitionBy(*_RUN, "segment", "_usable").orderBy("step")
    use = (
        f.when(f.col("_first") > 1, "duplicate")
        .when(~f.col("_known"), "no_snapshot")
        .when(~f.col("_decided"), "final")
        .when(~f.col("_whole"), "no_reward")
        .when(f.lead("step").over(inside).isNull(), "no_next")
        .otherwise("transition")
    )
    return cut.withColumn("use", use).select(*SEGMENTED.names)


@expects(SEGMENTED, TRANSITIONS)
def transitions(
    segmented: DataFrame, specs: Mapping[str, JobSpec], config: EncodingConfig
) -> DataFrame:
    """Observation, action, reward and next observation of every decision that has them all.

    Rows are what an environment of `config.env` over these jobs gives, to the last bit; each keeps
    the split of its decision. A segment that does not end as an episode does is truncated where it
    was cut.

    Args:
        segmented: from `segments`.
        specs: the jobs by name.
        config: the environment encoded for.

    Returns:
        Rows of `schema.TRANSITIONS`.

    Raises:
        DatasetError: A job is larger than the room for it; while Spark runs, also: a decision is
            of a job that is not in `specs`, or has other vertices than it.
    """
    columns, compiled = config.columns(specs), topologies(specs, config)

    def of_runs(table: pa.Table) -> pa.Table:
        return encoded(table, compiled, config, columns)

    group = f.pmod(f.xxhash64("source", "run"), f.lit(_GROUPS)).alias("_group")
    usable = segmented.where(f.col("use").isin(*ENCODED))
    grouped = usable.select(*SEGMENTED.names).groupBy("job", group)
    return grouped.applyInArrow(of_runs, TRANSITIONS)


def topologies(specs: Mapping[str, JobSpec], config: EncodingConfig) -> dict[str, Topology]:
    """Compile the jobs' tables once, on the driver; workers get them with the step.

    Returns:
        By job, a topology of one row with the mechanisms of the environment encoded for.
    """
    on = config.env.simulation.mechanisms
    return {name: simulated_topology(Topology.of([spec]), on) for name, spec in specs.items()}


def encoded(
    table: pa.Table, compiled: Mapping[str, Topology], config: EncodingConfig, columns: int
) -> pa.Table:
    """Encode rows of `SEGMENTED` of one job.

    Args:
        table: all rows of some runs, those of `use` "duplicate" and "no_snapshot" left out.
        compiled: the jobs by name, from `topologies`.
        config: the environment encoded for.
        columns: V, the room for vertices; capacity actions have no use for it.

    Returns:
        Rows of `TRANSITIONS` in the order of run and step.
    """
    keys = [*_RUN, "segment", "step"]
    table = table.combine_chunks().sort_by([(key, "ascending") for key in keys])
    topology = _topology(table, compiled)
    run = table.select(keys[:-1]).to_pylist()
    begins = np.array([i == 0 or run[i] != run[i - 1] for i in range(len(run))], dtype=bool)
    snapshot = snapshots_of(table, topology)
    kept = np.flatnonzero(_text(table, "use") == "transition")
    rows = table.take(pa.array(kept))
    seen, chosen, valid = encode(rows, snapshot, begins, kept, config, columns)
    terms = {name: floats_of(rows[name]) for name in TERMS}
    earned = reward(terms, config.env.reward).astype(np.float32)
    # Whatever does not go on in the data has been cut there, if it did not end by itself.
    goes_on = np.append(~begins[1:], False)[kept] & np.isin(kept + 1, kept)
    ended = _flags(rows, "terminated")
    first = np.append(True, ~goes_on[:-1]) if len(kept) else np.empty(0, dtype=bool)
    made: dict[str, pa.Array] = {name: rows[name] for name in rows.column_names}
    made |= {
        "observation": _listed(seen[kept]),
        "action": _listed(chosen.astype(np.int32)),
        "action_mask": _listed(valid),
        "reward": pa.array(earned),
        "next_observation": _listed(seen[kept + 1]) if len(kept) else _listed(seen[kept]),
        "terminated": pa.array(ended),
        "truncated": pa.array((_flags(rows, "truncated") | ~goes_on) & ~ended),
        "return_to_go": pa.array(returns_to_go(earned, first, config.gamma)),
    }
    schema = to_arrow_schema(TRANSITIONS)
    return pa.table({name: made[name] for name in schema.names}).cast(schema)


def _topology(table: pa.Table, compiled: Mapping[str, Topology]) -> Topology:
    name = table["job"][0].as_py()
    if name not in compiled:
        raise DatasetError(
            f"there is no job file of the job '{name}'",
            file=table["source"][0].as_py(),
            key="job",
            value=name,
            remedy=f"Known are {', '.join(sorted(compiled))}.",
        )
    return compiled[name]


def _all_known(names: tuple[str, ...]) -> Column:
    known = f.lit(True)
    for name in names:
        known = known & f.col(name).isNotNull() & ~f.isnan(name)
    return known


def _flags(table: pa.Table, name: str) -> Bools:
    column = table[name].combine_chunks().fill_null(False)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def _text(table: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array(table[name].to_pylist(), dtype=object)


def _listed(array: Floats32 | NDArray[np.int32] | Bools) -> pa.Array:
    """An array (N, K) as a column of lists."""
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.ListArray.from_arrays(
        pa.array(np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]), flat
    )


def returns_to_go(reward: Floats32, begins: Bools, gamma: float) -> Floats32:
    """Discounted sum of the rewards from each step to the end of its run; nothing beyond it.

    Args:
        reward: (N,) of runs one after the other, each in order of time.
        begins: (N,) True where a run begins.
        gamma: discount per step.

    Returns:
        Returns (N,).

    >>> rewards = np.array([1, 1, 1, 4], np.float32)
    >>> returns_to_go(rewards, np.array([True, False, False, True]), 0.5)
    array([1.75, 1.5 , 1.  , 4.  ], dtype=float32)
    """
    found = np.empty(len(reward), np.float64)
    future = 0.0
    for i in range(len(reward) - 1, -1, -1):
        found[i] = float(reward[i]) + gamma * future
        future = 0.0 if begins[i] else float(found[i])
    return found.astype(np.float32)
