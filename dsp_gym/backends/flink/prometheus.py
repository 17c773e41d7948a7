"""Samples of a job from the Prometheus that scrapes its cluster.

Range selectors are asked for, never instant values: an instant value may be up to five minutes old
(Prometheus' look-back), so the series of a TaskManager that died, or of the id the job had before,
would stand there as if it were alive. A range selector gives each value as it was scraped, with
the time of the scrape.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.flink.answers import taken_apart
from dsp_gym.backends.flink.prometheus_api import Labels, PrometheusApi
from dsp_gym.backends.flink.series import JobMeasurements, Scraped, Subtask
from dsp_gym.backends.flink.source import RealJob
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.backends.upstream.answers import LAG_S, Diagnosis, StatusError, of_error, of_status
from dsp_gym.backends.upstream.timed_calls import LateError, deadline
from dsp_gym.config.strict_json import MISFITS, Document
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import (
    BY_NAME,
    FLINK_METRICS,
    SOURCE_METRICS,
    SOURCE_NAMES,
    Metric,
    cleaned,
    prometheus_names,
)
from dsp_gym.metrics.identity import Task, tasks_by_vertex
from dsp_gym.metrics.samples import Samples, with_source_records

_LOG = logging.getLogger(__name__)

_Key = tuple[str, int, str]
Merged = dict[_Key, tuple[Floats, Floats]]
"""Times, rising, and values by vertex, subtask and metric."""

_OF_TASKS = tuple(m for m in FLINK_METRICS if m.scope != "taskmanager")
_OF_TASKMANAGERS = tuple(m for m in FLINK_METRICS if m.scope == "taskmanager")
_COUNTED = BY_NAME["records_out_total"]
"""The metric that every task has."""
_LOOK_S = 120.0

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
        timeout_s: Longest wait for all the answers that samples are made from.
        access: Account, certificates and proxy; None: those of the address, or of the environment.
        labels: What this Prometheus calls Flink's labels.
    """

    _account_key = "prometheus_account"
    _remedy = "See whether it runs and answers there: open it, or dsp-gym flink status."

    def __init__(
        self,
        url: str,
        job: RealJob,
        spec: JobSpec | None,
        timeout_s: float = 5.0,
        access: AccessConfig | None = None,
        labels: Labels | None = None,
    ) -> None:
        self.labels = labels or Labels()
        self.url = url.rstrip("/")
        self.job = job
        self.folded: set[str] = set()
        """Labels of series that were left out as copies of others."""
        self._spec = spec
        self._api = PrometheusApi(self.url, timeout_s, access)
        self._look_s = timeout_s
        self._numbers: dict[str, int] = {}  # of TaskManagers
        self._looked = False  # whether any task of any job was seen
        self._lacks: FlinkError | None = None  # where no series has the label that names jobs

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
        with self.reading(), deadline(self._look_s):
            merged = self._merged(ids, since_s, until_s)
            found = Samples.of_series(merged).between(since_s, until_s)
        self._refuse_lag(found)
        return found

    def _refuse_lag(self, found: Samples) -> None:
        """Say why there are no samples of the last seconds, where the clocks differ."""
        ahead_s = self._api.session.ahead_s
        if len(found) == 0 and abs(ahead_s) > LAG_S:
            how = "ahead of" if ahead_s > 0 else "behind"
            raise FlinkError(
                f"{self.url}: no samples of this time; the clock of this machine is "
                f"{abs(ahead_s):.0f} s {how} the server's",
                api="prometheus",
                reason="NoMetrics",
                remedy="Set both clocks by the same server of time.",
            )

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
        hosts: set[str] = set()
        of_job = {one: JobMeasurements(self.url, self.labels.tm_id) for one in ids}
        for labels, metric, series in self._of_tasks(ids, self.job.names, since_s, until_s):
            job_id = str(labels[self.labels.job_id]) if self.labels.job_id else ids[-1]
            hosts.add(str(labels.get(self.labels.tm_id, "")))
            self._add(of_job[job_id], labels, metric, series)
        merged = {job_id: self._by_vertex(series) for job_id, series in of_job.items()}
        return merged, self._of_taskmanagers(sorted(hosts - {""}), since_s, until_s)

    def _of_tasks(
        self,
        ids: Sequence[str],
        job_names: Sequence[str],
        since_s: float,
        until_s: float,
        metrics: Sequence[Metric] = _OF_TASKS,
    ) -> Iterator[tuple[Mapping[str, str], Metric, list[tuple[float, str]]]]:
        """Labels, metric and values of the series of a job's tasks."""
        named = self.labels
        names = {name for one in job_names for name in (one, cleaned(one))}
        whose = (named.job_id, _one_of(ids)) if named.job_id else (named.job_name, _one_of(names))
        sources = (named.operator_name or "operator_name", SOURCE_NAMES)
        asked = list(self._range(metrics, since_s, until_s, whose))
        if metrics is _OF_TASKS:
            asked += self._range(SOURCE_METRICS, since_s, until_s, whose, sources)
        if asked:
            self._lacks = None
        elif not self._looked:
            needed = ("job_id",) if named.job_id else ("job_name",)
            self._looked, self._lacks = self.misnamed(needed, until_s)
        if self._lacks is not None:
            raise self._lacks
        # High availability gives the jobs of all applications one id; their names differ.
        seen = {str(series["metric"].get(named.job_name, "")) for series in asked}
        if seen & names:
            asked = [one for one in asked if one["metric"].get(named.job_name) in names]
        elif len(seen) > 1:
            raise FlinkError(
                f"{self.url}: {len(seen)} jobs have the id {ids[-1]}: "
                f"{', '.join(map(repr, sorted(seen)))}; none is named {' or '.join(sorted(names))}",
                api="prometheus",
                reason="Conflict",
                remedy=f'Choose one by its label: {named.job_name}="{min(seen)}".',
            )
        for series in asked:
            labels = series["metric"]
            is_source = str(labels.get(sources[0], "")).startswith("Source:")
            metric = _metric(labels["__name__"], labels.get("quantile"), is_source=is_source)
            if metric is not None:
                yield labels, metric, series["values"]

    def misnamed(self, needed: Sequence[str], until_s: float) -> tuple[bool, FlinkError | None]:
        """Look for a label, or its value, that none of the tasks of any job has.

        Args:
            needed: Flink's names of labels that every task must have.
            until_s: Unix seconds.

        Returns:
            Whether there are tasks at all, and the error that names the label.

        Raises:
            FlinkError: Prometheus does not answer, in time or as it should.
        """
        selector = replace(self.labels, only=()).selector(prometheus_names(_COUNTED))
        every = [one["metric"] for one in self._asked(selector, until_s - _LOOK_S, until_s)]
        known = ", ".join(sorted({name for one in every for name in one} - {"__name__"}))
        for label, value in self.labels.only if every else ():
            values = sorted({str(one[label]) for one in every if label in one})
            if value not in values:
                remedy = f"It is {' or '.join(values)}." if values else f"They have {known}."
                return True, self._invalid(f'{label}="{value}"', remedy)
        for flinks in needed if every else ():
            label = getattr(self.labels, flinks)
            if label and not any(one.get(label) for one in every):
                leave_out = f", or {flinks}= if it has none" if flinks == "job_id" else ""
                remedy = f"Say which is Flink's {flinks}, labels: {flinks}=THEIRS{leave_out}; "
                return True, self._invalid(label, f"{remedy}they have {known}.")
        return bool(every), None

    def _invalid(self, label: str, remedy: str) -> FlinkError:
        said = f"{self.url}: no series of a Flink task has the label {label}, so none is of the job"
        return FlinkError(said, api="prometheus", reason="Invalid", remedy=remedy)

    def _add(
        self,
        measurements: JobMeasurements,
        labels: Mapping[str, str],
        metric: Metric,
        values: list[tuple[float, str]],
    ) -> None:
        """Sort a series into the measurements of its job."""
        named = self.labels
        task = Task(str(labels.get(named.task_id, "")), str(labels.get(named.task_name, "")))
        if not task.id and not task.name:
            raise self._unidentified(labels, "task_id")
        if named.subtask_index not in labels:
            raise self._unidentified(labels, "subtask_index")
        operator = labels.get(named.operator_id) or labels.get(named.operator_name) or ""
        part = (labels["__name__"], metric.name, operator, labels.get("state_name", ""))
        one = _scraped(labels, metric, values)
        attempt = int(labels.get(named.task_attempt_num, -1))
        measurements.add(Subtask(task, int(labels[named.subtask_index])), attempt, part, one)

    def _unidentified(self, labels: Mapping[str, str], lacks: str) -> FlinkError:
        return FlinkError(
            f"{self.url}: series {labels['__name__']!r} has no label "
            f"{getattr(self.labels, lacks)!r}, so it is not known whose it is",
            api="prometheus",
            reason="Invalid",
            remedy=f"Let Flink's reporter and the scrape keep {lacks}, or say what it is called "
            f"there: labels: {lacks}=THEIRS",
        )

    def _by_vertex(self, measurements: JobMeasurements) -> Merged:
        """Merge the series of each vertex of the job file; those of other tasks are left out."""
        vertices = {task: vertex for vertex, task in self._tasks(measurements.tasks()).items()}
        merged = merged_of(measurements, vertices)
        self._fold(measurements.folded)
        return merged

    def _fold(self, labels: set[str]) -> None:
        """Note the labels of copies, and say once which they are."""
        if labels - self.folded:
            named = ", ".join(sorted(labels))
            _LOG.warning("%s: series that differ in %s alone are counted once", self.url, named)
        self.folded = self.folded | labels  # a new set: the page reads it from another thread

    def _tasks(self, tasks: Iterable[Task]) -> Mapping[str, Task]:
        """The tasks of a job by vertex of the job file."""
        return {} if self._spec is None else tasks_by_vertex(self._spec, sorted(tasks))

    def _of_taskmanagers(self, hosts: list[str], since_s: float, until_s: float) -> Merged:
        if not hosts:
            return {}
        for host in hosts:
            self._numbers.setdefault(host, len(self._numbers))
        measurements = JobMeasurements(self.url)
        for series in self._range(
            _OF_TASKMANAGERS, since_s, until_s, (self.labels.tm_id, _one_of(hosts))
        ):
            labels = series["metric"]
            metric = _metric(labels["__name__"], None)
            if metric is not None:
                one = _scraped(labels, metric, series["values"])
                manager = Subtask(Task("", ""), self._numbers[labels[self.labels.tm_id]])
                measurements.add(manager, -1, (labels["__name__"], metric.name, "", ""), one)
        merged: Merged = {}
        for manager, one in measurements.values():
            _merge(merged, ("", manager.index), one)
        self._fold(measurements.folded)
        return merged

    def _range(
        self,
        metrics: Iterable[Metric],
        since_s: float,
        until_s: float,
        *matchers: tuple[str, str],
    ) -> list[Document]:
        """Series of some metrics with some labels, as scraped."""
        names = "|".join(prometheus_names(metric) for metric in metrics)
        return self._asked(self.labels.selector(names, *matchers), since_s, until_s)

    def _asked(self, series: str, since_s: float, until_s: float) -> list[Document]:
        """Series as scraped; those that a selector names."""
        selector = f"{series}[{int(np.ceil((until_s - since_s) * 1000))}ms]"
        try:
            return self._api.query(selector, until_s)
        except (OSError, LateError, StatusError, *MISFITS) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FlinkError:
        """The error for a question that was not answered as it should be."""
        found = self._trouble(error)
        return FlinkError(
            f"{self.url}: Prometheus did not answer as it should: {found.said}",
            api="prometheus",
            reason=found.reason,
            remedy=found.remedy or self._remedy,
        )

    def _trouble(self, error: Exception) -> Diagnosis:
        """What is wrong with an answer."""
        credentials = self._api.session.credentials
        if isinstance(error, StatusError):
            key = self._account_key if credentials.access.file is not None else ""
            known = of_status(
                error.status, error.content, error.headers, key=key, trouble=credentials.trouble
            )
            return known or Diagnosis("Other", str(error)[:300])
        return of_error(error, key=self._account_key)


def _one_of(values: Iterable[str]) -> str:
    """A regular expression of several values."""
    return "|".join(re.escape(value) for value in sorted(values))


@lru_cache(maxsize=4096)
def _metric(series_name: str, quantile: str | None, *, is_source: bool = False) -> Metric | None:
    """The metric a series belongs to; None for a quantile that is not kept."""
    wanted = None if quantile is None else float(quantile)
    for metric in (*FLINK_METRICS, *(SOURCE_METRICS if is_source else ())):
        if metric.quantile == wanted and re.fullmatch(prometheus_names(metric), series_name):
            return metric
    return None


def _scraped(labels: Mapping[str, str], metric: Metric, values: list[tuple[float, str]]) -> Scraped:
    """A series without its unknown values."""
    table = np.array(values, dtype=np.float64)
    unknown = np.isnan(table[:, 1])
    if unknown.any():
        table = table[~unknown]
    return Scraped(metric, labels, table[:, 0], table[:, 1] * metric.scale)


def _merge(merged: Merged, whose: tuple[str, int], one: Scraped) -> None:
    """Add a series to those of the same metric and subtask, such as of its other states."""
    key = (*whose, one.metric.name)
    if key not in merged:
        merged[key] = (one.times, one.values)
        return
    before, old = merged[key]
    all_times = np.union1d(before, one.times)
    both = np.full(len(all_times), np.nan)
    both[np.searchsorted(all_times, before)] = old
    at = np.searchsorted(all_times, one.times)
    merge = _MERGES[one.metric.merge]
    both[at] = np.where(np.isnan(both[at]), one.values, merge(both[at], one.values))
    merged[key] = (all_times, both)


def merged_of(measurements: JobMeasurements, vertices: Mapping[Task, str]) -> Merged:
    """Merge the measurements of each vertex.

    Args:
        measurements: of one job.
        vertices: name of the vertex by task; other tasks are left out.

    Returns:
        The series; `records_in_total` of a source counts the records it read.
    """
    merged: Merged = {}
    for subtask, one in measurements.values():
        vertex = vertices.get(subtask.task)
        if vertex is not None:
            _merge(merged, (vertex, subtask.index), one)
    found = with_source_records(merged)
    return {key: (np.asarray(times), np.asarray(values)) for key, (times, values) in found.items()}


def together_of(parts: Iterable[Merged], managers: Merged) -> Merged:
    """Join the series of several ids, given in the order of time, as those of one job.

    Returns:
        The series; where two ids have a value at one time, that of the later stands last.
    """
    together = dict(managers)
    for merged in parts:
        for key, (times, values) in merged.items():
            if key in together:
                before, old = together[key]
                times, values = np.append(before, times), np.append(old, values)
            together[key] = times, values
    return together
