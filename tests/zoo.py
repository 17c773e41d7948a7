"""Jobs of the kinds that people run, on one real Flink that six Prometheus servers scrape.

The jobs write down what they really do; flink-jobs/README.md lists them. Each of the servers has
another relabelling.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dsp_gym.backends.flink.local import cluster as local_cluster
from dsp_gym.backends.flink.local import processes
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.distribution import (
    FlinkLibraries,
    find_java,
    find_libraries,
    find_prometheus,
)
from dsp_gym.backends.flink.local.launch import Home
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.local.prometheus_server import is_ready, prometheus_command
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.submission import all_running, runs_whole
from tests.real_flink import PATIENCE_S, short_lived_jvms

ROOT = Path(__file__).resolve().parents[1] / "flink-jobs"

SCRAPE_S = 5.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Which of the counts of its operators are a vertex's; `OPERATOR.in` is a count."""

    reads: tuple[str, ...]
    gives: tuple[str, ...]
    works: tuple[str, ...]  # operators whose costs it pays
    name: str = ""  # in Flink, of a vertex whose operators do not know that they are in it

    @classmethod
    def of(cls, *operators: str, name: str = "") -> Chain:
        """Operators of which the first reads and the last gives."""
        return cls((f"{operators[0]}.in",), (f"{operators[-1]}.out",), operators, name)


KINDS: Mapping[str, tuple[Chain, ...]] = {
    "chained-filter": (Chain.of("read", "keep"),),
    "chained-flatmap": (Chain.of("read", "split"),),
    "join": (),
    "union": (),
    "bounded": (),
    "file-sink": (Chain.of("files: Writer", name="files: Writer"),),
    "same-names": (),
    "unicode": (),
    "side-output": (),
    "broadcast": (),
    "async": (),
    "window": (Chain(("window.in", "late.in"), ("window.out", "late.in"), ("window",), "window"),),
    "partitioners": (),
    "no-checkpoints": (),
    "failing": (),
    "sql": (),
    "legacy": (Chain.of("read", "map"),),
}
"""The kinds of jobs, and their vertices of several operators or of such as do not know theirs."""

OFFERED = {
    "chained-filter": 1000.0,
    "chained-flatmap": 3.2,
    "join": 12.8,
    "union": 9.6,
    "broadcast": 9.6,
    "partitioners": 16.0,
} | dict.fromkeys(("file-sink", "same-names", "unicode", "side-output", "async", "window"), 8.0)
"""Records/s that arrive at the sources of a kind, as Zoo.java says; it may read fewer, or catch up.

Of the others the arrivals are what they read: they read lists, or keep restarting.
"""

LEGACY, FAILING = "legacy", "failing"
"""The kind that Flink 2 has no more, and the one that is often restarting."""

OLD_SOURCES = ("sql", LEGACY)
"""Kinds whose source keeps Flink's first interface: it has no busy time, so no true rate."""

RENAMED = {
    "job_name": "flink_job",
    "job_id": "flink_job_id",
    "task_name": "vertex",
    "task_id": "vertex_id",
    "subtask_index": "subtask",
    "task_attempt_num": "attempt",
    "operator_name": "operator",
    "operator_id": "uid",
    "tm_id": "pod",
}
"""Labels of a Prometheus that follows the names of its house."""

DROPPED = ("task_attempt_num", "task_attempt_id", "tm_id", "host")
"""Labels that are dropped where series must be few."""


@dataclass(frozen=True, slots=True)
class Scraping:
    """How one Prometheus scrapes the cluster, and what its user must say of it."""

    jobs: tuple[str, ...] = ("flink",)
    replicas: tuple[str, ...] = ("",)
    relabel: tuple[Mapping[str, str], ...] = ()
    labels: str = ""

    def config(self, targets: Sequence[str]) -> str:
        """The text of its `prometheus.yml`."""
        groups = [
            {"targets": list(targets), "labels": {"replica": one} if one else {}}
            for one in self.replicas
        ]
        scrapes = [
            {
                "job_name": job,
                "static_configs": groups,
                "metric_relabel_configs": [dict(one) for one in self.relabel],
            }
            for job in self.jobs
        ]
        return scrape_config(scrapes)


def scrape_config(scrapes: Sequence[Mapping[str, object]]) -> str:
    """The text of a `prometheus.yml`."""
    times = {"scrape_interval": f"{SCRAPE_S:g}s", "scrape_timeout": f"{SCRAPE_S - 1:g}s"}
    return yaml.safe_dump({"global": times, "scrape_configs": [dict(one) for one in scrapes]})


SCRAPINGS: Mapping[str, Scraping] = {
    "clean": Scraping(),
    "doubled": Scraping(replicas=("a", "b")),
    "scraped-twice": Scraping(jobs=("flink", "pods")),
    "renamed": Scraping(
        relabel=(
            *(
                {"action": "labelmap", "regex": one, "replacement": other}
                for one, other in RENAMED.items()
            ),
            {"action": "labeldrop", "regex": "|".join(RENAMED)},
        ),
        labels=",".join(f"{one}={other}" for one, other in RENAMED.items()),
    ),
    "dropped": Scraping(relabel=({"action": "labeldrop", "regex": "|".join(DROPPED)},)),
    "one-id": Scraping(
        relabel=(
            {
                "action": "replace",
                "source_labels": ["job_id"],
                "regex": ".+",
                "target_label": "job_id",
                "replacement": "0" * 32,
            },
        ),
        labels="job_id=",
    ),
}

REST = "rest"
READERS = (REST, *SCRAPINGS)
"""All ways to look."""


# What the jobs did.


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one operator in one attempt of one subtask."""

    vertex_id: str
    operator: str
    times: np.ndarray  # Unix seconds
    columns: Mapping[str, np.ndarray]  # records in and out, seconds of work and of late waking

    def rise(self, column: str, since_s: float, until_s: float) -> float:
        """How much a count rose; nothing before the first row and after the last."""
        low, high = np.interp((since_s, until_s), self.times, self.columns[column])
        return float(high - low)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the operators of one job wrote down."""

    chains: Sequence[Chain]
    counts: Sequence[Counts]

    @classmethod
    def read(cls, kind: str, folder: Path) -> Truth:
        """The truth of a job as far as it was written."""
        files = (file for file in sorted(folder.glob("*.tsv")) if file.stat().st_size)
        return cls(KINDS[kind], [_counts(file) for file in files])

    def chain_of(self, vertex_id: str, task_name: str) -> Chain | None:
        """Which counts are a vertex's; None: its operators wrote nothing."""
        inside = {one.operator for one in self.counts if one.vertex_id == vertex_id}
        for one in self.chains:
            if inside & set(one.works) or one.name == task_name:
                return one
        assert len(inside) < 2, f"{sorted(inside)} are in one vertex: list their order in KINDS"
        return Chain.of(*inside) if inside else None

    def began_s(self) -> float:
        """When the last attempt of any operator began, Unix seconds."""
        return max(float(one.times[0]) for one in self.counts)

    def rises(self, vertex_id: str, counts: Sequence[str], since_s: float, until_s: float) -> float:
        """How much counts of a vertex rose together."""
        names = [one.rpartition(".") for one in counts]
        return sum(
            one.rise(column, since_s, until_s)
            for one in self.counts
            for operator, _, column in names
            if one.operator == operator and self._is_of(one, vertex_id, operator)
        )

    def _is_of(self, one: Counts, vertex_id: str, operator: str) -> bool:
        """Operators of one name are told apart by their vertex, those without one by their name."""
        homes = {other.vertex_id for other in self.counts if other.operator == operator}
        return one.vertex_id == vertex_id or vertex_id not in homes


_TAIL_BYTES = 65_536
"""Of a file of counts, at the end: more than two minutes."""


def _counts(file: Path) -> Counts:
    with file.open("rb") as written:
        before = max(0, file.stat().st_size - _TAIL_BYTES)
        written.seek(before)
        lines = written.read().decode("utf-8", errors="ignore").splitlines()
    rows = [line.split("\t") for line in lines[1 if before else 0 :]]
    rows = [row for row in rows if len(row) == 9 and row[8]]  # the last may be half written
    times, into, out, cost, late = (
        np.array([float(row[column]) for row in rows]) for column in (0, 5, 6, 7, 8)
    )
    columns = {"in": into, "out": out, "cost": cost / 1e6, "late": late / 1e6}
    return Counts(rows[0][1], rows[0][2], times / 1000.0, columns)


# The cluster and its jobs.


@dataclass(slots=True)
class Zoo:
    """A cluster with one job of each kind."""

    cluster: LocalCluster
    folder: Path
    jobs: Mapping[str, str]  # id by kind
    urls: Mapping[str, str]  # of the Prometheus servers, by way to scrape

    def truth(self, kind: str) -> Truth:
        """What a job has written down by now."""
        return Truth.read(kind, self.folder / kind)


@contextmanager
def open_zoo(
    folder: Path, libraries: FlinkLibraries | None = None, kinds: Iterable[str] = KINDS
) -> Iterator[Zoo]:
    """Start a cluster, the servers that scrape it and all jobs; ended with the context.

    Args:
        folder: for everything.
        libraries: the Flink; None: the one that is installed.
        kinds: the jobs.
    """
    flink = libraries or find_libraries()
    is_legacy = flink.version.startswith("1.")
    wanted = [kind for kind in kinds if kind != LEGACY or is_legacy]
    settings = ClusterSettings(
        scheduler="adaptive", slots=48, managed_mib=384, task_heap_mib=512, network_mib=96,
        network_segment_kib=4, rest_port=0, prometheus=False, metric_fetch_s=2, restart_delay_s=1,
        restart_attempts=1000, checkpoint_interval_s=5,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(short_lived_jvms())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(local_cluster, "find_libraries", lambda: flink)
        if is_legacy:
            patch.setattr(Home, "write", _with_old_options(Home.write))
        jar = compiled(flink, folder / "zoo.jar", legacy=is_legacy)
        cluster = LocalCluster.up(settings, folder / "cluster")
        stack.callback(cluster.down)
        urls = stack.enter_context(scraping(cluster, folder / "prometheus"))
        jar_id = cluster.rest.upload_jar(jar)

        def submit(kind: str) -> str:
            (folder / kind).mkdir()
            arguments = [kind, str(folder / kind)]
            return cluster.rest.run_jar(jar_id, "dspgym.flink.Zoo", arguments)

        with ThreadPoolExecutor(3) as pool:
            jobs = dict(zip(wanted, pool.map(submit, wanted), strict=True))
        yield Zoo(cluster, folder, jobs, urls)


def compiled(flink: FlinkLibraries, jar: Path, *, legacy: bool) -> Path:
    """Compile the jobs against a Flink's own libraries."""
    classes = jar.with_suffix("")
    folders = ["zoo", "zoo-legacy"] if legacy else ["zoo"]
    sources = [str(file) for one in folders for file in sorted((ROOT / one).rglob("*.java"))]
    beside = find_java().path.with_name("javac")
    command = [
        str(beside) if beside.exists() else "javac",
        *("-J-XX:TieredStopAtLevel=1", "--release", "17", "-proc:none"),
        *("-Xlint:all,-path", "-Werror", "-d", str(classes), "-cp", flink.class_path),
        *("-sourcepath", str(ROOT / "src"), *sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(jar, "w") as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.write(file, file.relative_to(classes))
    return jar


_COUNTED_IN_MS = (
    "heartbeat.interval",
    "metrics.fetcher.update-interval",
    "slot.request.timeout",
    "web.refresh-interval",
)
"""Options that take a number of milliseconds in Flink 1.18, and are read as such to this day."""


def _with_old_options(write: Callable[..., None]) -> Callable[..., None]:
    """Options as Flink 1.x takes them; 1.18 reads another file, in which quotes are of a value."""

    def written(home: Home, *arguments: Any) -> None:
        write(home, *arguments)
        file = home.conf / "config.yaml"
        options = yaml.safe_load(file.read_text(encoding="utf-8"))
        for name in _COUNTED_IN_MS:
            number, unit = options[name].split()
            options[name] = int(number) * {"ms": 1, "s": 1000}[unit]
        file.write_text(yaml.safe_dump(options), encoding="utf-8")
        flat = "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items())
        (home.conf / "flink-conf.yaml").write_text(flat.replace('"', ""), encoding="utf-8")

    return written


def scraping(cluster: LocalCluster, folder: Path) -> AbstractContextManager[dict[str, str]]:
    """A Prometheus for each way to scrape; address by way."""
    targets = targets_of(cluster)
    return prometheus_servers({one: way.config(targets) for one, way in SCRAPINGS.items()}, folder)


def targets_of(cluster: LocalCluster) -> list[str]:
    """What a Prometheus scrapes."""
    ports = cluster.ports
    return [f"127.0.0.1:{port}" for port in (ports.jobmanager_reporter, ports.taskmanager_reporter)]


@contextmanager
def prometheus_servers(configs: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """Servers by name, each with its `prometheus.yml`; their addresses."""
    urls = {}
    with ExitStack() as stack:
        ports = processes.free_ports(len(configs))
        for (name, config), port in zip(configs.items(), ports, strict=True):
            home = folder / name
            home.mkdir(parents=True)
            (home / "prometheus.yml").write_text(config, encoding="utf-8")
            command = prometheus_command(
                find_prometheus(), config=home / "prometheus.yml", storage=home / "data",
                port=port, retention_days=1,
            )  # fmt: skip
            process = processes.start(
                command, file=home / "pid.json", output=home / "log", environment={}
            )
            stack.callback(process.stop)
            urls[name] = f"http://127.0.0.1:{port}"
        for url in urls.values():
            assert wait_until(lambda url=url: is_ready(url), PATIENCE_S), url
        yield urls


# Applications: clusters of one job, whose id is zeros.


ZEROS = "0" * 32
"""The id of every job in application mode with high availability."""

APPLICATION = "chained-filter"
"""The kind of job that two clusters run under names of their own."""


@contextmanager
def open_applications(folder: Path) -> Iterator[tuple[dict[str, Zoo], dict[str, str]]]:
    """Start two clusters with one job each, and two servers that scrape both.

    Args:
        folder: for everything.

    Yields:
        The clusters by name of their job, which is the label `cluster` too; and the addresses of
        the servers: `two-names` keeps the names of the jobs, `one-name` gives both the same.
    """
    settings = ClusterSettings(
        scheduler="adaptive", slots=2, managed_mib=64, task_heap_mib=128, network_mib=32,
        network_segment_kib=4, rest_port=0, prometheus=False, metric_fetch_s=2,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(short_lived_jvms())
        jar = compiled(find_libraries(), folder / "zoo.jar", legacy=False)
        clusters: dict[str, LocalCluster] = {}
        for name in ("eu", "us"):
            clusters[name] = LocalCluster.up(settings, folder / name / "cluster")
            stack.callback(clusters[name].down)
        groups = [
            {"targets": targets_of(cluster), "labels": {"cluster": name}}
            for name, cluster in clusters.items()
        ]
        flink = {"job_name": "flink", "static_configs": groups}
        renamed = {"source_labels": ["job_id"], "regex": "0+", "target_label": "job_name"}
        renames = {"metric_relabel_configs": [{**renamed, "replacement": "orders"}]}
        configs = {
            "two-names": scrape_config([flink]),
            "one-name": scrape_config([flink | renames]),
        }
        urls = stack.enter_context(prometheus_servers(configs, folder / "prometheus"))
        zoos = {}
        for name, cluster in clusters.items():
            (folder / name / APPLICATION).mkdir()
            arguments = [APPLICATION, str(folder / name / APPLICATION), "--name", name]
            jar_id = cluster.rest.upload_jar(jar)
            job_id = cluster.rest.run_jar(jar_id, "dspgym.flink.Zoo", arguments, job_id=ZEROS)
            zoos[name] = Zoo(cluster, folder / name, {APPLICATION: job_id}, urls)
        yield zoos, urls


def wait_until_all_run(zoo: Zoo, kinds: Iterable[str] | None = None) -> None:
    """Wait until every subtask of jobs runs, as after the submission or a rescale."""
    for kind in zoo.jobs if kinds is None else kinds:
        runs = partial(runs_whole, zoo.cluster.rest, zoo.jobs[kind])
        assert wait_until(runs, PATIENCE_S, 0.5), kind


def rescale(zoo: Zoo, kind: str, more: int) -> None:
    """Change the parallelism of every vertex of a job in place."""
    rest, job_id = zoo.cluster.rest, zoo.jobs[kind]
    before = {str(one["id"]): one["parallelism"] for one in rest.job(job_id)["vertices"]}
    wanted = {one: tasks + more for one, tasks in before.items()}
    bounds = {one: {"parallelism": {"lowerBound": 1, "upperBound": n}} for one, n in wanted.items()}
    rest.set_resource_requirements(job_id, bounds)

    def arrived() -> bool:
        job = rest.job(job_id)
        now = {str(one["id"]): one["parallelism"] for one in job["vertices"]}
        return now == wanted and all_running(job)

    assert wait_until(arrived, PATIENCE_S, 0.5), kind
