"""The one door to Delta Lake: where a dataset is, and the files of its tables at a version."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from dsp_gym.config.text import first_line
from dsp_gym.errors import MissingExtraError, StorageError
from dsp_gym.records.parquet import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.dataset import ParquetFileFragment
    from pyarrow.fs import FileSystem

DATASETS = Path("runs/datasets")
"""Where `dsp-gym dataset build` puts a dataset by its name."""

REVISIONS = "revisions"
"""The Delta table of one row that says which versions of the others belong together."""

TABLES, REPORTS = "tables", "reports"

PARTITIONED = ("job", "day")
"""Columns that stand in the log, not in the files."""


def deltalake(purpose: str) -> ModuleType:
    """Import Delta Lake.

    Args:
        purpose: what needs it, for the error.

    Returns:
        The module `deltalake`.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import deltalake as found
    except ModuleNotFoundError:
        raise MissingExtraError("spark", purpose) from None
    return found


@dataclass(frozen=True, slots=True)
class DatasetHome:
    """Where a dataset is: a folder, or a place in object storage such as `s3://bucket/name`.

    Credentials and endpoints of object storage come from the environment: `AWS_ENDPOINT_URL`,
    `AWS_ACCESS_KEY_ID` and the others.
    """

    uri: str

    @classmethod
    def of(cls, place: str | Path) -> DatasetHome:
        """The place that a path or an address means.

        Returns:
            The place, whether there is anything or not.
        """
        text = str(place).rstrip("/")
        return cls(text if "://" in text else os.path.abspath(text))

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for object storage."""
        return None if "://" in self.uri else Path(self.uri)

    def at(self, *names: str) -> str:
        """The address of something below.

        Returns:
            A path or an address.
        """
        return "/".join((self.uri, *names))

    def files(self, *names: str) -> FileSystem:
        """The files below a name, as Arrow reads and writes them.

        Returns:
            A file system whose root is there.
        """
        from pyarrow import fs

        if self.folder is not None:
            return fs.SubTreeFileSystem(self.at(*names), fs.LocalFileSystem())
        if self.uri.startswith("s3://"):
            # Arrow would ask Amazon for the region of a bucket that another endpoint has.
            env = os.environ
            region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
            store = fs.S3FileSystem(
                region=region,
                endpoint_override=env.get("AWS_ENDPOINT_URL"),
                allow_delayed_open=True,  # a small file is one request, not three
            )
            return fs.SubTreeFileSystem(self.at(*names).removeprefix("s3://"), store)
        store, path = fs.FileSystem.from_uri(self.at(*names))
        return fs.SubTreeFileSystem(path, store)

    def holds(self, *names: str) -> bool:
        """Whether there is a Delta table of this name.

        Returns:
            True where its log has a first entry.
        """
        try:
            found: bool = deltalake("datasets").DeltaTable.is_deltatable(self.at(*names))
        except (OSError, ValueError) as error:  # no such bucket, no access
            raise StorageError(
                f"cannot be reached: {first_line(error)}",
                file=self.uri,
                remedy="See its address, and the variables AWS_* of the environment.",
            ) from None
        return found

    def table(self, *names: str, version: int | None = None) -> DeltaTable:
        """Open a Delta table.

        Args:
            names: of the table, below this place.
            version: of its log; None: the newest.

        Returns:
            The table at that version.

        Raises:
            StorageError: Its log cannot be read, or has no such version.
        """
        module = deltalake("datasets")
        try:
            found: DeltaTable = module.DeltaTable(self.at(*names), version=version)
        except (module.exceptions.DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"the log of the table cannot be read: {first_line(error)}",
                file=self.at(*names),
                remedy="Build the dataset again, or restore the folder from a copy.",
            ) from None
        return found


class TablePart(NamedTuple):
    """One Parquet file of a table."""

    job: str
    day: str
    path: str
    rows: ParquetFileFragment

    def read(self, table: str, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the file.

        Args:
            table: its table, for errors.
            schema: of the table.
            columns: those wanted, of the table; null where the file was written without. None:
                those of the file.

        Returns:
            Its rows.

        Raises:
            StorageError: It cannot be read.
        """
        arrow, _ = pyarrow("reading a dataset")
        try:
            wanted = self.rows.physical_schema.names if columns is None else list(columns)
            return self.rows.to_table(schema=schema, columns=wanted, use_threads=False)
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise StorageError(
                f"cannot be read: {first_line(error)}",
                file=f"{table}/{self.path}",
                remedy="Build the dataset again.",
            ) from None


def parts_of(table: pa.dataset.Dataset) -> list[TablePart]:
    """The files of a table in the order of their rows: by job, day and name.

    Returns:
        One part per file.
    """
    from pyarrow.dataset import get_partition_keys

    keys = [(get_partition_keys(one.partition_expression), one) for one in table.get_fragments()]
    found = [TablePart(by["job"], by["day"], one.path, one) for by, one in keys]
    return sorted(found, key=lambda part: part[:3])
