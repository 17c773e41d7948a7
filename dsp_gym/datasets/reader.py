"""Reading a dataset without Spark: its tables as Arrow, its transitions as NumPy.

import dsp_gym.datasets

dataset = dsp_gym.datasets.read("q11")  # a name, a folder or an address
dataset.transitions("train").observation  # (steps, features)
dataset.delta("windows")  # a Delta table, for pandas, Polars and DuckDB
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.files import parse
from dsp_gym.datasets.delta import (
    DATASETS,
    TABLES,
    DatasetHome,
    TablePart,
    parts_of,
)
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.manifest import DatasetManifest, content_of, content_sha256
from dsp_gym.datasets.transitions import COLUMNS, Transitions, transitions_of
from dsp_gym.errors import DatasetError, DspGymError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Dataset:
    """The published revision of a dataset, as it was when it was opened."""

    home: DatasetHome
    manifest: DatasetManifest

    @classmethod
    def open(cls, place: str | Path) -> Dataset:
        """Open a dataset.

        Args:
            place: its folder, its address in object storage, or the name of one that was built.

        Returns:
            The revision that is published now.

        Raises:
            StorageError: The place holds no dataset.
            SchemaError: The dataset is of a version that this release does not read.
        """
        is_name = "/" not in str(place) and not Path(place).exists()
        found = DATASETS / place if is_name and (DATASETS / place).is_dir() else place
        return cls(DatasetHome.of(found), DatasetManifest.read(found))

    @property
    def folder(self) -> str:
        """Its folder, or its address in object storage."""
        return self.home.uri

    @cached_property
    def specs(self) -> dict[str, JobSpec]:
        """The jobs' files, by name."""
        return {
            name: parse(JobSpec, document, self.folder)
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
        return parse(Encoding, found, self.folder)

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
        opened = self.delta(name).to_pyarrow_dataset()
        known = opened.schema.names
        for column in columns or ():
            if column not in known and not lenient:
                raise DatasetError(
                    f"its table '{name}' has no column '{column}'",
                    file=self.folder,
                    key="columns",
                    remedy=did_you_mean(column, known),
                )
        return self._batches(opened, name, split, known if columns is None else columns)

    def delta(self, name: str) -> DeltaTable:
        """A table as every engine reads it, at the version that belongs to this revision.

        `deltalake`, pandas, Polars, DuckDB and plain Arrow take it as it is; see the guide.

        Args:
            name: windows, rescales, snapshots, transitions, findings or quarantine.

        Returns:
            The Delta table.

        Raises:
            DatasetError: There is no such table.
            StorageError: Its log cannot be read.
        """
        known = self.manifest.tables
        if name not in known:
            raise DatasetError(
                f"it has no table '{name}'", file=self.folder, remedy=did_you_mean(name, known)
            )
        return self.home.table(TABLES, name, version=known[name])

    def _batches(
        self, opened: pa.dataset.Dataset, name: str, split: str | None, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        arrow, _ = pyarrow("reading a dataset")
        known = [column for column in columns if column in opened.schema.names]
        read = known if split is None else list(dict.fromkeys([*known, "split"]))
        for part in parts_of(opened):
            rows = part.read(self.home.at(TABLES, name), opened.schema, read)
            if split is not None:
                rows = rows.filter(arrow.compute.equal(rows["split"], split))
            for column in columns:
                if column not in known:
                    rows = rows.append_column(column, arrow.nulls(len(rows)))
            yield from rows.select(list(columns)).to_batches()

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
        found = list[str]()
        for name in self.manifest.tables:
            try:
                found += self._problems_of(name)
            except DspGymError as error:
                found.append(f"{name}: {error}")
        if content_of(self.manifest.partitions) != self.manifest.content_sha256:
            found.append("the manifest's hash of all partitions is not that of its partitions")
        return found

    def parts(self, name: str) -> dict[tuple[str, str], list[TablePart]]:
        """The files of a table.

        Returns:
            The parts of each partition in order, by (job, day).
        """
        by_partition: dict[tuple[str, str], list[TablePart]] = {}
        for part in parts_of(self.delta(name).to_pyarrow_dataset()):
            by_partition.setdefault((part.job, part.day), []).append(part)
        return by_partition

    def _problems_of(self, name: str) -> Iterator[str]:
        arrow, _ = pyarrow("reading a dataset")
        parts, schema = self.parts(name), self.delta(name).to_pyarrow_dataset().schema
        known = {
            (p.job, p.day): p.tables[name] for p in self.manifest.partitions if name in p.tables
        }
        for job, day in sorted({*known, *parts}):
            told, record = f"{name}, job '{job}', day {day}", known.get((job, day))
            try:
                read = [
                    part.read(self.home.at(TABLES, name), schema)
                    for part in parts.get((job, day), [])
                ]
            except DspGymError as error:
                yield f"{told}: {error}"
                continue
            count, expected = sum(map(len, read)), 0 if record is None else record.rows
            if count != expected:
                yield f"{told}: {count} rows, the manifest says {expected}"
            elif (
                record
                and content_sha256(arrow.concat_tables(read) if read else None) != record.sha256
            ):
                yield f"{told}: the rows are not those that were written"
