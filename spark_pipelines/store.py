"""Where a build works: aside from what is published, and continued where it was stopped.

    .lock                     held by the running build
    .building-ID/             what is being built; ID says from what, so the same build continues
    .staging/SOURCE/          sources as Parquet where Spark cannot read them itself

All of it stands in the dataset's folder; for a dataset in object storage, in a folder of this
machine. What was built is published by `spark_pipelines.publication`.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import parquet

from dsp_gym.config.temporary import only_writer
from dsp_gym.datasets.delta import DATASETS, REVISIONS, TABLES, DatasetHome
from dsp_gym.datasets.manifest import OLD, DatasetManifest, is_published
from dsp_gym.errors import DatasetError
from spark_pipelines.publication import convert
from spark_pipelines.sources import Partition
from spark_pipelines.sources.staging import kept_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Store:
    """A dataset that is built.

    Args:
        place: a folder, made if need be, or an address in object storage.
    """

    def __init__(self, place: str | Path) -> None:
        self.home = DatasetHome.of(place)
        aside = DATASETS / f".{sha256(self.home.uri.encode()).hexdigest()[:16]}"
        self.work = self.home.folder or aside.absolute()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other builds of this machine out; those of others are found out on publication.

        Yields:
            Nothing; the lock is held until the block ends or the process does.

        Raises:
            DatasetError: Another build is at work.
            StorageError: The folder cannot be written to.
        """
        taken = DatasetError(
            "another build of this dataset is at work",
            file=self.home.uri,
            remedy="Wait for it, or build into another folder: --out FOLDER",
        )
        with only_writer(self.work, taken):
            yield

    def current(self) -> DatasetManifest | None:
        """Read the manifest of the current revision; an earlier release's becomes one of this.

        Returns:
            The manifest; None where nothing was published.
        """
        if self.home.folder is not None and (old := self.home.folder / OLD).exists():
            if not self.home.holds(REVISIONS):
                convert(self.home)
            old.unlink()
        return DatasetManifest.read(self.home.uri) if is_published(self.home) else None

    def staging(self, source: str) -> Path:
        """Where a source may keep files.

        Returns:
            A path; the folder need not exist.
        """
        return self.work / ".staging" / source

    def begin(self, build_id: str) -> Path:
        """Begin a build, or continue an earlier one of this id.

        Returns:
            The folder of the build.
        """
        self.clean(keep=build_id)
        building = self.work / f".building-{build_id}"
        building.mkdir(exist_ok=True)
        return building

    def clean(self, keep: str | None = None) -> None:
        """Remove what builds left that were killed, or failed."""
        for found in self.work.glob(".building-*"):
            if keep is None or found.name != f".building-{keep}":
                shutil.rmtree(found, ignore_errors=True)


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
_FRAMES = "kept"


def write_table(
    frame: DataFrame, building: Path, table: str, only: Collection[Partition], rows_per_file: int
) -> None:
    """Write the rows of some partitions; a table that was finished before is not written again.

    Args:
        frame: with columns `job` and `day`.
        building: folder of the build.
        table: name of the table.
        only: partitions that are written; rows of others are left out.
        rows_per_file: a partition with more is several files.
    """
    folder = tables_of(building) / table
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
    mark_written(building, table)


def write_rows(
    rows: pa.Table, building: Path, table: str, partition: Partition, rows_per_file: int
) -> None:
    """Write the rows of one partition, where `write_table` would have written them.

    Args:
        rows: in their order, with columns `job` and `day`.
        building: folder of the build.
        table: name of the table.
        partition: of all the rows.
        rows_per_file: of more, several files are made.
    """
    job, day = (quote(name, safe="") for name in partition)
    folder = tables_of(building) / table / f"job={job}" / f"day={day}"
    folder.mkdir(parents=True)
    columns = rows.drop_columns(["job", "day"])
    for n, begin in enumerate(range(0, len(rows), rows_per_file)):
        file = folder / f"part-{n:05d}.parquet"
        parquet.write_table(columns.slice(begin, rows_per_file), file, compression="zstd")


def tables_of(building: Path) -> Path:
    """Where a build puts its tables.

    Returns:
        A folder with one for each table.
    """
    return building / TABLES


def kept(building: Path, frame: DataFrame, name: str) -> DataFrame:
    """The same rows from files, for what is read many times; taken up where it was finished before.

    Unlike a frame in Spark's cache it takes no memory, survives its process, and ends the plan:
    what is made of it is planned again from here.

    Args:
        building: folder of the build.
        frame: any.
        name: of the folder in it.

    Returns:
        A frame that reads the files, of the same schema.
    """
    folder = building / _FRAMES / name
    if not is_written(building, f"{_FRAMES}-{name}"):
        frame.write.mode("overwrite").parquet(str(folder))
        mark_written(building, f"{_FRAMES}-{name}")
    return frame.sparkSession.read.schema(frame.schema).parquet(str(folder))


def is_written(building: Path, table: str) -> bool:
    """Whether a table was written to its end.

    Returns:
        True where the mark of a finished table is there.
    """
    return _mark(building, table).exists()


def mark_written(building: Path, table: str) -> None:
    """Say that a table was written to its end."""
    _mark(building, table).touch()


def _mark(building: Path, table: str) -> Path:
    return building / f"{_DONE}-{table}"


def partitions_in(building: Path, table: str) -> dict[Partition, Path]:
    """Find the partitions of a table that were written.

    Returns:
        Their folders by (job, day).
    """
    found = {}
    for folder in sorted((tables_of(building) / table).glob("job=*/day=*")):
        job, day = folder.parent.name.removeprefix("job="), folder.name.removeprefix("day=")
        found[unquote(job), unquote(day)] = folder
    return found
