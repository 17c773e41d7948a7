"""Reading a dataset without Spark: its tables as Arrow, its transitions as NumPy.

from dsp_gym.datasets.reader import Dataset

dataset = Dataset.open("runs/datasets/q11")
dataset.transitions("train").observation  # (steps, features)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.files import parse
from dsp_gym.config.text import first_line
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.manifest import (
    REVISIONS,
    DatasetManifest,
    content_of,
    current_revision,
    hash_files,
)
from dsp_gym.datasets.transitions import COLUMNS, Transitions, transitions_of
from dsp_gym.errors import DatasetError, DspGymError, StorageError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    from dsp_gym.datasets.manifest import PartitionRecord

PARTITIONED = ("job", "day")
"""Columns that stand in the manifest, not in the files."""


@dataclass(frozen=True)
class Dataset:
    """The published revision of a dataset, as it was when it was opened."""

    folder: Path  # of the revision
    manifest: DatasetManifest

    @classmethod
    def open(cls, folder: str | Path) -> Dataset:
        """Open a dataset.

        Returns:
            The revision that is published now.

        Raises:
            StorageError: The folder holds no dataset.
            SchemaError: The dataset is of a version that this release does not read.
        """
        root = Path(folder)
        revision = root / REVISIONS / str(current_revision(root))
        return cls(revision, DatasetManifest.read_revision(revision))

    @cached_property
    def specs(self) -> dict[str, JobSpec]:
        """The jobs' files, by name."""
        return {
            name: parse(JobSpec, document, self.folder / "manifest.json")
            for name, document in self.manifest.jobs.items()
        }

    @property
    def encoding(self) -> Encoding:
        """How its transitions were encoded.

        Raises:
            DatasetError: The dataset holds no transitions.
        """
        found = self.manifest.detail.get("encoding")
        if found is None:
            raise DatasetError(
                "it holds no transitions",
                file=self.folder,
                remedy="Build it with transitions among its tables.",
            )
        return parse(Encoding, found, self.folder / "manifest.json")

    def table(
        self,
        name: str,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        lenient: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table, partition by partition; `job` and `day` are columns.

        Args:
            name: windows, rescales, snapshots, transitions or quarantine.
            split: train, validation or test; None: all rows.
            columns: which ones; one that some files were written without is null there. None: all.
            lenient: a column that no file has is null, too: that of a later release.

        Returns:
            Record batches of at most one file each.

        Raises:
            DatasetError: There is no such table, or none of its files has such a column.
            StorageError: A file cannot be read.
        """
        self._refuse_unknown(name)
        if columns is not None and not lenient:
            self._refuse_unknown_columns(name, columns)
        return self._batches(name, split, columns)

    def _batches(
        self, name: str, split: str | None, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        arrow, _ = pyarrow("reading a dataset")
        for partition, file in self._files(name):
            with self._opened(file) as opened:
                have = opened.schema_arrow.names
                wanted = None if columns is None else [c for c in have if c in columns]
                if wanted is not None and split is not None and "split" in have:
                    wanted = [*dict.fromkeys([*wanted, "split"])]
                rows = opened.read(columns=wanted)
            if split is not None and "split" in rows.column_names:
                rows = rows.filter(arrow.compute.equal(rows["split"], split))
            named = {"job": partition.job, "day": partition.day}
            for column, value in named.items():
                rows = rows.append_column(column, arrow.array([value] * len(rows), "string"))
            if columns is not None:
                for column in columns:
                    if column not in rows.column_names:
                        rows = rows.append_column(column, arrow.nulls(len(rows)))
                rows = rows.select(list(columns))
            yield from rows.to_batches()

    def _files(self, name: str) -> Iterator[tuple[PartitionRecord, str]]:
        """The files of a table with their partitions."""
        for partition in self.manifest.partitions:
            for file in partition.tables[name].files if name in partition.tables else ():
                yield partition, file

    @contextmanager
    def _opened(self, file: str) -> Iterator[ParquetFile]:
        arrow, parquet = pyarrow("reading a dataset")
        try:
            with parquet.ParquetFile(self.folder / file) as opened:
                yield opened
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise StorageError(
                f"cannot be read: {first_line(error)}",
                file=self.folder / file,
                remedy="Build the dataset again.",
            ) from None

    def transitions(self, split: str | None = None) -> Transitions:
        """The transitions of a split; None: all.

        Returns:
            N steps, ordered by source, run and step within a job and day.

        Raises:
            DatasetError: The split holds no transitions.
        """
        arrow, _ = pyarrow("reading a dataset")
        batches = list(self.table("transitions", split, COLUMNS, lenient=True))
        rows = arrow.Table.from_batches(batches) if batches else None
        if rows is None or not len(rows):
            have = ", ".join(self.manifest.splits.get("transitions", {})) or "none at all"
            raise DatasetError(
                f"it holds no transition of the split '{split}'",
                file=self.folder,
                key="split",
                value=split,
                remedy=f"It has {have}.",
            )
        return transitions_of(rows)

    def problems(self) -> list[str]:
        """Read every file and compare it with the manifest.

        Returns:
            One sentence for each difference.
        """
        found = []
        for partition in self.manifest.partitions:
            for name, record in partition.tables.items():
                where = f"{name}, job '{partition.job}', day {partition.day}"
                try:
                    rows, sha256 = hash_files(self.folder / file for file in record.files)
                except DspGymError as error:
                    found.append(f"{where}: {error}")
                    continue
                if rows != record.rows:
                    found.append(f"{where}: {rows} rows, the manifest says {record.rows}")
                elif sha256 != record.sha256:
                    found.append(f"{where}: the rows are not those that were written")
        if content_of(self.manifest.partitions) != self.manifest.content_sha256:
            found.append("the manifest's hash of all partitions is not that of its partitions")
        return found

    def _refuse_unknown(self, table: str) -> None:
        known = {name for partition in self.manifest.partitions for name in partition.tables}
        if table not in known:
            raise DatasetError(
                f"it has no table '{table}'", file=self.folder, remedy=did_you_mean(table, known)
            )

    def _refuse_unknown_columns(self, table: str, columns: Sequence[str]) -> None:
        """Every column stands in at least one file, where there are files."""
        known: dict[str, None] = {}
        missing = [column for column in columns if column not in PARTITIONED]
        for _, file in self._files(table):
            with self._opened(file) as opened:
                known |= dict.fromkeys(opened.schema_arrow.names)
            missing = [column for column in missing if column not in known]
            if not missing:
                return
        if known and missing:
            raise DatasetError(
                f"its table '{table}' has no column '{missing[0]}'",
                file=self.folder,
                key="columns",
                remedy=did_you_mean(missing[0], [*known, *PARTITIONED]),
            )
