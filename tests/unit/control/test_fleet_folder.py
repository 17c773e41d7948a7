"""The folder of a discovered fleet, as the chart and a reader take it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.discovery.document import Written
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.control.config import RunConfig
from dsp_gym.control.fleet_folder import POLICIES, FleetPlace, fleet_files, flink_names
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.errors import SchemaError
from dsp_gym.policies.registry import resolve
from tests.simulating import line

OUT = Path("my jobs")


def written(
    name="Orders | EU", stem="orders", resource="FlinkDeployment jobs/orders", job_id="a" * 32
):
    found = FoundJob(name, job_id, "a test", (), resource=resource)
    return Written(stem, found, line(), f"# {name}\njob: {stem}\n", ())


def made(place, *files):
    told = fleet_files(files or (written(),), OUT, place)
    return {str(path.relative_to(OUT / "fleet")): text for path, text in told.items()}


def configured(text):
    return RunConfig.model_validate(yaml.safe_load(text))


def test_every_policy_beside_the_jobs_is_shipped():
    for name in set(POLICIES) - {INCUMBENT}:
        resolve(name)


def test_a_selector_is_one_configuration_for_all_its_resources():
    place = FleetPlace(selector="team=ads", namespace="jobs", prometheus_url="http://p:9090")
    config = configured(made(place)["shadow.yaml"])
    assert config.job == str(Path.cwd() / OUT / "{name}.yaml")
    assert config.where.metrics == "prometheus"
    assert config.where.kubernetes.rest_url == "http://{name}-rest.jobs:8081"


def test_on_kubernetes_shadow_mode_needs_a_prometheus_and_the_folder_says_so():
    files = made(FleetPlace(selector="team=ads", rest_url="http://{name}:8081"))
    assert sorted(files) == ["README.md", "discovered.json", "values.yaml"]
    assert "prometheus_url is missing" in files["values.yaml"]  # a stack's values have it
    assert "--values deploy/helm/stacks/STACK.yaml" in files["README.md"]
    assert "takes its metrics from Prometheus" in files["README.md"]
    with pytest.raises(ValidationError, match="on Kubernetes metrics come from Prometheus"):
        PlaceConfig(metrics="rest", kubernetes=KubernetesPlace(name="orders"))


def plain(*stems, name=None):
    """Configurations of shadow mode beside jobs of a Flink without Kubernetes, by file."""
    jobs = [
        written(stem=stem, name=name or stem, resource=None, job_id=f"{k:x}" + 31 * "0")
        for k, stem in enumerate(stems, 1)
    ]
    files = made(FleetPlace(rest_url="http://flink:8081"), *jobs)
    return {file: configured(text) for file, text in files.items() if file.endswith(".yaml")}


def test_jobs_of_a_plain_flink_are_watched_side_by_side_at_ports_of_their_own():
    ports = [config.serve.port for config in plain("orders", "views", "clicks").values()]
    taken = {port + more for port in ports for more in (0, 1)}  # status and probes
    assert len(taken) == 6


def test_no_job_s_configuration_has_the_name_of_the_chart_s_values():
    assert set(plain("orders", "values")) == {"orders.yaml", "values-job.yaml"}


def test_two_jobs_of_one_name_have_their_own_ids_and_journals():
    first, second = plain("orders-1", "orders-2", name="orders").values()
    assert first.where.job_id != second.where.job_id
    assert first.journal != second.journal


def test_one_resource_is_named():
    files = made(FleetPlace(resource="orders", prometheus_url="http://prometheus:9090"))
    config = configured(files["shadow.yaml"])
    assert config.job.endswith("/orders.yaml")
    assert config.where.kubernetes.name == "orders"
    assert config.where.kubernetes.rest_url == "http://orders-rest.default:8081"


def test_an_account_is_the_file_that_was_named_and_stays_out_of_the_cluster(tmp_path):
    place = FleetPlace(
        selector="team=ads", prometheus_url="http://prometheus:9090", account=tmp_path / "token"
    )
    files = made(place)
    account = configured(files["shadow.yaml"]).where.kubernetes.prometheus_account
    assert account.file == tmp_path / "token"
    assert "token" not in files["values.yaml"]


def test_jobs_of_a_session_cluster_have_no_configuration():
    jobs = [written(stem=stem, resource="FlinkDeployment jobs/session") for stem in ("a", "b")]
    assert sorted(made(FleetPlace(resource="session"), *jobs)) == ["README.md", "discovered.json"]


def test_a_prometheus_alone_leads_to_savings_and_says_what_shadow_mode_needs():
    files = made(FleetPlace(prometheus_url="http://prometheus:9090"), written(resource=None))
    assert sorted(files) == ["README.md", "discovered.json"]
    assert (
        "dsp-gym backtest --prometheus http://prometheus:9090 --jobs 'my jobs'"
        in (files["README.md"])
    )
    assert "Orders \\| EU" in files["README.md"]


def test_flink_s_names_are_read_back_and_a_broken_list_is_named(tmp_path):
    for path, text in fleet_files([written()], tmp_path, FleetPlace(selector="a=b")).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert flink_names(tmp_path) == {"orders": "Orders | EU"}
    assert flink_names(tmp_path / "fleet") == {}
    (tmp_path / "fleet" / "discovered.json").write_text("{")
    with pytest.raises(SchemaError, match=r"discovered\.json"):
        flink_names(tmp_path)
