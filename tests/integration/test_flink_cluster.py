"""A real Flink and a real Prometheus, started, broken and healed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsp_gym.backends.flink import submission as submission_module
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.processes import Process, wait_until
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.submission import Configuration, Submission, unready
from dsp_gym.errors import FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from tests.real_flink import PATIENCE_S, REAL_FLINK, short_lived_jvms

pytestmark = REAL_FLINK

SETTINGS = ClusterSettings(
    slots=6,
    managed_mib=384,
    task_heap_mib=256,
    network_mib=64,
    rest_port=0,
    prometheus_port=0,
    scrape_interval_s=1,
    checkpoint_interval_s=1,
    restart_delay_s=2,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    home = tmp_path_factory.mktemp("flink")
    with short_lived_jvms():
        started = LocalCluster.up(SETTINGS, home)
        yield started
        started.down()


@pytest.fixture(scope="module")
def spec() -> JobSpec:
    """Word count with little memory."""
    shipped = load_job("flink-wordcount")
    memory = shipped.memory.model_copy(update={"base_mib": 32, "start_level": 0})
    return shipped.model_copy(update={"memory": memory})


@pytest.fixture
def counting(cluster: LocalCluster, spec: JobSpec) -> Iterator[tuple[str, Configuration]]:
    """A running job: its id and configuration."""
    configuration = Configuration(
        {vertex.name: 1 for vertex in spec.vertices},
        {vertex.name: 0 if vertex.state else -1 for vertex in spec.vertices},
    )
    job_id = of(spec, "counting").submit(cluster.rest, configuration)
    yield job_id, configuration
    cluster.rest.cancel(job_id)
    assert cluster.rest.wait_for(job_id, {"CANCELED"}, PATIENCE_S) == "CANCELED"


def of(spec: JobSpec, name: str) -> Submission:
    arguments = {"rate": "200", "epoch-ms": str(int(time.time() * 1000)), "seed": "0"}
    return Submission.of_spec(spec, arguments, name)


def pids(cluster: LocalCluster) -> list[int | None]:
    return [cluster.pid(part) for part in cluster.parts]


def query(cluster: LocalCluster, promql: str) -> list[float]:
    url = f"{cluster.prometheus_url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]


@pytest.mark.validate
def test_a_second_up_is_the_same_cluster(cluster: LocalCluster) -> None:
    before = pids(cluster)
    assert None not in before
    assert pids(LocalCluster.up(None, cluster.home.folder)) == before
    seen = cluster.status()
    assert seen.healthy
    assert (seen.slots_total, seen.slots_available, seen.jobs_running) == (6, 6, 0)
    assert str(seen.flink_version).startswith("2.1.")


def test_prometheus_scrapes_both_processes(cluster: LocalCluster) -> None:
    assert wait_until(lambda: query(cluster, 'up{job="flink"}') == [1.0, 1.0], PATIENCE_S, 0.5)


def test_a_job_shows_what_it_was_submitted_with(
    cluster: LocalCluster, spec: JobSpec, counting: tuple[str, Configuration]
) -> None:
    job_id, configuration = counting
    assert cluster.rest.find_job("counting").id == job_id
    found, running = Submission.of_running(cluster.rest, job_id, spec)
    assert running == configuration
    assert found.program_arguments(running)[:4] == ["--program", "wordcount", "--job-name",
                                                    "counting"]  # fmt: skip
    assert found.arguments["rate"] == "200"
    records = "flink_taskmanager_job_task_numRecordsIn"
    assert wait_until(lambda: sum(query(cluster, records)) > 0, PATIENCE_S, 0.5)


def test_the_same_jar_is_uploaded_once(cluster: LocalCluster, spec: JobSpec) -> None:
    jar = of(spec, "any").jar()
    assert cluster.rest.upload_jar(jar) == cluster.rest.upload_jar(jar)
    assert len(cluster.rest.get("/jars")["files"]) == 1


def test_a_job_stopped_with_a_savepoint_goes_on_from_it(
    cluster: LocalCluster, spec: JobSpec
) -> None:
    rest = cluster.rest
    one = Configuration({v.name: 1 for v in spec.vertices}, {v.name: 0 for v in spec.vertices})
    sent = of(spec, "moving")
    first = sent.submit(rest, one)
    trigger = rest.stop_with_savepoint(first, cluster.savepoints.as_uri())
    assert wait_until(lambda: rest.savepoint(first, trigger).done, PATIENCE_S, 0.2)
    saved = rest.savepoint(first, trigger)
    assert saved.failure is None
    assert rest.wait_for(first, {"FINISHED"}, PATIENCE_S) == "FINISHED"
    two = Configuration({**one.parallelism, spec.vertices[-1].name: 2}, one.memory_level)
    second = sent.submit(rest, two, saved.location)
    assert Submission.of_running(rest, second, spec)[1] == two
    restored = rest.get(f"/jobs/{second}/checkpoints")["latest"]["restored"]
    assert restored["external_path"] == saved.location
    rest.cancel(second)
    rest.wait_for(second, {"CANCELED"}, PATIENCE_S)


def test_more_than_fits_is_refused_with_the_cause_and_leaves_no_job(
    cluster: LocalCluster, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission_module, "PATIENCE_S", 1.0)
    wanted = Configuration({v.name: 4 for v in spec.vertices}, {v.name: 0 for v in spec.vertices})
    with pytest.raises(FlinkError, match=r"NoResourceAvailable.* asks for 12 slots and 384 MiB"):
        of(spec, "large").submit(cluster.rest, wanted)
    states = {job.name: job.state for job in cluster.rest.jobs()}
    assert states["large"] == "CANCELED"


def test_a_killed_taskmanager_is_seen_and_up_heals_it_and_its_job(
    cluster: LocalCluster, spec: JobSpec, counting: tuple[str, Configuration]
) -> None:
    job_id, configuration = counting
    rest = cluster.rest
    completed = lambda: rest.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"]  # noqa: E731
    assert wait_until(lambda: completed() > 0, PATIENCE_S, 0.5)
    jobmanager, taskmanager, prometheus = pids(cluster)
    cluster.process("taskmanager").kill()
    seen = cluster.status()
    assert [part.state for part in seen.parts] == ["running", "dead", "running"]
    assert not seen.healthy
    assert rest.wait_for(job_id, {"RESTARTING"}, PATIENCE_S) == "RESTARTING"
    LocalCluster.up(None, cluster.home.folder)
    assert pids(cluster)[::2] == [jobmanager, prometheus]
    assert cluster.pid("taskmanager") not in (None, taskmanager)
    assert cluster.status().healthy
    assert wait_until(
        lambda: unready(rest.job(job_id), spec, configuration) is None, PATIENCE_S, 0.5
    )
    assert rest.get(f"/jobs/{job_id}/checkpoints")["counts"]["restored"] >= 1


def test_prometheus_can_go_and_come_back_with_what_it_stored(cluster: LocalCluster) -> None:
    began = time.time()
    assert wait_until(lambda: len(query(cluster, "up")) == 2, PATIENCE_S, 0.5)
    cluster.stop("prometheus")
    seen = cluster.status()
    assert [part.state for part in seen.parts] == ["running", "running", "dead"]
    cluster.start("prometheus")
    assert cluster.status().healthy
    assert min(query(cluster, "min_over_time(timestamp(up)[5m:1s])")) <= began + 5


@pytest.mark.validate
def test_a_second_cluster_lives_beside_and_ctrl_c_leaves_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", "from dsp_gym.cli import main; main()"]
    ports = ["--rest-port", "0", "--prometheus-port", "0"]
    small = ["--slots", "2", "--managed-mib", "64"]
    line = [*program, "flink", "up", "--home", str(tmp_path), *ports, *small]
    # A program of its own group, as a shell starts it: Ctrl-C reaches the whole group.
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, process_group=0) as upping:
        file = tmp_path / "pids" / "prometheus.json"
        assert wait_until(file.exists, PATIENCE_S)
        started = [Process.read(one) for one in (tmp_path / "pids").glob("*.json")]
        assert len(started) == 3
        os.killpg(upping.pid, signal.SIGINT)
        _, said = upping.communicate(timeout=PATIENCE_S)
    assert (upping.returncode, "Interrupted" in said) == (130, True)
    assert not any(process.is_alive() for process in started if process)
    assert not (tmp_path / "cluster.json").exists()

    subprocess.run(line, check=True, timeout=2 * PATIENCE_S, stdout=subprocess.DEVNULL)
    second = LocalCluster.attach(tmp_path)
    try:
        assert second.status().healthy
        assert second.status().slots_total == 2
        assert cluster.status().healthy
        assert second.rest_url != cluster.rest_url
        before = pids(second)
        os.kill(int(str(before[0])), signal.SIGKILL)
        assert wait_until(lambda: second.status().parts[0].state == "dead", PATIENCE_S)
        subprocess.run(line, check=True, timeout=2 * PATIENCE_S, stdout=subprocess.DEVNULL)
        assert second.status().healthy
        assert pids(second)[0] != before[0]
        assert pids(second)[2] == before[2]
        taken = SETTINGS.model_copy(update={"rest_port": second.ports.rest})
        with pytest.raises(FlinkError, match=r"taken by a Flink 2\.1\.\d that this folder did not"):
            LocalCluster.up(taken, tmp_path / "third")
    finally:
        assert second.down() == ("jobmanager", "taskmanager", "prometheus")
    assert cluster.status().healthy
    assert second.down() == ()
