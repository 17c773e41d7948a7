"""Rollouts and evaluations on the executors of a Spark: cells go out, their results come back.

Each batch of cells is a job of one task. What a cell gives is fixed by the cell, so it does not
matter which executor plays it, in which batch, or how often: Spark gives the work of a lost
executor to another one, and the results are those of the local engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from dsp_gym.config import files
from dsp_gym.datasets.rollouts.plan import Batch
from dsp_gym.datasets.rollouts.run import BATCH, Engine, Played, played
from dsp_gym.errors import DatasetError, DspGymError
from dsp_gym.evaluation import run as evaluation
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import resolve
from dsp_gym.simulation.options import SimulationOptions
from spark_pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EXECUTORS", "Sweep", "spark_sweep"]

EXECUTORS: Mapping[str, str] = {
    # A task is one batch on one core; more threads than that would only fight.
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.executorEnv.NUMBA_NUM_THREADS": "1",
}
"""Settings of a session for sweeps, on top of the pipeline's."""

TASKS_PER_SLOT = 4
"""Batches for each core, so that a slow one does not keep the others waiting at the end."""

WAITING = 16
"""Batches handed to Spark at a time, at least: what a cluster grows by is what waits in line."""

Told = Callable[[int, int], None]
Work = TypeVar("Work")
Result = TypeVar("Result")


@contextmanager
def spark_sweep(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Sweep]:
    """A Spark session to spread work over; see `spark_session`.

    Yields:
        The sweep, whose session ends with the block.
    """
    with spark_session(name, master, {**EXECUTORS, **(settings or {})}) as spark:
        yield Sweep(spark)


class Sweep:
    """The engines of one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def slots(self) -> int:
        """Cores that Spark knows of now."""
        return int(self.spark.sparkContext.defaultParallelism)

    def rollouts(self) -> Engine:
        """Plays rollouts on executors.

        Returns:
            An engine for `dsp_gym.datasets.rollouts.run.rollout`.
        """
        return _Rollouts(self)

    def evaluation(self, told: Told | None = None) -> evaluation.Spread:
        """For `dsp_gym.evaluation.run.evaluate`.

        Args:
            told: hears how many more runs are done, of how many, whenever some are.

        Returns:
            A spread for `dsp_gym.evaluation.run.evaluate`.
        """

        def spread(shares: Sequence[evaluation.Share]) -> Iterator[evaluation.ShareResult]:
            total = sum(map(len, shares))
            size = self.batch_size(total)
            work = [part for share in shares for part in share.split(size)]
            done: dict[int, evaluation.ShareResult] = {}
            following = 0
            for place, part in self.run([_carried_share(share) for share in work], _play_share):
                done[place] = part
                if told is not None:
                    told(len(part.cells), total)
                while following in done:  # in order, and each as soon as it can be
                    yield done.pop(following)
                    following += 1

        return spread

    def batch_size(self, cells: int) -> int:
        """Chooses batches so small that every core gets some, and large enough to pay.

        Returns:
            Cells in one batch.
        """
        return max(1, min(BATCH, math.ceil(cells / (self.slots * TASKS_PER_SLOT))))

    def run(
        self, work: Sequence[Work], do: Callable[[Work], Result]
    ) -> Iterator[tuple[int, Result]]:
        """Results as they are done, each with the place of its work.

        Returns:
            (place of the work, its result).

        Raises:
            DspGymError: What `do` raised on an executor.
            DatasetError: Spark gave up on some work.
        """
        context = self.spark.sparkContext

        def submit(item: Work) -> Result | DspGymError:
            found: list[Result | DspGymError] = (
                context.parallelize([item], 1).map(_Guarded(do)).collect()
            )
            return found[0]

        ahead = min(max(WAITING, 2 * self.slots), max(1, len(work)))
        waiting = iter(enumerate(work))
        pool = ThreadPoolExecutor(ahead, thread_name_prefix="sweep")
        running: dict[Future[Result | DspGymError], int] = {}
        try:
            while True:
                # Work is handed out as it is asked for, so that not all of it is in memory twice.
                while len(running) < ahead and (following := next(waiting, None)) is not None:
                    running[pool.submit(submit, following[1])] = following[0]
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), _result(future)
        finally:
            # Interrupted or failed: what still runs is of no use to anybody.
            if running:
                context.cancelAllJobs()
            pool.shutdown(cancel_futures=True)


class _Rollouts(Engine):
    """Plays batches of rollouts on executors."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def batch_size(self, cells: int) -> int:
        return self.sweep.batch_size(cells)

    def run(
        self, work: Sequence[Batch], ticked: Callable[[str, float], None]
    ) -> Iterator[list[Played]]:
        for place, results in self.sweep.run([_carried_batch(b) for b in work], _play_batch):
            yield results
            ticked(work[place].player.label, len(results))


@dataclass(frozen=True, slots=True)
class _Guarded:
    """What an executor runs: an error the user can put right comes back as a value, not retried."""

    do: Callable[[Any], Any]

    def __call__(self, item: Any) -> Any:
        try:
            return self.do(item)
        except DspGymError as error:
            return error


def _result(future: Future[Result | DspGymError]) -> Result:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        result = future.result()
    except (Py4JError, PySparkException) as error:
        raise DatasetError(
            f"Spark gave up on a batch: {_cause(str(error))}",
            remedy="Its log says more. Executors need the same Python and the same dsp-gym as "
            "here, and memory for Python beside their own: spark.executor.memoryOverhead.",
        ) from error
    if isinstance(result, DspGymError):
        raise result
    return result


def _cause(text: str) -> str:
    """The telling line of a Java stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling or lines or ["no reason given"])[-1]


@dataclass(frozen=True, slots=True)
class _Carried:
    """Work with its policy resolved, and the files of that policy where it is a learned one."""

    work: Any
    policy: PolicyConfig
    files: Mapping[str, bytes] | None


def _carried_batch(batch: Batch) -> _Carried:
    env = batch.env.model_copy(update={"simulation": _one_thread(batch.env.simulation)})
    policy = batch.player.policy
    return _Carried(replace(batch, env=env), policy, _files_of(policy))


def _play_batch(carried: _Carried) -> list[Played]:
    batch: Batch = carried.work
    with _unpacked(carried) as policy:
        return played(replace(batch, player=replace(batch.player, policy=policy)))


def _carried_share(share: evaluation.Share) -> _Carried:
    """The share with what stands in files here written out."""
    entrant, config = share.entrant, share.config
    _, policy, _ = resolve(entrant.policy)
    if isinstance(entrant.guardrails, str):
        chain = files.load_model(GuardrailsConfig, "guardrails", entrant.guardrails)
        entrant = entrant.model_copy(update={"guardrails": chain})
    config = config.model_copy(update={"simulation": _one_thread(config.simulation)})
    return _Carried(replace(share, entrant=entrant, config=config), policy, _files_of(policy))


def _play_share(carried: _Carried) -> evaluation.ShareResult:
    share: evaluation.Share = carried.work
    with _unpacked(carried) as policy:
        entrant = share.entrant.model_copy(update={"policy": policy})
        return evaluation.play(replace(share, entrant=entrant))


def _one_thread(simulation: SimulationOptions) -> SimulationOptions:
    return simulation.model_copy(update={"threads": 1})


def _files_of(policy: PolicyConfig) -> dict[str, bytes] | None:
    """The folder of a learned policy; None for others, and for the one that is shipped."""
    path = policy.params.get("path") if policy.policy == "learned" else None
    if path is None:
        return None
    folder = Path(path)
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@contextmanager
def _unpacked(carried: _Carried) -> Iterator[PolicyConfig]:
    """The policy with its folder on this machine."""
    policy = carried.policy
    if carried.files is None:
        yield policy
        return
    with TemporaryDirectory(prefix="dsp-gym-policy-") as name:
        for path, content in carried.files.items():
            file = Path(name) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        yield policy.model_copy(update={"params": {**policy.params, "path": name}})
