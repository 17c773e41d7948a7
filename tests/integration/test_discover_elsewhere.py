"""Job files from FlinkDeployments, and from a Prometheus alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.discovery import flink as by_rest
from dsp_gym.backends.discovery.kubernetes import _cores, _mib
from dsp_gym.backends.discovery.prometheus import found_by_prometheus
from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.cli import app
from dsp_gym.cli.shadow import settings_of
from dsp_gym.control.fleet_folder import flink_names
from dsp_gym.control.serve.fleet import of_resource
from dsp_gym.control.start import job_of
from dsp_gym.errors import FlinkError
from dsp_gym.job.catalog import load_job
from tests.answering import Answering, answering
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import MARCH_1, day_of_samples
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.flink_resources import deployment, stable
from tests.running_job import run_job

BEGIN_S = MARCH_1 + 3600.0
NOW_S = BEGIN_S + 590.0


@pytest.fixture
def flink(monkeypatch) -> Iterator[Answering]:
    monkeypatch.setattr(by_rest, "_PAUSE_S", 0.0)
    with answering() as told:
        run_job(told, "orders-job")
        yield told


@pytest.fixture
def kubernetes() -> Iterator[FakeKubernetes]:
    with served_kubernetes() as server:
        yield server


def deployed(server: FakeKubernetes, name: str, job_id: str = "a1", **rest) -> None:
    body = deployment(name, **{"labels": {"team": "ads"}, **rest})
    if rest.get("job", body) is None:
        del body["spec"]["job"]
    server.put(body)
    server.set_status("FlinkDeployment", name, stable(body, job_id=job_id))


def discover(server: FakeKubernetes, folder: Path, *words: object):
    kubeconfig = server.kubeconfig(folder / "config", server.account("shadow"))
    given = ["--namespace", "jobs", "--kubeconfig", kubeconfig, "--out", folder / "jobs", *words]
    return CliRunner().invoke(app, ["discover", *map(str, given)], catch_exceptions=False)


def test_every_deployment_of_a_selector_gets_a_file(kubernetes, flink, tmp_path):
    deployed(kubernetes, "orders", taskManager={"resource": {"cpu": "1500m", "memory": "2048m"}})
    deployed(kubernetes, "other", labels={"team": "shop"})
    done = discover(kubernetes, tmp_path, "--selector", "team=ads", "--flink", flink.url)
    assert done.exit_code == 0, done.output
    (file,) = (tmp_path / "jobs").glob("*.yaml")
    spec = load_job(file)
    assert (file.name, spec.job, spec.taskmanager.cores) == ("orders.yaml", "orders", 1.5)
    assert "FlinkDeployment jobs/orders" in file.read_text()
    assert kubernetes.writes() == []


def test_shadow_mode_and_the_chart_take_the_folder_as_it_is(kubernetes, flink, tmp_path):
    deployed(kubernetes, "orders")
    url = f"{flink.url}"
    words = ["--selector", "team=ads", "--flink", url, "--prometheus", "http://prometheus:9090"]
    done = discover(kubernetes, tmp_path, *words)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "jobs"
    settings = settings_of(str(folder))
    one = of_resource(settings, "orders")
    assert job_of(one).job == "orders"
    assert one.where.kubernetes.prometheus_url == "http://prometheus:9090"
    assert one.where.kubernetes.rest_url == url
    assert flink_names(folder) == {"orders": "orders-job"}
    values = yaml.safe_load((folder / "fleet" / "values.yaml").read_text())
    assert values["config"]["job"] == "/etc/dsp-gym/{name}.yaml"
    assert values["config"]["where"]["kubernetes"]["rest_url"] == "http://{name}-rest.jobs:8081"
    assert values["jobs"]["orders.yaml"] == (folder / "orders.yaml").read_text()
    told = (folder / "fleet" / "README.md").read_text()
    assert f"dsp-gym backtest --prometheus http://prometheus:9090 --jobs {folder}\n" in told
    assert f"dsp-gym shadow {folder}\n" in told


def test_the_name_of_the_resource_stands_in_the_address(kubernetes, flink, tmp_path):
    deployed(kubernetes, "words")
    flink.answers |= {f"/words{path}": answer for path, answer in flink.answers.items()}
    words = ["--selector", "words", "--flink", f"{flink.url}/{{name}}"]
    done = discover(kubernetes, tmp_path, *words)
    assert done.exit_code == 0, done.output
    assert any(path.startswith("/words/jobs/") for path in flink.asked)


def test_a_session_cluster_shows_all_its_jobs(kubernetes, flink, tmp_path):
    run_job(flink, "second", "b2")
    deployed(kubernetes, "session", job=None)
    done = discover(kubernetes, tmp_path, "--selector", "session", "--flink", flink.url)
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "jobs").glob("*.yaml"))) == 2


def test_what_is_out_of_reach_is_named_and_the_others_are_written(kubernetes, flink, tmp_path):
    deployed(kubernetes, "orders")
    deployed(kubernetes, "asleep", job={"jarURI": "x", "state": "suspended"})
    done = discover(kubernetes, tmp_path, "--selector", "team=ads", "--flink", flink.url)
    assert done.exit_code == 1
    assert "FlinkDeployment jobs/asleep: it is suspended" in done.output
    assert len(list((tmp_path / "jobs").glob("*.yaml"))) == 1
    away = discover(kubernetes, tmp_path, "--selector", "orders", "--flink", "http://127.0.0.1:1")
    assert away.exit_code == 2
    assert "kubectl port-forward" in away.output
    none = discover(kubernetes, tmp_path, "--selector", "team=none")
    assert (none.exit_code, "no FlinkDeployment with the labels" in none.output) == (2, True)


def test_a_wrong_selector_is_refused(kubernetes, tmp_path):
    done = discover(kubernetes, tmp_path, "--selector", "team = = ads")
    assert (done.exit_code, "no requirement on a label" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("value", "cores"), [(1, 1.0), ("0.5", 0.5), ("250m", 0.25), (None, None), ("x", None)]
)
def test_cores_are_read_as_kubernetes_writes_them(value, cores):
    assert _cores(value) == cores


@pytest.mark.parametrize(
    ("value", "mib"), [("2048m", 2048), ("2g", 2048), ("1Gi", 1024), ("x", None), (None, None)]
)
def test_memory_is_read_as_flink_writes_it(value, mib):
    assert _mib(value) == mib


@pytest.fixture(scope="module")
def scraped(tmp_path_factory) -> Iterator[str]:
    samples = day_of_samples(0, 600)
    before = samples.between(-np.inf, BEGIN_S + 300)
    called = {"source": "Source:_source", "sink": "sink:_Writer"}
    parts = [
        Submitted(samples, "a1", "line", called=called),
        Submitted(samples, "b1", "theirs", labels={"job_name": "flink_job"}),
        Submitted(before, "c1", "ended", called=called),
    ]
    with backfilled(tmp_path_factory.mktemp("prometheus"), parts) as address:
        yield address


def asked(url: str, labels: str | None = None) -> PatientSamples:
    return PatientSamples(url, None, HistoryOptions(), Labels.parse(labels))


@pytest.mark.slow
def test_a_prometheus_alone_gives_a_file_whose_edges_are_marked_as_guessed(
    scraped, tmp_path, monkeypatch
):
    monkeypatch.setattr("time.time", lambda: NOW_S)
    words = ["discover", "--prometheus", scraped, "--jobs", "line", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    spec = load_job(tmp_path / "line.yaml")
    assert {v.name: v.parallelism for v in spec.vertices} == {"source": 4, "map": 1, "sink": 1}
    inputs = {v.name: [edge.from_ for edge in v.inputs] for v in spec.vertices}
    assert inputs == {"source": [], "map": ["source"], "sink": ["map"]}
    assert spec.source.rate_per_s == pytest.approx(1000, rel=0.5)
    text = (tmp_path / "line.yaml").read_text()
    assert "the edges are guessed from rates" in text.replace("\n# ", " ")
    assert "jobmanager.scheduler" in text
    assert "taskmanager.numberOfTaskSlots" in text


@pytest.mark.slow
def test_only_jobs_that_run_are_found_and_labels_may_differ(scraped):
    assert [job.name for job in found_by_prometheus(asked(scraped), NOW_S)] == ["line"]
    theirs = found_by_prometheus(asked(scraped, "job_name=flink_job"), NOW_S)
    assert [job.name for job in theirs] == ["theirs"]
    with pytest.raises(FlinkError, match=r"no task of a job 'lin' .*Did you mean 'line'"):
        found_by_prometheus(asked(scraped), NOW_S, ["lin"])


@pytest.mark.slow
def test_a_deployment_out_of_reach_is_looked_at_in_prometheus(
    kubernetes, scraped, tmp_path, monkeypatch
):
    deployed(kubernetes, "orders", "a1")
    monkeypatch.setattr("time.time", lambda: NOW_S)
    words = ["--selector", "orders", "--flink", "http://127.0.0.1:1", "--prometheus", scraped]
    done = discover(kubernetes, tmp_path, *words)
    assert done.exit_code == 0, done.output
    spec = load_job(tmp_path / "jobs" / "orders.yaml")
    assert (spec.taskmanager.slots, spec.taskmanager.memory_mib) == (2, 2048)
    assert spec.rescale.mode == "in_place"
