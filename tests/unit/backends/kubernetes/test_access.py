"""Rights of an account: confirmed by the server, again every ten minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsp_gym.backends.kubernetes.access import (
    READS,
    RightsWatch,
    WritableAccountError,
    check_read_only,
    hint,
    missing_rights,
    prove_read_only,
    rules_of,
)
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.errors import KubernetesError
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.real_kubernetes import connect

KIND = "FlinkDeployment"


@pytest.fixture
def fake() -> Iterator[FakeKubernetes]:
    with served_kubernetes() as server:
        yield server


@pytest.fixture
def account(fake, tmp_path) -> Iterator[Callable[..., KubernetesApi]]:
    """Connects as an account that may read, and whatever else is given."""
    made = []

    def connected(**more: tuple[str, ...]) -> KubernetesApi:
        rights = {"flinkdeployments": READS, "flinksessionjobs": READS, **more}
        made.append(connect(fake.kubeconfig(tmp_path / "config", fake.account("me", rights)), 2.0))
        return made[-1]

    yield connected
    for api in made:
        api.close()


@pytest.mark.parametrize("is_incomplete", [False, True])
@pytest.mark.parametrize(
    ("granted", "said"),
    [
        ({"flinkdeployments/status": ("patch",)}, ["patch FlinkDeployment/status"]),
        ({"flinksessionjobs/scale": ("update",)}, ["update FlinkSessionJob/scale"]),
        ({"flinkdeployments@words": ("patch",)}, ["patch FlinkDeployment 'words'"]),
        ({"flinkdeployments/status@words": ("patch",)}, ["patch FlinkDeployment/status 'words'"]),
        ({"flinkdeployments": ("*",)}, ["create FlinkDeployment", "delete FlinkDeployment"]),
    ],
)
def test_a_right_to_write_is_found_wherever_it_hides(fake, account, granted, said, is_incomplete):
    fake.incomplete = is_incomplete
    found = prove_read_only(account(**granted), "jobs", KIND, ["more", "words"]).excessive
    assert set(said) <= set(found)
    assert len(said) == len(found) or "*" in str(granted)


@pytest.mark.parametrize(
    ("granted", "said"),
    [
        ({"flinkdeployments@other": ("delete",)}, "delete FlinkDeployment 'other'"),
        ({"flinkdeployments@*": ("patch",)}, "patch FlinkDeployment '*'"),
        ({"flinkdeployments": (*READS, "paatch")}, "paatch FlinkDeployment"),
        ({"flinkstatesnapshots": ("create",)}, "create flinkstatesnapshots.flink.apache.org"),
        ({"flinkdeployments/finalizers": ("update",)}, "update FlinkDeployment/finalizers"),
    ],
)
def test_rules_tell_of_objects_and_verbs_that_nobody_asks_for(account, granted, said):
    with pytest.raises(WritableAccountError, match="must only read") as caught:
        check_read_only(account(**granted), "jobs", KIND, ["words"])
    assert said in str(caught.value)


def test_a_reader_is_proven_to_read_only(fake, account):
    api = account()
    proof = prove_read_only(api, "jobs", KIND, ["words"])
    assert proof.is_read_only
    assert str(proof) == (
        f"the account may change nothing in namespace 'jobs' of {fake.url}; asked: all its rules, "
        "which only read, and 39 rights one by one; not looked at: other namespaces (the account "
        "may not list them)"
    )
    assert [request for request in fake.requests if request.is_write] == []
    many = [f"job-{number}" for number in range(100)]
    before = len(fake.requests)
    assert prove_read_only(api, "jobs", KIND, many).is_read_only
    assert len(fake.requests) - before < 50  # the rules tell of every name


def test_rules_of_everything_and_of_other_groups():
    class Server:
        url = "https://server"

        def __init__(self, *rules: dict[str, Any]) -> None:
            self.rules = rules

        def request(self, method, path, body):
            return {"status": {"resourceRules": list(self.rules), "incomplete": True}}

    every = {"verbs": ["get", "patch"], "apiGroups": ["*"], "resources": ["*", "deployments"]}
    other = {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"]}
    rules = rules_of(Server(every, other), "jobs")
    assert [[str(right) for right in rule.excessive()] for rule in rules.listed] == [
        ["get *", "patch *", "patch deployments"], ["* deployments.apps"]
    ]  # fmt: skip
    assert rules.lacks == "the list of rules is incomplete"


class InMemory(KubernetesApi):
    """The fake server asked without a socket, since some hundred accounts are."""

    def __init__(self, granted: dict[str, tuple[str, ...]], *, incomplete: bool = False) -> None:
        self.url, self.incomplete, self.fake = "https://server", incomplete, FakeKubernetes()
        self.fake.account("me", granted)
        self._connect_s = self._read_s = 1.0
        self.fails: str | None = None  # a resource of which an authorizer cannot tell

    def request(self, method, path, query=(), body=None, content_type="") -> dict[str, Any]:
        if path.endswith("/namespaces"):
            if not self.fake.may("me", "list", "namespaces", None, "", ""):
                raise KubernetesError("namespaces is forbidden", reason="Forbidden")
            return {"items": [{"metadata": {"name": name}} for name in self.fake.namespaces]}
        if path.endswith("/selfsubjectrulesreviews"):
            rules = self.fake.rules("me", body["spec"]["namespace"])
            rules = [] if self.incomplete else rules
            return {"status": {"resourceRules": rules, "incomplete": self.incomplete}}
        asked = body["spec"]["resourceAttributes"]
        allowed = self.fake.may(
            "me", asked["verb"], asked["resource"], asked.get("subresource"),
            asked.get("name", ""), asked["group"],
        )  # fmt: skip
        error = "the webhook timed out" if asked["resource"] == self.fails else ""
        return {"status": {"allowed": allowed, "evaluationError": error}}


READER = {"flinkdeployments": READS, "flinksessionjobs": READS}
WRITES = ("create", "update", "patch", "delete", "deletecollection")
RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
TOO_MUCH = {
    **dict.fromkeys(("pods/exec", "pods/attach", "pods/portforward"), ("create", "get")),
    **dict.fromkeys(("pods/proxy", "services/proxy", "nodes/proxy"), ("create", "get", "update")),
    "pods/ephemeralcontainers": ("update", "patch"),
    "pods/eviction": ("create",),
    "serviceaccounts/token": ("create",),
    **dict.fromkeys(("users", "groups"), ("impersonate",)),
    "serviceaccounts": ("impersonate", *WRITES),
    "userextras.authentication.k8s.io": ("impersonate",),
    "uids.authentication.k8s.io": ("impersonate",),
    "secrets": (*READS, *WRITES),
    **dict.fromkeys(("pods", "services", "configmaps", "replicationcontrollers"), WRITES),
    **{f"{kind}.apps": WRITES for kind in ("deployments", "statefulsets", "replicasets")},
    **{f"{kind}.apps/scale": ("update", "patch") for kind in ("deployments", "statefulsets")},
    **{f"{kind}.apps/status": ("update", "patch") for kind in ("deployments", "replicasets")},
    "daemonsets.apps": WRITES,
    **{f"{kind}.batch": WRITES for kind in ("jobs", "cronjobs")},
    "horizontalpodautoscalers.autoscaling": WRITES,
    "leases.coordination.k8s.io": WRITES,
    **{f"{kind}s.{RBAC}": (*WRITES, "bind", "escalate") for kind in ("role", "clusterrole")},
    **{f"{kind}bindings.{RBAC}": WRITES for kind in ("role", "clusterrole")},
    **{f"{kind}webhookconfigurations.{ADMISSION}": WRITES for kind in ("mutating", "validating")},
    **{f"{kind}admissionpolicies.{ADMISSION}": WRITES for kind in ("mutating", "validating")},
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": WRITES,
    "customresourcedefinitions.apiextensions.k8s.io": WRITES,
    "certificatesigningrequests.certificates.k8s.io/approval": ("update",),
    **{
        f"flink{kind}{sub}": WRITES
        for kind in ("deployments", "sessionjobs")
        for sub in ("", "/status", "/scale")
    },
}
"""Verbs by resource; each of them leads to a job, directly or through another account."""


@pytest.mark.parametrize("is_incomplete", [False, True])
@pytest.mark.parametrize("resource", TOO_MUCH)
def test_each_right_that_leads_to_a_job_is_too_much(resource, is_incomplete):
    for verb in TOO_MUCH[resource]:
        granted = {**READER, resource: (*READER.get(resource, ()), verb)}
        proof = prove_read_only(InMemory(granted, incomplete=is_incomplete), "jobs")
        assert len(proof.excessive) == 1, verb
        kinds = {"flinkdeployments": "FlinkDeployment", "flinksessionjobs": "FlinkSessionJob"}
        plural, slash, sub = resource.partition("/")
        assert proof.excessive[0] == f"{verb} {kinds.get(plural, plural)}{slash}{sub}"


@pytest.mark.parametrize(
    ("granted", "said"),
    [
        ({"*.*": ("get",)}, "get *"),
        ({"*": ("list",)}, "list *"),
        ({"*/exec": ("create",)}, "create */exec"),
        ({"*.apps/scale": ("patch",)}, "patch *.apps/scale"),
        ({"scaledobjects.keda.sh": ("create",)}, "create scaledobjects.keda.sh"),
        ({"secrets@token": ("get",)}, "get secrets 'token'"),
    ],
)
def test_wildcards_and_kinds_of_others_are_too_much(granted, said):
    assert prove_read_only(InMemory({**READER, **granted}), "jobs").excessive == (said,)


@pytest.mark.parametrize(
    "granted",
    [
        {"pods": READS, "pods/log": READS, "configmaps": READS, "deployments.apps": READS},
        {"*.apps": READS, "leases.coordination.k8s.io": READS},
        {"subjectaccessreviews.authorization.k8s.io": ("create",)},
        {"builds.build.openshift.io/docker": ("create",), "oauthaccesstokens": ("delete",)},
        {"securitycontextconstraints.security.openshift.io@nonroot-v2": ("use",)},
        {"userextras.authentication.k8s.io/scopes.authorization.openshift.io": ("impersonate",)},
        # The role cluster-monitoring-view, which OpenShift has for readers of metrics.
        {
            "namespaces": ("get",),
            "prometheuses.monitoring.coreos.com/api@k8s": ("get", "create", "update"),
        },
    ],
)
def test_what_only_reads_or_everybody_has_is_allowed(granted):
    proof = prove_read_only(InMemory({**READER, **granted}), "jobs")
    assert proof.is_read_only
    assert proof.unproved == ()


def test_what_the_server_cannot_tell_is_said_and_not_called_proved():
    api = InMemory(READER, incomplete=True)
    api.fails = "cronjobs"
    said = str(check_read_only(api, "jobs"))
    assert "has none of" in said
    assert "may change nothing" not in said
    assert "not proved: create cronjobs.batch (the webhook timed out)" in said
    assert "on single objects that are not watched (the list of rules is incomplete)" in said


def test_an_error_names_the_rights_and_what_to_do():
    with pytest.raises(WritableAccountError) as caught:
        check_read_only(InMemory({**READER, "pods/exec": ("create",)}), "jobs")
    assert "in namespace 'jobs' of https://server: create pods/exec; " in str(caught.value)
    assert "kubectl get rolebindings,clusterrolebindings" in str(caught.value)


LISTER = {**READER, "namespaces": READS}
"""It may list namespaces, as the proof of all of them needs."""


def test_a_role_in_any_other_namespace_is_found():
    api = InMemory(LISTER)
    for namespace in ("operator", "web"):
        api.fake.grant(namespace, "me", {"pods": READS})
    said = str(check_read_only(api, "jobs"))
    assert said.endswith("one by one; the rules listed in all 2 other namespaces only read, too")
    api.fake.grant("operator", "me", {"pods": ("create",), "flinkdeployments": ("patch",)})
    with pytest.raises(WritableAccountError) as caught:
        check_read_only(api, "jobs")
    assert str(caught.value).startswith(
        "the account may write in namespace 'operator' of https://server: create pods, patch "
        "FlinkDeployment; in shadow mode"
    )


def test_a_right_in_every_namespace_is_named_once():
    api = InMemory({**LISTER, "pods/exec": ("create",)})
    api.fake.grant("web", "me", {"secrets": ("get",)})
    assert str(prove_read_only(api, "jobs")) == (
        "the account may write in namespace 'jobs' of https://server: create pods/exec, and in "
        "namespace 'web' of https://server: get secrets"
    )


def test_without_a_list_the_namespace_of_the_pod_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("dsp_gym.backends.kubernetes.access.SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("dsp-gym\n")
    api = InMemory(READER)
    assert str(prove_read_only(api, "jobs")).endswith(
        "; the rules listed in namespace 'dsp-gym' only read, too; not looked at: other namespaces "
        "(the account may not list them)"
    )
    api.fake.grant("dsp-gym", "me", {"pods": ("create",)})
    assert prove_read_only(api, "jobs").elsewhere.excessive == (("dsp-gym", ("create pods",)),)


def test_of_thousands_of_namespaces_the_sentence_counts_those_not_looked_at(monkeypatch):
    monkeypatch.setattr("dsp_gym.backends.kubernetes.access._LOOK_S", -1.0)
    api = InMemory(LISTER)
    api.fake.grant("web", "me", {"pods": ("create",)})
    assert str(prove_read_only(api, "jobs")).endswith(
        "one by one; not looked at: other namespaces (1 more than could be asked about in -1 s)"
    )


def test_rules_that_are_not_listed_elsewhere_are_not_called_proved():
    api = InMemory(LISTER, incomplete=True)
    api.fake.grant("web", "me", {"pods": READS})
    assert str(prove_read_only(api, "jobs")).endswith(
        "; rights in other namespaces beyond the rules there (the list of rules is incomplete)"
    )


@pytest.mark.parametrize(
    ("file", "excessive"),
    [
        ("base/reader.yaml", ()),
        ("overlays/advise/adviser.yaml", ("create events.events.k8s.io",)),
        ("overlays/active/actor.yaml", ("patch FlinkDeployment", "patch FlinkSessionJob",
                                        "create events.events.k8s.io")),
    ],
)  # fmt: skip
def test_of_the_roles_of_the_manifests_the_reader_only_reads(file, excessive):
    text = (Path(__file__).parents[4] / "deploy" / file).read_text("utf-8")
    role = next(one for one in yaml.safe_load_all(text) if one["kind"] == "ClusterRole")
    granted = {
        f"{resource}.{group}": tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert prove_read_only(InMemory(granted), "jobs").excessive == excessive


def test_a_right_for_the_one_object_is_enough_to_act_on_it(account):
    api = account(**{"flinkdeployments@words": ("patch",)})
    assert missing_rights(api, KIND, "jobs", "patch", name="words") == []
    assert missing_rights(api, KIND, "jobs", "patch", name="more") == ["patch"]
    assert missing_rights(api, KIND, "jobs", "patch") == ["patch"]


def test_a_role_with_an_unknown_verb_or_a_wildcard_for_a_name_is_explained(account):
    api = account(**{"flinkdeployments@*": ("patch",), "flinksessionjobs": (*READS, "paatch")})
    assert missing_rights(api, KIND, "jobs", "patch", name="words") == ["patch"]
    said = hint(rules_of(api, "jobs").listed)
    assert "verbs that Kubernetes does not know: paatch" in said
    assert "'*' stands for no other name" in said
    assert hint(rules_of(account(), "jobs").listed) == ""


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rights_that_appear_are_found_and_a_silent_server_is_asked_again(fake, account):
    api, asked = account(), []

    def prove() -> None:
        asked.append(None)
        check_read_only(api, "jobs")

    watch = RightsWatch(prove, every_s=0.02)
    until(lambda: len(asked) >= 2)
    fake.kill()
    silent = len(asked)
    until(lambda: len(asked) >= silent + 3)
    assert watch.error is None
    fake.restart()
    fake.accounts["me"]["flinkdeployments"] = (*READS, "patch")
    until(lambda: watch.error is not None)
    assert "patch FlinkDeployment" in str(watch.error)
    watch.close()


def test_a_closed_watch_asks_no_more():
    asked: list[None] = []

    def prove() -> None:
        asked.append(None)
        raise KubernetesError("no answer", reason="Timeout")

    watch = RightsWatch(prove, every_s=0.01)
    until(lambda: asked)
    watch.close()
    watch._thread.join(5)
    assert not watch._thread.is_alive()
    assert watch.error is None
