"""Samples from a Prometheus whose answers are worth waiting for: a history, not a decision.

A server that is busy or starting is asked again, ever later; an expired token is read again from
its file; a question that is too large for the server is halved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from dsp_gym.backends.flink.prometheus import Merged, PrometheusSamples, merged_of, together_of
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.series import JobMeasurements
from dsp_gym.backends.flink.source import RealJob
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.backends.upstream.answers import PageError, StatusError
from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.config.strict_json import MISFITS, Document
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.identity import Task
from dsp_gym.metrics.samples import Samples

_BACKOFF_S, _MOST_BACKOFF_S = 0.5, 60.0
_REFUSED = frozenset({401, 403, 407})
"""Statuses that do not pass while the account is the same."""
_TOO_MUCH = frozenset({413, 414, 422})
"""Statuses of a query that loads more samples than the server allows."""

_GOES_ON = "Nothing is lost: what was fetched is kept, and the same command goes on with the rest."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """How a history is asked for."""

    chunk_s: int = 3600  # of one query
    queries_per_s: float = 5.0  # at most, so that a live server keeps up
    timeout_s: float = 30.0  # for one answer
    retries: int = 5  # of a query that failed for a reason that may pass


class TooMuchError(FlinkError):
    """One answer would hold more than the server, or this process, takes."""


@dataclass(frozen=True, slots=True)
class _Ids:
    """What a sample source asks of a job."""

    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    job_id: str = ""


class PatientSamples(PrometheusSamples):
    """The collector's source with patience, which takes no partial answer.

    Args:
        url: Prometheus' address.
        spec: the job file; None: none is known yet, and no samples are asked for.
        options: how long, how often.
        labels: what this Prometheus calls Flink's labels.
        access: account, certificates and proxy; None: those of the address, or the environment.
        job_name: Flink's name of the job whose samples are asked for; None: none is known yet.
        clock: Unix seconds.
        sleep: waits that many seconds.
    """

    _account_key = "account"
    _remedy = "Check that it runs at that address."

    def __init__(
        self,
        url: str,
        spec: JobSpec | None,
        options: HistoryOptions,
        labels: Labels,
        access: AccessConfig | None = None,
        job_name: str | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        job = cast("RealJob", _Ids((job_name,) if job_name is not None else ()))
        super().__init__(url, job, spec, options.timeout_s, access, labels)
        self._look_s = math.inf  # its questions have a deadline each, and are asked again
        self._api.session.takes_partial = False
        self._looked = True  # `submissions` looks for the labels, once for all hours
        self._options, self._clock, self._sleep = options, clock, sleep
        self._next_s = 0.0
        self.renamed: dict[Task, str] = {}
        """Vertex by a task that bears another name than in the job file."""

    def of_ids(
        self, ids: tuple[str, ...], since_s: float, until_s: float
    ) -> tuple[dict[str, tuple[float, float]], Samples]:
        """Ask for the samples of submissions of the job.

        Returns:
            First and last sample of each id that ran, in the order of time, Unix seconds; and the
            samples of all with since_s < t_s <= until_s.

        Raises:
            TooMuchError: The server refuses so long a time.
            FlinkError: Prometheus does not answer as it should.
        """
        with self.reading():
            of_job, managers = self._by_id(ids, since_s, until_s)
            spans = {job_id: _span(merged) for job_id, merged in of_job.items() if merged}
            order = sorted(spans, key=lambda job_id: spans[job_id])
            samples = Samples.of_series(together_of((of_job[one] for one in order), managers))
            return {one: spans[one] for one in order}, samples.between(since_s, until_s)

    def of_job(
        self, job_id: str, job_name: str, since_s: float, until_s: float
    ) -> tuple[list[Task], Samples, set[str]]:
        """Ask for the samples of a job without a job file.

        Args:
            job_id: Flink's id of the job.
            job_name: its name.
            since_s: Unix seconds.
            until_s: Unix seconds.

        Returns:
            Its tasks; their samples since its last restart, whose vertex is the place of its task;
            and the labels of series that were left out as copies.

        Raises:
            FlinkError: Prometheus does not answer as it should, or series contradict each other.
        """
        found = JobMeasurements(self.url, self.labels.tm_id)
        with self.reading():
            for one in self._of_tasks((job_id,), (job_name,), since_s, until_s):
                self._add(found, *one)
            tasks = sorted(found.tasks())
            places = {task: str(place) for place, task in enumerate(tasks)}
            merged = merged_of(found, places)
        # A counter of another attempt begins elsewhere: nothing rises from one to the next.
        since_s = max(since_s, found.restarted_s() - 1e-3)
        return tasks, Samples.of_series(merged).between(since_s, until_s), found.folded

    def tasks(self, selector: str, since_s: float, until_s: float) -> list[Document]:
        """Ask which series there are.

        Returns:
            Labels of each, by this Prometheus' names.

        Raises:
            FlinkError: Prometheus does not answer as it should.
        """
        return self._patiently(lambda: self._api.series(selector, since_s, until_s))

    def values(self, expression: str, at_s: float) -> list[tuple[Document, float]]:
        """Evaluate an expression at one moment.

        Returns:
            Labels and value of each series of the answer.

        Raises:
            FlinkError: Prometheus does not answer as it should.
        """
        found = self._patiently(lambda: self._api.query(expression, at_s))
        with self.reading():
            return [(dict(one["metric"]), float(one["value"][1])) for one in found]

    def _tasks(self, tasks: Iterable[Task]) -> Mapping[str, Task]:
        former = {self.renamed[task]: task for task in tasks if task in self.renamed}
        return {**super()._tasks(set(tasks) - set(former.values())), **former}

    def _asked(self, series: str, since_s: float, until_s: float) -> list[Document]:
        selector = f"{series}[{round((until_s - since_s) * 1000)}ms]"
        return self._patiently(lambda: self._api.query(selector, until_s))

    def _patiently(self, ask: Callable[[], T]) -> T:
        attempt = 0
        while True:
            self._wait_for_turn()
            try:
                return ask()
            except (OSError, LateError, StatusError, *MISFITS) as error:
                status = error.status if isinstance(error, StatusError) else 0
                if status in _TOO_MUCH or "answered more than" in str(error):
                    raise TooMuchError(self._failed(error).message, api="prometheus") from error
                if attempt == self._options.retries or not _passes(error, status):
                    raise self._failed(error) from error
                asked_s = error.retry_after_s if isinstance(error, StatusError) else 0.0
            self._sleep(min(_MOST_BACKOFF_S, max(asked_s, _BACKOFF_S * 2.0**attempt)))
            attempt += 1

    def _failed(self, error: Exception) -> FlinkError:
        found = super()._failed(error)
        found.remedy = f"{found.remedy} {_GOES_ON}"
        return found

    def _wait_for_turn(self) -> None:
        now_s = self._clock()
        if self._next_s > now_s:
            self._sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + 1.0 / self._options.queries_per_s


def _span(merged: Merged) -> tuple[float, float]:
    times = [times for times, _ in merged.values() if len(times)]
    return min(float(one[0]) for one in times), max(float(one[-1]) for one in times)


def _passes(error: Exception, status: int) -> bool:
    """Whether the same question may be answered later."""
    if status in _REFUSED or isinstance(error, PageError):
        return False
    if isinstance(error, MISFITS):
        # A server that fans out answers in part while one of its stores is away.
        return "partial" in str(error)
    return status in {0, 429} or status >= 500
