"""The manifests of `deploy/`: schemas, rights, fence, alerts, dashboard, image."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from dsp_gym.backends.kubernetes.resources import FlinkResource
from tests.kustomizing import render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZATIONS = ["base", "monitoring", "overlays/advise", "overlays/active"]
KEY = "pipeline.jobvertex-parallelism-overrides"
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


def pod(folder: str) -> dict[str, Any]:
    (deployment,) = of_kind(folder, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
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
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH")
    command = ["kubectl", "kustomize", str(DEPLOY / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unknown field" in done.stderr:  # kubectl before 1.21 knows no `patches`
        pytest.skip("this kubectl is too old")
    assert done.returncode == 0, done.stderr

    def keyed(resources: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(r["kind"], r["metadata"]["name"]): r for r in resources}

    assert keyed(list(yaml.safe_load_all(done.stdout))) == keyed(render(DEPLOY / folder))


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
    (config,) = (r for r in of_kind("base", "ConfigMap") if r["metadata"]["name"] == "dsp-gym")
    serve = yaml.safe_load(config["data"]["shadow.yaml"])["serve"]
    assert (serve["port"], serve["probe_port"]) == (ports["http"], ports["probes"])
    (service,) = of_kind("base", "Service")
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    assert f"{ports['probes']}/healthz" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


@functools.cache
def compiled(expression: str) -> Any:
    """A CEL expression, parsed; it keeps nothing of what it is evaluated with."""
    import celpy

    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def fence_says(before: dict[str, Any], after: dict[str, Any], user: str) -> list[str]:
    """Messages of the fence's rules that refuse a change, by evaluating its CEL."""
    import celpy

    (policy,) = of_kind("overlays/active", "ValidatingAdmissionPolicy")
    known = {
        name: celpy.json_to_cel(value)
        for name, value in (
            ("oldObject", before), ("object", after), ("request", {"userInfo": {"username": user}}),
        )
    }  # fmt: skip

    def value(expression: str) -> Any:
        return compiled(expression).evaluate(known)

    def holds(expression: str) -> bool:
        try:
            return bool(value(expression))
        except celpy.CELEvalError:
            return False  # failurePolicy: Fail

    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    if not all(holds(condition["expression"]) for condition in spec["matchConditions"]):
        return []
    known["variables"] = celpy.celtypes.MapType()
    for variable in spec["variables"]:
        named = celpy.celtypes.StringType(variable["name"])
        known["variables"][named] = value(variable["expression"])
    return [rule["message"] for rule in spec["validations"] if not holds(rule["expression"])]


ACTOR = "system:serviceaccount:dsp-gym:dsp-gym-actor"


INNER = "jobvertex-parallelism-overrides"


def flink(image: str = "flink:2.1", **configuration: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q11"}, "spec": {"image": image, "job": {"parallelism": 4},
                                                  "flinkConfiguration": configuration}}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (flink(**{KEY: "a:1"}), flink(**{KEY: "a:2"}), None),
        (flink(), flink(**{KEY: "a:2"}), None),
        (flink(state="rocksdb", **{KEY: "a:1"}), flink(state="rocksdb", **{KEY: "a:2"}), None),
        (flink(**{KEY: "a:1"}), flink("flink:2.2", **{KEY: "a:2"}), "flinkConfiguration only"),
        (flink(state="rocksdb"), flink(state="heap"), "overrides only"),
        (flink(state="rocksdb"), flink(), "overrides only"),
        (flink(), flink(state="heap"), "overrides only"),
        (flink(**{KEY: "a:1"}), flink(), "may not remove an override"),
        # one text, or a map by vertex, inside a map
        (flink(pipeline={INNER: "a:1"}), flink(pipeline={INNER: "a:2"}), None),
        (flink(pipeline={INNER: {"a": 1}}), flink(pipeline={INNER: {"a": 2}}), None),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={"jars": "x", INNER: "a:2"}),
            None,
        ),
        (flink(pipeline={"jars": "x"}), flink(pipeline={"jars": "x", INNER: "a:2"}), None),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={"jars": "y", INNER: "a:2"}),
            "overrides only",
        ),
        (
            flink(pipeline={INNER: "a:1"}),
            flink(pipeline={"jars": "x", INNER: "a:2"}),
            "overrides only",
        ),
        (
            flink(pipeline={"jars": "x", INNER: "a:1"}),
            flink(pipeline={INNER: "a:2"}),
            "overrides only",
        ),
        (flink(), flink(pipeline={"jars": "x"}), "overrides only"),
        (flink(pipeline={"jars": "x"}), flink(), "overrides only"),
        (flink(pipeline={INNER: "a:1"}), flink(pipeline={}), "may not remove an override"),
        (flink(pipeline={INNER: "a:1"}), flink(), "may not remove an override"),
        (flink(pipeline={INNER: "a:1"}), flink(pipeline="x"), "overrides only"),
        # one key per vertex
        (flink(**{f"{KEY}.a": "1"}), flink(**{f"{KEY}.a": "2", f"{KEY}.b": "3"}), None),
        (
            flink(**{f"{KEY}.a": "1", f"{KEY}.b": "3"}),
            flink(**{f"{KEY}.a": "1"}),
            "may not remove an override",
        ),
        (flink(pipeline={f"{INNER}.a": 1}), flink(pipeline={f"{INNER}.a": 2}), None),
        (flink(), flink(**{f"{KEY}-not": "1"}), "overrides only"),
        # two spellings
        (
            flink(pipeline={INNER: "a:1"}),
            flink(pipeline={INNER: "a:1"}, **{KEY: "a:2"}),
            "in two ways",
        ),
        (flink(**{KEY: "a:1"}), flink(pipeline={INNER: "a:1"}, **{KEY: "a:1"}), "in two ways"),
    ],
)
def test_the_fence_lets_the_actor_change_one_key(before, after, refused) -> None:
    said = fence_says(before, after, ACTOR)
    assert (said == []) if refused is None else any(refused in message for message in said)
    assert fence_says(before, after, "system:serviceaccount:flink:operator") == []


@pytest.mark.parametrize(
    "configuration",
    [
        {KEY: "a:1"}, {KEY: {"a": 1}}, {f"{KEY}.a": "1"}, {}, {"state": "rocksdb"},
        {"pipeline": {INNER: "a:1", "jars": "x"}}, {"pipeline": {INNER: {"a": 1}}},
        {"pipeline": {f"{INNER}.a": 1}},
    ],
)  # fmt: skip
def test_the_fence_lets_pass_what_the_process_writes_in_every_spelling(configuration) -> None:
    before = flink(**configuration)
    patch = FlinkResource.parse({"kind": "FlinkDeployment", **before}).patch_for({"a": 3})
    after = merged(before, patch)
    assert FlinkResource.parse({"kind": "FlinkDeployment", **after}).overrides == {"a": 3}
    assert fence_says(before, after, ACTOR) == []


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    return {**old, **{key: merged(old.get(key), value) for key, value in patch.items()}}


def test_the_fence_lets_nobody_reach_a_spec_without_configuration_by_another_way() -> None:
    bare = {"metadata": {}, "spec": {"image": "flink:2.1"}}
    assert fence_says(bare, {"metadata": {}, "spec": {"image": "flink:2.1", "mode": "x"}}, ACTOR)
    added = {"metadata": {}, "spec": {"image": "flink:2.1", "flinkConfiguration": {KEY: "a:2"}}}
    assert fence_says(bare, added, ACTOR) == []


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
    case = {
        "interval": "1m",
        "input_series": [
            {"series": "dsp_gym_data_age_seconds" + series % "", "values": "20x10 400x20"},
            {"series": "dsp_gym_condition" + series % ', condition="Journaling"',
             "values": "1x10 0x20"},
            {"series": "dsp_gym_writes_total" + series % ', outcome="timed_out"',
             "values": "0x10 4x20"},
        ],
        "alert_rule_test": [
            {"eval_time": "10m", "alertname": "DspGymDataStale", "exp_alerts": []},
            {"eval_time": "20m", "alertname": "DspGymDataStale",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "warning"}}]},
            {"eval_time": "20m", "alertname": "DspGymJournalStopped",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "warning",
                                            "condition": "Journaling"}}]},
            {"eval_time": "20m", "alertname": "DspGymWritesFail",
             "exp_alerts": [{"exp_labels": {**labels, "severity": "critical",
                                            "outcome": "timed_out"}}]},
        ],
    }  # fmt: skip
    for entry in case["alert_rule_test"]:
        for alert in entry["exp_alerts"]:
            alert["exp_annotations"] = expected(entry["alertname"], alert["exp_labels"])
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


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
    shown = [t["expr"] for panel in dashboard()["panels"] for t in panel["targets"]]
    alerts = [rule["expr"] for group in alert_rules()["groups"] for rule in group["rules"]]
    return [re.sub(r"\$(\w+)", r"\1", expression) for expression in shown] + alerts


def test_every_expression_is_promql(tmp_path: Path) -> None:
    recorded = [{"record": f"shown:{i}", "expr": e} for i, e in enumerate(expressions())]
    document = {"groups": [{"name": "shown", "rules": recorded}]}
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = promtool("check", "rules", "shown.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_of_dashboard_and_alerts_is_exported_with_its_labels() -> None:
    from tests.unit.control.serve.test_exporter import NAMES  # held against what is served

    for expression in expressions():
        for name, selected in re.findall(r"dsp_gym_(\w+)(\{[^}]*\})?", expression):
            plain = re.sub(r"_(total|bucket)$", "", name)
            assert plain in NAMES, expression
            labels = set(re.findall(r"(\w+)(?==|!)", selected))
            assert labels <= NAMES[plain] | {"namespace", "job"}, expression


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

    (config,) = (r for r in of_kind("base", "ConfigMap") if r["metadata"]["name"] == "dsp-gym")
    document = yaml.safe_load(config["data"]["shadow.yaml"])
    read = parse(model_of("shadow"), document, "shadow.yaml")
    assert read.mode == "shadow"


def test_the_component_adds_the_registrys_image_before_the_process() -> None:
    component = DEPLOY / "components" / "policy-from-registry" / "kustomization.yaml"
    document = yaml.safe_load(component.read_text(encoding="utf-8"))
    (patch,) = document["patches"]
    operations = yaml.safe_load(patch["patch"])
    (init,) = operations[0]["value"]
    assert init["args"][:2] == ["policy", "pull"]
    from typer.main import get_command

    from dsp_gym.cli import app

    pull = get_command(app).commands["policy"].commands["pull"]
    options = {option for parameter in pull.params for option in parameter.opts}
    given = {a.partition("=")[0] for a in init["args"] if a.startswith("--")}
    assert given <= options
    assert "--replace" in given  # a pod that restarts finds the policy it fetched before


@pytest.mark.slow
def test_checkov_finds_nothing_that_is_not_justified(tmp_path: Path) -> None:
    checkov = ROOT / ".venv-checkov" / "bin" / "checkov"
    if not checkov.exists() and "CI" not in os.environ:
        pytest.skip("no checkov: make .venv-checkov")
    skipped = {
        "CKV_K8S_11": "a CPU limit throttles decisions; the request is enough",
        "CKV_K8S_15": "an image loaded into the nodes by hand cannot always be pulled",
        "CKV_K8S_38": "the token is what the API server is read with",
        "CKV_K8S_43": "whoever builds the image knows its digest",
    }
    for folder in ("overlays/advise", "overlays/active"):  # both hold the base
        text = yaml.safe_dump_all(render(DEPLOY / folder))
        (tmp_path / f"{Path(folder).name}.yaml").write_text(text, encoding="utf-8")
    shutil.copy(DEPLOY / "Dockerfile", tmp_path)
    command = [str(checkov), "--directory", str(tmp_path), "--framework", "kubernetes",
               "dockerfile", "--skip-check", ",".join(skipped), "--skip-download", "--quiet",
               "--compact", "--output", "json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reports = json.loads(done.stdout)
    assert {report["check_type"] for report in reports} == {"kubernetes", "dockerfile"}
    for report in reports:
        failed = report["results"]["failed_checks"]
        assert not failed, [(f["check_id"], f["check_name"], f["resource"]) for f in failed]
        assert report["summary"]["passed"] > 10
