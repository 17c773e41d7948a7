"""A job on a real Flink whose load rises, and the process that scales it, which may crash.

What a run costs is told by the job's own source: a second is late where more work waits than
`LATE_S` of the load, or where the job does not run.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rescale.finishing import BY
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.submission import (
    Configuration,
    Submission,
    all_running,
    load_arguments,
)
from dsp_gym.config.files import parse
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.journal import read
from tests.nemesis.replicas import INTERVAL_S, ROOT, Replica
from tests.real_flink import WORD_COUNT

__all__ = ["Crash", "Fate", "Load", "run"]

QUIET_S, RISEN_S, LONGEST_S = 30, 60, 240
"""When the load rises; for how long a run goes on from there, at least and at most, s."""

SETTLED_S = 20
"""For how long it must be in time then."""

LATE_S = 5.0
LOW_PER_S, PARKED_US = 100, 5000
"""One task of the flatmap carries 200 records a second."""

OLD_S = 3.0
"""Age at which a sample no longer says that the job runs."""

_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """What a job is given after the quiet, and how it is scaled: resubmit or adaptive."""

    per_s: int
    actuator: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A process is killed, and started again.

    Attributes:
        after: of what: `rise` of the load, or the `asked` step of the first rescale.
        delay_s: how long after it.
        lasts_s: for how long none runs.
    """

    after: str
    delay_s: float
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Fate:
    """What came of a run.

    Attributes:
        late_s: seconds since the load rose that were late.
        tasks: of the flatmap at the end.
        steps: how often each step of an actuation is in the journal.
        rests_while_late: decisions that a rest held while the job was late.
        crashed_in: the last step in the journal when the process was killed; none without a crash.
        finished: whether a second process has finished the rescale that was under way.
    """

    late_s: float
    tasks: int
    steps: dict[str, int]
    rests_while_late: int
    crashed_in: str | None
    finished: bool


def job_document(name: str) -> dict[str, Any]:
    """The word count, whose flatmap is parked for so long that it has to grow."""
    costs = f"flatmap={PARKED_US},count=10"
    vertices = [dict(vertex) for vertex in WORD_COUNT["vertices"]]
    vertices[1] |= {"cpu_us_per_record": PARKED_US, "selectivity": 2}
    return WORD_COUNT | {
        "job": name,
        "source": {"rate_per_s": LOW_PER_S},
        "vertices": vertices,
        "slo": {"latency_s": LATE_S},
        "flink": {
            "program": "wordcount",
            "arguments": {"cpu-us": costs, "words": 2, "keys": 1000},
        },
    }


def run(cluster: LocalCluster, folder: Path, name: str, load: Load, crash: Crash | None) -> Fate:
    """Let a job and its autoscaler run until the risen load is carried.

    Args:
        cluster: with an adaptive scheduler, and slots for one more job.
        folder: a new one, for the job file, loads, journal and log.
        name: of the job.
        load: what the job is given.
        crash: of the process; None: it runs on.
    """
    folder.mkdir(parents=True)
    document = job_document(name)
    (folder / "job.yaml").write_text(yaml.safe_dump(document))
    spec = parse(JobSpec, document, name)
    rates = [float(LOW_PER_S)] * QUIET_S + [float(load.per_s)] * (LONGEST_S + 60)
    epoch_s = time.time() + 1
    arguments = load_arguments(rates, folder / "loads", round(epoch_s * 1000))
    Submission.of_spec(spec, arguments, name).submit(cluster.rest, Configuration.of_spec(spec))
    replica = Replica(name, folder / "process", _shadow(cluster, folder, load), name, str(ROOT))
    watched, risen_s = _Watched(cluster, spec), epoch_s + QUIET_S
    crashed_in = None
    try:
        with watched:
            while not _is_over(watched.samples, load.per_s, risen_s):
                replica.tend()
                is_due = crash is not None and crashed_in is None
                if is_due and time.time() >= _moment(crash, replica.journal, risen_s):
                    crashed_in = [("none", 0.0), *_steps(replica.journal)][-1][0]
                    replica.kill(crash.lasts_s)
                time.sleep(_TICK_S)
    finally:
        replica.end()
        cluster.rest.cancel(cluster.rest.find_job(name).id)
    late = _late_seconds(watched.samples, load.per_s, risen_s)
    steps = [entry for entry in read(replica.journal) if entry.kind == "actuation"]
    return Fate(
        float(len(late)),
        watched.tasks,
        dict(Counter(entry.body["event"] for entry in steps)),
        sum(_rests(entry.body) and int(entry.t_s) in late for entry in steps),
        crashed_in,
        any(entry.body.get("by") == BY and entry.body["event"] == "reached" for entry in steps),
    )


class _Watched:
    """The backlog of a job each second, and the tasks of its flatmap; a context manager."""

    def __init__(self, cluster: LocalCluster, spec: JobSpec) -> None:
        self.samples: list[tuple[float, float]] = []
        """Unix seconds, and records that wait then; NaN where the job does not say."""
        self.tasks = 1
        self._rest, self._spec = cluster.rest, spec
        self._source = RestSamples(self._rest, FlinkJob(self._rest, spec.job, spec), spec)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=spec.job)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(1.0):
            now_s = time.time()
            waiting = math.nan
            with contextlib.suppress(FlinkError):
                waiting = self._waiting()
            self.samples.append((now_s, waiting))

    def _waiting(self) -> float:
        job_id = self._rest.find_job(self._spec.job).id
        if not all_running(self._rest.job(job_id)):
            return math.nan
        self.tasks = Submission.of_running(self._rest, job_id, self._spec)[1].parallelism["flatmap"]
        self._source.poll()
        now_s = time.time()
        times, _, waiting = self._source.samples(now_s - OLD_S, now_s).grid(
            "source", "pending_records"
        )
        return float(waiting[-1].sum()) if len(times) else math.nan


def _late_seconds(samples: Sequence[tuple[float, float]], per_s: float, since_s: float) -> set[int]:
    """Unix seconds that were late, the last sample's excepted."""
    late = set[int]()
    for (at_s, waiting), (next_s, _) in itertools.pairwise(samples):
        if at_s >= since_s and not waiting <= LATE_S * per_s:
            late.update(range(int(at_s), int(next_s)))
    return late


def _is_over(samples: Sequence[tuple[float, float]], per_s: float, risen_s: float) -> bool:
    """Whether the job has been in time for long enough, or will not be."""
    now_s = time.time()
    if now_s < risen_s + RISEN_S:
        return False
    late = _late_seconds(samples, per_s, risen_s)
    return now_s > risen_s + LONGEST_S or not late or max(late) < now_s - SETTLED_S


def _moment(crash: Crash, journal: Path, risen_s: float) -> float:
    """When a process is to crash, Unix seconds; infinite where that is not known yet."""
    if crash.after == "rise":
        return risen_s + crash.delay_s
    asked = [at_s for event, at_s in _steps(journal) if event == "asked"]
    return asked[0] + crash.delay_s if asked else math.inf


def _steps(journal: Path) -> list[tuple[str, float]]:
    """Steps of a rescale so far, and when."""
    if not any(journal.glob("*.jsonl")):
        return []
    steps = [entry for entry in read(journal) if entry.kind == "actuation"]
    return [
        (e.body["event"], e.t_s) for e in steps if e.body["event"] not in ("decided", "started")
    ]


def _rests(body: Mapping[str, Any]) -> bool:
    return str(body.get("held") or "").startswith("a change was rolled back")


def _shadow(cluster: LocalCluster, folder: Path, load: Load) -> dict[str, Any]:
    return {
        "job": str(folder / "job.yaml"),
        "where": {
            "rest_url": cluster.rest_url,
            "prometheus_url": cluster.prometheus_url,
            "savepoints": str(cluster.savepoints),
            "actuator": load.actuator,
            "timeout_s": 5,
        },
        "policy": {"policy": "ds2", "params": {"interval_s": INTERVAL_S, "warm_up_s": 0}},
        "interval_s": 5,
        "window": {"window_s": 10, "stabilization_s": 5},
    }
