"""Samples of a job from Flink's REST interface, where no Prometheus runs."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from urllib.parse import quote

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.series import CLOCKS
from dsp_gym.backends.upstream.timed_calls import deadline
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import FLINK_METRICS, SOURCE_METRICS, Metric
from dsp_gym.metrics.samples import Row, Samples, Series, with_source_records

_URL_CHARACTERS = 3000
"""Of the metric names of one request; Flink's server takes a first line of 4096 bytes."""

_LOG = logging.getLogger(__name__)

_PATIENCE = 10
"""How often a poll asks again: Flink's fetch takes tens of milliseconds."""

_OLDEST_S = 30.0
"""Age of an answer beyond which another attempt explains it better."""


@dataclass(eq=False, slots=True)
class _Attempt:
    """An attempt of a subtask, as its clock shows it."""

    clock_s: float  # since it began, at the last poll
    polled_s: float  # Unix seconds

    def goes_on(self, clock_s: float, polled_s: float) -> bool:
        """Whether a clock can be that of the same attempt."""
        went_s = clock_s - self.clock_s
        return went_s >= 0 and polled_s - self.polled_s - went_s < _OLDEST_S


@dataclass(frozen=True, slots=True)
class _Polled:
    """What one poll saw of a subtask."""

    t_s: float  # of the answer, Unix seconds
    attempt: _Attempt | None  # None: its clock is not known
    clock_s: float
    values: list[tuple[Series, float]]


_OF_TASKMANAGERS = tuple(
    name for m in FLINK_METRICS if m.scope == "taskmanager" for name in m.flink
)
_MERGES: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "mean": fmean}


class RestSamples:
    """A sample source that keeps what it saw at each poll; Flink itself keeps no history.

    The JobManager fetches metrics from its TaskManagers when it is asked, but not more often than
    every `metrics.fetcher.update-interval` (Flink: 10 s; less than 5 s is wanted here), and until
    they arrive it answers with those fetched before, however old. So a poll asks again until the
    answer changes, as the task clocks alone make it do. One that does not change is no sample:
    the values of a TaskManager that died end with it.

    Values of one poll were fetched at several moments, up to that interval ago. The clocks of a
    task (its busy, backpressured and idle time together) say when: their distance to the time of
    the poll is least where the answer was freshest.

    Args:
        rest: The cluster's REST interface.
        job: The job.
        spec: Its job file.
        keep_s: How long polls are kept; at least the metrics window.
        clock: Unix seconds now.
        pause_s: How long a poll waits before it asks again for what Flink did not fetch yet.
    """

    folded: Collection[str] = ()

    def __init__(
        self,
        rest: FlinkRest,
        job: FlinkJob,
        spec: JobSpec,
        keep_s: float = 600.0,
        clock: Callable[[], float] = time.time,
        pause_s: float = 0.1,
    ) -> None:
        self._rest, self._job, self._spec, self._clock = rest, job, spec, clock
        self._keep_s, self._pause_s = keep_s, pause_s
        self._polls: deque[tuple[float, list[_Polled]]] = deque()
        self._attempts: dict[tuple[str, int], _Attempt] = {}  # of subtasks
        self._answers: dict[str, dict[str, str]] = {}  # the last, by what was asked
        self._numbers: dict[str, int] = {}  # of TaskManagers
        self._odd: set[tuple[str, str]] = set()  # vertex and metric of values that are no numbers
        self._failure: FlinkError | None = None
        self._patience = 0

    def samples(self, since_s: float, until_s: float) -> Samples:
        """Samples of the polls with since_s < t_s <= until_s.

        Returns:
            The samples, each at the time that its task's clocks show, else at that of its poll,
            Unix seconds.

        Raises:
            FlinkError: The last poll failed.
        """
        if self._failure is not None:
            raise self._failure
        # No sample is younger than its poll. Of a copy: another thread may poll meanwhile.
        polls = self._polls.copy()
        subtasks = [one for t_s, polled in polls if t_s > since_s for one in polled]
        began_s: dict[_Attempt, float] = {}
        for one in subtasks:
            if one.attempt is not None:
                start_s = one.t_s - one.clock_s
                began_s[one.attempt] = min(start_s, began_s.get(one.attempt, math.inf))
        series: dict[Series, tuple[list[float], list[float]]] = {}
        for one in subtasks:
            t_s = one.t_s if one.attempt is None else began_s[one.attempt] + one.clock_s
            if not since_s < t_s <= until_s:
                continue
            for key, value in one.values:
                seen = series.get(key)
                if seen is None:
                    seen = series[key] = ([], [])
                seen[0].append(t_s)
                seen[1].append(value)
        return Samples.of_series(series)

    def poll(self) -> None:
        """Ask for every metric now; the next `samples` raises what failed."""
        now_s = self._clock()
        self._patience = _PATIENCE
        try:
            with self._rest.reading(), deadline(self._rest.timeout_s):
                rows = list(self._ask())
        except FlinkError as error:
            self._failure = error
            self._answers.clear()  # they are old when Flink answers again
            return
        self._failure = None
        series = {(vertex, k, name): ((t_s,), (value,)) for t_s, vertex, k, name, value in rows}
        named = Samples.of_series(with_source_records(series)).rows()
        self._polls.append((self._clock(), list(self._by_subtask(named))))
        while self._polls[0][0] <= now_s - self._keep_s:
            self._polls.popleft()

    def _by_subtask(self, rows: Iterable[Row]) -> Iterator[_Polled]:
        """Give each subtask the clock that its rows show."""
        of_subtask: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            of_subtask.setdefault((row[1], row[2]), []).append(row)
        for subtask, several in of_subtask.items():
            clocks_ms = [value for _, _, _, metric, value in several if metric in CLOCKS]
            attempt, clock_s, t_s = None, sum(clocks_ms) / 1000.0, several[0][0]
            if len(clocks_ms) == len(CLOCKS):
                attempt = self._attempts.get(subtask)
                if attempt is None or not attempt.goes_on(clock_s, t_s):
                    attempt = self._attempts[subtask] = _Attempt(clock_s, t_s)
                attempt.clock_s, attempt.polled_s = clock_s, t_s
            yield _Polled(
                t_s, attempt, clock_s, [((v, k, name), x) for _, v, k, name, x in several]
            )

    def _ask(self) -> Iterator[Row]:
        job_id = self._job.job_id
        hosts = set()
        for vertex, vertex_id in self._job.vertex_ids(job_id).items():
            path = f"/jobs/{job_id}/vertices/{vertex_id}"
            subtasks = self._rest.get(path)["subtasks"]
            hosts |= {s["taskmanager-id"] for s in subtasks}
            # Flink keeps the metrics of subtasks that an earlier attempt had for a while.
            alive = {str(s.get("subtask", k)) for k, s in enumerate(subtasks)}
            wanted = [
                name
                for name in (metric["id"] for metric in self._rest.get(f"{path}/metrics"))
                if name.partition(".")[0] in alive and _metric(name.partition(".")[2]) is not None
            ]
            values = self._fetched(f"{path}/metrics", wanted)
            yield from _rows(self._clock(), vertex, self._numbers_of(vertex, values))
        for host in sorted(hosts):
            number = self._numbers.setdefault(host, len(self._numbers))
            values = self._fetched(f"/taskmanagers/{quote(host)}/metrics", _OF_TASKMANAGERS)
            named = {f"{number}.{name}": value for name, value in values.items()}
            yield from _rows(self._clock(), "", self._numbers_of("", named))

    def _numbers_of(self, vertex: str, values: dict[str, str]) -> dict[str, float]:
        """Values that are numbers and known; of others it is said once which they are."""
        found: dict[str, float] = {}
        for name, value in values.items():
            try:
                number = float(value)
            except (TypeError, ValueError):
                identifier = name.partition(".")[2]
                if (vertex, identifier) not in self._odd:
                    self._odd.add((vertex, identifier))
                    _LOG.warning(
                        "%s: %s%s is %.60r, which is no number: it counts as unknown. Does another "
                        "program answer there, or a proxy that changes values?",
                        self._rest.url,
                        identifier,
                        f" of {vertex!r}" if vertex else "",
                        value,
                    )
                continue
            if not math.isnan(number):
                found[name] = number
        return found

    def _fetched(self, path: str, names: Sequence[str]) -> dict[str, str]:
        """Values by name; none if Flink has no others than those it gave the last time."""
        before = self._answers.get(path)
        while True:
            values: dict[str, str] = {}
            for some in _chunks(names):
                query = ",".join(quote(name, safe="") for name in some)
                values |= {m["id"]: m["value"] for m in self._rest.get(f"{path}?get={query}")}
            self._answers[path] = values
            if before is not None and values != before:
                return values
            if self._patience == 0 or not values:
                return {}
            before = values  # the first answer may be hours old
            self._patience -= 1
            time.sleep(self._pause_s)


@lru_cache(maxsize=4096)
def _metric(identifier: str) -> Metric | None:
    """The metric of an identifier without its subtask."""
    known = (*FLINK_METRICS, *SOURCE_METRICS)
    return next((metric for metric in known if metric.matches(identifier)), None)


def _rows(now_s: float, vertex: str, values: dict[str, float]) -> Iterator[Row]:
    """Rows of what Flink answered, several operators or states of a subtask merged."""
    found: dict[tuple[int, Metric], list[float]] = {}
    for name, number in values.items():
        subtask, _, identifier = name.partition(".")
        metric = _metric(identifier)
        if metric is not None:
            found.setdefault((int(subtask), metric), []).append(number * metric.scale)
    for (number_of, metric), several in found.items():
        yield now_s, vertex, number_of, metric.name, _MERGES[metric.merge](several)


def _chunks(names: Sequence[str]) -> Iterator[list[str]]:
    """The names in parts that fit into the first line of a request."""
    part: list[str] = []
    length = 0
    for name in names:
        size = len(quote(name, safe="")) + 1
        if part and length + size > _URL_CHARACTERS:
            yield part
            part, length = [], 0
        part.append(name)
        length += size
    if part:
        yield part
