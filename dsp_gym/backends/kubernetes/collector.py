"""A job of the Flink Kubernetes Operator, as a collector follows it.

The resource names the job and the operator's state; the running configuration comes from Flink's
REST interface, or from the metrics of the tasks while that is out of reach.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dsp_gym.backends.flink.answers import JobAnswer, vertices_of
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.backends.flink.series import CLOCKS, JobMeasurements
from dsp_gym.backends.flink.source import RealJob
from dsp_gym.backends.flink.submission import all_running
from dsp_gym.backends.kubernetes.overrides import levels_shown
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.backends.upstream.timed_calls import deadline
from dsp_gym.errors import FlinkError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.window import Observed


@dataclass(frozen=True, slots=True)
class RunningVertices:
    """One look at the tasks of a job, through Flink's REST interface or its metrics."""

    job_id: str
    state: str  # of the job, Flink's word; "unknown" if only metrics are known
    ids: Mapping[str, str]  # Flink's id by vertex of the job file
    parallelism: Mapping[str, int]  # tasks that run, by vertex of the job file
    settled: bool  # whether every task runs

    @property
    def by_id(self) -> dict[str, int]:
        """Tasks that run, by Flink's id."""
        return {self.ids[name]: tasks for name, tasks in self.parallelism.items()}


UNKNOWN = float("nan")

_COUNTED = tuple(BY_NAME[name] for name in ("records_out_total", *CLOCKS))
"""A metric that every task has, so that its series can be counted."""

_COUNTED_S = 300.0
"""How far back tasks are looked for: three scrapes and more, at Prometheus' default of 60 s too."""


class KubernetesJob(RealJob):
    """Follows the job of one resource over restarts, rescales and redeployments.

    Args:
        watcher: follows the resource.
        name: of the resource.
        spec: its job file.
        rest: Flink's REST interface; None: the running tasks are counted by their metrics alone.
        stale_s: age above which an answer of the API server no longer counts, s.
        clock: Unix seconds.
    """

    def __init__(
        self,
        watcher: Watcher,
        name: str,
        spec: JobSpec,
        rest: FlinkRest | None = None,
        *,
        stale_s: float = 120.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, spec)
        self.tasks: KubernetesSamples | None = None
        """Where tasks are counted while Flink cannot be asked."""
        self.not_before_s = float("-inf")
        """What was measured before is not looked at, Unix seconds."""
        self._watcher, self._rest, self._stale_s, self._clock = watcher, rest, stale_s, clock
        self._flink = None if rest is None else _JobOfId(rest, name, spec)
        start = Configuration.of_spec(spec)
        self._parallelism: Mapping[str, int] = start.parallelism
        self._start_levels = levels_shown((), spec) or start.memory_level
        self._run: tuple[str, Mapping[str, int]] | None = None  # id and tasks seen last
        self._since_s = UNKNOWN

    @property
    def resource(self) -> FlinkResource:
        """The resource as the API server told it last.

        Raises:
            FlinkError: The resource does not exist, or the server has been silent for too long.
        """
        known = self._watcher.resources()
        age_s = self._watcher.age_s()
        if age_s > self._stale_s:
            trouble = self._watcher.trouble
            raise FlinkError(
                f"the API server was last heard of {age_s:.0f} s ago: "
                f"{trouble or 'it has not answered yet'}",
                api="kubernetes",
                reason="Unreachable" if trouble is None else trouble.reason,
            )
        if self.name not in known:
            raise FlinkError(
                f"there is no resource '{self.name}'",
                api="kubernetes",
                reason="NotFound",
                remedy=did_you_mean(self.name, known),
            )
        return known[self.name]

    @property
    def names(self) -> tuple[str, ...]:
        """Flink's name of the job, as the resource's status has it."""
        known = self._watcher.resources().get(self.name)
        return () if known is None or known.job_name is None else (known.job_name,)

    @property
    def job_id(self) -> str:
        """Id of the job that runs under the resource.

        Raises:
            FlinkError: None does.
        """
        resource = self.resource
        if resource.job_id is None:
            raise FlinkError(
                f"{resource} has no job yet: its lifecycleState is {resource.lifecycle_state}",
                reason="NotFound",
                remedy=resource.error,
            )
        return self._remembered(resource.job_id)

    def observe(self, now_s: float) -> Observed:
        """Look at the job; `trouble` says what cannot be had.

        Returns:
            Status and configuration at `now_s`, Unix seconds.
        """
        self.trouble = None
        try:
            resource, job_id = self.resource, self.job_id
        except FlinkError as error:
            self.trouble = error
            gone = self.name not in self._watcher.resources() and (
                self._watcher.age_s() <= self._stale_s
            )
            return self._known(now_s, Status.FAILED if gone else Status.RESTARTING)
        if resource.lifecycle_state == "FAILED" or resource.job_state in ENDED:
            return self._known(now_s, Status.FAILED, resource)
        if self._flink is not None:
            with deadline(self._flink.rest.timeout_s):
                seen = self._flink.observe_id(job_id, now_s, self._levels(resource))
            self._parallelism = seen.parallelism
            if self._flink.trouble is None:
                return self._later(seen)
            self.trouble = self._flink.trouble
        return self._by_metrics(resource, job_id, now_s)

    def look(self) -> RunningVertices:
        """Look at the running tasks.

        Returns:
            Flink's ids and the number of running tasks, by vertex.

        Raises:
            FlinkError: Neither Flink nor its metrics can be had, or they are of another job.
        """
        job_id = self.job_id
        if self._rest is not None:
            try:
                job = self._rest.job(job_id)
            except FlinkError:
                if self.tasks is None:
                    raise
            else:
                with self._rest.reading():
                    return self._from_flink(job)
        found, resource = self._tasks_of(job_id, self._clock()), self.resource
        return RunningVertices(
            job_id,
            resource.job_state,
            {name: found[name][0] for name in found},
            {name: found[name][1] for name in found},
            resource.job_state == "RUNNING",
        )

    def _from_flink(self, job: JobAnswer) -> RunningVertices:
        names = [vertex.name for vertex in self.spec.vertices]
        found = vertices_of(job, self.spec)
        self._check(found, f"job {job['jid']}")
        return RunningVertices(
            str(job["jid"]),
            str(job["state"]),
            {name: str(found[name]["id"]) for name in names},
            {name: int(found[name]["tasks"].get("RUNNING", 0)) for name in names},
            all_running(job),
        )

    def _by_metrics(self, resource: FlinkResource, job_id: str, now_s: float) -> Observed:
        """What the resource and the series of the tasks show."""
        if resource.job_state != "RUNNING":
            self._run = None
            return self._known(now_s, Status.RESTARTING, resource)
        if self.tasks is None:
            return self._known(now_s, Status.RESTARTING, resource)
        try:
            found = self._tasks_of(job_id, now_s)
            self._check_count(resource, found)
        except FlinkError as error:
            self.trouble = self.trouble or error
            return self._known(now_s, Status.RUNNING, resource)
        self.trouble = None
        self._parallelism = {name: tasks for name, (_, tasks) in found.items()}
        if self._run != (job_id, self._parallelism):
            first = self._run is None and not self._since_s > 0
            began_s = resource.started_s if first else None
            self._since_s = now_s if began_s is None else min(began_s, now_s)
            self._run = (job_id, self._parallelism)
        return self._known(now_s, Status.RUNNING, resource)

    def _check_count(self, resource: FlinkResource, found: Mapping[str, tuple[str, int]]) -> None:
        """Refuse fewer tasks than the resource asks for: they are no other parallelism.

        A TaskManager that is not scraped looks like one that is away.
        """
        asked = {name: resource.effective_overrides.get(i, n) for name, (i, n) in found.items()}
        lacks = [
            f"{found[v][1]} of {n} tasks of {v!r}" for v, n in asked.items() if found[v][1] < n
        ]
        if not lacks:
            return
        if self._run is None:
            self._parallelism = asked
        raise FlinkError(
            f"the metrics of job {resource.job_id} show {', '.join(lacks)}",
            api="prometheus",
            reason="NoMetrics",
            remedy="See that Prometheus scrapes every TaskManager of the job, and that the cluster "
            "has the resources for all tasks that the resource asks for.",
        )

    def _tasks_of(self, job_id: str, now_s: float) -> dict[str, tuple[str, int]]:
        if self.tasks is None:
            raise FlinkError(
                f"the job under '{self.name}' cannot be seen: there is neither Flink's REST "
                "interface nor a Prometheus",
                key="rest_url",
            )
        found = self.tasks.tasks(job_id, now_s - _COUNTED_S, now_s)
        self._check(found, f"the metrics of job {job_id}")
        return found

    def _check(self, found: Mapping[str, object], where: str) -> None:
        missing = [v.name for v in self.spec.vertices if v.name not in found]
        if not found:
            raise FlinkError(
                f"{where}: there are none",
                api="prometheus",
                reason="NoMetrics",
                remedy="Does that Prometheus scrape the TaskManagers of the job?",
            )
        if missing:
            raise FlinkError(
                f"{where}: there is no vertex {missing[0]!r}",
                remedy=f"Name the job file that describes the job; this one is {self.spec.job!r}.",
            )

    def _levels(self, resource: FlinkResource) -> Mapping[str, int]:
        return levels_shown(resource.effective_arguments, self.spec) or self._start_levels

    def _known(
        self, now_s: float, status: Status, resource: FlinkResource | None = None
    ) -> Observed:
        since_s = min(self._since_s, now_s) if self._since_s > 0 else now_s
        levels = self._start_levels if resource is None else self._levels(resource)
        return self._later(Observed(now_s, status, since_s, self._parallelism, levels))

    def _later(self, seen: Observed) -> Observed:
        """The same, with nothing looked at from before the time named."""
        since_s = min(max(seen.running_since_s, self.not_before_s), seen.t_s)
        return replace(seen, running_since_s=since_s)


class KubernetesSamples(PrometheusSamples):
    """Samples of the job of a resource; its tasks are counted, too."""

    def tasks(self, job_id: str, since_s: float, until_s: float) -> dict[str, tuple[str, int]]:
        """Count the subtasks that report.

        Returns:
            Flink's id and the number of subtasks, by vertex of the job file.

        Raises:
            FlinkError: Prometheus does not answer, in time or as it should.
        """
        seen = JobMeasurements(self.url, self.labels.tm_id)
        with self.reading():
            for one in self._of_tasks((job_id,), self.job.names, since_s, until_s, _COUNTED):
                self._add(seen, *one)
            counts = Counter(subtask.task for subtask in seen.reporting(until_s))
        return {
            vertex: (task.id, counts[task])
            for vertex, task in self._tasks(seen.tasks()).items()
            if task in counts
        }

    def advice(self, namespace: str, name: str, since_s: float, until_s: float) -> dict[str, int]:
        """Ask what the operator's own autoscaler recommends.

        Its metrics are named after the vertex and labelled with the resource; under which of two
        label names depends on the operator's release, so both are taken.

        Returns:
            Parallelism by Flink's vertex id.

        Raises:
            FlinkError: Prometheus does not answer, in time or as it should.
        """
        selector = '{__name__=~".*AutoScaler.*_RECOMMENDED_PARALLELISM_Current"}'
        found: dict[str, int] = {}
        with self.reading():
            for series in self._asked(selector, since_s, until_s):
                labels = series["metric"]
                whose = (
                    labels.get("resourcens") or labels.get("namespace"),
                    labels.get("resourcename") or labels.get("name"),
                )
                vertex = re.search(r"_([0-9a-f]{32})_", str(labels["__name__"]))
                value = float(series["values"][-1][1])
                if whose == (namespace, name) and vertex is not None and math.isfinite(value):
                    found[vertex[1]] = int(value)
        return found


class _JobOfId(FlinkJob):
    """A job of a Flink cluster whose id is known from elsewhere."""

    def observe_id(self, job_id: str, now_s: float, levels: Mapping[str, int]) -> Observed:
        """Status and configuration of that job at `now_s`."""
        self.trouble = None
        self._memory_level, self._levels_of = levels, job_id
        try:
            return self._known(now_s, self._look(self._remembered(job_id), now_s))
        except FlinkError as error:
            self.trouble = error
            return self._known(now_s, Status.RESTARTING)
