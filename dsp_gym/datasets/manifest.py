"""`manifest.json` of a dataset's revision: what it was made from, what it holds, and its hashes.

    DATASET/CURRENT                      the number of the published revision
    DATASET/revisions/N/manifest.json
    DATASET/revisions/N/tables/TABLE/job=JOB/day=DAY/part-*.parquet
    DATASET/revisions/N/quarantine/job=JOB/day=DAY/part-*.parquet
    DATASET/revisions/N/quality.json, quality.html

A hash of content is that of the rows, in order, whatever the bytes of the files are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import SchemaError, StorageError

__all__ = [
    "CURRENT",
    "DATASET_SCHEMA",
    "MIGRATIONS",
    "DatasetManifest",
    "PartitionRecord",
    "PieceRecord",
    "SourceRecord",
    "TableRecord",
    "content_of",
    "current_revision",
    "digest_of",
    "migrated",
]

DATASET_SCHEMA: Literal["dsp-gym/dataset/1"] = "dsp-gym/dataset/1"
CURRENT, MANIFEST, REVISIONS = "CURRENT", "manifest.json", "revisions"

Document = dict[str, Any]

MIGRATIONS: Mapping[str, Callable[[Document], Document]] = {}
"""By schema, the function that brings a manifest to the next version; see `migrated`.

The tables' files need none: a column that a file lacks reads as null, one nobody asks for is left.
"""


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
    pieces: tuple[PieceRecord, ...] = Field(description="what it consisted of")
    notes: tuple[str, ...] = Field((), description="what is not as it should be")


class TableRecord(ConfigModel):
    """One table of one partition."""

    rows: int = Field(ge=0, description="rows")
    sha256: str = Field(description="of the rows in order")
    files: tuple[str, ...] = Field(description="below the revision's folder")
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


class DatasetManifest(ConfigModel):
    """The whole document."""

    schema_: Literal["dsp-gym/dataset/1"] = Field(DATASET_SCHEMA, alias="schema")
    name: str = Field(min_length=1, description="of the dataset")
    revision: int = Field(ge=1, description="counts publications")
    content_sha256: str = Field(description="of all partitions' content")
    config: dict[str, Any] = Field(description="resolved configuration")
    versions: dict[str, str] = Field(default_factory=dict, description="of what made it")
    sources: tuple[SourceRecord, ...] = Field(description="what it was made from")
    jobs: dict[str, dict[str, Any]] = Field(description="job files, by job")
    partitions: tuple[PartitionRecord, ...] = Field(description="by job and day")
    splits: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="rows by table and split"
    )
    accounting: dict[str, int] = Field(
        default_factory=dict, description="what became of every raw row and decision"
    )
    detail: dict[str, Any] = Field(
        default_factory=dict, description="what steps wrote down for who reads their tables"
    )

    @classmethod
    def read(cls, dataset: str | Path) -> DatasetManifest:
        """The manifest of a dataset's published revision.

        Raises:
            StorageError: There is no dataset, or its manifest cannot be read.
            SchemaError: It is of a version that is not read here.
        """
        folder = Path(dataset)
        return cls.read_revision(folder / REVISIONS / str(current_revision(folder)))

    @classmethod
    def read_revision(cls, folder: Path) -> DatasetManifest:
        """The manifest of one revision, older versions brought up to this one."""
        file = folder / MANIFEST
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StorageError(
                f"cannot be read: {error}", file=file, remedy="Build the dataset again."
            ) from None
        return parse(cls, migrated(document, file), file)

    def write(self, folder: Path) -> None:
        """Writes it into a revision's folder, whole."""
        document = self.model_dump(mode="json", by_alias=True)
        write_atomic(folder / MANIFEST, json.dumps(document, indent=1, sort_keys=True) + "\n")

    def partition(self, job: str, day: str) -> PartitionRecord | None:
        """One partition; None where there is none."""
        found = (p for p in self.partitions if (p.job, p.day) == (job, day))
        return next(found, None)

    def rows(self, table: str) -> int:
        """Rows of a table."""
        return sum(p.tables[table].rows for p in self.partitions if table in p.tables)


def current_revision(dataset: Path) -> int:
    """The number of the published revision."""
    try:
        return int((dataset / CURRENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise StorageError(
            "is no dataset: it holds no published revision",
            file=dataset,
            remedy="Build it: dsp-gym dataset build CONFIG",
        ) from None


def content_of(partitions: Iterable[PartitionRecord]) -> str:
    """The hash of all partitions' content; the same rows give the same hash."""
    return digest_of(
        sorted(
            [p.job, p.day, table, record.sha256]
            for p in partitions
            for table, record in p.tables.items()
            if record.rows
        )
    )


def digest_of(document: object) -> str:
    """SHA-256 of a document as canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def migrated(
    document: object,
    file: str | Path,
    migrations: Mapping[str, Callable[[Document], Document]] | None = None,
) -> Document:
    """A manifest brought to this version, one version at a time; unknown ones are refused."""
    known = MIGRATIONS if migrations is None else migrations
    if not isinstance(document, dict):
        raise SchemaError(f"expected a JSON object, found {type(document).__name__}", file=file)
    while (schema := document.get("schema")) != DATASET_SCHEMA:
        step = known.get(schema) if isinstance(schema, str) else None
        if step is None:
            raise SchemaError(
                "this version is not read here",
                file=file,
                key="schema",
                value=schema,
                remedy=f"This release of dsp-gym reads '{DATASET_SCHEMA}'. Build the dataset again "
                "from its sources, or install a newer release.",
            )
        document = step(document)
    return document
