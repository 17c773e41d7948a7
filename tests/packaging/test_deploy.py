"""The manifests of `deploy/`: schemas, rights, fence, alerts, dashboard, image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from dsp_gym.control.config import ServeConfig
from tests import helming
from tests.kustomizing import agree_with_kubectl, render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("overlays/advise", "overlays/active")
KUSTOMIZATIONS = ["base", "monitoring", *OVERLAYS]
WRITING = {"create", "update", "patch", "delete", "deletecollection", "*"}


def of_kind(folder: str, kind: str) -> list[dict[str, Any]]:
    return [r for r in render(DEPLOY / folder) if r["kind"] == kind]


def rules(folder: str) -> dict[str, set[str]]:
    """Verbs by resource, over all roles."""
    found: dict[str, set[str]] = {}
    for role in of_kind(folder, "ClusterRole") + of_kind(folder, "Role"):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def replicas(folder: str) -> dict[str, Any]:
    (found,) = of_kind(folder, "StatefulSet")
    spec: dict[str, Any] = found["spec"]
    return spec


def pod(folder: str) -> dict[str, Any]:
    spec: dict[str, Any] = replicas(folder)["template"]["spec"]
    return spec


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_every_resource_has_the_shape_kubernetes_wants(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the jsonschema it uses
        import kubernetes_validate
    for resource in render(DEPLOY / folder):
        if resource["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # no schema of the Prometheus Operator is at hand; promtool reads the rules
        kubernetes_validate.validate(resource, "1.32", strict=True)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_the_renderer_of_these_tests_and_kubectl_agree(folder: str) -> None:
    agree_with_kubectl(DEPLOY / folder)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_what_belongs_to_a_namespace_names_it(folder: str) -> None:
    # Not by kustomize's `namespace`: it gives one to admission policies, which have none.
    wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding"}  # fmt: skip
    for resource in render(DEPLOY / folder):
        named = resource["metadata"].get("namespace")
        assert named == (None if resource["kind"] in wide else "dsp-gym"), resource["kind"]


def test_yaml_is_in_good_style() -> None:
    config = YamlLintConfig(file=str(ROOT / ".yamllint.yaml"))
    for file in sorted(DEPLOY.rglob("*.yaml")):
        if "templates" in file.parts:
            continue  # of the chart; rendered they are YAML
        problems = list(linter.run(file.read_text(encoding="utf-8"), config))
        assert not problems, f"{file}: {problems[0]}"


def test_shadow_mode_may_only_read() -> None:
    assert rules("base") == {
        "flinkdeployments": {"get", "list", "watch"},
        "flinksessionjobs": {"get", "list", "watch"},
    }


def test_advising_may_write_nothing_but_events() -> None:
    writing = {resource: verbs & WRITING for resource, verbs in rules("overlays/advise").items()}
    assert {r: v for r, v in writing.items() if v} == {"events": {"create"}}


def test_acting_has_an_account_of_its_own_that_may_patch_jobs_under_a_lease() -> None:
    writing = {resource: verbs & WRITING for resource, verbs in rules("overlays/active").items()}
    assert {r: v for r, v in writing.items() if v} == {
        "flinkdeployments": {"patch"},
        "flinksessionjobs": {"patch"},
        "events": {"create"},
        "leases": {"create", "update"},
    }
    accounts = {folder: pod(folder)["serviceAccountName"] for folder in KUSTOMIZATIONS
                if folder != "monitoring"}  # fmt: skip
    assert len(set(accounts.values())) == 3
    bound = {s["name"] for b in of_kind("base", "ClusterRoleBinding") for s in b["subjects"]}
    assert bound == {accounts["base"]}


def test_nothing_acts_unless_an_overlay_says_apply() -> None:
    assert "--apply" not in pod("base")["containers"][0]["args"]
    for mode in ("advise", "active"):
        args = pod(f"overlays/{mode}")["containers"][0]["args"]
        assert args[-2:] == [f"--mode={mode}", "--apply"]


def test_liveness_asks_only_the_process_itself() -> None:
    (container,) = pod("base")["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_probes_have_a_port_of_their_own_which_the_configuration_names() -> None:
    (container,) = pod("base")["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "probes"
    serve = shadow_yaml()["serve"]
    assert (serve["port"], serve["probe_port"]) == (ports["http"], ports["probes"])
    for service in of_kind("base", "Service"):
        assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    assert f"{ports['probes']}/healthz" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def shadow_yaml(folder: str = "base") -> dict[str, Any]:
    """The configuration that the manifests give the process."""
    (config,) = (r for r in of_kind(folder, "ConfigMap") if r["metadata"]["name"] == "dsp-gym")
    document: dict[str, Any] = yaml.safe_load(config["data"]["shadow.yaml"])
    return document


def test_ports_are_those_of_the_command_and_of_the_guide() -> None:
    serve, default = shadow_yaml()["serve"], ServeConfig()
    assert (serve["port"], serve["probe_port"]) == (default.port, default.port + 1)
    exposed = re.findall(
        r"^EXPOSE (.*)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.M
    )
    assert exposed == [f"{serve['port']} {serve['probe_port']}"]
    for service in of_kind("base", "Service"):
        assert [port["port"] for port in service["spec"]["ports"]] == [serve["port"]]
    guide = (ROOT / "docs" / "guides" / "shadow.md").read_text(encoding="utf-8")
    assert f"`serve.port` ({serve['port']})" in guide
    assert "8080" not in guide


def test_where_it_acts_two_replicas_stand_by_each_other_and_elsewhere_one_watches() -> None:
    counts = {folder: replicas(folder)["replicas"] for folder in ("base", *OVERLAYS)}
    assert counts == {"base": 1, "overlays/advise": 1, "overlays/active": 2}
    (spread,) = pod("overlays/active")["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"  # one node is better than one replica
    labels = replicas("overlays/active")["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_an_eviction_leaves_one_of_two_replicas_and_a_sick_one_blocks_no_drain() -> None:
    (budget,) = of_kind("overlays/active", "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    labels = replicas("overlays/active")["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"] == labels
    for folder in ("base", "overlays/advise"):  # with one replica it would block every drain
        assert of_kind(folder, "PodDisruptionBudget") == []


@pytest.mark.parametrize("folder", ["base", "overlays/advise", "overlays/active"])
def test_every_replica_has_a_journal_of_its_own_on_a_volume(folder: str) -> None:
    spec = replicas(folder)
    (claim,) = spec["volumeClaimTemplates"]
    (container,) = pod(folder)["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == shadow_yaml(folder)["journal"]
    assert claim["metadata"]["name"] not in {volume["name"] for volume in pod(folder)["volumes"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    size = claim["spec"]["resources"]["requests"]["storage"]
    assert int(size.removesuffix("Gi")) * 1024 >= 2 * shadow_yaml(folder)["journal_max_mib"]
    assert spec.get("persistentVolumeClaimRetentionPolicy") is None  # kept
    headless = {s["metadata"]["name"]: s["spec"] for s in of_kind(folder, "Service")}
    assert headless[spec["serviceName"]]["clusterIP"] == "None"
    assert spec["podManagementPolicy"] == "Parallel"  # the second waits for no sick first


def test_a_replica_has_the_time_to_give_its_lease_up() -> None:
    from dsp_gym.backends.kubernetes.actuator import Pace

    grace_s = pod("overlays/active")["terminationGracePeriodSeconds"]
    assert grace_s > Pace().close_s


def allowed(folder: str) -> list[dict[str, Any]]:
    """Egress rules of all network policies that select the pods."""
    labels = replicas(folder)["template"]["metadata"]["labels"]
    found = []
    for policy in of_kind(folder, "NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        found += policy["spec"].get("egress", [])
    return found


def reaches(rules: list[dict[str, Any]], url: str, labels: dict[str, str]) -> bool:
    """Whether pods with such labels are reached under a URL of the form http://NAME.NAMESPACE:PORT."""
    host = urlsplit(url)
    assert host.hostname is not None
    namespace = {"kubernetes.io/metadata.name": host.hostname.split(".")[1]}
    for rule in rules:
        if host.port not in [port["port"] for port in rule["ports"]]:
            continue
        for to in rule.get("to", [{}]):
            wanted = to.get("namespaceSelector", {}).get("matchLabels", {})
            pods = to.get("podSelector", {}).get("matchLabels", {})
            if wanted.items() <= namespace.items() and pods.items() <= labels.items():
                return True
    return False


@pytest.mark.parametrize("folder", ["base", "overlays/advise", "overlays/active"])
def test_the_network_policy_lets_it_reach_what_it_needs_and_nothing_else(folder: str) -> None:
    rules, where = allowed(folder), shadow_yaml(folder)["where"]["kubernetes"]
    assert reaches(rules, where["prometheus_url"], {})
    assert reaches(rules, where["rest_url"], {"component": "jobmanager"})
    assert not reaches(rules, where["rest_url"], {"component": "taskmanager"})
    assert not reaches(rules, "http://grafana.monitoring:3000", {})
    everywhere = [rule for rule in rules if "to" not in rule]
    ports = {(p["port"], p.get("protocol", "TCP")) for rule in everywhere for p in rule["ports"]}
    assert ports == {(53, "UDP"), (53, "TCP"), (443, "TCP"), (6443, "TCP")}  # DNS, API server
    (policy,) = of_kind(folder, "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    (way_in,) = policy["spec"]["ingress"]
    assert [port["port"] for port in way_in["ports"]] == ["http"]
    assert way_in["from"]


def alert_rules() -> dict[str, Any]:
    (resource,) = of_kind("monitoring", "PrometheusRule")
    spec: dict[str, Any] = resource["spec"]
    return spec


def promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None and "CI" not in os.environ:
        pytest.skip("no promtool on the PATH")
    command = ["promtool", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(alert_rules()), encoding="utf-8")
    labels = {"namespace": "flink", "job": "q11"}
    series = '{namespace="flink", job="q11"%s}'
    errors = "dsp_gym_api_errors_total" + series % ', api="%s", reason="%s"'
    case = {
        "interval": "1m",
        "input_series": [
            {"series": "dsp_gym_data_age_seconds" + series % "", "values": "20x10 400x20"},
            {"series": "dsp_gym_condition" + series % ', condition="Journaling"',
             "values": "1x10 0x20"},
            {"series": "dsp_gym_writes_total" + series % ', outcome="failed"',
             "values": "0x10 4x20"},
            {"series": "dsp_gym_rescaling" + series % "", "values": "0x5 1x25"},
            {"series": "dsp_gym_condition" + series % ', condition="Paused"', "values": "1x30"},
            {"series": "dsp_gym_condition" + series % ', condition="Behind"',
             "values": "0x10 1x20"},
            {"series": "dsp_gym_held_total" + series % ', reason="runaway"', "values": "0x10 1x20"},
            {"series": errors % ("prometheus", "Forbidden"), "values": "0x10 5x20"},
            {"series": 'dsp_gym_build_info{version="1", instance="a"}', "values": "1x30"},
            {"series": 'dsp_gym_build_info{version="1", instance="b"}', "values": "1x10 _x20"},
            {"series": 'up{job="dsp-gym", instance="a"}', "values": "1x30"},
            {"series": 'up{job="dsp-gym", instance="b"}', "values": "1x10 0x20"},
            {"series": 'up{job="others", instance="c"}', "values": "0x30"},
            {"series": 'dsp_gym_upstream_abandoned{upstream="http://flink:8081"}',
             "values": "0x10 1x20"},
        ],
        "alert_rule_test": [
            {"eval_time": "10m", "alertname": "DspGymDataStale", "exp_alerts": []},
            {"eval_time": "20m", "alertname": "DspGymDataStale",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "warning"}}]},
            {"eval_time": "20m", "alertname": "DspGymJournalStopped",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "warning",
                                            "condition": "Journaling"}}]},
            {"eval_time": "20m", "alertname": "DspGymWritesFail",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical"}}]},
            {"eval_time": "20m", "alertname": "DspGymActedWithoutEffect",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "warning",
                                            "outcome": "failed"}}]},
            {"eval_time": "12m", "alertname": "DspGymRescaleUnfinished", "exp_alerts": []},
            {"eval_time": "20m", "alertname": "DspGymRescaleUnfinished",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical"}}]},
            {"eval_time": "10m", "alertname": "DspGymPausedWhileBehind", "exp_alerts": []},
            {"eval_time": "20m", "alertname": "DspGymPausedWhileBehind",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical",
                                            "condition": "Paused"}}]},
            {"eval_time": "20m", "alertname": "DspGymRunaway",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical",
                                            "reason": "runaway"}}]},
            {"eval_time": "20m", "alertname": "DspGymTokenRefused",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical",
                                            "api": "prometheus"}}]},
            {"eval_time": "10m", "alertname": "DspGymGone", "exp_alerts": []},
            {"eval_time": "25m", "alertname": "DspGymGone",
             "exp_alerts": [{"exp_labels": {"severity": "critical", "job": "dsp-gym",
                                            "instance": "b"}}]},
            {"eval_time": "20m", "alertname": "DspGymUpstreamLate",
             "exp_alerts": [{"exp_labels": {"severity": "warning",
                                            "upstream": "http://flink:8081"}}]},
        ],
    }  # fmt: skip
    for entry in case["alert_rule_test"]:
        for alert in entry["exp_alerts"]:
            alert["exp_annotations"] = expected(entry["alertname"], alert["exp_labels"])
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_outage_of_all_that_is_asked_is_told(tmp_path: Path) -> None:
    """A decision a minute counts a failure a minute; the metrics of the job are gone."""
    labels = {"namespace": "flink", "job": "q11"}
    series = '{namespace="flink", job="q11", %s}'
    errors = "dsp_gym_api_errors_total" + series % 'api="prometheus", reason="Timeout"'
    tell(
        tmp_path,
        {errors: "0x10 1+1x40", "dsp_gym_condition" + series % 'condition="Ready"': "1x10 0x40"},
        {
            ("10m", "DspGymApiErrors"): [],
            ("40m", "DspGymApiErrors"): [
                {**labels, "severity": "warning", "api": "prometheus", "reason": "Timeout"}
            ],
            ("15m", "DspGymJobNotSeen"): [],
            ("25m", "DspGymJobNotSeen"): [{**labels, "severity": "warning", "condition": "Ready"}],
        },
    )


@pytest.mark.parametrize(
    ("outcomes", "fires"),
    [
        (("failed", "refused", "rolled_back"), True),
        (("failed", "alarm", "rolled_back"), False),  # of one change
        (("refused", "refused"), False),
        (("alarm", "alarm", "alarm"), True),
    ],
)
def test_three_changes_that_went_wrong_are_told_whatever_became_of_each(
    tmp_path: Path, outcomes: tuple[str, ...], fires: bool
) -> None:
    labels = {"namespace": "flink", "job": "q11"}
    writes = 'dsp_gym_writes_total{namespace="flink", job="q11", outcome="%s"}'
    every = ("asked", "failed", "refused", "rolled_back", "alarm")
    tell(
        tmp_path,
        {writes % outcome: f"0x10 {outcomes.count(outcome)}x20" for outcome in every},
        {
            ("20m30s", "DspGymWritesFail"): [{**labels, "severity": "critical"}] * fires,
        },
    )


def tell(
    folder: Path,
    series: dict[str, str],
    alerts: dict[tuple[str, str], list[dict[str, str]]],
) -> None:
    """Hold the alerts against what they should be: labels of those that fire, by time and name."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(alert_rules()), encoding="utf-8")
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": time, "alertname": alert, "exp_alerts": [
                {"exp_labels": one, "exp_annotations": expected(alert, one)} for one in labels
            ]}
            for (time, alert), labels in alerts.items()
        ],
    }  # fmt: skip
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (folder / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("test", "rules", "test.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_fires_where_no_process_was_ever_scraped(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(alert_rules()), encoding="utf-8")
    labels = {"severity": "critical"}
    gone = {"exp_labels": labels, "exp_annotations": expected("DspGymGone", labels)}
    case = {
        "interval": "1m",
        "alert_rule_test": [
            {"eval_time": "10m", "alertname": "DspGymGone", "exp_alerts": [gone]},
        ],
    }
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_fires_where_one_of_two_releases_is_gone_with_its_target(tmp_path: Path) -> None:
    """The target of a pod that was evicted leaves the discovery: its `up` ends, and is not 0."""
    up, info = "up%s", "dsp_gym_build_info%s"
    target = '{namespace="%s", job="%s/dsp-gym", instance="%s", pod="%s"%s}'
    release = ', version="1.1.0"'
    gone = {"namespace": "evicted", "job": "evicted/dsp-gym", "severity": "critical"}
    series: dict[str, str] = {}
    for name, pod, values in (
        ("stays", "a", "1x120"),
        ("evicted", "b", "1x10 _x110"),
        ("moved", "c", "1x10 _x110"),  # another pod takes over
        ("moved", "d", "_x12 1x108"),
    ):
        series[up % (target % (name, name, pod, pod, ""))] = values
        series[info % (target % (name, name, pod, pod, release))] = values
    # Release 1.0.0 gave it the labels of a job, which no newer one has.
    series[info % '{namespace="flink", job="q11", version="1.0.0"}'] = "1x10 _x110"
    alerts = {("10m", "DspGymGone"): [], ("30m", "DspGymGone"): [gone],
              ("2h", "DspGymGone"): [gone]}  # fmt: skip
    tell(tmp_path, series, alerts)


def test_every_alert_says_in_the_docs_what_to_do() -> None:
    page = (DEPLOY.parent / "docs" / "alerts.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    alerts = [rule["alert"] for group in alert_rules()["groups"] for rule in group["rules"]]
    assert sorted(headings) == sorted(alerts)


def test_every_alert_names_its_part_of_that_page() -> None:
    from markdown.extensions.toc import slugify

    for group in alert_rules()["groups"]:
        for rule in group["rules"]:
            page, _, part = rule["annotations"]["runbook_url"].partition("#")
            assert page.endswith("/alerts/")  # as mkdocs names docs/alerts.md
            assert part == slugify(rule["alert"], "-")


def expected(alert: str, labels: dict[str, str]) -> dict[str, str]:
    """Annotations with their labels filled in; the one value is 400 s in words."""
    (rule,) = (r for g in alert_rules()["groups"] for r in g["rules"] if r["alert"] == alert)
    filled = {}
    for name, text in rule["annotations"].items():
        text = text.replace("{{ $value | humanizeDuration }}", "6m 40s")
        filled[name] = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: labels[m[1]], text)
    return filled


def dashboard() -> dict[str, Any]:
    text = (DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def expressions() -> list[str]:
    """PromQL of the dashboard, variables filled in, and of the alerts."""
    shown = [t["expr"] for panel in dashboard()["panels"] for t in panel.get("targets", ())]
    alerts = [rule["expr"] for group in alert_rules()["groups"] for rule in group["rules"]]
    return [re.sub(r"\$(\w+)", r"\1", expression) for expression in shown] + alerts


def test_every_expression_is_promql(tmp_path: Path) -> None:
    recorded = [{"record": f"shown:{i}", "expr": e} for i, e in enumerate(expressions())]
    document = {"groups": [{"name": "shown", "rules": recorded}]}
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("check", "rules", "shown.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_of_dashboard_and_alerts_is_exported_with_its_labels() -> None:
    # Both are held against what is served.
    from tests.unit.control.serve.test_exporter import NAMES as ALWAYS
    from tests.unit.control.serve.test_exporter import OF_PROCESS, OF_UPSTREAMS
    from tests.unit.control.serve.test_twins import NAMES as OF_TWINS
    from tests.unit.control.serve.test_twins import OF_VERDICT

    known = ALWAYS | OF_TWINS | OF_VERDICT | OF_UPSTREAMS | OF_PROCESS
    for expression in expressions():
        for name, selected in re.findall(r"dsp_gym_(\w+)(\{[^}]*\})?", expression):
            plain = re.sub(r"_(total|bucket)$", "", name)
            assert plain in known, expression
            labels = set(re.findall(r"(\w+)(?==|!)", selected))
            assert labels <= known[plain] | {"namespace", "job"}, expression


def test_the_sums_of_a_fleet_count_every_job_once(tmp_path: Path) -> None:
    """Two replicas export every job; of 300 USD a month 40 are certain, and 25 likely."""
    jobs = {
        "a": {"running_cost_per_month": 100, "claimed_per_month": 40, "late_for_seconds": 0},
        "b": {"running_cost_per_month": 150, "claimed_per_month": 0, "late_for_seconds": 442},
        "c": {"running_cost_per_month": 50, "late_for_seconds": 0},
    }
    series = [
        (f'dsp_gym_{name}{{namespace="namespace",job="{job}",pod="{pod}"{more}}}', value)
        for pod in ("gym-0", "gym-1")
        for job, metrics in jobs.items()
        for name, value in metrics.items()
        for more in ['' if name == "late_for_seconds" else ',currency="USD"']
    ]  # fmt: skip
    for job, word, saved in (("a", "promote", 50), ("b", "keep watching", 25)):
        series += [
            (f'dsp_gym_saving_per_month{{namespace="namespace",job="{job}",pod="{pod}",bound='
             f'"value",verdict="{word}",policy="planner",currency="USD"}}', saved)
            for pod in ("gym-0", "gym-1")
        ]  # fmt: skip
    series.append(('dsp_gym_condition{namespace="namespace",job="c",condition="Ready"}', 0))
    usd = '{currency="USD"}'
    wanted = {
        "Spent a month": (usd, 300), "Can be saved, certain": (usd, 40),
        "Likely, not certain yet": (usd, 25), "Late now": ("{}", 1), "Not seen": ("{}", 1),
        "Without a verdict": ("{}", 1), "Late, for how long": ('{job="b"}', 442),
    }  # fmt: skip
    shown = {one["title"]: one["targets"][0]["expr"] for one in dashboard()["panels"]
             if one["title"] in wanted}  # fmt: skip
    queries = [
        {"expr": shown[title].replace("$namespace", "namespace"), "eval_time": "1m",
         "exp_samples": [{"labels": labels, "value": value}]}
        for title, (labels, value) in wanted.items()
    ]  # fmt: skip
    given = [{"series": name, "values": f"{value} {value}"} for name, value in series]
    document = {"rule_files": [], "tests": [
        {"interval": "1m", "input_series": given, "promql_expr_test": queries},
    ]}  # fmt: skip
    (tmp_path / "sums.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("test", "rules", "sums.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_shipped_configuration_is_one_that_shadow_reads() -> None:
    from dsp_gym.config.files import parse
    from dsp_gym.config.kinds import model_of

    read = parse(model_of("shadow"), shadow_yaml(), "shadow.yaml")
    assert read.mode == "shadow"


def test_the_component_adds_the_registrys_image_before_the_process() -> None:
    component = DEPLOY / "components" / "policy-from-registry" / "kustomization.yaml"
    document = yaml.safe_load(component.read_text(encoding="utf-8"))
    (patch,) = document["patches"]
    operations = yaml.safe_load(patch["patch"])
    (init,) = operations[0]["value"]
    assert init["args"][:2] == ["policy", "pull"]
    assert re.fullmatch(r"models:/\w+/\d+@sha256:[0-9a-f]{64}", init["args"][2])  # no alias
    from typer.main import get_command

    from dsp_gym.cli import app

    pull = get_command(app).commands["policy"].commands["pull"]
    options = {option for parameter in pull.params for option in parameter.opts}
    given = {a.partition("=")[0] for a in init["args"] if a.startswith("--")}
    assert given <= options
    assert "--overwrite" in given  # a pod that restarts finds the policy it fetched before


def test_the_component_of_the_twins_reads_the_journals_that_the_process_writes() -> None:
    from typer.main import get_command

    from dsp_gym.cli import app

    component = DEPLOY / "components" / "twins" / "kustomization.yaml"
    (patch,) = yaml.safe_load(component.read_text(encoding="utf-8"))["patches"]
    twins, *volumes = [one["value"] for one in yaml.safe_load(patch["patch"])]
    command, folder, *options = twins["args"]
    assert folder == shadow_yaml()["journal"]
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").partition(" AS twins\n")[2]
    assert image.partition("CMD ")[2].splitlines()[0] == json.dumps(twins["args"])
    known = get_command(app).commands[command]
    given = {option.partition("=")[0] for option in options}
    assert given <= {option for parameter in known.params for option in parameter.opts}
    shadow = pod("base")["containers"][0]
    mounts = {one["name"]: one["mountPath"] for one in twins["volumeMounts"]}
    theirs = {one["name"]: one["mountPath"] for one in shadow["volumeMounts"]}
    assert {name: mounts[name] for name in ("config", "journal")} == {
        name: theirs[name] for name in ("config", "journal")
    }
    assert {one["name"] for one in volumes} == mounts.keys() - theirs.keys()
    assert "serviceaccount" in mounts["no-account"]  # it cannot write as the pod may
    assert twins["securityContext"] == shadow["securityContext"]


def test_the_component_may_reach_the_registry_it_asks() -> None:
    component = DEPLOY / "components" / "policy-from-registry"
    document = yaml.safe_load((component / "kustomization.yaml").read_text(encoding="utf-8"))
    (resource,) = document["resources"]
    policy = yaml.safe_load((component / resource).read_text(encoding="utf-8"))
    operations = yaml.safe_load(document["patches"][0]["patch"])
    (uri,) = (a for a in operations[0]["value"][0]["args"] if a.startswith("--uri="))
    host, _, port = uri.removeprefix("--uri=http://").partition(":")
    (rule,) = policy["spec"]["egress"]
    (to,) = rule["to"]
    namespace = to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert (host.partition(".")[2], int(port)) == (namespace, rule["ports"][0]["port"])
    (base,) = of_kind("base", "NetworkPolicy")
    assert policy["spec"]["podSelector"] == base["spec"]["podSelector"]


@pytest.mark.validate
def test_checkov_finds_nothing_that_is_not_justified(tmp_path: Path) -> None:
    checkov = ROOT / ".venv-checkov" / "bin" / "checkov"
    if not checkov.exists() and "CI" not in os.environ:
        pytest.skip("no checkov: make .venv-checkov")
    skipped = {
        "CKV_K8S_11": "a CPU limit throttles decisions; the request is enough",
        "CKV_K8S_15": "an image that is named by its digest is the same whenever it was pulled",
        "CKV_K8S_38": "the token is what the API server is read with",
    }
    # OpenShift gives every namespace high users of its own, and refuses others.
    chosen_by_openshift = ("CKV_K8S_40", "StatefulSet.dsp-gym.openshift")
    for folder in ("overlays/advise", "overlays/active"):  # both hold the base
        text = yaml.safe_dump_all(render(DEPLOY / folder))
        (tmp_path / f"{Path(folder).name}.yaml").write_text(text, encoding="utf-8")
    for stack in sorted((helming.CHART / "stacks").glob("*.yaml")):
        given = {**yaml.safe_load(stack.read_text(encoding="utf-8")), "mode": "active"}
        found = helming.render(given, release=stack.stem)
        text = "\n---\n".join(text for name, text in found.items() if name.endswith(".yaml"))
        (tmp_path / stack.name).write_text(text, encoding="utf-8")
    shutil.copy(DEPLOY / "Dockerfile", tmp_path)
    command = [str(checkov), "--directory", str(tmp_path), "--framework", "kubernetes",
               "dockerfile", "--skip-check", ",".join(skipped), "--skip-download", "--quiet",
               "--compact", "--output", "json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reports = json.loads(done.stdout)
    assert {report["check_type"] for report in reports} == {"kubernetes", "dockerfile"}
    for report in reports:
        found = report["results"]["failed_checks"]
        failed = {(one["check_id"], one["resource"]) for one in found} - {chosen_by_openshift}
        assert not failed, [one["check_name"] for one in found]
        assert report["summary"]["passed"] > 10
