"""The chart of `deploy/helm`: equal to the kustomizations, and its own where values say so."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dsp_gym.backends.discovery.document import Written
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.config.files import parse
from dsp_gym.config.kinds import model_of
from dsp_gym.control.config import RunConfig
from dsp_gym.control.fleet_folder import FleetPlace, fleet_files
from tests import helming
from tests.kustomizing import render as kustomized
from tests.simulating import line

DEPLOY = helming.CHART.parent
DIGEST = "sha256:" + 64 * "a"
MODEL = f"models:/q11/1@sha256:{64 * '0'}"
CHECKSUM = "checksum/config"
RUNBOOKS = "https://docs.invalid/dsp-gym/alerts/"  # as the alerts name it before it is pinned
Resource = dict[str, Any]


def needs_go(test: Any) -> Any:
    """Slow, because the first one compiles the renderer."""
    lacks = helming.WHY_NOT is not None and "CI" not in os.environ
    return pytest.mark.slow(pytest.mark.skipif(lacks, reason=str(helming.WHY_NOT))(test))


def objects(changes: Resource | None = None, **release: str) -> list[Resource]:
    texts = [text for name, text in sorted(helming.render(changes, **release).items())
             if name.endswith(".yaml")]  # fmt: skip
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def keyed(resources: list[Resource]) -> dict[tuple[str, str], Resource]:
    """By kind and name; the configuration of the run as the document it is.

    The checksum of the files is left out: kustomize makes none.
    """
    found = {(one["kind"], one["metadata"]["name"]): one for one in resources}
    assert len(found) == len(resources)
    for one in resources:
        data = one.get("data", {})
        if "shadow.yaml" in data:
            data["shadow.yaml"] = yaml.safe_load(data["shadow.yaml"])
        if "dashboard.json" in data:
            data["dashboard.json"] = data["dashboard.json"].strip()
        if one["kind"] == "StatefulSet":
            pod = one["spec"]["template"]["metadata"]
            pod.get("annotations", {}).pop(CHECKSUM, None)
            if not pod.get("annotations", True):
                del pod["annotations"]
    return found


@needs_go
@pytest.mark.parametrize(
    ("folders", "changes"),
    [
        (("base",), {}),
        (("overlays/advise",), {"mode": "advise"}),
        (("overlays/active",), {"mode": "active"}),
        (("base", "monitoring"), {"monitoring": {"enabled": True, "runbooks": RUNBOOKS}}),
    ],
    ids=lambda given: "-".join(given),
)
def test_the_chart_says_what_the_kustomization_says(folders, changes) -> None:
    expected = keyed([one for folder in folders for one in kustomized(DEPLOY / folder)])
    del expected["Namespace", "dsp-gym"]  # `helm install --create-namespace` makes it
    assert keyed(objects(changes)) == expected


@needs_go
def test_a_policy_is_fetched_as_the_component_does(tmp_path: Path) -> None:
    overlay = DEPLOY / "overlays" / "active"
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({
            "resources": [str(overlay)],
            "components": [str(DEPLOY / "components" / "policy-from-registry")],
        }), encoding="utf-8",
    )  # fmt: skip
    expected = keyed(kustomized(tmp_path))
    del expected["Namespace", "dsp-gym"]
    assert keyed(objects({"mode": "active", "registry": {"model": MODEL}})) == expected


@needs_go
def test_twins_are_driven_as_the_component_does(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({
            "resources": [str(DEPLOY / "base")],
            "components": [str(DEPLOY / "components" / "twins")],
        }), encoding="utf-8",
    )  # fmt: skip
    expected = keyed(kustomized(tmp_path))
    del expected["Namespace", "dsp-gym"]
    assert keyed(objects({"twins": {"enabled": True}})) == expected


@needs_go
def test_a_release_of_another_name_shares_nothing_with_the_first() -> None:
    changes = {"mode": "active", "monitoring": {"enabled": True}, "registry": {"model": MODEL}}
    first, second = keyed(objects(changes)), keyed(objects(changes, release="ads", namespace="b"))
    assert not first.keys() & second.keys()
    text = yaml.safe_dump(list(second.values()))
    names = "name|namespace|app.kubernetes.io/name|serviceAccountName|serviceName|policyName"
    assert {found[1] for found in re.finditer(rf"(?:{names}): (\S*dsp-gym\S*)", text)} == {
        "dsp-gym",  # the container, and the group of the alerts
        "written-by-dsp-gym",
    }
    assert "system:serviceaccount:dsp-gym" not in text
    user = '"system:serviceaccount:b:ads-actor"'
    fence = second["ValidatingAdmissionPolicy", "ads-overrides-only"]["spec"]
    assert user in fence["matchConditions"][0]["expression"]
    binding = second["ValidatingAdmissionPolicyBinding", "ads-overrides-only"]["spec"]
    assert binding["policyName"] == "ads-overrides-only"
    config = second["ConfigMap", "ads"]["data"]["shadow.yaml"]
    assert config["where"]["kubernetes"]["lease_namespace"] == "b"
    assert config["serve"]["hosts"] == ["ads", "ads.b", "ads.b.svc", "ads.b.svc.cluster.local"]


@needs_go
def test_values_reach_what_they_name() -> None:
    serve = {"port": 9000, "probe_port": 9001}
    found = keyed(objects({
        "mode": "canary",
        "image": {"repository": "registry.example/dsp-gym", "digest": DIGEST,
                  "pullSecrets": ["mine"]},
        "replicas": 3,
        "config": {"canary": {"share": 0.5}, "acting": "ds2", "serve": serve,
                   "where": {"kubernetes": {"lease_namespace": "leases"}}},
        "jobs": {"orders.yaml": "job: orders\nsource: map\n"},
        "journal": {"size": "10Gi", "storageClass": "fast"},
        "tolerations": [{"key": "spot", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"},
        "fence": {"factor": 2, "step": 8},
    }))  # fmt: skip
    spec = found["StatefulSet", "dsp-gym"]["spec"]
    assert spec["replicas"] == 3
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == f"registry.example/dsp-gym@{DIGEST}"
    assert container["args"][2:] == ["--mode=canary", "--apply"]
    assert [port["containerPort"] for port in container["ports"]] == [9000, 9001]
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    claim = spec["volumeClaimTemplates"][0]["spec"]
    assert claim["resources"]["requests"]["storage"] == "10Gi"
    assert claim["storageClassName"] == "fast"
    data = found["ConfigMap", "dsp-gym"]["data"]
    assert yaml.safe_load(data["orders.yaml"]) == {"job": "orders", "source": "map"}
    config = parse(model_of("shadow"), data["shadow.yaml"] | {"mode": "canary"}, "shadow.yaml")
    assert config.where.kubernetes.lease_namespace == "leases"
    assert config.canary.share == 0.5
    assert found["Service", "dsp-gym"]["spec"]["ports"][0]["port"] == 9000
    variables = {
        v["name"]: v["expression"]
        for v in found["ValidatingAdmissionPolicy", "dsp-gym-overrides-only"]["spec"]["variables"]
    }
    assert [variables[name] for name in ("factor", "step")] == ["2", "8"]  # fmt: skip


@needs_go
def test_a_discovered_fleet_is_taken_as_it_was_written(tmp_path: Path) -> None:
    found = FoundJob("Orders", "a" * 32, "a test", (), resource="FlinkDeployment jobs/orders")
    job = Written("orders", found, line(), "# Orders\njob: orders\n", ())
    place = FleetPlace(selector="team=ads", namespace="jobs")
    values = yaml.safe_load(fleet_files([job], tmp_path, place)[tmp_path / "fleet" / "values.yaml"])
    text = helming.render(values)["config.yaml"]
    mounted = yaml.safe_load(text)["data"]
    config = parse(model_of("shadow"), yaml.safe_load(mounted["shadow.yaml"]), "shadow.yaml")
    assert isinstance(config, RunConfig)
    assert config.job == "/etc/dsp-gym/{name}.yaml"
    assert config.where.kubernetes is not None
    assert config.where.kubernetes.selector == "team=ads"
    assert mounted["orders.yaml"] == job.text


@needs_go
@pytest.mark.parametrize("one", [{"selector": "team=ads"}, {"resource": "shadow"}])
def test_a_resource_called_as_the_charts_own_file_is_installed_as_discovered(
    tmp_path: Path, one: dict[str, str]
) -> None:
    found = FoundJob("Orders", "a" * 32, "a test", (), resource="FlinkDeployment jobs/shadow")
    job = Written("shadow", found, line(), "# Orders\njob: shadow\n", ())
    place = FleetPlace(namespace="jobs", **one)
    values = yaml.safe_load(fleet_files([job], tmp_path, place)[tmp_path / "fleet" / "values.yaml"])
    mounted = yaml.safe_load(helming.render(values)["config.yaml"])["data"]
    config = parse(model_of("shadow"), yaml.safe_load(mounted["shadow.yaml"]), "shadow.yaml")
    assert isinstance(config, RunConfig)
    assert config.job.replace("{name}", "shadow") == "/etc/dsp-gym/shadow-job.yaml"
    assert mounted["shadow-job.yaml"] == job.text


@needs_go
def test_what_is_switched_off_is_left_out() -> None:
    found = keyed(objects({"mode": "off", "networkPolicy": {"enabled": False}}))
    assert not [key for key in found if key[0] in ("NetworkPolicy", "PodDisruptionBudget")]
    args = found["StatefulSet", "dsp-gym"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[2:] == ["--mode=off"]
    notes = helming.render({"mode": "active"})["NOTES.txt"]
    assert "-n flink annotate flinkdeployment NAME dsp-gym.io/stop=true" in notes


def test_the_default_values_hold_to_the_schema_and_the_configuration_is_one_that_shadow_reads():
    values = helming.checked()
    assert parse(model_of("shadow"), values["config"], "values.yaml").mode == "shadow"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "activ"}, "'activ' is not one of"),
        ({"mode": "canary"}, "'canary' is a required property"),
        ({"replicas": 2}, "2 is greater than the maximum of 1"),
        ({"image": {"tag": "latest"}}, "'tag' was unexpected"),
        ({"image": {"digest": "latest"}}, "'latest' does not match"),
        ({"registry": {"model": "models:/q11@champion"}}, "'models:/q11@champion' does not match"),
        ({"config": {"serve": {"host": "127.0.0.1"}}}, "'0.0.0.0' was expected"),
        ({"config": {"journal": "runs/live"}}, "'runs/live' does not match"),
        ({"jobs": {"../evil.yaml": ""}}, "'../evil.yaml' does not match"),
        ({"jobs": {"shadow.yaml": ""}}, "should not be valid"),
        ({"fence": {"step": "many"}}, "'many' is not of type 'integer'"),
        ({"monitor": {}}, "'monitor' was unexpected"),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "should not be valid"),
        ({"podAnnotations": {CHECKSUM: "0"}}, "should not be valid"),
        ({"secrets": {"../etc": "mine"}}, "'../etc' does not match"),
        ({"extraVolumeMounts": [{"name": "tools"}]}, "'mountPath' is a required property"),
        ({"runAs": 0}, "0 is less than the minimum of 1"),
        ({"rbac": {"scope": "jobs"}}, "'jobs' is not one of ['cluster', 'namespace']"),
        ({"monitoring": {"api": "google"}}, "True was expected"),
        ({"monitoring": {"runbooks": "alerts.md"}}, "'alerts.md' does not match"),
        (
            {"monitoring": {"enabled": True}, "config": {"serve": {"public": False}}},
            "None is not of type 'object'",
        ),
        ({"monitoring": {"authorization": {"name": "readers"}}}, "'key' is a required property"),
    ],
)
def test_values_that_are_wrong_are_refused_before_anything_is_installed(changes, said) -> None:
    with pytest.raises(jsonschema.ValidationError, match=re.escape(said)):
        helming.checked(changes)


def test_every_value_is_described_by_the_schema_and_the_other_way_round() -> None:
    schema = yaml.safe_load((helming.CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((helming.CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name, value in values.items():
        closed = schema["properties"][name].get("additionalProperties", True) is False
        if closed:
            assert value.keys() == schema["properties"][name]["properties"].keys(), name


def test_a_packed_chart_holds_the_files_that_its_links_name(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "chart.tgz", "w:gz", dereference=True) as packed:
        packed.add(helming.CHART, "dsp-gym")  # as `helm package` follows them
    with tarfile.open(tmp_path / "chart.tgz") as packed:
        for name in ("fence.yaml", "prometheus-rule.yaml", "dashboard.json"):
            assert packed.getmember(f"dsp-gym/files/{name}").isreg()
            assert (helming.CHART / "files" / name).resolve().is_relative_to(DEPLOY)


def test_chart_and_package_have_one_version() -> None:
    import dsp_gym

    chart = yaml.safe_load((helming.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == dsp_gym.__version__
