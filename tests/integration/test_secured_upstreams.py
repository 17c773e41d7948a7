"""Every command on servers with an authority of their own, whose tokens are renewed meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.discovery import flink as by_rest
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.session import session
from spark_pipelines.config import DatasetConfig
from spark_pipelines.sources import prometheus
from tests.answering import TASKS, answering, tell
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import MARCH_1, day_of_samples, job_file
from tests.running_job import run_job
from tests.secured import Authority, Rotating, front
from tests.simulating import line

SECONDS = 1200


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


def access(tmp_path, rotating, authority):
    """A file of keys, for `--account`."""
    keys = {"file": str(rotating.file), "ca_file": str(authority.file)}
    file = tmp_path / "access.yaml"
    file.write_text(yaml.safe_dump(keys))
    return file, keys


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_discover(authority, tmp_path, monkeypatch):
    monkeypatch.setattr(by_rest, "_PAUSE_S", 0.0)
    with answering() as flink, front(flink.url, authority.issue("flink")) as told:
        run_job(flink)
        rotating = Rotating(told, tmp_path / "account", every=3)
        file, _ = access(tmp_path, rotating, authority)
        words = ("discover", "--flink", told.url, "--out", tmp_path / "jobs", "--account", file)
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert rotating.times > 1
        told.on_question, told.token = (lambda: None), "another"
        refused = run(*words, "--overwrite")
        assert refused.exit_code == 2
        assert "401" in refused.output
        assert "token has expired" in " ".join(refused.output.split())


def series(now_s):
    return [
        {
            "metric": {
                "__name__": "flink_taskmanager_job_task_numRecordsOut", "job_id": "a1",
                "job_name": "mine", "tm_id": "one", "task_name": name, "task_id": name,
                "subtask_index": str(subtask),
            },
            "values": [[now_s - 200 + 5 * k, str(100 * k)] for k in range(40)],
        }
        for name, tasks in TASKS.items()
        for subtask in range(tasks)
    ]  # fmt: skip


def configuration(tmp_path, url, keys):
    """Shadow mode beside the job at an address."""
    document = {
        "job": job_file(tmp_path), "job_name": "mine", "interval_s": 5, "policies": ["ds2"],
        "where": {"rest_url": url, "prometheus_url": url, "rest_account": keys,
                  "prometheus_account": keys, "timeout_s": 5},
        "window": {"window_s": 10, "stabilization_s": 0}, "journal": str(tmp_path / "journal"),
    }  # fmt: skip
    return parse(RunConfig, document, "shadow.yaml")


def test_shadow(authority, tmp_path):
    with answering() as both, front(both.url, authority.issue("both")) as told:
        now_ms = int(time.time() * 1000)
        tell(both, since_ms=now_ms - 100_000)
        both.answers["/overview"] = {"flink-version": "2.1.0", "slots-available": 4}
        both.answers["/api/v1/query"] = lambda query: {
            "status": "success",
            "data": {"resultType": "matrix", "result": series(time.time())},
        }
        rotating = Rotating(told, tmp_path / "account", every=7)
        _, keys = access(tmp_path, rotating, authority)
        with session(configuration(tmp_path, told.url, keys), serve=False) as shown:
            for _ in range(4):
                turn = shown.run.finish(shown.run.decide())
                assert (turn.held, turn.failures) == (None, ())
                assert turn.snapshot.job(0).status.name == "RUNNING"
            assert rotating.times > 3
            told.on_question, told.token = (lambda: None), "another"
            shown.run.finish(shown.run.decide())  # on what was seen before; its outcome is refused
            refused = shown.run.finish(shown.run.decide())
            assert "401" in refused.held
            assert "token has expired" in refused.held
            assert not shown.board.is_ready
            rotating.file.write_text("another")
            shown.run.finish(shown.run.decide())
            assert shown.run.finish(shown.run.decide()).held is None


def test_a_server_that_hangs_costs_a_turn_its_deadline_and_the_process_says_so(tmp_path):
    with answering() as both:
        tell(both, since_ms=int(time.time() * 1000) - 100_000)
        both.answers["/overview"] = {"flink-version": "2.1.0", "slots-available": 4}
        both.answers["/api/v1/query"] = lambda query: {
            "status": "success",
            "data": {"resultType": "matrix", "result": series(time.time())},
        }
        config = configuration(tmp_path, both.url, None)
        where = config.where.model_copy(update={"timeout_s": 1.0})
        config = config.model_copy(update={"where": where})
        with session(config, serve=True) as shown:
            run, boards = shown.run, shown.server.boards
            run.finish(run.decide())
            assert boards.readiness()[0]
            both.late_s = 2.5
            run.finish(run.decide())  # on what was seen before
            begun = time.monotonic()
            held = run.finish(run.decide())
            # One look before the decision and one after it, of Flink and Prometheus each.
            assert time.monotonic() - begun < 4 * 1.0 + 1.0
            assert "no answer in time" in held.held
            assert boards.readiness() == (False, f"JobNotSeen: {held.held}")
            assert boards.hanging(shown.server.liveness) is None
            metrics = shown.server.exporter.text().decode()
            late = next(one for one in metrics.splitlines() if f'{{upstream="{both.url}"}}' in one)
            assert float(late.split()[-1]) >= 1
            both.late_s = 0.0
            run.finish(run.decide())
            assert run.finish(run.decide()).held is None
            assert boards.readiness()[0]


@pytest.fixture(scope="module")
def history_url(tmp_path_factory):
    samples = day_of_samples(0, SECONDS)
    part = Submitted(samples, "a1", "line")
    with backfilled(tmp_path_factory.mktemp("prometheus"), [part]) as url:
        yield url


@pytest.mark.slow
def test_datasets(authority, tmp_path, history_url):
    with front(history_url, authority.issue("prometheus")) as told:
        rotating = Rotating(told, tmp_path / "account", every=4)
        _, keys = access(tmp_path, rotating, authority)
        source = {
            "kind": "prometheus", "url": told.url, "job": job_file(tmp_path), "chunk_s": 600,
            "since": "2026-03-01T01:00:00Z", "until": "2026-03-01T02:00:00Z", "retries": 0,
            "queries_per_s": 200, "account": keys,
        }  # fmt: skip
        wanted = parse(DatasetConfig, {"name": "d", "sources": [source]}, "test").sources[0]
        prometheus.survey(wanted, "live", tmp_path / "dataset" / ".staging" / "live")
        assert rotating.times > 1


@pytest.mark.slow
def test_backtest(authority, tmp_path, tmp_path_factory, monkeypatch):
    begin_s = time.time() - 2400 + 600
    found = day_of_samples(0, 2400)
    moved = replace(found, t_s=found.t_s - MARCH_1 - 3600.0 + begin_s)
    part = Submitted(moved, "a1", "steady")
    with (
        backfilled(tmp_path_factory.mktemp("prometheus"), [part]) as url,
        front(url, authority.issue("prometheus")) as told,
    ):
        rotating = Rotating(told, tmp_path / "account", every=3)
        file, _ = access(tmp_path, rotating, authority)
        job = tmp_path / "steady.yaml"
        spec = line().model_copy(update={"job": "steady"})
        job.write_text(
            yaml.safe_dump(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        )
        monkeypatch.chdir(tmp_path)
        done = run(
            "backtest", "--prometheus", told.url, "--jobs", job, "--account", file,
            "--days", "0.08", "--interval", "30", "--policies", "ds2", "--json",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert rotating.times > 1
