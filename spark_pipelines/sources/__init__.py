"""Sources: recordings, journals, Prometheus, rollouts, series and archives, each to one schema.

A reader is a module with two functions. `survey` looks at what there is, without Spark: which
pieces, their hashes, and which partitions (job, day) they hold rows of. A build compares that with
the last manifest and asks `read` only for the partitions that changed.

Clocks: a source on a Unix clock is cut at midnight UTC, where each of its runs ends and the next
begins (named after the day), so a partition depends on its own rows alone, and late rows rewrite
just that. A source on a run's own clock (a simulation) keeps its runs whole, however long.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from spark_pipelines.scan import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TimeBase", "Inputs", "Partition", "Piece", "SourceFacts", "reader_of"]

TimeBase = Literal["unix", "run"]

Partition = tuple[str, str]
"""(job, day)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a source that one hash stands for: a file, or a day of a journal."""

    name: str  # within its source: a file's path below it, or what it stands for
    sha256: str
    rows: int  # raw rows, or decisions; -1: not known before it is read
    partitions: tuple[Partition, ...]  # that it holds rows of
    file: Path | None = None  # Parquet that Spark reads it from
    run: str = ""  # where a piece is one run


@dataclass(frozen=True)
class SourceFacts:
    """What is known of a source before Spark looks at it."""

    name: str  # the column `source`
    kind: str  # as a configuration names it
    path: str
    clock: TimeBase
    pieces: tuple[Piece, ...]
    specs: Mapping[str, JobSpec] = field(default_factory=dict)  # by job
    loads: Mapping[str, str] = field(default_factory=dict)  # run -> name of its load, where known
    notes: tuple[str, ...] = ()  # what a reader of the report has to know
    detail: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the reader's own
    # Its files are Parquet of schema.DECISIONS, `source` aside, and all that it has.
    decided: bool = False
    # `start_headroom` of the environment in whose unit the decisions' `cost` is; None: the source
    # has no decisions. The pipeline brings all sources to the unit of the dataset.
    headroom: float | None = None

    def partitions(self) -> set[Partition]:
        """Every partition that the source holds rows of.

        Returns:
            Pairs (job, day).
        """
        return {partition for piece in self.pieces for partition in piece.partitions}

    def rows(self) -> int:
        """Rows of all pieces whose number is known.

        Returns:
            A lower bound where the rows of some piece are not known.
        """
        return sum(max(0, piece.rows) for piece in self.pieces)

    def holding(self, only: Collection[Partition] | None) -> tuple[Piece, ...]:
        """Pieces that hold rows of some partitions; None: all pieces.

        Returns:
            The pieces in the order of the source.
        """
        if only is None:
            return self.pieces
        wanted = set(only)
        return tuple(piece for piece in self.pieces if wanted.intersection(piece.partitions))

    def unreadable(self, piece: Piece, cause: str) -> DatasetError:
        """The error for a piece whose file cannot be read.

        Returns:
            An error, not raised, that names the source, the piece and its first days.
        """
        days = ", ".join(f"{job} {day}" for job, day in piece.partitions[:3])
        return DatasetError(
            f"source '{self.name}', {piece.name} ({days}): cannot be read: {cause}",
            file=piece.file,
            remedy="Restore the file, or take it out of the source.",
        )


@dataclass(frozen=True)
class Inputs:
    """One source as DataFrames; None where it has nothing of a kind.

    `raw` are samples as a collector takes them: a DataFrame, or a function that gives one where
    `scan` says which files hold them, since few then need them row by row. `events` are what
    happened to a run: a `running` event bears `parallelism` and `memory_level` by vertex in its
    body, the first one of a run says what it began with. `decisions` come from sources that have
    them (journals, rollouts, recordings of a control loop); each run of them ends with a row that
    has a snapshot and no decision. `metrics` are those that `raw` has rows of, ours or not: known
    before, they need not be looked for.
    """

    raw: DataFrame | Callable[[], DataFrame] | None  # schema.RAW
    events: DataFrame | None  # schema.EVENTS
    decisions: DataFrame | None  # schema.DECISIONS
    specs: Mapping[str, JobSpec]
    facts: SourceFacts
    metrics: frozenset[str] = frozenset()
    scan: Scan | None = None  # the files of the same rows as `raw`, which workers read faster

    @property
    def has_samples(self) -> bool:
        """Whether the source has samples at all."""
        return self.raw is not None

    def rows(self) -> DataFrame | None:
        """The samples as a DataFrame.

        Returns:
            Rows of `schema.RAW`; None where the source has no samples.
        """
        return self.raw() if callable(self.raw) else self.raw


class Reader(Protocol):
    """What a module of this package offers, or an entry point of the group `dsp_gym.sources`.

    An entry point's module has a third name: `Config`, a `ConfigModel` of the source's own keys.
    """

    survey: Callable[[Any, str, Path], SourceFacts]
    """(its configuration, the column `source`, a folder it may keep files in) -> what there is."""
    read: Callable[[SparkSession, SourceFacts, Collection[Partition] | None], Inputs]
    """Rows of some partitions (None: all), as DataFrames."""


def reader_of(kind: str) -> Reader:
    """Find the reader of a kind of source: one that is shipped, or one that is installed.

    Returns:
        A module with the functions `survey` and `read`.

    Raises:
        DatasetError: An installed one cannot be imported.
    """
    from spark_pipelines.sources.config import SHIPPED, SOURCES

    if kind not in SHIPPED:
        return cast("Reader", SOURCES.load(kind))
    return cast("Reader", importlib.import_module(f"{__name__}.{kind}"))
