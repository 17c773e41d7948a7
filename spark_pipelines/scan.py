"""Samples in Parquet files, read as Arrow where they are needed: no JVM takes them up row by row.

A source that can say which files hold its rows, and what their columns are called, gives a `Scan`
beside a way to read the same rows as a DataFrame. Workers then read whole columns, texts as
numbers into a dictionary, and hand on cells of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.text import first_line
from spark_pipelines.days import DAY_S, FROM_MS, UNIX_FROM_S, day_of
from spark_pipelines.steps.cells import Rows

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("t_s", "vertex", "subtask", "metric", "value")
"""What a file has a column of each."""

_BATCH_ROWS = 1 << 20
"""Rows that a worker holds at a time, some 50 MB."""

_CHUNK_ROWS = 4 << 20
"""Files with more rows are read in several chunks, of whole row groups."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """One Parquet file."""

    path: str
    run: str
    by_day: bool = False  # whether the name of the run has the day behind it
    day: str | None = None  # of rows without a time; None: they are left out where days are chosen


@dataclass(frozen=True)
class Scan:
    """The rows of one source."""

    source: str
    job: str
    files: tuple[ScannedFile, ...]
    columns: Mapping[str, str]  # of `COLUMNS`, as they are called in the files
    shift_s: float = 0.0  # to be added to the files' times
    days: frozenset[str] | None = None  # rows of others are left out; None: all are taken


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a file that is read at once: row groups `groups[0]` to before `groups[1]`."""

    scan: Scan
    file: ScannedFile
    groups: tuple[int, int] | None  # None: all of them


def chunks_of(scans: Sequence[Scan], bundles: int) -> list[list[Chunk]]:
    """Parts of all files, dealt out so that every bundle has about as many rows.

    Args:
        scans: of every source.
        bundles: at most so many.

    Returns:
        Bundles of chunks, none of them empty.
    """
    sized: list[tuple[int, Chunk]] = []
    for scan in scans:
        for file in scan.files:
            sized += _cut(scan, file)
    sized.sort(key=lambda pair: -pair[0])  # the largest first; stable, so the same on every run
    dealt: list[list[Chunk]] = [[] for _ in range(max(1, min(bundles, len(sized))))]
    rows = [0] * len(dealt)
    for count, chunk in sized:
        least = rows.index(min(rows))
        dealt[least].append(chunk)
        rows[least] += count
    return [bundle for bundle in dealt if bundle]


def _cut(scan: Scan, file: ScannedFile) -> Iterator[tuple[int, Chunk]]:
    from pyarrow import parquet

    metadata = parquet.read_metadata(file.path)
    if metadata.num_rows <= _CHUNK_ROWS:
        yield metadata.num_rows, Chunk(scan, file, None)
        return
    begin, rows = 0, 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= _CHUNK_ROWS or group + 1 == metadata.num_row_groups:
            yield rows, Chunk(scan, file, (begin, group + 1))
            begin, rows = group + 1, 0


def rows_of(chunk: Chunk) -> Iterator[Rows]:
    """Read a chunk, in a worker.

    Yields:
        Its rows in the order of the file, at most `_BATCH_ROWS` at a time.

    Raises:
        OSError: The file cannot be read; the text begins with its address, as Spark's do.
    """
    import pyarrow as pa
    from pyarrow import parquet

    names = [chunk.scan.columns[name] for name in COLUMNS]
    texts = [names[1], names[3]]
    try:
        with parquet.ParquetFile(chunk.file.path, read_dictionary=texts) as opened:
            groups = None if chunk.groups is None else list(range(*chunk.groups))
            for batch in opened.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
                columns = (batch.column(name) for name in names)
                rows = _rows(chunk, dict(zip(COLUMNS, columns, strict=True)))
                if len(rows.t_s):
                    yield rows
    except (OSError, ValueError, pa.ArrowException) as error:
        raise OSError(f"file:{chunk.file.path} cannot be read: {first_line(error)}") from None


def _rows(chunk: Chunk, columns: Mapping[str, pa.Array]) -> Rows:
    t_s = _floats(columns["t_s"]) + chunk.scan.shift_s
    vertex, vertices = _texts(columns["vertex"])
    metric, metrics = _texts(columns["metric"])
    subtask, has_subtask = _ints(columns["subtask"])
    value = _floats(columns["value"])
    run, runs, stays = _runs(chunk, t_s)
    if stays is not None and not stays.all():
        t_s, vertex, metric, subtask = t_s[stays], vertex[stays], metric[stays], subtask[stays]
        has_subtask, value, run = has_subtask[stays], value[stays], run[stays]
    return Rows(
        t_s=t_s,
        vertex=vertex,
        vertices=vertices,
        subtask=subtask,
        has_subtask=has_subtask,
        metric=metric,
        metrics=metrics,
        value=value,
        run=run,
        runs=[(chunk.scan.source, chunk.scan.job, name) for name in runs],
    )


def _runs(chunk: Chunk, t_s: Floats) -> tuple[Ints, list[str], Bools | None]:
    """The run of each row, as a number; the names of runs; and which rows stay, None: all."""
    file, days = chunk.file, chunk.scan.days
    if not file.by_day and days is None:
        return np.zeros(len(t_s), dtype=np.int64), [file.run], None
    timed = (t_s >= 0) & (t_s <= FROM_MS)
    number = np.floor(np.where(timed, t_s, 0.0) / DAY_S).astype(np.int64)
    number = np.where(t_s >= UNIX_FROM_S, number + 1, -1 - number)  # on the run's own clock below
    number[~timed] = 0  # no day has this number
    found, of = np.unique(number, return_inverse=True)
    names = [file.day if n == 0 else _day(int(n)) for n in found]
    known = np.array([name is not None and (days is None or name in days) for name in names])
    runs = [f"{file.run}{name}" if file.by_day else file.run for name in names]
    return of, runs, known[of]


def _day(number: int) -> str:
    if number > 0:
        return day_of(max((number - 1) * DAY_S, UNIX_FROM_S))
    return day_of((-1 - number) * DAY_S)


def _floats(column: pa.Array) -> Floats:
    """Numbers as doubles, null as NaN."""
    import pyarrow as pa

    values = column if pa.types.is_float64(column.type) else column.cast(pa.float64())
    found: Floats = values.to_numpy(zero_copy_only=False, writable=True)
    return found


def _ints(column: pa.Array) -> tuple[Ints, Bools]:
    """Whole numbers, and where there is one."""
    known = np.ones(len(column), dtype=bool)
    if column.null_count:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    return column.to_numpy(zero_copy_only=False).astype(np.int64), known


def _texts(column: pa.Array) -> tuple[Ints, list[str]]:
    """Texts as numbers into a list, null as -1."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices
    if codes.null_count:
        codes = codes.cast(pa.int64()).fill_null(-1)
    return codes.to_numpy(zero_copy_only=False).astype(np.int64), column.dictionary.to_pylist()
