"""A dataset in memory, of two runs and two days, for the tests of its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dsp_gym.datasets.encoding import Encoding, EncodingConfig
from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord, TableRecord
from dsp_gym.job.catalog import load_job
from spark_pipelines.config import DatasetConfig

JOB = "flink-wordcount"
DAY_S = 1_780_272_000.0  # 2026-06-01

CONFIG = DatasetConfig.model_validate(
    {
        "name": "made",
        "sources": [{"kind": "recordings", "folder": "somewhere"}],
        "splits": {"by": "time", "validation_from": DAY_S + 86_400},
    }
)


@dataclass
class MadeDataset:
    """What the page reads of a dataset."""

    rows: dict[str, list[dict[str, list[object]]]]  # by table, one dictionary of columns a day
    encoding: Encoding
    folder: str = "made"

    @property
    def manifest(self) -> DatasetManifest:
        days = [day["day"][0] for day in self.rows["transitions"]]
        tables = [
            {
                name: TableRecord(
                    rows=len(parts[k]["day"]),
                    sha256="",
                    splits={str(parts[k]["split"][0]): len(parts[k]["day"])},
                )
                for name, parts in self.rows.items()
            }
            for k in range(len(days))
        ]
        return DatasetManifest(
            name="made",
            revision=1,
            content_sha256="0" * 64,
            config=CONFIG.model_dump(mode="json"),
            sources=(),
            tables=dict.fromkeys(self.rows, 0),
            jobs={},
            partitions=tuple(
                PartitionRecord(job=JOB, day=day, inputs_sha256="", revision=1, tables=of)
                for day, of in zip(days, tables, strict=True)
            ),
            splits={
                name: {str(day["split"][0]): len(day["day"]) for day in parts}
                for name, parts in self.rows.items()
            },
            accounting={"decisions": 40, "decisions:at_split": 2, "quarantined:range": 3},
        )

    def table(
        self,
        name: str,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        lenient: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        for part in self.rows[name]:
            size = len(part["day"])
            yield pa.RecordBatch.from_pydict(
                {column: part.get(column, [None] * size) for column in columns or part}
            )


def made(seed: int = 0) -> MadeDataset:
    """Two days of which the first trains: a run each, every 60 s, with a gap of 5 minutes."""
    spec = load_job(JOB)
    encoding = Encoding.of(EncodingConfig(), {JOB: spec})
    v, fv, fj = encoding.vertices, len(encoding.vertex_features), len(encoding.job_features)
    draws = np.random.default_rng(seed)
    transitions, windows = [], []
    for k, split in enumerate(("train", "validation")):
        steps = np.r_[0:10, 14:24]
        t_s = (DAY_S + 86_400 * k + 600 + 60.0 * steps).tolist()
        observation = draws.normal(size=(20, v * fv + fj + v + v * v)).astype(np.float32)
        observation[:, v * fv + fj : v * fv + fj + v] = 1.0
        observation[:, v * fv] = 3.0  # the job's first feature never changes
        action = np.zeros((20, 2 * v), np.int32)
        action[:5, 0] = 3
        shared = {"job": [JOB] * 20, "day": [f"2026-06-0{k + 1}"] * 20, "source": ["s"] * 20,
                  "run": [f"run{k}"] * 20, "t_s": t_s, "split": [split] * 20}  # fmt: skip
        busy = draws.uniform(0, 1000, 20).tolist()
        windows.append({**shared, "vertex": ["count"] * 20, "busy_ms_per_s": busy})
        transitions.append(
            {**shared, "policy": ["ds2"] * 20, "reward": [-1.0] * 20, "step": list(range(20)),
             "observation": observation.tolist(), "action": action.tolist()}
        )  # fmt: skip
    return MadeDataset({"windows": windows, "transitions": transitions}, encoding)
