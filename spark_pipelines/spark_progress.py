"""How far Spark is within a stage of a build, asked of it twice a second."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shown"]

_EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, observer: object) -> Iterator[None]:
    """Calls `observer.tasks(done, all)`, where there is such a method, while the block runs.

    Yields:
        Nothing; a thread of its own reports until the block ends.
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
