"""Publication: rows that Spark wrote become versions of Delta tables, and these one revision.

Each table takes the new partitions, and last of all the row in `revisions` is replaced. Until then
readers open the versions that the row before names, and nothing of those is removed before the row
after next is there: a build may end at any instant. What it left behind may be the newest version
of a table; the next build begins with taking that back.

No transaction is tried again: it holds what was decided on a version, so another one in between is
another build's, and an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import pyarrow as pa
import pyarrow.parquet
from pyarrow import fs

from dsp_gym.config.strict_json import parse_json
from dsp_gym.config.temporary import synced
from dsp_gym.config.text import first_line
from dsp_gym.datasets.delta import (
    PARTITIONED,
    REPORTS,
    REVISIONS,
    TABLES,
    DatasetHome,
    parts_of,
)
from dsp_gym.datasets.manifest import (
    OLD,
    DatasetManifest,
    TableRecord,
    content_sha256,
    revision_row,
)
from dsp_gym.errors import DatasetError, StorageError
from dsp_gym.records.base import MANIFEST
from spark_pipelines.sources import Partition

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import CommitProperties, PostCommitHookProperties

_KEPT = 2
"""Revisions: readers that opened the one before go on with it."""

_RETAINED_H = 24
"""Hours for which nothing is removed from object storage: other builds may be at work there."""

_AT_ONCE = 256 * 2**20
"""Bytes of a transaction, about: it keeps the files of all its partitions open, in memory."""


class Publication:
    """Takes what was built to where a dataset is.

    Args:
        home: of the dataset.
        last: the revision before; None: there is none.
    """

    def __init__(self, home: DatasetHome, last: DatasetManifest | None) -> None:
        self.home, self.last = home, last
        self._begun_s = time.time()

    def commit(
        self, table: str, new: Mapping[Partition, Path], kept: Collection[Partition]
    ) -> tuple[int, dict[Partition, TableRecord]]:
        """Make a table hold some partitions of the revision before and some new ones.

        Args:
            table: its name.
            new: folders with the files that Spark wrote.
            kept: partitions of the revision before.

        Returns:
            The version that holds just these; rows and hashes of the new ones.

        Raises:
            DatasetError: Another build has changed the table meanwhile.
            StorageError: A file or the log cannot be read or written.
        """
        known = None if self.last is None else self.last.tables.get(table)
        records: dict[Partition, TableRecord] = {}
        with self._written(table):
            opened = self.home.table(TABLES, table) if self.home.holds(TABLES, table) else None
            there = set[Partition]()
            if opened is not None and known is not None:
                published = self.home.table(TABLES, table, version=known)
                if set(opened.file_uris()) != set(published.file_uris()):  # of a build that ended
                    opened.restore(known, commit_properties=_commit()["commit_properties"])
                there = {(p.job, p.day) for p in parts_of(opened.to_pyarrow_dataset())}
            stale, stays = sorted(there.difference(kept) | new.keys()), there.intersection(kept)
            for rows in _rows(new, records):
                how: _How = {"mode": "append", "schema_mode": "merge"}
                if opened is None:
                    how = {"mode": "error"}
                elif stale and stays:
                    how = {**how, "mode": "overwrite", "predicate": _within(stale)}
                elif stale:
                    how = {"mode": "overwrite", "schema_mode": "overwrite"}
                how["partition_by"] = list(PARTITIONED)
                opened, stale = self._write(opened, rows, how, TABLES, table), []
            assert opened is not None  # no table is without partitions
            if stale:
                opened.delete(_within(stale), **_commit())
            self._sync(TABLES, table)
        return int(opened.version()), records

    def _write(
        self, opened: DeltaTable | None, rows: pa.RecordBatchReader, how: _How, *names: str
    ) -> DeltaTable:
        """Write a version of a table, its first one where there is none."""
        from deltalake import WriterProperties, write_deltalake

        packed = WriterProperties(compression="ZSTD")
        place = opened or self.home.at(*names)
        # Its overloads know of no mode that is chosen while this runs.
        write_deltalake(place, rows, writer_properties=packed, **how, **_commit())  # type: ignore[arg-type]
        return opened or self.home.table(*names)

    def publish(self, manifest: DatasetManifest, report: Mapping[str, str]) -> None:
        """Make what was committed the current revision, and remove what no revision holds.

        Args:
            manifest: names the versions that `commit` gave.
            report: texts of its report by file name.

        Raises:
            DatasetError: Another build has published meanwhile.
            StorageError: A file or the log cannot be written.
        """
        with self._written(REVISIONS):
            reports = self.home.files(REPORTS)
            for name, text in {"manifest.json": manifest.text(), **report}.items():
                reports.create_dir(str(manifest.revision))
                with reports.open_output_stream(f"{manifest.revision}/{name}") as file:
                    file.write(text.encode())
            opened = self.home.table(REVISIONS) if self.home.holds(REVISIONS) else None
            found = None if opened is None else revision_row(opened)["revision"]
            if found != (None if self.last is None else self.last.revision):
                raise self._raced()
            how: _How = {"mode": "error" if opened is None else "overwrite"}
            self._write(opened, _row_of(manifest).to_reader(), how, REVISIONS)
            self._sync(REVISIONS)
            self._prune(manifest)

    def _prune(self, manifest: DatasetManifest) -> None:
        """Remove files, tables and reports of neither this revision nor the one before."""
        held = [manifest, *([] if self.last is None else [self.last])]
        for name in self._names(TABLES):
            versions = {known.tables[name] for known in held if name in known.tables}
            if versions:
                self._vacuum(self.home.table(TABLES, name), versions)
            else:
                self.home.files(TABLES).delete_dir(name)
        rows = self.home.table(REVISIONS)
        self._vacuum(rows, {max(0, rows.version() - 1), rows.version()})
        for name in self._names(REPORTS):
            if name.isdecimal() and int(name) <= manifest.revision - _KEPT:
                self.home.files(REPORTS).delete_dir(name)

    def _names(self, folder: str) -> list[str]:
        wanted = fs.FileSelector("", allow_not_found=True)
        return [found.base_name for found in self.home.files(folder).get_file_info(wanted)]

    def _vacuum(self, table: DeltaTable, versions: Collection[int]) -> None:
        table.vacuum(
            0 if self.home.folder is not None else _RETAINED_H,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
            keep_versions=sorted(versions),
            **_commit(),
        )

    def _sync(self, *names: str) -> None:
        """Make what this build wrote outlive a crash of the machine, not of this process alone."""
        if self.home.folder is not None:
            for place in (self.home.folder, *self.home.folder.joinpath(*names).rglob("*")):
                if place.stat().st_mtime >= self._begun_s:
                    synced(place)

    @contextmanager
    def _written(self, table: str) -> Iterator[None]:
        """Turn errors of Delta Lake into ours."""
        import deltalake.exceptions as delta

        try:
            yield
        except delta.CommitFailedError:
            raise self._raced() from None
        except (delta.DeltaError, OSError, pa.ArrowException) as error:
            if "already exists" in str(error):
                raise self._raced() from None
            raise StorageError(
                f"the table '{table}' cannot be written: {first_line(error)}",
                file=self.home.uri,
                remedy="Free some space, or see to it that the place can be written to; the same "
                "command continues. Where a column has another type now, build with --rebuild.",
            ) from None

    def _raced(self) -> DatasetError:
        return DatasetError(
            "another build of this dataset has published meanwhile",
            file=self.home.uri,
            remedy="Run the same command again: it builds on what the other one published.",
        )


def convert(home: DatasetHome) -> None:
    """Make Delta tables of a dataset that an earlier release wrote, with the same rows and hashes.

    Args:
        home: a folder with `revisions/N/manifest.json`; what it holds beside is removed.
    """
    assert home.folder is not None  # only folders could hold one
    folder = home.folder / REVISIONS / (home.folder / OLD).read_text(encoding="utf-8").strip()
    document = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
    places: dict[str, dict[Partition, Path]] = {}
    for found in document["partitions"]:
        for name, table in found["tables"].items():
            for file in table.pop("files"):
                places.setdefault(name, {})[found["job"], found["day"]] = (folder / file).parent
    publication = Publication(home, None)
    tables = {name: publication.commit(name, parts, ())[0] for name, parts in places.items()}
    text = json.dumps(document | {"schema": DatasetManifest.SCHEMA, "tables": tables})
    report = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("quality.*")}
    publication.publish(DatasetManifest.parsed(text, folder), report)


class _How(TypedDict, total=False):
    mode: Literal["error", "append", "overwrite"]
    schema_mode: Literal["merge", "overwrite"]
    predicate: str
    partition_by: list[str]


class _Commit(TypedDict):
    commit_properties: CommitProperties
    post_commithook_properties: PostCommitHookProperties


def _commit() -> _Commit:
    """A transaction is not tried again, and removes no entry of a log: `revisions` may name any."""
    from deltalake.transaction import CommitProperties, PostCommitHookProperties

    return {
        "commit_properties": CommitProperties(max_commit_retries=0),
        "post_commithook_properties": PostCommitHookProperties(cleanup_expired_logs=False),
    }


def _within(partitions: Collection[Partition]) -> str:
    """A predicate that is true of the rows of some partitions."""
    by_job: dict[str, list[str]] = {}
    for job, day in partitions:
        by_job.setdefault(_quoted(job), []).append(_quoted(day))
    return " OR ".join(f"(job = {job} AND day IN ({', '.join(d)}))" for job, d in by_job.items())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows(
    new: Mapping[Partition, Path], records: dict[Partition, TableRecord]
) -> Iterator[pa.RecordBatchReader]:
    """The rows of some partitions for one transaction after the other; told in `records`.

    A partition is one batch: the writer keeps the order within a batch, not that of batches.
    """
    size, parts = 0, dict[Partition, list[Path]]()
    for partition, folder in sorted(new.items()):
        parts[partition] = sorted(folder.glob("*.parquet"), key=_place)
        size += sum(file.stat().st_size for file in parts[partition])
        if size >= _AT_ONCE:
            yield _reader(parts, records)
            size, parts = 0, {}
    if parts:
        yield _reader(parts, records)


def _reader(
    parts: Mapping[Partition, Sequence[Path]], records: dict[Partition, TableRecord]
) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for partition, files in parts.items():
            # Not read_table: that one would take job= and day= of the path for columns.
            read = [pyarrow.parquet.ParquetFile(file).read() for file in files]
            rows = pa.concat_tables(read).replace_schema_metadata().combine_chunks()
            records[partition] = _record(rows)
            for name, value in zip(PARTITIONED, partition, strict=True):
                rows = rows.append_column(name, pa.repeat(value, len(rows)))
            yield from rows.to_batches()

    columns = list(pyarrow.parquet.read_schema(next(iter(parts.values()))[0]))
    fields = [*columns, *(pa.field(name, pa.string()) for name in PARTITIONED)]
    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches())


def _record(rows: pa.Table) -> TableRecord:
    """Rows, hash, and rows by split, as the manifest keeps them."""
    splits: dict[str, int] = {}
    if "split" in rows.column_names:
        found = rows["split"].fill_null("none").value_counts().to_pylist()
        splits = {
            one["values"]: one["counts"] for one in sorted(found, key=lambda one: one["values"])
        }
    return TableRecord(rows=rows.num_rows, sha256=content_sha256(rows), splits=splits)


def _row_of(manifest: DatasetManifest) -> pa.Table:
    """What is published, as a table of one row."""
    versions = [{"name": name, "version": v} for name, v in sorted(manifest.tables.items())]
    kinds = pa.list_(pa.struct([("name", pa.string()), ("version", pa.int64())]))
    return pa.table(
        {
            "revision": pa.array([manifest.revision], pa.int64()),
            "published_at": pa.array([datetime.now(UTC)], pa.timestamp("us", tz="UTC")),
            "content_sha256": [manifest.content_sha256],
            "tables": pa.array([versions], kinds),
            "manifest": [manifest.text()],
        }
    )


def _place(file: Path) -> tuple[str, str]:
    """Spark names files part-TASK-UUID.c000, .c001, ...: in that order they were cut."""
    stem, _, rest = file.name.partition(".")
    return ("-".join(stem.split("-")[:2]), rest)
