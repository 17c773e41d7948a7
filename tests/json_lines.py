"""Samples that our scraper appends to *.jsonl: one object per line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.job.catalog import load_job
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.sources import Inputs, Partition, SourceFacts
from spark_pipelines.sources.parquet_files import texts_in
from spark_pipelines.sources.staging import Row, events_frame, hash_of, read_staged, stage_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Config(ConfigModel):
    """The keys beside `name` and `kind`."""

    folder: str = Field(min_length=1, description="folder of the *.jsonl files, one run each")
    job: str = Field(min_length=1, description="job file, by name or path")


def survey(config: Config, name: str, work: Path) -> SourceFacts:
    """Looks at what there is, without Spark: one piece for each file."""
    spec = load_job(config.job)
    pieces = []
    for file in sorted(Path(config.folder).glob("*.jsonl")):
        sha256 = hash_of(file_sha256(file), name, spec)  # what the piece is made from
        pieces.append(stage_rows(work, name, spec.job, file.stem, sha256, _rows(file)))
    return SourceFacts(
        name=name,
        kind="json-lines",
        path=config.folder,
        clock="run",  # seconds of the run; "unix" is cut by day
        pieces=tuple(pieces),
        specs={spec.job: spec},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Gives Spark the rows of some partitions."""
    from spark_pipelines.schema import RAW

    pieces = facts.holding(only)
    return Inputs(
        raw=read_staged(spark, pieces, RAW, only),
        events=events_frame(spark, facts.name, ()),  # rescales follow from the samples
        decisions=None,
        specs=facts.specs,
        facts=facts,
        metrics=texts_in(facts, pieces),
    )


def _rows(file: Path) -> Iterator[Row]:
    for line in file.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        yield (
            float(sample["t"]),
            sample["operator"],
            int(sample["task"]),
            sample["metric"],  # a name of dsp_gym.metrics.flink, such as busy_ms_per_s
            float(sample["value"]),
        )
