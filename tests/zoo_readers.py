"""The ways to look at the jobs of the zoo, and how far what is read is off what the jobs did."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dsp_gym.backends.discovery.document import Choices, job_file
from dsp_gym.backends.discovery.flink import found_by_rest
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.backends.discovery.prometheus import found_by_prometheus
from dsp_gym.backends.flink.answers import JobAnswer
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import JobSnapshot, Status
from dsp_gym.metrics.flink import cleaned
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.studies.validation.releases import TRUE_RATE
from tests.zoo import FAILING, OFFERED, OLD_SOURCES, READERS, REST, SCRAPINGS, Truth, Zoo


class SharedRest(FlinkRest):
    """What Flink says of one job, asked once for all who look at it at one moment."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers: dict[str, Any] = {}

    def get(self, path: str) -> Any:
        answer = self.answers.get(path)
        if answer is None:
            answer = self.answers[path] = super().get(path)
        return answer


@dataclass(slots=True)
class Look:
    """One way to look at one job."""

    kind: str
    reader: str
    found: FoundJob
    spec: JobSpec
    source: RestSamples | PrometheusSamples
    collector: FlinkCollector

    def compared(
        self, vertex: str, metric: str, seen: float | None, truth: float, error: float, most: float
    ) -> Difference:
        """A number that was read this way."""
        return Difference(self.kind, self.reader, vertex, metric, seen, truth, error, most)


@dataclass(frozen=True, slots=True)
class Difference:
    """One number that was read, and how far it is off."""

    kind: str
    reader: str
    vertex: str
    metric: str
    seen: float | None
    truth: float
    error: float  # relative, without what is in a window or not by less than a second
    most: float

    @property
    def is_wrong(self) -> bool:
        """Whether it is off by more than the bar."""
        return self.error > self.most

    @property
    def what(self) -> tuple[str, str, str, str]:
        """Which number it is."""
        return self.kind, self.reader, self.vertex, self.metric

    def __str__(self) -> str:
        seen = "nothing" if self.seen is None else f"{self.seen:.4g}"
        return (
            f"{self.kind}, {self.reader}: {self.metric} of {self.vertex!r} is {seen}, "
            f"not {self.truth:.4g}"
        )


@dataclass(slots=True)
class Watched:
    """All looks at a zoo. What keeps no history is sampled every 5 s within the context."""

    zoo: Zoo
    window: WindowConfig
    most_off_true: float = 0.05
    looks: list[Look] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """Why jobs could not be found or looked at."""
    errors: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Relative error of every number that was compared, and its bar; by metric."""
    _shared: dict[str, SharedRest] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)
    _poller: threading.Thread | None = None

    def __enter__(self) -> Watched:
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        assert self._poller is not None
        self._poller.join()

    def _poll(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            while not self._ends.is_set():
                began = time.monotonic()
                polled = [look.source for look in self.looks if look.reader == REST]
                list(pool.map(lambda source: source.poll(), polled))
                self._ends.wait(max(0.0, began + SAMPLE_S - time.monotonic()))

    def discover(self, readers: Iterable[str]) -> None:
        """Find every job in some ways, and look at it by the job files that are written."""
        with ThreadPoolExecutor(4) as pool:
            for reader in readers:
                for _ in range(TRIES):
                    found = list(pool.map(self._look, self._found(reader)))
                    troubles = [look for look in found if isinstance(look, str)]
                    if not any(trouble.startswith(f"{FAILING}, ") for trouble in troubles):
                        break
                    time.sleep(AGAIN_S)
                self.looks += [look for look in found if isinstance(look, Look)]
                self.troubles += troubles

    def _found(self, reader: str) -> Iterator[tuple[str, str, FoundJob | str]]:
        """Kind, reader, and the job or its id."""
        if reader == REST:
            yield from ((kind, reader, job_id) for kind, job_id in self.zoo.jobs.items())
            return
        labels = Labels.parse(SCRAPINGS[reader].labels)
        at_once = HistoryOptions(queries_per_s=1000)
        source = PatientSamples(self.zoo.urls[reader], None, at_once, labels)
        kinds = {cleaned(kind): kind for kind in self.zoo.jobs}
        for one in found_by_prometheus(source, time.time()):
            yield kinds[one.name], reader, one

    def _look(self, found: tuple[str, str, FoundJob | str]) -> Look | str:
        """A way to look; or why there is none."""
        kind, reader, one = found
        rest = FlinkRest(self.zoo.cluster.rest_url)
        try:
            job = found_by_rest(rest, one) if isinstance(one, str) else one
            spec = job_file(job, kind, Choices(), time.time()).spec
        except FlinkError as error:
            return f"{kind}, {reader}: {error}"
        shared = self._shared.setdefault(kind, SharedRest(rest.url))
        followed = FlinkJob(shared, kind, spec)
        source = (
            RestSamples(rest, followed, spec)
            if reader == REST
            else PrometheusSamples(
                self.zoo.urls[reader],
                followed,
                spec,
                labels=Labels.parse(SCRAPINGS[reader].labels),
            )
        )
        collector = FlinkCollector(spec, followed, source, self.window)
        return Look(kind, reader, job, spec, source, collector)

    def discovered(self) -> list[Difference]:
        """Find every job again, and compare the rates in the job files with what it did."""
        began = [self.zoo.truth(kind).began_s() for kind in self.zoo.jobs if kind != FAILING]
        time.sleep(max(0.0, max(began) + AVERAGED_S + CATCH_UP_S - time.time()))
        found: list[Difference] = []
        with ThreadPoolExecutor(4) as pool:
            for reader in READERS:
                for look in pool.map(self._look, self._found(reader)):
                    assert isinstance(look, Look), look
                    found += self._rates_compared(look)
        return [one for one in found if one.is_wrong]

    def _rates_compared(self, look: Look) -> Iterator[Difference]:
        truth, until_s = self.zoo.truth(look.kind), time.time() - 1.0
        since_s = until_s - FOUND_S
        if truth.began_s() > since_s:
            return  # it has just restarted, and reads what it owes
        read = 0.0
        for vertex in look.found.vertices:
            chain = truth.chain_of(vertex.id, vertex.task_name) if not vertex.inputs else None
            if chain is not None:
                read += truth.rises(vertex.id, chain.reads, since_s, until_s)
        true_per_s = read / FOUND_S
        if look.reader != REST:  # history shows how pending records grow, or are caught up with
            true_per_s = OFFERED.get(look.kind, true_per_s)
        rate_per_s = look.spec.source.rate_per_s
        error = _error(rate_per_s, true_per_s, true_per_s, 0.0)
        yield look.compared("", "source rate", rate_per_s, true_per_s, error, MOST_OFF_FOUND)

    def differences(self, kinds: Iterable[str] | None = None) -> list[Difference]:
        """Look at jobs in every way (default: at all), and compare with what they did meanwhile."""
        with ThreadPoolExecutor(4) as pool:
            compared = list(pool.map(self._compared, self.zoo.jobs if kinds is None else kinds))
        found = [one for of_job in compared for one in of_job]
        for one in found:
            self.errors[one.metric].append((one.error, one.most))
        return [one for one in found if one.is_wrong]

    def _compared(self, kind: str) -> list[Difference]:
        taken = []
        for look in self.looks:
            if look.kind == kind:
                if kind == FAILING or not taken:  # it may restart between two looks
                    self._shared[kind].answers.clear()
                now_s = time.time()
                taken.append((look, now_s, look.collector.look(now_s)))
        job = self.zoo.cluster.rest.job(self.zoo.jobs[kind])
        truth = self.zoo.truth(kind)
        found: list[Difference] = []
        for look, now_s, (snapshot, samples, _) in taken:
            seen = snapshot.job(0)
            if seen.status == Status.RESTARTING and kind == FAILING:
                continue
            if seen.status not in (Status.RUNNING, Status.SAVEPOINTING):
                status = float(seen.status)
                found.append(look.compared("", "status", status, 0.0, math.inf, 0.0))
                continue
            since_s = max(
                now_s - self.window.window_s,
                seen.get("running_since_s") + self.window.stabilization_s,
            )
            if now_s - since_s < 4 * SAMPLE_S:
                continue  # it has just restarted
            if look.collector.trouble is not None:
                self.troubles.append(f"{kind}, {look.reader}: {look.collector.trouble}")
            recent = samples.between(since_s - SAMPLE_S, now_s)
            found += compared(look, seen, recent, truth, job, self.most_off_true)
        return found


TRIES, AGAIN_S = 3, 10.0
"""How often jobs are looked for while one of them is in the middle of a restart."""

FOUND_S, MOST_OFF_FOUND = 30.0, 0.1
"""Of the rates in job files: seconds of truth, and the relative error."""

AVERAGED_S, CATCH_UP_S = 60.0, 15.0
"""Seconds over which Flink averages, and those in which a source that starts reads what it owes."""

MOST_OFF = 0.03
"""Relative error of rates and selectivities."""

MOST_AT_EDGES = 4
"""Records that are in a window or not by less than a second."""

IN_WORK = 2
"""Records that are paid for in part, one at each end of a window."""


def compared(
    look: Look,
    snapshot: JobSnapshot,
    recent: Samples,
    truth: Truth,
    job: JobAnswer,
    most_off_true: float,
) -> Iterator[Difference]:
    """What was read of a job beside what it did."""
    tasks = {one.id: one for one in look.found.vertices}
    running = {str(one["id"]): one["parallelism"] for one in job["vertices"]}
    ended = {str(one["id"]) for one in job["vertices"] if one["tasks"].get("FINISHED")}
    for vertex in look.spec.vertices:
        task = tasks[vertex.vertex_id or ""]
        seen = {
            name: snapshot.vertex(vertex.name, name)
            for name in ("records_in_per_s", "records_out_per_s", "busy_accumulated_ms_per_s")
        }
        read_per_s, busy = seen["records_in_per_s"], seen["busy_accumulated_ms_per_s"]
        times, subtasks, _ = recent.grid(vertex.name, "records_out_total")
        counted = [] if task.id in ended else [float(len(subtasks))]  # what has ended reports none
        for tasks_seen in (snapshot.vertex(vertex.name, "parallelism"), *counted):
            right = float(running[task.id])
            error = math.inf if tasks_seen is None else abs(tasks_seen - right) / right
            yield look.compared(vertex.name, "parallelism", tasks_seen, right, error, 0.0)
        chain = truth.chain_of(task.id, task.task_name)
        if chain is None or len(times) < 2:
            continue
        span = float(times[0]), float(times[-1])
        read = truth.rises(task.id, chain.reads, *span)
        gave = truth.rises(task.id, chain.gives, *span)
        cost_s, late_s = (
            truth.rises(task.id, [f"{one}.{column}" for one in chain.works], *span)
            for column in ("cost", "late")
        )
        per_s = read / (span[1] - span[0])
        edge = MOST_AT_EDGES / read if read else 0.0
        known = [("records/s", read_per_s, per_s, per_s, MOST_OFF, edge)]
        if gave > 0:
            out_per_s = seen["records_out_per_s"]
            selectivity = out_per_s / read_per_s if read_per_s and out_per_s is not None else None
            true = gave / read
            known.append(("selectivity", selectivity, true, true, MOST_OFF, MOST_AT_EDGES / gave))
        if cost_s > 0 and not (look.kind in OLD_SOURCES and vertex.kind == "source"):
            true_rate = read_per_s / (busy / 1000.0) if read_per_s and busy else None
            # A task that is woken late for a record is busy for Flink, as late as its parks are.
            slowest, right = read / (cost_s + late_s), read / cost_s
            known.append((TRUE_RATE, true_rate, slowest, right, most_off_true, IN_WORK / read))
        for metric, number, least, right, most, at_edges in known:
            error = _error(number, least, right, at_edges)
            yield look.compared(vertex.name, metric, number, right, error, most)


def _error(number: float | None, least: float, most: float, at_edges: float) -> float:
    """How far a number is out of bounds, relative to the bound that it passes."""
    if number is None or math.isnan(number):
        return math.inf
    bound = min(max(number, least), most)
    if number == bound:
        return 0.0
    return max(0.0, abs(number - bound) / bound - at_edges) if bound else math.inf
