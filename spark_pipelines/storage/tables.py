"""Tables as Parquet, by job and day, each partition sorted and its content hashed."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from dsp_gym.datasets.content import content_sha256, read_files
from dsp_gym.datasets.manifest import TableRecord
from spark_pipelines.sources import Partition
from spark_pipelines.sources.staging import kept_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "ORDER",
    "drop_kept",
    "is_written",
    "kept",
    "partitions_in",
    "record",
    "write_table",
]

ORDER: dict[str, Sequence[str]] = {
    "windows": ("source", "run", "t_s", "vertex"),
    "rescales": ("source", "run", "t_s"),
    "snapshots": ("source", "run", "step", "t_s"),
    "transitions": ("source", "run", "step", "t_s"),
    "findings": ("source", "run", "t_s", "vertex", "check", "reason"),
    "quarantine": ("source", "run", "t_s", "vertex", "subtask", "metric", "value", "check"),
}
"""By what the rows of a partition are sorted: with it they stand in one order only."""

_DONE = ".done"
_KEPT = "kept"


def write_table(
    frame: DataFrame, building: Path, table: str, only: Collection[Partition], rows_per_file: int
) -> None:
    """Writes the rows of some partitions; a table that was finished before is not written again.

    Args:
        frame: with columns `job` and `day`.
        building: folder of the build.
        table: name of the table.
        only: partitions that are written; rows of others are left out.
        rows_per_file: a partition with more is several files.
    """
    folder = building / "tables" / table
    if is_written(building, table):
        return
    shutil.rmtree(folder, ignore_errors=True)
    rows = kept_in(frame, only)
    (
        rows.repartition("job", "day")
        .sortWithinPartitions("job", "day", *ORDER[table])
        .write.mode("overwrite")
        .option("maxRecordsPerFile", rows_per_file)
        .partitionBy("job", "day")
        .parquet(str(folder))
    )
    for leftover in (*folder.rglob("_SUCCESS"), *folder.rglob(".*.crc")):
        leftover.unlink()
    _mark(building, table).touch()


def kept(building: Path, frame: DataFrame, name: str) -> DataFrame:
    """The same rows from files, for what is read many times; taken up where it was finished before.

    Unlike a frame in Spark's cache it takes no memory, survives its process, and ends the plan:
    what is made of it is planned anew from here.

    Args:
        building: folder of the build.
        frame: any.
        name: of the folder in it.

    Returns:
        A frame that reads the files, of the same schema.
    """
    folder = building / _KEPT / name
    if not is_written(building, f"{_KEPT}-{name}"):
        frame.write.mode("overwrite").parquet(str(folder))
        _mark(building, f"{_KEPT}-{name}").touch()
    return frame.sparkSession.read.schema(frame.schema).parquet(str(folder))


def drop_kept(building: Path) -> None:
    """Removes what `kept` has put down; to be done before it is published."""
    shutil.rmtree(building / _KEPT, ignore_errors=True)


def is_written(building: Path, table: str) -> bool:
    """Whether a table was written to its end.

    Returns:
        True where the mark of a finished table is there.
    """
    return _mark(building, table).exists()


def _mark(building: Path, table: str) -> Path:
    return building / f"{_DONE}-{table}"


def partitions_in(building: Path, table: str) -> dict[Partition, Path]:
    """Finds the partitions of a table that were written.

    Returns:
        Their folders by (job, day).
    """
    found = {}
    for folder in sorted((building / "tables" / table).glob("job=*/day=*")):
        job, day = folder.parent.name.removeprefix("job="), folder.name.removeprefix("day=")
        found[unquote(job), unquote(day)] = folder
    return found


def record(building: Path, folder: Path) -> TableRecord:
    """Names the files of a partition in order, and hashes their rows.

    Returns:
        Rows, hash and files as the manifest keeps them.
    """
    files = [
        file.rename(file.with_name(f"part-{number:05d}.parquet"))
        for number, file in enumerate(sorted(folder.glob("*.parquet"), key=_place))
    ]
    rows = read_files(files)
    splits: dict[str, int] = {}
    if rows is not None and "split" in rows.column_names:
        names, counts = np.unique(
            np.array(rows["split"].fill_null("none").to_pylist(), dtype=str), return_counts=True
        )
        splits = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return TableRecord(
        rows=0 if rows is None else rows.num_rows,
        sha256=content_sha256(rows),
        files=tuple(str(file.relative_to(building)) for file in files),
        splits=splits,
    )


def _place(file: Path) -> tuple[str, str]:
    """Spark names files part-TASK-UUID.c000, .c001, ...: in that order they were cut."""
    stem, _, rest = file.name.partition(".")
    return ("-".join(stem.split("-")[:2]), rest)
