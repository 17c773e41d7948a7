"""Work on the executors of a Spark: cells go out, their results come back.

Each cell is a job of one task. What a cell gives is fixed by the cell, so it does not matter which
executor does it, or how often: Spark gives the work of a lost executor to another one, and the
results are those of the local engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dsp_gym.engine import Tell
from dsp_gym.errors import DspGymError, EngineError
from spark_pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS: Mapping[str, str] = {
    # A task is one cell on one core; more threads than that would only fight.
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.executorEnv.NUMBA_NUM_THREADS": "1",
}
"""Settings of a session that does cells, over those of every session."""

WAITING = 16
"""Cells handed to Spark at a time, at least: what a cluster grows by is what waits in line."""

Cell = TypeVar("Cell")
News = TypeVar("News")
Result = TypeVar("Result")


@contextmanager
def spark_engine(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkEngine]:
    """Open a Spark session to spread work over; see `spark_session`.

    Yields:
        The engine, whose session ends with the block.
    """
    with spark_session(name, master, settings, defaults=EXECUTORS) as spark:
        yield SparkEngine(spark)


class SparkEngine:
    """Does cells on the executors of one Spark session; see `dsp_gym.engine.Engine`."""

    shares_disk = False

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def slots(self) -> int:
        """Cores that Spark knows of now."""
        return int(self.spark.sparkContext.defaultParallelism)

    def map(
        self,
        do: Callable[[Cell, Tell[News]], Result],
        cells: Sequence[Cell],
        heard: Callable[[int, News], None] | None = None,
        *,
        patient: bool = False,
    ) -> Iterator[tuple[int, Result]]:
        """Do every cell; see `dsp_gym.engine.Engine.map`.

        A task reports nothing before it ends: news of a cell come together, just before its result.
        Ctrl-C ends the cells under way at once, patient or not.

        Yields:
            The place of each cell and its result, as they are done.

        Raises:
            DspGymError: What `do` raised on an executor.
            EngineError: Spark gave up on a cell.
        """
        context = self.spark.sparkContext
        work = _OnExecutor(do)

        def submit(cell: Cell) -> _Answer[News, Result] | DspGymError:
            found: list[_Answer[News, Result] | DspGymError] = (
                context.parallelize([cell], 1).map(work).collect()
            )
            return found[0]

        ahead = min(max(WAITING, 2 * self.slots), max(1, len(cells)))
        waiting = iter(enumerate(cells))
        pool = ThreadPoolExecutor(ahead, thread_name_prefix="sweep")
        running: dict[Future[_Answer[News, Result] | DspGymError], int] = {}
        try:
            while True:
                # Work is handed out as it is asked for, so that not all of it is in memory twice.
                while len(running) < ahead and (following := next(waiting, None)) is not None:
                    running[pool.submit(submit, following[1])] = following[0]
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place = running.pop(future)
                    answer = _answer(future)
                    if heard is not None:
                        for news in answer.news:
                            heard(place, news)
                    yield place, answer.result
        finally:
            # Interrupted or failed: what still runs is of no use to anybody.
            if running:
                context.cancelAllJobs()
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Answer(Generic[News, Result]):
    """What an executor sends back for a cell."""

    news: list[News]
    result: Result


@dataclass(frozen=True, slots=True)
class _OnExecutor(Generic[Cell, News, Result]):
    """What an executor runs: an error the user can put right comes back as a value, not retried."""

    do: Callable[[Cell, Tell[News]], Result]

    def __call__(self, cell: Cell) -> _Answer[News, Result] | DspGymError:
        news: list[News] = []

        def tell(one: News) -> bool:
            news.append(one)
            return False

        try:
            return _Answer(news, self.do(cell, tell))
        except DspGymError as error:
            return error


def _answer(future: Future[_Answer[News, Result] | DspGymError]) -> _Answer[News, Result]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        answer = future.result()
    except (Py4JError, PySparkException) as error:
        raise EngineError(
            f"Spark gave up on a cell: {_cause(str(error))}",
            remedy="Its log says more. Executors need the same Python and the same dsp-gym as "
            "here, and memory for Python beside their own: spark.executor.memoryOverhead. Finished "
            "cells are kept; repeat the command with --resume, on any engine.",
        ) from error
    if isinstance(answer, DspGymError):
        raise answer
    return answer


def _cause(text: str) -> str:
    """Find the line of a Java stack trace that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling or lines or ["no reason given"])[-1]
