"""Fixtures of tests on a real Flink: a small cluster, and a word count too large for one task."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Configuration, Submission, all_running, load_arguments
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.config import RunConfig
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from tests.fakes.flink_operator import FlinkOperator, RealJob
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.flink_resources import deployment

__all__ = [
    "MEASURED",
    "PATIENCE_S",
    "QUICK_DS2",
    "QUICK_TO_RESCALE",
    "QUICK_TO_RESTART",
    "REAL_FLINK",
    "SHORT_LIVED",
    "SMALL_SEGMENT_KIB",
    "WORDS",
    "WORD_COUNT",
    "at_once",
    "cancel_all",
    "children",
    "command",
    "has_jdk",
    "operated",
    "running",
    "short_lived_jvms",
    "signalled",
    "small_cluster",
    "submitting",
    "until",
    "wait_until_it_runs",
    "write_job",
]

PATIENCE_S = 120.0
"""How long a test waits for what takes seconds on a machine at rest."""

QUICK_S = 2
"""Seconds between two decisions of a loop that a test waits for."""

QUICK_DS2 = {"policy": "ds2", "params": {"interval_s": QUICK_S, "warm_up_s": 0}}
"""DS2 that decides at every look; by itself it waits for a minute."""

SMALL_SEGMENT_KIB = 4
"""Of network buffers: a savepoint waits for the records in full ones, else for 15 s."""

QUICK_TO_RESTART = {"checkpoint_interval_s": 2, "restart_delay_s": 1}
"""Settings of a cluster whose TaskManager is killed."""

QUICK_TO_RESCALE = {"scheduler": "adaptive", "checkpoint_interval_s": 2}
"""Settings of a cluster that rescales in place, from the next checkpoint."""


def has_jdk() -> bool:
    """Whether JAVA_HOME, or else the PATH, has the compiler that `make flink-jobs` uses."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=None if home is None else str(Path(home, "bin"))) is not None


REAL_FLINK = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_jdk() and "CI" not in os.environ,
        reason="no JDK: neither JAVA_HOME nor the PATH has a javac",
    ),
]
"""For `pytestmark`. In CI a missing JDK is a failure."""

MEASURED = pytest.mark.flaky(reruns=1)
"""For tests of rates and latencies that a real job shows. Where others use the processor a second
measurement decides; records are counted, and never counted twice to be right."""

WORDS = 10
WORD_COUNT: dict[str, Any] = {
    "job": "words",
    "source": {"rate_per_s": 300},
    "vertices": [
        {"name": "source", "kind": "source", "cpu_us_per_record": 1},
        {
            "name": "flatmap",
            "inputs": [{"from": "source", "ship": "REBALANCE"}],
            "selectivity": WORDS,
            "cpu_us_per_record": 4000,
        },
        {
            "name": "count",
            "kind": "sink",
            "inputs": [{"from": "flatmap", "ship": "HASH"}],
            "cpu_us_per_record": 50,
            "state": {"reads": 1, "writes": 1, "keys": 1000, "value_bytes": 16},
        },
    ],
    "memory": {"base_mib": 8, "levels": 2},
    "max_parallelism_per_vertex": 4,
    "flink": {
        "program": "wordcount",
        "arguments": {"cpu-us": "flatmap=4000,count=50", "words": WORDS, "keys": 1000},
    },
}


SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Environment of a program whose JVMs live for minutes."""


@contextmanager
def short_lived_jvms() -> Iterator[None]:
    """Whatever Java starts leaves C2 out: of a JVM of minutes it takes a third, and saves less.

    Not for tests that measure what a job computes.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LIVED.items():
            patch.setenv(name, value)
        yield


@contextmanager
def small_cluster(home: Path, **settings: Any) -> Iterator[LocalCluster]:
    """Eight slots and a Prometheus, on free ports; ended with the context."""
    chosen = ClusterSettings(
        slots=8, managed_mib=128, task_heap_mib=256, network_mib=64, rest_port=0,
        prometheus_port=0, scrape_interval_s=2, network_segment_kib=SMALL_SEGMENT_KIB, **settings,
    )  # fmt: skip
    with short_lived_jvms():
        cluster = LocalCluster.up(chosen, home)
        try:
            yield cluster
        finally:
            cluster.down()


def write_job(folder: Path, **changes: Any) -> Path:
    """The job file of the word count."""
    path = folder / "words.yaml"
    path.write_text(yaml.safe_dump(WORD_COUNT | changes))
    return path


@contextmanager
def submitting(cluster: LocalCluster, spec: JobSpec, folder: Path) -> Iterator[Callable[..., str]]:
    """Submits a job under a list of rates; with the context, every job is cancelled."""

    def submit(*rates_per_s: float, name: str = "words") -> str:
        load = load_arguments(rates_per_s, folder / "loads", round(time.time() * 1000))
        return Submission.of_spec(spec, load, name).submit(
            cluster.rest, Configuration.of_spec(spec)
        )

    try:
        yield submit
    finally:
        cancel_all(cluster)


def cancel_all(cluster: LocalCluster) -> None:
    """Leaves no job."""
    for job in cluster.rest.jobs():
        if job.state not in ENDED:
            cluster.rest.cancel(job.id)
            cluster.rest.wait_for(job.id, ENDED, PATIENCE_S)


@contextmanager
def operated(cluster: LocalCluster, spec: JobSpec) -> Iterator[FakeKubernetes]:
    """An API server with the deployment `words`, whose operator keeps the job of that name."""
    job = RealJob(cluster.rest, "words", spec)
    vertices = RunningJob.find(cluster.rest, "words", spec).vertex_ids.values()
    with served_kubernetes() as server:
        server.put(deployment("words", vertices=list(vertices)))
        with FlinkOperator(server, "words", job):
            yield server
        job.close()


def running(cluster: LocalCluster, spec: JobSpec, name: str = "words") -> dict[str, int]:
    """Tasks by vertex; zeros where no job has the name or it only begins, as in a rescale."""
    try:
        job = cluster.rest.find_job(name)
        return dict(Submission.of_running(cluster.rest, job.id, spec)[1].parallelism)
    except FlinkError:
        return dict.fromkeys((vertex.name for vertex in spec.vertices), 0)


def wait_until_it_runs(cluster: LocalCluster, name: str = "words") -> None:
    """Waits until the job of that name runs with every subtask, as after a rescale."""

    def runs() -> bool:
        try:
            return all_running(cluster.rest.job(cluster.rest.find_job(name).id))
        except FlinkError:
            return False

    assert wait_until(runs, PATIENCE_S, 0.25), cluster.rest.jobs()


def at_once(config: RunConfig) -> RunConfig:
    """The same with decisions every `QUICK_S`, closer than a user may ask for."""
    return config.model_copy(update={"interval_s": QUICK_S})


def until(run: JobAutoscaler, done: Callable[[], bool], turns: int = 100) -> None:
    """Decide until something holds."""
    for _ in range(turns):
        run.turn()
        if done():
            return
    raise AssertionError(f"did not come about in {turns} decisions")


def command(
    verb: str, document: Mapping[str, Any], folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """`dsp-gym VERB FILE OPTIONS`, from beginning to end."""
    line = _line(verb, document, folder, options)
    return subprocess.run(line, capture_output=True, text=True, timeout=2 * PATIENCE_S)


def signalled(
    verb: str,
    document: Mapping[str, Any],
    folder: Path,
    *options: str,
    name: str,
    at: str,
    and_children: bool = False,
) -> tuple[int, str]:
    """The same, sent a signal when it has printed a line that matches; exit code, what follows.

    With `and_children` its own processes are killed first, as where a machine goes away.
    """
    process = subprocess.Popen(
        _line(verb, document, folder, options), stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    with process, process.stdout:
        for said in process.stdout:
            if re.search(at, said):
                if and_children:
                    found = children(process.pid)
                    assert found
                    for pid in found:
                        os.kill(pid, signal.SIGKILL)
                process.send_signal(signal.Signals[name])
                break
        follows = process.stdout.read()
        return process.wait(PATIENCE_S), follows


def children(pid: int) -> list[int]:
    """Processes that a process has started, and that run."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _line(
    verb: str, document: Mapping[str, Any], folder: Path, options: Iterable[str]
) -> list[str]:
    file = folder / f"{verb}.yaml"
    file.write_text(yaml.safe_dump(dict(document)))
    program = "from dsp_gym.cli import main; main()"
    return [sys.executable, "-c", program, verb, str(file), *options]
