"""A dataset that follows its sources: files that arrive become rows, each exactly once.

Structured Streaming finds the files, remembers in its checkpoint which it has handed out, and hands
them out in numbered batches; `Landing` puts each batch down under its number, so that a batch that
is repeated after a crash changes nothing. Then the same build as `dsp-gym dataset build` makes the
partitions that changed and publishes them in one step. It is the same steps over the same rows, so
the dataset is, row for row, the one that a single build of all files makes, in whatever order they
arrived and however often the stream was stopped.

The watermark closes days: a file whose days have all passed it is set aside and counted. A plain
build of the sources takes it in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.config.temporary import only_writer
from dsp_gym.errors import DatasetError
from dsp_gym.records.base import MANIFEST
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.build import Built, Observer, build
from spark_pipelines.config import DatasetConfig
from spark_pipelines.faults import spark_faults
from spark_pipelines.landing import Landing, Watched, watched
from spark_pipelines.session import spark_session
from spark_pipelines.sources.config import expanded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "path string, modificationTime timestamp, length long, content binary"

_EVER = "36500d"
"""Age of files that the stream looks at: what is late is for the landing to say."""


@dataclass(frozen=True)
class Round:
    """What came of looking once."""

    arrived: int  # files since the round before
    late: int  # files set aside so far
    refused: int  # files that cannot be read, so far
    built: Built | None  # None: there is nothing to build from yet, or nothing has changed


def follow(
    config: DatasetConfig,
    out: str | Path,
    *,
    every_s: float | None = None,
    files_per_batch: int = 1000,
    master: str | None = None,
    observer: Observer | None = None,
) -> Iterator[Round]:
    """Bring a dataset up to date whenever files have arrived.

    Args:
        config: the dataset; files of its archives, journals and recordings are waited for, its
            other sources are taken as they are.
        out: the dataset's folder.
        every_s: seconds between looks; None: look once.
        files_per_batch: files that the stream hands out at a time, at most.
        master: of Spark; None: all cores of this machine.
        observer: follows the progress of a build.

    Returns:
        What each look came to, as it is done.

    Raises:
        DatasetError: A source or a build cannot be used; what was published stays.
    """
    state = Path(out).absolute() / ".follow"
    sources = watched(list(zip(config.source_names(), config.sources, strict=True)))
    _refuse_missing(sources)
    with _locked(state), spark_session(f"dsp-gym follow {config.name}", master, config.spark) as s:
        last: str | None = None
        while True:
            landing = Landing(state, sources, config.late_s)
            before = len(landing.files)
            with spark_faults(()):
                _drain(s, landing, state / "checkpoint", files_per_batch)
            shown = landing.show()
            now = _fingerprint(state / "shown")
            built = None
            if shown and now != last:
                built = build(
                    _of_arrived(config, sources, shown), out, master=master, observer=observer
                )
                last = now
            yield Round(
                len(landing.files) - before, landing.count("late"), landing.count("refused"), built
            )
            if every_s is None:
                return
            time.sleep(every_s)


def _refuse_missing(sources: Mapping[str, Watched]) -> None:
    for name, source in sources.items():
        if not expanded(source.folder).is_dir():
            raise DatasetError(
                f"source '{name}': the folder to follow does not exist",
                file=expanded(source.folder),
                key="sources.folder",
                remedy="Create it; the command reads the files that arrive in it.",
            )


def _of_arrived(
    config: DatasetConfig, sources: Mapping[str, Watched], shown: Mapping[str, Watched]
) -> DatasetConfig:
    """A followed source reads what has arrived, and is left out where nothing has."""
    wanted = [
        shown.get(name, source.model_copy(update={"name": name}))
        for name, source in zip(config.source_names(), config.sources, strict=True)
        if name in shown or name not in sources
    ]
    return config.model_copy(update={"sources": tuple(wanted)})


def _drain(spark: SparkSession, landing: Landing, checkpoint: Path, files_per_batch: int) -> None:
    """Put down everything that has arrived by now, from where the checkpoint says."""
    from pyspark.errors import PySparkException

    failed: list[Exception] = []

    def put(batch: DataFrame, number: int) -> None:
        # Names of files only: what is in them is read by the build, not here.
        rows = batch.select("source", "path").toLocalIterator()
        try:
            landing.put(number, [(row["source"], _local(row["path"])) for row in rows])
        except Exception as error:
            failed.append(error)  # Spark would keep no more of it than its text
            raise

    query = (
        _arrivals(spark, landing.sources, files_per_batch)
        .writeStream.foreachBatch(put)
        .option("checkpointLocation", f"file://{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except PySparkException:
        if failed:
            raise failed[0] from None
        raise
    finally:
        query.stop()


def _arrivals(spark: SparkSession, sources: Mapping[str, Watched], per_batch: int) -> DataFrame:
    """The files of all sources as one stream of (source, path)."""
    from pyspark.sql import functions as f

    def of(name: str, source: Watched) -> DataFrame:
        return (
            spark.readStream.format("binaryFile")
            .schema(_FILES)
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", per_batch)
            .option("maxFileAge", _EVER)
            .load(f"file://{expanded(source.folder).absolute()}")
            .select(f.lit(name).alias("source"), "path")
        )

    streams: list[DataFrame] = [of(name, source) for name, source in sources.items()]
    return reduce(lambda a, b: a.unionByName(b), streams)


def _local(path: str) -> Path:
    """The path of a file's address, which Spark does not quote."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))


def _fingerprint(shown: Path) -> str:
    """Say whether a reader would see anything new.

    Files stay as they arrived, but for segments of journals, which grow, and for the manifest of a
    recording.
    """
    files = sorted(file for file in shown.rglob("*") if file.is_file())
    return "\n".join(
        f"{file} {file_sha256(file) if file.name == MANIFEST else file.stat().st_size}"
        for file in files
    )


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One follower at a time."""
    taken = DatasetError(
        "is followed already", file=state.parent, remedy="End the other command first."
    )
    with only_writer(state, taken):
        yield
