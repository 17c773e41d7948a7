"""The format `dsp-gym/rollout/1`: a folder with one Parquet file per episode and a manifest.

    manifest.json               schema, configuration, versions, policies, job files, cells
    cells/JOB_LOAD_SEED_POLICY.parquet

A row is one decision, the snapshot before it and the outcome of the interval after it. One
more row ends an episode: the last snapshot, with every column of a decision null. Arrays per vertex
are in the job's topological order. The same episode gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.reward import TERMS
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import INTEGERS, PER_JOB, PER_VERTEX
from dsp_gym.records.base import MANIFEST, Manifest
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MANIFEST",
    "ROLLOUT_SCHEMA",
    "CellRecord",
    "RecordedEpisode",
    "RolloutManifest",
    "cell_bytes",
    "cell_file",
    "cell_schema",
]

ROLLOUT_SCHEMA: Literal["dsp-gym/rollout/1"] = "dsp-gym/rollout/1"

DECIDED = ("proposed_parallelism", "proposed_memory_level", "parallelism", "memory_level")
DAY_S = 86_400


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpisode:
    """One job from its start to its end: N decisions, N + 1 snapshots, V vertices."""

    run: str
    job: str
    policy: str
    guardrails: str | None
    snapshots: Mapping[str, Floats | Ints]  # (N + 1,) or (N + 1, V), by name of the field
    decided: dict[str, Ints]  # (N, V), by DECIDED
    propensity: Floats  # (N,)
    terms: dict[str, Floats]  # (N,), unweighted, by TERMS
    terminated: bool  # else truncated

    def __len__(self) -> int:
        return len(self.propensity)


class CellRecord(ConfigModel):
    """One episode: one policy on one job under one load with one seed."""

    run: str = Field(min_length=1, description="unique in the folder")
    job: str = Field(description="name of the job")
    load: str = Field(description="name of the load")
    seed: int = Field(description="seed of the load")
    simulation_seed: int = Field(description="seed of outages, noise, faults, start, exploration")
    policy: str = Field(description="label of the policy")
    guardrails: str | None = Field(description="what decisions passed through; none: nothing")
    end: Literal["truncated", "terminated"] = Field(description="terminated: it cannot recover")
    file: str = Field(description="path below the folder")
    rows: int = Field(ge=2, description="decisions, and the row of the last snapshot")
    sha256: str = Field(description="of that file")


class RolloutManifest(Manifest):
    """The whole document."""

    SCHEMA = ROLLOUT_SCHEMA
    ABSENT = "holds no rollouts: there is no manifest.json"
    REMEDY = "Name a folder that `dsp-gym rollout` wrote."

    schema_: Literal["dsp-gym/rollout/1"] = Field(ROLLOUT_SCHEMA, alias="schema")
    config: dict[str, object] = Field(description="the configuration, defaults included")
    versions: dict[str, str] = Field(description="versions that the numbers depend on")
    policies: dict[str, dict[str, object]] = Field(
        description="by label: policy, parameters, guardrails, and the hash of a policy's folder"
    )
    jobs: tuple[JobSpec, ...] = Field(min_length=1, description="the job files")
    complete: bool = Field(description="false: interrupted; the same command continues")
    cells: tuple[CellRecord, ...] = Field(description="in the order of the configuration")


def cell_file(run: str) -> str:
    """Path of an episode's rows below the folder.

    Returns:
        A relative path with `/`.

    >>> cell_file("nexmark-q11/diurnal bursts/7/ds2")
    'cells/nexmark-q11_diurnal-bursts_7_ds2.parquet'
    """
    parts = (re.sub(r"[^A-Za-z0-9.=+-]+", "-", part) for part in run.split("/"))
    return f"cells/{'_'.join(parts)}.parquet"


@cache
def cell_schema() -> pa.Schema:
    """Name the columns of an episode's file.

    Returns:
        An Arrow schema.
    """
    arrow, _ = pyarrow("writing rollouts")
    text, double, long = arrow.string(), arrow.float64(), arrow.int64()
    kinds = {name: long if name in INTEGERS else double for name in (*PER_JOB, *PER_VERTEX)}
    snapshot = [(name, kinds[name]) for name in PER_JOB]
    snapshot += [(name, arrow.list_(kinds[name])) for name in PER_VERTEX]
    return arrow.schema(
        [("job", text), ("run", text), ("day", text), ("step", arrow.int32()), ("t_s", double)]
        + [("policy", text), ("guardrails", text), ("propensity", double)]
        + [("snapshot", arrow.struct(snapshot)), ("action", arrow.list_(arrow.int32()))]
        + [(name, arrow.list_(long)) for name in DECIDED]
        + [("reward_source", text), *((name, double) for name in TERMS)]
        + [("terminated", arrow.bool_()), ("truncated", arrow.bool_())]
    )


def cell_bytes(episode: RecordedEpisode) -> bytes:
    """Write an episode as Parquet.

    Returns:
        The file's content; the same episode gives the same bytes.
    """
    arrow, parquet = pyarrow("writing rollouts")
    schema, n = cell_schema(), len(episode)
    t_s = episode.snapshots["t_s"]
    ended = np.arange(n) == n - 1
    columns = {
        "job": [episode.job] * (n + 1),
        "run": [episode.run] * (n + 1),
        "day": [f"0000-00-{int(t // DAY_S):02d}" for t in t_s],
        "step": np.arange(n + 1, dtype=np.int32),
        "t_s": t_s,
        "policy": [episode.policy] * (n + 1),
        "guardrails": [episode.guardrails] * (n + 1),
        "propensity": [*episode.propensity.tolist(), None],
        "action": [None] * (n + 1),
        **{name: [*map(list, episode.decided[name].tolist()), None] for name in DECIDED},
        "reward_source": ["outcome"] * n + [None],
        **{name: [*episode.terms[name].tolist(), None] for name in TERMS},
        "terminated": [*(ended & episode.terminated).tolist(), None],
        "truncated": [*(ended & (not episode.terminated)).tolist(), None],
    }
    arrays = [
        _snapshots(arrow, episode, schema.field("snapshot").type)
        if name == "snapshot"
        else arrow.array(columns[name], schema.field(name).type, from_pandas=False)
        for name in schema.names
    ]
    sink = io.BytesIO()
    parquet.write_table(
        arrow.table(arrays, schema=schema),
        sink,
        compression="zstd",
        version="2.6",
        write_statistics=False,
    )
    return sink.getvalue()


def _snapshots(arrow: ModuleType, episode: RecordedEpisode, kind: pa.StructType) -> pa.Array:
    """The nested column; unknown stays NaN, as in a snapshot."""
    parts = []
    for field in kind:
        values = np.ascontiguousarray(episode.snapshots[field.name])
        if values.ndim == 1:
            parts.append(arrow.array(values, field.type, from_pandas=False))
            continue
        offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        flat = arrow.array(values.ravel(), field.type.value_type, from_pandas=False)
        parts.append(arrow.ListArray.from_arrays(arrow.array(offsets), flat, type=field.type))
    return arrow.StructArray.from_arrays(parts, fields=list(kind))
