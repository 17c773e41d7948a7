"""The chart in real clusters: Secrets, namespaced rights, roll-outs, and the stacks it knows."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsp_gym.backends.discovery.document import Written
from dsp_gym.backends.discovery.found import FoundJob
from dsp_gym.backends.kubernetes.access import Rule
from dsp_gym.config.files import parse, private_text
from dsp_gym.config.kinds import model_of
from dsp_gym.control.config import RunConfig
from dsp_gym.control.fleet_folder import FleetPlace, fleet_files
from tests import helming
from tests.packaging.test_helm import CHECKSUM, MODEL, keyed, needs_go, objects
from tests.simulating import line

Resource = dict[str, Any]

STACKS = helming.CHART / "stacks"
ALL_STACKS = ("gke-managed-prometheus", "kube-prometheus-stack", "openshift")


def stack(name: str) -> Resource:
    found: Resource = yaml.safe_load((STACKS / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def pod_of(changes: Resource) -> Resource:
    (found,) = (one for one in objects(changes) if one["kind"] == "StatefulSet")
    template: Resource = found["spec"]["template"]
    return template


def checksum(changes: Resource) -> str:
    found = pod_of(changes)["metadata"]["annotations"][CHECKSUM]
    assert re.fullmatch("[0-9a-f]{64}", found)
    return str(found)


def well_formed(resources: list[Resource]) -> None:
    """As Kubernetes' own schema has it; those of others have none at hand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the jsonschema it uses
        import kubernetes_validate
    for resource in resources:
        if not resource["apiVersion"].startswith("monitoring."):
            kubernetes_validate.validate(resource, "1.32", strict=True)


@needs_go
def test_pods_are_replaced_when_their_files_change_and_only_then() -> None:
    first = checksum({"jobs": {"orders.yaml": "job: orders\n"}})
    assert checksum({"jobs": {"orders.yaml": "job: orders\n"}, "podLabels": {"team": "a"}}) == first
    assert checksum({"jobs": {"orders.yaml": "job: ads\n"}}) != first
    other = {"jobs": {"orders.yaml": "job: orders\n"}, "config": {"interval_s": 30}}
    assert checksum(other) != first


@needs_go
def test_a_pod_has_what_its_cluster_needs(tmp_path: Path) -> None:
    mount = {"name": "tools", "mountPath": "/tools"}
    copies = {"name": "tools", "image": "tools@sha256:" + 64 * "b", "volumeMounts": [mount]}
    changes = {
        "podAnnotations": {"sidecar.istio.io/inject": "false"}, "podLabels": {"team": "streaming"},
        "extraEnv": [
            {"name": "PYTHONPATH", "value": "/tools"},
            {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}},
        ],
        "extraVolumes": [{"name": "tools", "emptyDir": {}}],
        "extraVolumeMounts": [mount], "extraInitContainers": [copies],
        "secrets": {"prometheus": "thanos-account"}, "configMaps": {"authorities": "our-ca"},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}},
        "priorityClassName": "high", "registry": {"model": MODEL},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}},
        "twins": {"enabled": True, "extraEnv": [{"name": "PYTHONPATH", "value": "/tools"}],
                  "extraVolumeMounts": [mount]},
    }  # fmt: skip
    found = objects(changes)
    well_formed(found)
    template = pod_of(changes)
    assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert template["metadata"]["labels"]["team"] == "streaming"
    spec = template["spec"]
    assert spec["priorityClassName"] == "high"
    assert spec["affinity"] == changes["affinity"]
    assert [one["name"] for one in spec["initContainers"]] == ["policy", "tools"]
    process, twins = spec["containers"]
    assert [one["name"] for one in process["env"]] == ["PYTHONPATH", "HTTPS_PROXY"]
    assert [one["name"] for one in twins["env"]] == ["PYTHONPATH"]
    mounted = {one["name"]: one["mountPath"] for one in process["volumeMounts"]}
    assert mounted["secret-prometheus"] == "/secrets/prometheus"
    assert mounted["config-map-authorities"] == "/config-maps/authorities"
    assert mounted["tools"] == "/tools"
    of_twins = {one["name"] for one in twins["volumeMounts"]}
    assert "tools" in of_twins
    assert not {name for name in of_twins if name.startswith("secret-")}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert mounted.keys() | of_twins <= volumes.keys() | {"journal"}
    assert volumes["config-map-authorities"]["configMap"]["name"] == "our-ca"
    secret = volumes["secret-prometheus"]["secret"]
    assert secret["secretName"] == "thanos-account"
    # The process refuses an account that every user can read.
    account = tmp_path / "account"
    account.write_text("reader:word")
    account.chmod(secret["defaultMode"])
    assert private_text(account, "prometheus_account") == "reader:word"
    (owner,) = (one for one in found if one["kind"] == "ServiceAccount")
    assert "eks.amazonaws.com/role-arn" in owner["metadata"]["annotations"]


@needs_go
@pytest.mark.parametrize("mode", ["shadow", "advise", "active"])
def test_rights_within_a_namespace_are_those_of_the_cluster_and_no_more(mode: str) -> None:
    wide, narrow = (
        keyed(objects({"mode": mode, "rbac": {"scope": scope}}))
        for scope in ("cluster", "namespace")
    )
    well_formed(objects({"mode": mode, "rbac": {"scope": "namespace"}}))
    of_cluster = {k for (k, _), one in narrow.items() if "namespace" not in one["metadata"]}
    fence = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert of_cluster == (fence if mode == "active" else set())
    roles = {name: one for (kind, name), one in narrow.items() if kind == "Role"}
    for (kind, name), one in wide.items():
        if kind == "ClusterRole":
            assert roles[name]["rules"] == one["rules"]
            assert roles[name]["metadata"]["namespace"] == "flink"
        if kind == "ClusterRoleBinding":
            bound = narrow["RoleBinding", name]
            assert bound["metadata"]["namespace"] == "flink"
            assert bound["subjects"] == one["subjects"]
            assert bound["roleRef"] == {**one["roleRef"], "kind": "Role"}


@needs_go
@pytest.mark.parametrize("name", ALL_STACKS)
@pytest.mark.parametrize("prometheus_url", [None, "http://127.0.0.1:9090"])
def test_a_discovered_fleet_runs_on_every_stack(
    tmp_path: Path, name: str, prometheus_url: str | None
) -> None:
    found = FoundJob("Orders", "a" * 32, "a test", (), resource="FlinkDeployment jobs/orders")
    job = Written("orders", found, line(), "# Orders\njob: orders\n", ())
    place = FleetPlace(selector="team=ads", namespace="jobs", prometheus_url=prometheus_url)
    fleet = fleet_files([job], tmp_path, place)[tmp_path / "fleet" / "values.yaml"]
    both = helming.merged(yaml.safe_load(fleet), stack(name))
    resources = objects(both)
    well_formed(resources)
    found_by = keyed(resources)
    mounted = found_by["ConfigMap", "dsp-gym"]["data"]
    config = parse(model_of("shadow"), mounted["shadow.yaml"], "shadow.yaml")
    assert isinstance(config, RunConfig)
    assert config.where.kubernetes is not None
    url = str(config.where.kubernetes.prometheus_url)
    policy = found_by["NetworkPolicy", "dsp-gym"]["spec"]
    reached = [
        (to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
         rule["ports"][0]["port"])
        for rule in policy["egress"] for to in rule.get("to", ())
        if "matchLabels" in to["namespaceSelector"]
    ]  # fmt: skip
    host, port = re.fullmatch(r"https?://([^:]+):(\d+)/?", url).groups()
    assert (host.split(".")[1], int(port)) in reached


def test_every_stack_is_one_that_the_tests_know() -> None:
    assert {file.stem for file in STACKS.glob("*.yaml")} == set(ALL_STACKS)


@needs_go
def test_kube_prometheus_stack_selects_what_has_its_label() -> None:
    found = keyed(objects(stack("kube-prometheus-stack")))
    for kind in ("PodMonitor", "PrometheusRule"):
        assert found[kind, "dsp-gym"]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    endpoint = found["PodMonitor", "dsp-gym"]["spec"]["podMetricsEndpoints"][0]
    assert endpoint["honorLabels"] is True
    dashboard = found["ConfigMap", "dsp-gym-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


@needs_go
@pytest.mark.parametrize(
    ("api", "kind", "endpoints", "credentials"),
    [
        ("operator", "PodMonitor", "podMetricsEndpoints", {"name": "readers", "key": "token"}),
        ("google", "PodMonitoring", "endpoints", {"secret": {"name": "readers", "key": "token"}}),
    ],
)
def test_metrics_that_are_not_public_are_scraped_with_a_token(
    api, kind, endpoints, credentials
) -> None:
    monitoring = {"enabled": True, "api": api, "exportedLabels": api == "google"}
    monitoring["authorization"] = {"name": "readers", "key": "token"}
    found = keyed(objects({"monitoring": monitoring, "config": {"serve": {"public": False}}}))
    (endpoint,) = found[kind, "dsp-gym"]["spec"][endpoints]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": credentials}


@needs_go
def test_openshift_chooses_the_user_and_the_account_only_reads() -> None:
    found = keyed(objects(stack("openshift")))
    security = found["StatefulSet", "dsp-gym"]["spec"]["template"]["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert not security.keys() & {"runAsUser", "runAsGroup", "fsGroup"}
    bound = {
        one["roleRef"]["name"]
        for (kind, _), one in found.items()
        if kind == "ClusterRoleBinding"
        and one["subjects"][0]["name"] == "dsp-gym-shadow"
    }  # fmt: skip
    rules = [rule for name in bound for rule in found["ClusterRole", name]["rules"]]
    assert len(rules) == 3
    assert not [right for rule in rules for right in excessive(rule)]
    # The proxy takes POST, with which Prometheus is asked, for `create`.
    assert {"get", "create"} <= {verb for rule in rules for verb in rule["verbs"]
                                 if rule["resources"] == ["prometheuses/api"]}  # fmt: skip
    ports = {port["port"] for rule in found["NetworkPolicy", "dsp-gym"]["spec"]["egress"]
             for port in rule["ports"]}  # fmt: skip
    assert ports == {53, 5353, 6443, 8081, 9091}


def excessive(rule: Resource) -> list[str]:
    groups, names = tuple(rule["apiGroups"]), tuple(rule.get("resourceNames", ()))
    told = Rule(tuple(rule["verbs"]), groups, tuple(rule["resources"]), names)
    return [str(right) for right in told.excessive()]


@needs_go
def test_gke_scrapes_and_alerts_with_its_own_kinds() -> None:
    found = keyed(objects(stack("gke-managed-prometheus")))
    assert {one["apiVersion"] for one in found.values() if one["apiVersion"][:11] == "monitoring."
            } == {"monitoring.googleapis.com/v1"}  # fmt: skip
    scraped = found["PodMonitoring", "dsp-gym"]["spec"]
    assert scraped["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "30s"}]
    assert found["Rules", "dsp-gym"]["spec"]["groups"][0]["rules"]
    readers = found["NetworkPolicy", "dsp-gym"]["spec"]["ingress"][0]["from"]
    names = [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
             for one in readers]  # fmt: skip
    assert names == ["monitoring", "gmp-system"]


@needs_go
def test_alerts_and_dashboard_find_a_job_whose_labels_were_renamed(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on the PATH")
    changes = helming.merged(
        stack("openshift"),
        {"monitoring": {"dashboard": {"enabled": True}, "runbooks": "https://docs.example/a/"}},
    )
    found = keyed(objects(changes))
    rules = found["PrometheusRule", "dsp-gym"]["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    job = 'namespace="gym", job="gym/dsp-gym", exported_namespace="flink", exported_job="q11"'
    labels = {"namespace": "gym", "job": "gym/dsp-gym", "exported_namespace": "flink",
              "exported_job": "q11"}  # fmt: skip
    fired = {
        **labels, "condition": "Paused", "severity": "critical",
    }  # fmt: skip
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'dsp_gym_condition{{{job}, condition="Paused"}}', "values": "1x30"},
            {"series": f'dsp_gym_condition{{{job}, condition="Behind"}}', "values": "1x30"},
            # Another job of the same process is behind, and not paused.
            {"series": 'dsp_gym_condition{namespace="gym", job="gym/dsp-gym", '
             'exported_namespace="flink", exported_job="ads", condition="Behind"}',
             "values": "1x30"},
        ],
        "alert_rule_test": [
            {"eval_time": "20m", "alertname": "DspGymPausedWhileBehind", "exp_alerts": [
                {"exp_labels": fired, "exp_annotations": {
                    "runbook_url": "https://docs.example/a/#dspgympausedwhilebehind",
                    "summary": "flink/q11 is behind, and its policy is paused or was rolled back",
                    "description": "The condition Paused says why, and who may go on.",
                }},
            ]},
        ],
    }  # fmt: skip
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    command = ["promtool", "test", "rules", "test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [
        yaml.safe_dump(rules),
        found["ConfigMap", "dsp-gym-dashboard"]["data"]["dashboard.json"],
    ]
    for text in texts:
        # The variables of the dashboard keep their names; what is asked of Prometheus does not.
        asked = re.sub(r"exported_\w+|\$\w+|\"name\": \"\w+\"", "", text)
        renamed = r"[{,(] ?(namespace|job)[=,)\\]|labels\.(namespace|job)|\{\{job"
        assert not re.search(renamed, asked)


@needs_go
def test_alerts_name_a_runbook_where_there_is_one() -> None:
    enabled = {"enabled": True}
    (group,) = keyed(objects({"monitoring": enabled}))["PrometheusRule", "dsp-gym"]["spec"][
        "groups"
    ]
    assert not [rule for rule in group["rules"] if "runbook_url" in rule["annotations"]]
    named = {"monitoring": {**enabled, "runbooks": "https://docs.example/alerts/"}}
    (group,) = keyed(objects(named))["PrometheusRule", "dsp-gym"]["spec"]["groups"]
    for rule in group["rules"]:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "https://docs.example/alerts/"
        assert anchor == rule["alert"].lower()
