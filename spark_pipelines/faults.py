"""Spark's faults in our words (which source, which file, what to do), and its progress."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dsp_gym.errors import DatasetError, DspGymError
from spark_pipelines.sources import SourceFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE, _PARQUET = re.compile(r"file:/++([^\s\]]+)"), ".parquet"  # file:/a as well as file:///a
_OURS = re.compile(r"dsp_gym\.errors\.\w+: (.+)")
_NO_SPACE = ("No space left on device", "Disk quota exceeded")


@contextmanager
def spark_faults(facts: Sequence[SourceFacts]) -> Iterator[None]:
    """Turn errors of Spark inside the block into `DatasetError`.

    Args:
        facts: the sources that are read; a file in the error's text is looked for among theirs.

    Yields:
        Nothing; our own errors pass through unchanged.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except DspGymError:
        raise
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise fault_of(str(error), facts) from error


def fault_of(text: str, facts: Sequence[SourceFacts]) -> DatasetError:
    """Read which error of ours a text of Spark's stands for.

    Returns:
        The error, to be raised.
    """
    ours = _OURS.findall(text)
    if ours:  # raised in a worker
        return DatasetError(ours[-1])
    if any(sign in text for sign in _NO_SPACE):
        return DatasetError(
            "there is no space left for the dataset, or for Spark's own files",
            remedy="Free some space, or name other folders: --out, and spark.local.dir in the "
            "configuration's section spark.",
        )
    file = next(_files(text), None)
    for source in facts:
        for piece in source.pieces:
            if file is not None and piece.file is not None and str(piece.file) == file:
                return source.unreadable(piece, _cause(text))
    if "Connection refused" in text or "not running" in text or "Answer from Java" in text:
        return DatasetError(
            "Spark ended before the build",
            remedy="Give it more memory, such as spark.driver.memory: 4g in the configuration's "
            "section spark, and build again: what was finished is kept.",
        )
    return DatasetError(
        f"Spark failed: {_cause(text)}", file=file, remedy="The same command continues from here."
    )


def _files(text: str) -> Iterator[str]:
    """The files of a dataset that a text names."""
    for word in _FILE.findall(text):
        path, ending, _ = word.rpartition(_PARQUET)
        if path:
            yield f"/{path}{ending}"


def _cause(text: str) -> str:
    """The innermost cause, else the first line."""
    in_worker = re.findall(r"OSError: file:\S+ cannot be read: (.+)", text)
    if in_worker:
        return str(in_worker[-1]).strip()
    causes = re.findall(r"Caused by: (?:[\w.$]+: )?(.+)", text)
    lines = [line for line in (causes[-1:] or text.strip().splitlines()) if line.strip()]
    return lines[0].strip()[:300] if lines else "no reason was given"


_EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, observer: object) -> Iterator[None]:
    """Call `observer.tasks(done, all)`, where there is such a method, while the block runs.

    Yields:
        Nothing; a thread reports until the block ends.
    """
    tell = getattr(observer, "tasks", None)
    if tell is None:
        yield
        return
    tracker, over = spark.sparkContext.statusTracker(), threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY_S):
            try:
                stages = [tracker.getStageInfo(s) for s in tracker.getActiveStageIds()]
            except Exception:  # Spark is ending: the block itself will say why
                return
            known = [stage for stage in stages if stage is not None]
            tell(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    thread = threading.Thread(target=watch, name="dsp-gym spark progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
