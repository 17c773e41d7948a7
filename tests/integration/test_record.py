"""`dsp-gym record` on a real Flink: in any case a readable recording, and no job left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dsp_gym.backends.flink import submission
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.recording.plan import RecordConfig
from dsp_gym.backends.flink.recording.record import open_recording
from dsp_gym.backends.flink.recording.recorder import Recorder
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.recording import Recording, recorded_rate
from tests.real_flink import REAL_FLINK, SHORT_LIVED, short_lived_jvms

pytestmark = [*REAL_FLINK, pytest.mark.validate]

PLAN: dict[str, Any] = {
    "job": "flink-q1",
    "design": {"vertex": "map", "parallelism": [1, 2]},
    "loads": [{"name": "steady", "rate_per_s": 200}],
    "lead_s": 4,
    "warm_up_s": 0,
    "seconds": 20,
}


def plan(**given: Any) -> RecordConfig:
    return parse(RecordConfig, PLAN | given, "plan.yaml")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        rest_port=0, prometheus_port=0, scrape_interval_s=2, managed_mib=256, restart_delay_s=1
    )
    with short_lived_jvms():
        made = LocalCluster.up(settings, tmp_path_factory.mktemp("record"))
        yield made
        made.down()


def running(cluster: LocalCluster) -> list[str]:
    return [job.name for job in cluster.rest.jobs() if job.state not in ENDED]


def record(cluster: LocalCluster, out: Path, config: RecordConfig, **given: Any) -> Recording:
    writer = open_recording(config, out, cluster)
    Recorder(config, cluster, writer, **given).run()
    return Recording.open(out)


def test_stopped_by_ctrl_c_the_same_command_goes_on_with_what_is_missing(tmp_path):
    settings = {"rest_port": 0, "prometheus_port": 0, "managed_mib": 256}
    config = tmp_path / "recordings" / "plan.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump(PLAN | {"cluster": settings}))
    home, out = tmp_path / "home", tmp_path / "out"
    command = [
        sys.executable, "-c", "from dsp_gym.cli import main; main()", "record", str(config),
        "--out", str(out), "--home", str(home),
    ]  # fmt: skip
    environment = {**os.environ, **SHORT_LIVED}
    first = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    until = time.monotonic() + 180
    while not (out / "samples" / "map1-steady.parquet").exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
    time.sleep(5)  # into the second run
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130, said
    assert not (home / "cluster.json").exists() or not LocalCluster.attach(home).any_alive()
    kept = Recording.open(out)
    assert [run.name for run in kept.runs] == ["map1-steady"]
    again = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert again.returncode == 0, again.stderr
    recording = Recording.open(out)
    assert [run.name for run in recording.complete_runs()] == ["map1-steady", "map2-steady"]
    assert recording.notes() == []
    assert recording.runs[0].sha256 == kept.runs[0].sha256
    for run, tasks in zip(recording.runs, (1, 2), strict=True):
        assert run.configuration.parallelism == {"bids": 1, "map": tasks, "sink": 1}
        assert 180 < recorded_rate(run) < 320  # 200, and what was owed when it came up late
        _, subtasks, _ = run.samples().grid("map", "busy_ms_per_s")
        assert len(subtasks) == tasks
        assert [event.kind for event in run.events] == [
            "submitted", "running", "savepoint", "stopped",
        ]  # fmt: skip
        written = run.events[2].body
        assert 0 < written["bytes"] < 100_000  # the source's place alone: the map has no state
        assert 0 < written["seconds"] < 60
        outcome = ReplayJobs(run).advance(600)
        assert outcome.processed[0] > 100 * 20
        assert outcome.down_s[0] == 0
    assert list((home / "savepoints").glob("savepoint-*")) == []


def test_a_run_whose_taskmanager_dies_is_kept_as_aborted_and_done_again(cluster, tmp_path):
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)
        if len(slept) == 2:
            cluster.process("taskmanager").kill()
            cluster.start("taskmanager")

    config = plan(metrics="rest", stop="cancel", design={"vertex": "map", "parallelism": [1]})
    recording = record(cluster, tmp_path / "out", config, sleep=sleep)
    assert running(cluster) == []
    failed, complete = recording.runs
    assert failed.name == "map1-steady.failed-1"
    assert not failed.complete
    assert "the job failed" in str(failed.cause)
    assert [event.kind for event in failed.events][-1] == "failure"
    assert complete.name == "map1-steady"
    assert complete.complete
    assert complete.events[-1].body == {"how": "cancel"}
    assert 180 < recorded_rate(complete) < 320  # 200, and what was owed when it came up late


def test_a_job_that_cannot_come_up_is_tried_twice_and_the_plan_goes_on(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(submission, "PATIENCE_S", 1.0)
    # 256 MiB in all: two tasks of 128 MiB and the others of none fit, four do not.
    config = plan(
        job="flink-micro-update", metrics="rest", stop="cancel", seconds=10,
        design={"vertex": "state", "parallelism": [4, 1], "memory_level": [3]},
    )  # fmt: skip
    recording = record(cluster, tmp_path / "out", config)
    names = [run.name for run in recording.runs]
    large, small = "state4m128-steady", "state1m128-steady"
    assert names == [f"{large}.failed-1", f"{large}.failed-2", small]
    assert "did not come up" in str(recording.runs[0].cause)
    assert [run.name for run in recording.complete_runs()] == [small]
    assert running(cluster) == []


def test_every_run_starts_from_the_populated_savepoint(cluster, tmp_path):
    config = plan(
        job="flink-micro-update", seconds=12,
        loads=[{"name": "slow", "rate_per_s": 100}],
        design={"vertex": "state", "parallelism": [1], "memory_level": [1]},
        populate={"seconds": 5, "rate_per_s": 2000, "memory_level": {"state": 1}},
    )  # fmt: skip
    recording = record(cluster, tmp_path / "out", config)
    populated = recording.manifest.populated
    assert populated is not None
    assert populated["bytes"] > 100_000
    (run,) = recording.runs
    _, _, emitted = run.samples().grid("source", "emitted_records_total")
    assert 5_000 < emitted[0, 0] < emitted[-1, 0] < 40_000
    assert 85 < recorded_rate(run) < 160  # 100, and what was owed when it came up late
    assert np.all(run.samples().t_s > run.t_running_s)
    (kept,) = cluster.savepoints.glob("savepoint-*")
    assert populated["location"].endswith(kept.name)


def test_interrupted_anywhere_it_leaves_no_job(cluster, tmp_path):
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    config = plan(metrics="rest")
    with pytest.raises(KeyboardInterrupt):
        record(cluster, tmp_path / "out", config, sleep=sleep)
    assert running(cluster) == []
    assert Recording.open(tmp_path / "out").runs == ()


def test_another_job_on_the_cluster_and_another_plan_in_the_folder_are_refused(cluster, tmp_path):
    config = plan(metrics="rest")
    spec = load_job("flink-q1")
    other = Submission.of_spec(spec, {"rate": "10", "epoch-ms": "0"}, "other")
    job_id = other.submit(cluster.rest, Configuration.of_spec(spec))
    try:
        with pytest.raises(FlinkError, match="job 'other' runs on this cluster"):
            record(cluster, tmp_path / "out", config)
    finally:
        cluster.rest.cancel(job_id)
        cluster.rest.wait_for(job_id, ENDED, 60)
    with pytest.raises(ConfigError, match=r"recording of another plan.*--out"):
        open_recording(plan(metrics="rest", seconds=21), tmp_path / "out", cluster)
