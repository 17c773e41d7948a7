"""Revisions of a dataset: one is built aside and becomes current in one step.

    .lock                     held by the running build
    .building-ID/             what is being built; ID says from what, so the same build continues
    .staging/SOURCE/          sources as Parquet where Spark cannot read them itself
    revisions/N/              published revisions, the last two; files they share are hard links
    CURRENT                   the number of the current one, replaced in one step

However a build ends, CURRENT names a whole revision. The next build removes or continues
what a killed one left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from dsp_gym.config.files import write_atomic
from dsp_gym.config.temporary import only_writer, synced
from dsp_gym.datasets.manifest import (
    CURRENT,
    REVISIONS,
    DatasetManifest,
    TableRecord,
    content_sha256,
    current_revision,
    read_files,
)
from dsp_gym.errors import DatasetError
from spark_pipelines.sources import Partition
from spark_pipelines.sources.staging import kept_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEPT = 2
"""Revisions: readers that opened the one before go on with it."""


class Store:
    """A dataset's folder.

    Args:
        folder: made if need be.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other builds out.

        Yields:
            Nothing; the lock is held until the block ends or the process does.

        Raises:
            DatasetError: Another build is at work.
            StorageError: The folder cannot be written to.
        """
        taken = DatasetError(
            "another build of this dataset is at work",
            file=self.folder,
            remedy="Wait for it, or build into another folder: --out FOLDER",
        )
        with only_writer(self.folder, taken):
            yield

    def current(self) -> DatasetManifest | None:
        """Read the manifest of the current revision.

        Returns:
            The manifest; None where nothing was published.
        """
        if not (self.folder / CURRENT).exists():
            return None
        return DatasetManifest.read(self.folder)

    def revision(self, number: int) -> Path:
        """The folder of a revision.

        Returns:
            A path; the folder need not exist.
        """
        return self.folder / REVISIONS / str(number)

    def staging(self, source: str) -> Path:
        """Where a source may keep files.

        Returns:
            A path; the folder need not exist.
        """
        return self.folder / ".staging" / source

    def begin(self, build_id: str) -> Path:
        """Begin a build, or continue an earlier one of this id.

        Returns:
            The folder of the build.
        """
        self.clean(keep=build_id)
        building = self.folder / f".building-{build_id}"
        building.mkdir(exist_ok=True)
        return building

    def clean(self, keep: str | None = None) -> None:
        """Remove what builds left that were killed, or failed."""
        for found in self.folder.glob(".building-*"):
            if keep is None or found.name != f".building-{keep}":
                shutil.rmtree(found, ignore_errors=True)
        newest = current_revision(self.folder) if (self.folder / CURRENT).exists() else 0
        for found in (self.folder / REVISIONS).glob("*"):
            if not found.name.isdecimal() or int(found.name) > newest:
                shutil.rmtree(found, ignore_errors=True)

    def link(self, file: str, revision: int, building: Path) -> None:
        """Take a file of a published revision over as it is."""
        target = building / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.link(self.revision(revision) / file, target)

    def publish(self, building: Path, manifest: DatasetManifest) -> Path:
        """Make what was built the current revision.

        Returns:
            The revision's folder, with everything in it on disk.
        """
        manifest.write(building)
        for folder, _, files in os.walk(building):
            for file in files:
                synced(Path(folder) / file)
            synced(Path(folder))
        target = self.revision(manifest.revision)
        target.parent.mkdir(exist_ok=True)
        building.rename(target)
        synced(target.parent)
        write_atomic(self.folder / CURRENT, f"{manifest.revision}\n")
        synced(self.folder)
        self._prune(manifest.revision)
        return target

    def _prune(self, newest: int) -> None:
        for found in (self.folder / REVISIONS).glob("*"):
            if found.name.isdecimal() and int(found.name) <= newest - _KEPT:
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
        _mark(building, f"{_FRAMES}-{name}").touch()
    return frame.sparkSession.read.schema(frame.schema).parquet(str(folder))


def drop_kept(building: Path) -> None:
    """Remove what `kept` has put down; to be done before it is published."""
    shutil.rmtree(building / _FRAMES, ignore_errors=True)


def is_written(building: Path, table: str) -> bool:
    """Whether a table was written to its end.

    Returns:
        True where the mark of a finished table is there.
    """
    return _mark(building, table).exists()


def _mark(building: Path, table: str) -> Path:
    return building / f"{_DONE}-{table}"


def partitions_in(building: Path, table: str) -> dict[Partition, Path]:
    """Find the partitions of a table that were written.

    Returns:
        Their folders by (job, day).
    """
    found = {}
    for folder in sorted((building / "tables" / table).glob("job=*/day=*")):
        job, day = folder.parent.name.removeprefix("job="), folder.name.removeprefix("day=")
        found[unquote(job), unquote(day)] = folder
    return found


def record(building: Path, folder: Path) -> TableRecord:
    """Name the files of a partition in order, and hash their rows.

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
