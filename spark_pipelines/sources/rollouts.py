"""Rollouts: decisions of simulated jobs, each cell a file that has the columns already."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.datasets.rollouts.format import RolloutManifest
from dsp_gym.envs.config import EnvConfig
from dsp_gym.errors import DatasetError
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.sources import Inputs, Partition, Piece, SourceFacts
from spark_pipelines.sources.config import RolloutsSource, expanded
from spark_pipelines.sources.parquet_files import days_of_cell
from spark_pipelines.sources.staging import hash_of, read_decisions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def survey(config: RolloutsSource, name: str, work: Path) -> SourceFacts:
    """Cells of the rollout, one piece each; an interrupted rollout is refused.

    Returns:
        The source's facts: one piece per cell, with the rollout's jobs.
    """
    folder = expanded(config.folder)
    manifest = RolloutManifest.read(folder)
    if not manifest.complete:
        raise DatasetError(
            f"source '{name}': the rollout was interrupted, it has {len(manifest.cells)} cells",
            file=folder,
            remedy="Finish it: the same dsp-gym rollout continues where it stopped.",
        )
    specs = {spec.job: spec for spec in manifest.jobs}
    hashes = {job: hash_of(spec) for job, spec in specs.items()}
    pieces = []
    for cell in manifest.cells:
        file = folder / cell.file
        if not file.exists() or file_sha256(file) != cell.sha256:
            raise DatasetError(
                f"source '{name}', run '{cell.run}' of job '{cell.job}': "
                "its file is missing, or has changed since it was written (sha256 differs)",
                file=file,
                remedy="Remove the file and run the same dsp-gym rollout again.",
            )
        partitions = tuple((cell.job, day) for day in days_of_cell(file))
        sha256 = hash_of(cell.sha256, hashes[cell.job], cell.load)
        pieces.append(Piece(cell.run, sha256, cell.rows, partitions, file, cell.run))
    if not pieces:
        raise DatasetError(f"source '{name}': the rollout has no cell", file=folder)
    loads = {cell.run: cell.load for cell in manifest.cells}
    return SourceFacts(
        name,
        "rollouts",
        str(folder),
        "run",
        tuple(pieces),
        specs,
        loads,
        decided=True,
        headroom=_headroom(manifest),
    )


def _headroom(manifest: RolloutManifest) -> float:
    """`start_headroom` of the environment that was played."""
    env = manifest.config.get("env")
    return EnvConfig.model_validate(env if env is not None else {}).start_headroom


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Decisions of the cells; runs that hold rows of a partition are read whole.

    Returns:
        `decisions` only; a rollout keeps neither samples nor events.
    """
    return Inputs(None, None, read_decisions(spark, facts, only), facts.specs, facts)
