"""Rights of an account: confirmed by the server, again every ten minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
    found = prove_read_only(account(**granted), "jobs", KIND, ["more", "words"])
    assert set(said) <= set(found)
    assert len(said) == len(found) or "*" in str(granted)


@pytest.mark.parametrize(
    ("granted", "said"),
    [
        ({"flinkdeployments@other": ("delete",)}, "delete FlinkDeployment 'other'"),
        ({"flinkdeployments@*": ("patch",)}, "patch FlinkDeployment '*'"),
        ({"flinkdeployments": (*READS, "paatch")}, "paatch FlinkDeployment"),
        ({"flinkstatesnapshots": ("create",)}, "create flinkstatesnapshots"),
        ({"flinkdeployments/finalizers": ("update",)}, "update FlinkDeployment/finalizers"),
    ],
)
def test_rules_tell_of_objects_and_verbs_that_nobody_asks_for(account, granted, said):
    with pytest.raises(WritableAccountError, match="must only read") as caught:
        check_read_only(account(**granted), "jobs", KIND, ["words"])
    assert said in str(caught.value)


def test_a_reader_is_proven_to_read_only(fake, account):
    api = account()
    assert prove_read_only(api, "jobs", KIND, ["words"]) == []
    assert [request for request in fake.requests if request.is_write] == []
    many = [f"job-{number}" for number in range(100)]
    before = len(fake.requests)
    assert prove_read_only(api, "jobs", KIND, many) == []
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
    rules, is_all = rules_of(Server(every, other), "jobs")
    assert [list(rule.writes()) for rule in rules] == [["patch *"]]
    assert not is_all


def test_a_right_for_the_one_object_is_enough_to_act_on_it(account):
    api = account(**{"flinkdeployments@words": ("patch",)})
    assert missing_rights(api, KIND, "jobs", "patch", name="words") == []
    assert missing_rights(api, KIND, "jobs", "patch", name="more") == ["patch"]
    assert missing_rights(api, KIND, "jobs", "patch") == ["patch"]


def test_a_role_with_an_unknown_verb_or_a_wildcard_for_a_name_is_explained(account):
    api = account(**{"flinkdeployments@*": ("patch",), "flinksessionjobs": (*READS, "paatch")})
    assert missing_rights(api, KIND, "jobs", "patch", name="words") == ["patch"]
    said = hint(rules_of(api, "jobs")[0])
    assert "verbs that Kubernetes does not know: paatch" in said
    assert "'*' stands for no other name" in said
    assert hint(rules_of(account(), "jobs")[0]) == ""


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
