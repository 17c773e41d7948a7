"""The manifest of a dataset's revision: what it was made from, what it holds, and its hashes.

    DATASET/tables/TABLE/             a Delta table for each table, `quarantine` among them
    DATASET/revisions/                a Delta table of one row, replaced in one step, last of all:
                                      the revision, the versions of the tables, the manifest
    DATASET/reports/N/                quality.json and quality.html of revision N, and a copy of the
                                      manifest for people

A hash of content is that of the rows, in order, whatever the bytes of the files are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.config.text import in_words
from dsp_gym.datasets.delta import REVISIONS, DatasetHome
from dsp_gym.errors import StorageError
from dsp_gym.records.base import Manifest
from dsp_gym.records.hashes import document_sha256
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

DATASET_SCHEMA: Literal["dsp-gym/dataset/2"] = "dsp-gym/dataset/2"


OLD = "CURRENT"
"""A file that datasets without Delta tables had; it names their revision."""


class PieceRecord(ConfigModel):
    """A part of a source, as it was when it was read."""

    name: str = Field(description="within its source")
    sha256: str = Field(description="of its content")
    rows: int = Field(description="rows; -1: not known")
    partitions: tuple[tuple[str, str], ...] = Field(description="(job, day) it holds rows of")


class SourceRecord(ConfigModel):
    """A source of rows."""

    name: str = Field(description="the column `source`")
    kind: str = Field(description="which reader")
    path: str = Field(description="where it was")
    clock: Literal["unix", "run"] = Field(description="whose seconds its times are")
    pieces: tuple[PieceRecord, ...] = Field(description="the pieces it consisted of")
    notes: tuple[str, ...] = Field((), description="irregularities that were found")


class TableRecord(ConfigModel):
    """One table of one partition."""

    rows: int = Field(ge=0, description="rows")
    sha256: str = Field(description="of the rows in order")
    splits: dict[str, int] = Field(default_factory=dict, description="rows by split")


class PartitionRecord(ConfigModel):
    """One job on one day."""

    job: str = Field(description="job")
    day: str = Field(description="UTC day; 0000-00-NN: day NN of a run's own clock")
    inputs_sha256: str = Field(description="of the pieces and settings it was made from")
    revision: int = Field(ge=1, description="the revision that wrote its files")
    tables: dict[str, TableRecord] = Field(description="by table; `quarantine` beside them")
    accounting: dict[str, int] = Field(
        default_factory=dict, description="what became of its raw rows and decisions"
    )


class DatasetManifest(Manifest):
    """The whole document.

    The tables' files need no migration: a column that a file lacks reads as null, and a column
    that is not asked for is not read.
    """

    SCHEMA = DATASET_SCHEMA
    ABSENT = "is no revision of a dataset"
    REMEDY = "Build the dataset again from its sources, or install a newer release."

    schema_: Literal["dsp-gym/dataset/2"] = Field(DATASET_SCHEMA, alias="schema")
    name: str = Field(min_length=1, description="of the dataset")
    revision: int = Field(ge=1, description="counts publications")
    content_sha256: str = Field(description="of all partitions' content")
    config: dict[str, object] = Field(description="resolved configuration")
    versions: dict[str, str] = Field(default_factory=dict, description="of what made it")
    sources: tuple[SourceRecord, ...] = Field(description="sources of the dataset")
    tables: dict[str, int] = Field(description="version of each Delta table")
    jobs: dict[str, dict[str, object]] = Field(description="job files, by job")
    partitions: tuple[PartitionRecord, ...] = Field(description="by job and day")
    splits: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="rows by table and split"
    )
    accounting: dict[str, int] = Field(
        default_factory=dict, description="what became of every raw row and decision"
    )
    detail: dict[str, object] = Field(
        default_factory=dict, description="what steps wrote down for who reads their tables"
    )

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read the manifest of a dataset's published revision.

        Args:
            folder: of the dataset, or its address in object storage.

        Returns:
            The manifest in the only row of the table of revisions.

        Raises:
            StorageError: The folder holds no dataset, or its manifest cannot be read.
            SchemaError: The dataset is of a version that this release does not read.
        """
        home = DatasetHome.of(folder)
        if not is_published(home):
            raise StorageError(
                "is not a dataset: it has no published revision",
                file=home.uri,
                remedy="Build it: dsp-gym dataset build CONFIG",
            )
        row = revision_row(home.table(REVISIONS))
        return cls.parsed(str(row["manifest"]), home.at(REVISIONS))

    def partition(self, job: str, day: str) -> PartitionRecord | None:
        """Look up a partition.

        Returns:
            Its record; None where there is none.
        """
        found = (p for p in self.partitions if (p.job, p.day) == (job, day))
        return next(found, None)

    def rows(self, table: str) -> int:
        """Count the rows of a table.

        Returns:
            Their number over all partitions.
        """
        return sum(p.tables[table].rows for p in self.partitions if table in p.tables)


def is_published(home: DatasetHome) -> bool:
    """Whether a place holds a published revision.

    Returns:
        True where there is a row to be read.

    Raises:
        StorageError: It holds a dataset of a release that knew no Delta tables.
    """
    if home.folder is not None and (home.folder / OLD).exists():
        raise StorageError(
            "holds a dataset of an earlier release, which has no Delta tables yet",
            file=home.uri,
            remedy="Run its dsp-gym dataset build CONFIG again: it makes them of the same rows.",
        )
    return home.holds(REVISIONS)


def revision_row(table: DeltaTable) -> Mapping[str, object]:
    """Read the row that says what is published.

    Args:
        table: of the dataset's revisions.

    Returns:
        Its values by column.

    Raises:
        StorageError: There is no row, or it cannot be read.
    """
    arrow, _ = pyarrow("reading a dataset")
    try:
        (row,) = table.to_pyarrow_table().to_pylist()
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise StorageError(
            f"the row of its revision cannot be read: {in_words(error)}",
            file=table.table_uri,
            remedy="Build the dataset again from its sources into a new folder.",
        ) from None
    found: Mapping[str, object] = row
    return found


def content_of(partitions: Iterable[PartitionRecord]) -> str:
    """Hash of all partitions' content; the same rows give the same hash.

    Returns:
        64 hexadecimal digits.
    """
    return document_sha256(
        sorted(
            [p.job, p.day, table, record.sha256]
            for p in partitions
            for table, record in p.tables.items()
            if record.rows
        )
    )


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def content_sha256(table: pa.Table | None) -> str:
    """Hash of names, types and values of all columns; NaNs are alike, a null is no NaN.

    Returns:
        64 hexadecimal digits.
    """
    found = hashlib.sha256()
    if table is not None:
        for name in table.column_names:
            column = table[name].combine_chunks()
            array = column.chunk(0) if hasattr(column, "chunk") else column
            found.update(f"{name}:{_kind(array.type)}:{len(array)}\0".encode())
            _update(found, array)
    return found.hexdigest()


def _kind(kind: pa.DataType) -> str:
    """The type in words that do not depend on who wrote it: names inside lists are anybody's."""
    arrow, _ = pyarrow("reading a dataset")
    if arrow.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        return f"[{_kind(kind.value_type)}]"
    if arrow.types.is_struct(kind):
        return f"{{{','.join(f'{part.name}:{_kind(part.type)}' for part in kind)}}}"
    return str(kind)


def _update(found: _Hash, array: pa.Array) -> None:
    arrow, _ = pyarrow("reading a dataset")
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    found.update(np.packbits(valid).tobytes())
    kind = array.type
    if arrow.types.is_dictionary(kind):
        _update(found, array.dictionary_decode())
    elif arrow.types.is_struct(kind):
        for part in array.flatten():  # with the struct's own nulls in them
            _update(found, part)
    elif arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        found.update(np.ascontiguousarray(lengths, dtype=np.int64).tobytes())
        _update(found, array.flatten())  # what a null list holds is left out
    elif arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        for text in array.to_pylist():
            found.update(b"\0" if text is None else text.encode() + b"\1")
    elif arrow.types.is_boolean(kind):
        values = array.fill_null(False).to_numpy(zero_copy_only=False)
        found.update(np.packbits(values).tobytes())
    else:
        values = np.array(array.fill_null(0).to_numpy(zero_copy_only=False))
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        found.update(np.ascontiguousarray(values).tobytes())
