"""Samples of a job from the Prometheus that scrapes its cluster.

Range selectors are asked for, never instant values: an instant value may be up to five minutes old
(Prometheus' look-back), so the series of a TaskManager that died, or of the id the job had before,
would stand there as if it were alive. A range selector gives each value as it was scraped, with
the time of the scrape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.flink.answers import taken_apart
from dsp_gym.backends.flink.prometheus_api import Labels, PrometheusApi, StatusError
from dsp_gym.backends.flink.source import RealJob
from dsp_gym.config.strict_json import MISFITS, Document
from dsp_gym.config.text import first_line
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import FLINK_METRICS, Metric, prometheus_names, vertex_of
from dsp_gym.metrics.samples import Samples

_Key = tuple[str, int, str]
Merged = dict[_Key, tuple[Floats, Floats]]
"""Times, rising, and values by vertex, subtask and metric."""

_OF_TASKS = tuple(m for m in FLINK_METRICS if m.scope != "taskmanager")
_OF_TASKMANAGERS = tuple(m for m in FLINK_METRICS if m.scope == "taskmanager")
_MERGES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "sum": lambda a, b: a + b,
    "max": np.maximum,
    "mean": lambda a, b: (a + b) / 2,
}


class PrometheusSamples:
    """A sample source: the scraped values of every id the job has had.

    TaskManagers are those that ran tasks of the job, numbered in the order they were first seen.

    Args:
        url: Prometheus' address.
        job: The job.
        spec: Its job file; None: no vertex is known.
        timeout_s: Longest wait for an answer.
        account: File with the account; None: that of the address, or of the environment.
        labels: What this Prometheus calls Flink's labels.
    """

    def __init__(
        self,
        url: str,
        job: RealJob,
        spec: JobSpec | None,
        timeout_s: float = 5.0,
        account: Path | None = None,
        labels: Labels | None = None,
    ) -> None:
        self.labels = labels or Labels()
        self.url = url.rstrip("/")
        self.job = job
        self._vertices = tuple(v.name for v in spec.vertices) if spec is not None else ()
        self._api = PrometheusApi(self.url, timeout_s, account)
        self._timeout_s = timeout_s
        self._numbers: dict[str, int] = {}  # of TaskManagers

    def poll(self) -> None:
        """Prometheus keeps the history."""

    def samples(self, since_s: float, until_s: float) -> Samples:
        """Ask for scraped values.

        Returns:
            Samples with since_s < t_s <= until_s, Unix seconds.

        Raises:
            FlinkError: Prometheus does not answer, in time or as it should.
        """
        if not since_s < until_s:
            return Samples.of([])
        ids = self.job.ids or (self.job.job_id,)
        with self.reading():
            merged = self._merged(ids, since_s, until_s)
            return Samples.of_series(merged).between(since_s, until_s)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Take series apart in this block: those of another shape are a `FlinkError`.

        Yields:
            None.
        """
        with taken_apart(
            f"{self.url}: the series are not from Flink's Prometheus reporter",
            "Name the Prometheus that scrapes the cluster, with Flink's own labels.",
            api="prometheus",
        ):
            yield

    def _merged(self, ids: tuple[str, ...], since_s: float, until_s: float) -> Merged:
        of_job, together = self._by_id(ids, since_s, until_s)
        # Of two ids scraped at one time the later is the job.
        return together_of(of_job.values(), together)

    def _by_id(
        self, ids: tuple[str, ...], since_s: float, until_s: float
    ) -> tuple[dict[str, Merged], Merged]:
        """Series of the tasks by id of the job, and those of their TaskManagers."""
        of_job: dict[str, Merged] = {job_id: {} for job_id in ids}
        hosts, named = set(), self.labels
        for series in self._range(_OF_TASKS, named.job_id, ids, since_s, until_s):
            labels = series["metric"]
            hosts.add(labels[named.tm_id])
            vertex = self._vertex_of(labels)
            metric = _metric(labels["__name__"], labels.get("quantile"))
            if vertex is not None and metric is not None:
                whose = (vertex, int(labels[named.subtask_index]))
                _merge(of_job[labels[named.job_id]], whose, metric, series["values"])
        managers: Merged = {}
        if hosts:
            for host in sorted(hosts):
                self._numbers.setdefault(host, len(self._numbers))
            for series in self._range(_OF_TASKMANAGERS, named.tm_id, hosts, since_s, until_s):
                metric = _metric(series["metric"]["__name__"], None)
                if metric is not None:
                    whose = ("", self._numbers[series["metric"][named.tm_id]])
                    _merge(managers, whose, metric, series["values"])
        return of_job, managers

    def _vertex_of(self, labels: Document) -> str | None:
        """The vertex whose task a series is of; None: of none in the job file."""
        return vertex_of(labels[self.labels.task_name], self._vertices)

    def _range(
        self,
        metrics: Iterable[Metric],
        label: str,
        one_of: Iterable[str],
        since_s: float,
        until_s: float,
    ) -> list[Document]:
        """Series of some metrics that bear one of some values of a label, as scraped."""
        names = "|".join(prometheus_names(metric) for metric in metrics)
        values = "|".join(re.escape(value) for value in sorted(one_of))
        matchers = ",".join(
            f"{name}=~{json.dumps(pattern)}"
            for name, pattern in (("__name__", names), (label, values))
        )
        return self._asked(f"{{{matchers}}}", since_s, until_s)

    def _asked(self, series: str, since_s: float, until_s: float) -> list[Document]:
        """Series as scraped; those that a selector names."""
        selector = f"{series}[{int(np.ceil((until_s - since_s) * 1000))}ms]"
        from requests import ConnectionError as NotConnected
        from requests import RequestException, Timeout

        remedy = "See whether it runs and answers there: open it, or dsp-gym flink status."
        try:
            return self._api.query(selector, until_s)
        except Timeout as error:
            raise FlinkError(
                f"{self.url}: Prometheus did not answer within {self._timeout_s:g} s",
                api="prometheus",
                reason="Timeout",
                remedy=remedy,
            ) from error
        except (RequestException, StatusError, *MISFITS) as error:
            raise FlinkError(
                f"{self.url}: Prometheus did not answer as it should: {first_line(error, 300)}",
                api="prometheus",
                reason="Unreachable" if isinstance(error, NotConnected) else "Other",
                remedy=remedy,
            ) from error


@lru_cache(maxsize=4096)
def _metric(series_name: str, quantile: str | None) -> Metric | None:
    """The metric a series belongs to; None for a quantile that is not kept."""
    wanted = None if quantile is None else float(quantile)
    for metric in FLINK_METRICS:
        if metric.quantile == wanted and re.fullmatch(prometheus_names(metric), series_name):
            return metric
    return None


def _merge(
    merged: Merged, whose: tuple[str, int], metric: Metric, values: list[tuple[float, str]]
) -> None:
    """Add a series to those of the same metric and subtask, such as of its other states."""
    table = np.array(values, dtype=np.float64)
    known = ~np.isnan(table[:, 1])
    times, new = table[known, 0], table[known, 1] * metric.scale
    key = (*whose, metric.name)
    if key not in merged:
        merged[key] = (times, new)
        return
    before, old = merged[key]
    all_times = np.union1d(before, times)
    both = np.full(len(all_times), np.nan)
    both[np.searchsorted(all_times, before)] = old
    at = np.searchsorted(all_times, times)
    both[at] = np.where(np.isnan(both[at]), new, _MERGES[metric.merge](both[at], new))
    merged[key] = (all_times, both)


def together_of(parts: Iterable[Merged], managers: Merged) -> Merged:
    """Join the series of several ids, given in the order of time, as those of one job.

    Returns:
        The series; where two ids have a value at one time, that of the later stands last.
    """
    together = dict(managers)
    for merged in parts:
        for key, (times, values) in merged.items():
            before, old = together.get(key, (times[:0], values[:0]))
            together[key] = np.append(before, times), np.append(old, values)
    return together
