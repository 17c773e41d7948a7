"""A dataset that follows its sources: files that arrive become rows.

Structured Streaming finds the files and keeps in its checkpoint which it has seen. When there are
any, the same build as that of `dsp-gym dataset build` makes the partitions that changed and
publishes them in one step. So the dataset is, row for row, the one that a single build of all files
makes, in whatever order they arrived and however often this process was stopped.

The watermark closes days, as `closed_days` says: what arrives for one that is closed waits for a
plain build.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.temporary import only_writer
from dsp_gym.errors import DatasetError, DspGymError
from spark_pipelines.build import Built, Observer, build
from spark_pipelines.config import DatasetConfig
from spark_pipelines.faults import spark_faults
from spark_pipelines.session import spark_session
from spark_pipelines.sources.config import (
    AnySource,
    ArchivesSource,
    JournalsSource,
    RecordingsSource,
    expanded,
)
from spark_pipelines.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "path string, modificationTime timestamp, length long, content binary"

_EVER = "36500d"
"""Age of files that the stream looks at: what is late is for the build to say."""


@dataclass(frozen=True)
class Round:
    """What came of looking once."""

    arrived: int  # files since the round before
    built: Built | None  # None: nothing has arrived, or it cannot be built from
    problem: str = ""  # why it cannot; the next round tries again

    @property
    def late(self) -> int:
        """Closed days that files have come for, as of now."""
        return 0 if self.built is None else len(self.built.late)


def follow(
    config: DatasetConfig,
    out: str | Path,
    *,
    every_s: float | None = None,
    master: str | None = None,
    observer: Observer | None = None,
) -> Iterator[Round]:
    """Bring a dataset up to date whenever files have arrived.

    Args:
        config: the dataset; files of its archives, journals and recordings are waited for, its
            other sources are taken as they are.
        out: the dataset's folder, or its address in object storage.
        every_s: seconds between looks; None: look once.
        master: of Spark; None: all cores of this machine.
        observer: follows the progress of a build.

    Yields:
        What each look came to, as it is done.

    Raises:
        DspGymError: Nothing can be followed, or the only look found a source, a build or a place
            that cannot be used; what was published stays.
    """
    state, folders = Store(out).work / ".follow", _folders(config)
    named = zip(config.source_names(), config.sources, strict=True)
    sources = [one.model_copy(update={"name": name}) for name, one in named]
    with _locked(state), spark_session(f"dsp-gym follow {config.name}", master, config.spark) as s:
        waiting = True  # for what arrived before this process, whether it was built or not
        while True:
            arrived = _arrived(s, folders, state / "checkpoint")
            waiting = waiting or arrived > 0
            found, there = Round(arrived, None), tuple(filter(_has_files, sources))
            if waiting and there:
                wanted = config.model_copy(update={"sources": there})
                try:
                    built = build(
                        wanted, out, engine=master, observer=observer, late_s=config.late_s
                    )
                    found, waiting = Round(arrived, built), False
                except DspGymError as error:
                    if every_s is None:
                        raise
                    found = Round(arrived, None, str(error))
            yield found
            if every_s is None:
                return
            time.sleep(every_s)


Followed = ArchivesSource | JournalsSource | RecordingsSource


def _has_files(source: AnySource) -> bool:
    """Whether there is anything to build from; what is hidden is being written."""
    return not isinstance(source, Followed) or any(
        file.is_file() for file in expanded(source.folder).rglob("[!.]*")
    )


def _folders(config: DatasetConfig) -> list[Path]:
    """The folders in which files can arrive."""
    found = [expanded(one.folder) for one in config.sources if isinstance(one, Followed)]
    if not found:
        raise DatasetError(
            "no source of this dataset grows by files",
            key="sources",
            remedy="Follow archives, journals or recordings; build the others.",
        )
    for folder in found:
        if not folder.is_dir():
            raise DatasetError(
                "the folder to follow does not exist",
                file=folder,
                key="sources.folder",
                remedy="Create it; the command reads the files that arrive in it.",
            )
    return found


def _arrived(spark: SparkSession, folders: list[Path], checkpoint: Path) -> int:
    """How many files have come since the checkpoint."""
    counts = list[int]()

    def of(folder: Path) -> DataFrame:
        files = spark.readStream.format("binaryFile").schema(_FILES).option("maxFileAge", _EVER)
        return files.option("recursiveFileLookup", "true").load(f"file://{folder}").select("path")

    def count(batch: DataFrame, _: int) -> None:
        counts.append(batch.count())

    with spark_faults(()):
        stream = reduce(lambda a, b: a.unionByName(b), map(of, folders)).writeStream
        query = (
            stream.foreachBatch(count)
            .option("checkpointLocation", f"file://{checkpoint}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return sum(counts)


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One follower at a time."""
    taken = DatasetError(
        "is followed already", file=state.parent, remedy="End the other command first."
    )
    with only_writer(state, taken):
        yield
