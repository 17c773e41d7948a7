"""The behaviour of a Kubernetes API server that this project relies on.

Every case runs against the fake. With `KUBEBUILDER_ASSETS` or `DSP_GYM_TEST_KUBECONFIG` also
against a real one, see `tests/real_kubernetes.py`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.backends.kubernetes.access import READS, prove_read_only, rules_of
from dsp_gym.backends.kubernetes.api import FIELD_MANAGER, KubernetesApi
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.errors import KubernetesError
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, served_kubernetes
from tests.flink_resources import LISTED, MAP, SINK, deployment, stable
from tests.real_kubernetes import (
    REAL,
    OwnServer,
    RealKubernetes,
    connect,
    real_kubernetes,
)

KIND = "FlinkDeployment"

WATCH_SECOND_S = 0.2
"""How long a second of a watch lasts in the fake; watches last whole seconds."""

Document = dict[str, Any]


class Server:
    """An API server with a namespace of our own in it, as an administrator sees it."""

    def __init__(
        self, api: KubernetesApi, namespace: str, host: FakeKubernetes | RealKubernetes
    ) -> None:
        self.api, self.namespace, self._host = api, namespace, host

    @property
    def fake(self) -> FakeKubernetes:
        """The fake, for cases that need a fault of its own."""
        if not isinstance(self._host, FakeKubernetes):
            pytest.skip("a real server has no such switch")
        return self._host

    @property
    def breakable(self) -> FakeKubernetes | OwnServer:
        """What can be killed and frozen."""
        return self._host if isinstance(self._host, FakeKubernetes) else self._host.own

    def seen_by(self, token: str, folder: Path, timeout_s: float = 5.0, **given: Any) -> Server:
        """The same server and namespace with a token of another account."""
        file = self._host.kubeconfig(folder / f"{uuid.uuid4().hex}.yaml", token, **given)
        return Server(connect(file, timeout_s), self.namespace, self._host)

    def account(self, name: str, verbs: Mapping[str, Sequence[str]] | Sequence[str] = READS) -> str:
        return self._host.account(name, verbs)

    def other_namespace(self) -> str:
        """A namespace without jobs."""
        if isinstance(self._host, RealKubernetes):
            return self._host.other_namespace()
        self._host.elsewhere["other"] = {}
        return "other"

    def grant(self, namespace: str, name: str, verbs: Mapping[str, Sequence[str]]) -> None:
        self._host.grant(namespace, name, verbs)

    @property
    def remembers_s(self) -> float:
        """How long a token may be let in after it was taken back: real ones keep what was good."""
        return 0.0 if isinstance(self._host, FakeKubernetes) else 30.0

    @property
    def watch_second_s(self) -> float:
        return WATCH_SECOND_S if isinstance(self._host, FakeKubernetes) else 1.0

    def rotate(self, token: str) -> str:
        return self._host.rotate(token)

    def body(self, name: str = "words", **given: Any) -> Document:
        body = deployment(name, **given)
        body["metadata"]["namespace"] = self.namespace
        return body

    def create(self, name: str = "words", **given: Any) -> Document:
        return self.api.create(KIND, self.namespace, self.body(name, **given))

    def path(self, name: str = "", sub: str = "") -> str:
        path = f"/apis/flink.apache.org/v1beta1/namespaces/{self.namespace}/flinkdeployments"
        return path + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def patch(self, options: Document, *, since: Document, dry_run: bool = False) -> Document:
        meta = since["metadata"]
        return self.api.merge_patch(
            KIND, self.namespace, meta["name"], {"spec": {"flinkConfiguration": options}},
            resource_version=meta["resourceVersion"], dry_run=dry_run,
        )  # fmt: skip

    def write_status(self, name: str, status: Document) -> Document:
        content = "application/merge-patch+json"
        return self.api.request("PATCH", self.path(name, "status"), (), {"status": status}, content)


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Iterator[tuple[Path, OwnServer | None]]:
    with real_kubernetes(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(params=["fake", "real"] if REAL else ["fake"])
def server(request, tmp_path) -> Iterator[Server]:
    if request.param == "fake":
        with served_kubernetes() as fake:
            fake.watch_second_s = WATCH_SECOND_S
            api = connect(fake.kubeconfig(tmp_path / "admin.yaml", fake.admin), 5.0)
            yield Server(api, "jobs", fake)
            api.close()
    else:
        host = RealKubernetes(*request.getfixturevalue("real"))
        yield Server(host.api, host.namespace, host)
        host.end()


def refusal(call: Callable[[], object], reason: str) -> KubernetesError:
    with pytest.raises(KubernetesError) as caught:
        call()
    assert caught.value.reason == reason, caught.value
    return caught.value


def version(body: Document) -> str:
    return str(body["metadata"]["resourceVersion"])


class TestWrites:
    def test_what_is_created_has_a_version_a_generation_and_no_status(self, server):
        body = server.body() | {"status": {"lifecycleState": "STABLE"}}
        made = server.api.create(KIND, server.namespace, body)
        meta = made["metadata"]
        assert meta["generation"] == 1
        assert meta["resourceVersion"].isdecimal()
        assert len(meta["uid"]) == 36
        assert "status" not in made
        assert server.api.get(KIND, server.namespace, "words") == made

    def test_a_name_that_is_taken_is_a_conflict(self, server):
        server.create()
        error = refusal(server.create, "Conflict")
        assert "already exists" in str(error)

    def test_a_wrong_type_or_word_is_invalid_with_every_cause(self, server):
        body = server.body()
        body["spec"]["job"] |= {"parallelism": "many", "upgradeMode": "never"}
        error = refusal(lambda: server.api.create(KIND, server.namespace, body), "Invalid")
        assert "spec.job.parallelism" in str(error)
        assert "spec.job.upgradeMode" in str(error)

    def test_an_unknown_field_is_dropped(self, server):
        body = server.body()
        body["spec"]["misspelt"] = 1
        made = server.api.create(KIND, server.namespace, body)
        assert "misspelt" not in made["spec"]

    def test_a_merge_patch_sets_one_key_and_keeps_the_others(self, server):
        made = server.create(overrides={MAP: 1})
        changed = server.patch({KEY: f"{MAP}:2"}, since=made)
        options = changed["spec"]["flinkConfiguration"]
        assert options == {**made["spec"]["flinkConfiguration"], KEY: f"{MAP}:2"}
        assert changed["metadata"]["generation"] == 2
        assert version(changed) != version(made)
        managers = {entry["manager"] for entry in changed["metadata"]["managedFields"]}
        assert FIELD_MANAGER in managers

    def test_a_patch_that_changes_nothing_is_no_write(self, server):
        made = server.create(overrides={MAP: 2})
        same = server.patch({KEY: f"{MAP}:2"}, since=made)
        assert version(same) == version(made)
        assert same["metadata"]["generation"] == 1

    def test_null_removes_a_key(self, server):
        made = server.create(overrides={MAP: 2})
        assert KEY not in server.patch({KEY: None}, since=made)["spec"]["flinkConfiguration"]

    def test_a_patch_makes_a_configuration_that_was_not_there(self, server):
        body = server.body()
        del body["spec"]["flinkConfiguration"]
        made = server.api.create(KIND, server.namespace, body)
        changed = server.patch({KEY: f"{MAP}:2"}, since=made)
        assert changed["spec"]["flinkConfiguration"] == {KEY: f"{MAP}:2"}

    def test_a_patch_for_an_older_version_is_a_conflict_and_changes_nothing(self, server):
        made = server.create()
        server.patch({KEY: f"{MAP}:2"}, since=made)
        refusal(lambda: server.patch({KEY: f"{MAP}:3"}, since=made), "Conflict")
        now = server.api.get(KIND, server.namespace, "words")
        assert now["spec"]["flinkConfiguration"][KEY] == f"{MAP}:2"

    def test_four_writers_with_the_lock_lose_no_update(self, server):
        server.create(configuration={"count": "0"})

        def count() -> None:
            for _ in range(10):
                while True:
                    now = server.api.get(KIND, server.namespace, "words")
                    options = now["spec"]["flinkConfiguration"]
                    try:
                        server.patch({"count": str(int(options["count"]) + 1)}, since=now)
                        break
                    except KubernetesError as error:
                        if error.reason != "Conflict":
                            raise

        writers = [threading.Thread(target=count) for _ in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        now = server.api.get(KIND, server.namespace, "words")
        assert now["spec"]["flinkConfiguration"]["count"] == "40"
        assert now["metadata"]["generation"] == 41

    def test_a_status_is_written_apart_and_moves_the_version_only(self, server):
        made = server.create()
        told = server.write_status("words", stable(made))
        assert told["status"]["lifecycleState"] == "STABLE"
        assert told["metadata"]["generation"] == 1
        assert version(told) != version(made)
        refusal(lambda: server.patch({KEY: f"{MAP}:2"}, since=made), "Conflict")
        spec = {"spec": {"image": "other"}, "status": {"error": "late"}}
        kind = "application/merge-patch+json"
        told = server.api.request("PATCH", server.path("words", "status"), (), spec, kind)
        assert told["spec"]["image"] == "flink:2.1"
        told = server.api.request(
            "PATCH", server.path("words"), (), {"status": {"error": ""}}, kind
        )
        assert told["status"]["error"] == "late"

    def test_an_annotation_makes_another_version_and_no_other_generation(self, server):
        made = server.create()
        stamp = {"metadata": {"annotations": {"dsp-gym.io/epoch": "1"}}}
        now = server.api.merge_patch(
            KIND, server.namespace, "words", stamp,
            resource_version=made["metadata"]["resourceVersion"],
        )  # fmt: skip
        assert version(now) != version(made)
        assert now["metadata"]["generation"] == made["metadata"]["generation"]
        refusal(lambda: server.patch({KEY: f"{MAP}:2"}, since=made), "Conflict")
        more = {"metadata": {"annotations": {"dsp-gym.io/holder": "me"}}}
        told = server.api.merge_patch(
            KIND, server.namespace, "words", more, resource_version=version(now)
        )
        assert told["metadata"]["annotations"] == {
            **LISTED, "dsp-gym.io/epoch": "1", "dsp-gym.io/holder": "me",
        }  # fmt: skip

    def test_a_dry_run_answers_what_would_be_and_keeps_nothing(self, server):
        made = server.create()
        shown = server.patch({KEY: f"{MAP}:2"}, since=made, dry_run=True)
        assert shown["spec"]["flinkConfiguration"][KEY] == f"{MAP}:2"
        assert server.api.get(KIND, server.namespace, "words") == made

    @pytest.mark.parametrize("kind", ["application/strategic-merge-patch+json", "application/json"])
    def test_other_patches_of_custom_resources_are_not_supported(self, server, kind):
        server.create()
        body = {"spec": {"image": "other"}}
        refusal(
            lambda: server.api.request("PATCH", server.path("words"), (), body, kind),
            "Unsupported",
        )

    def test_a_list_is_no_merge_patch(self, server):
        server.create()
        patch: Any = [{"op": "remove", "path": "/spec/image"}]
        kind = "application/merge-patch+json"
        refusal(
            lambda: server.api.request("PATCH", server.path("words"), (), patch, kind), "Invalid"
        )

    def test_what_is_not_there_is_not_found(self, server):
        refusal(lambda: server.api.get(KIND, server.namespace, "nobody"), "NotFound")

    def test_a_kind_nobody_defined_is_unsupported(self, server):
        path = f"/apis/nobody.example.com/v1/namespaces/{server.namespace}/things"
        refusal(lambda: server.api.request("GET", path), "Unsupported")

    def test_older_definitions_take_texts_only(self, tmp_path):
        with served_kubernetes(strings_only=True) as fake:
            file = fake.kubeconfig(tmp_path / "admin.yaml", fake.admin)
            server = Server(connect(file), "jobs", fake)
            made = server.create()
            refusal(lambda: server.patch({KEY: {MAP: 2}}, since=made), "Invalid")
            assert server.patch({KEY: f"{MAP}:2"}, since=made)

    def test_a_policy_holds_an_account_to_the_override(self, server, tmp_path):
        fake = server.fake
        fake.admission.append(only_override("actuator"))
        acting = server.seen_by(server.account("actuator", [*READS, "patch"]), tmp_path)
        since = version(server.create())
        stamp = {"metadata": {"annotations": {"dsp-gym.io/epoch": "1"}}}
        made = server.api.merge_patch(KIND, "jobs", "words", stamp, resource_version=since)
        assert acting.patch({KEY: f"{MAP}:2"}, since=made)
        refusal(lambda: acting.patch({KEY: f"{MAP}:3"}, since=made), "Conflict")  # asked first
        now = server.api.get(KIND, "jobs", "words")
        for options in ({"state.backend.type": "hashmap"}, {"jobmanager.scheduler": None}):
            error = refusal(lambda options=options: acting.patch(options, since=now), "Invalid")
            assert "denied request" in str(error)
        assert server.api.get(KIND, "jobs", "words") == now


class TestReads:
    def test_a_list_is_of_one_version_and_follows_its_pages(self, server, monkeypatch):
        for number in range(5):
            server.create(f"job-{number}")
        monkeypatch.setattr("dsp_gym.backends.kubernetes.api.PAGE_ITEMS", 2)
        items, at = server.api.list(KIND, namespace=server.namespace)
        assert [item["metadata"]["name"] for item in items] == [f"job-{n}" for n in range(5)]
        assert at.isdecimal()

    @pytest.mark.parametrize(
        ("selector", "names"),
        [
            ("team=ads", ["a", "b"]),
            ("team==ads,tier!=test", ["a"]),
            ("team in (ads, shop)", ["a", "b", "c"]),
            ("team notin (ads)", ["c", "d"]),
            ("!team", ["d"]),
            ("tier", ["b"]),
        ],
    )
    def test_labels_select(self, server, selector, names):
        server.create("a", labels={"team": "ads"})
        server.create("b", labels={"team": "ads", "tier": "test"})
        server.create("c", labels={"team": "shop"})
        server.create("d")
        items, _ = server.api.list(KIND, namespace=server.namespace, selector=selector)
        assert [item["metadata"]["name"] for item in items] == names

    def test_a_name_selects(self, server):
        server.create("a")
        server.create("b")
        items, _ = server.api.list(KIND, namespace=server.namespace, name="b")
        assert [item["metadata"]["name"] for item in items] == ["b"]

    def test_a_selector_nobody_can_read_is_invalid(self, server):
        refusal(
            lambda: server.api.list(KIND, namespace=server.namespace, selector="a=b=c"), "Invalid"
        )

    def test_a_namespace_without_objects_is_an_empty_list(self, server):
        assert server.api.list(KIND, namespace="nobody-lives-here")[0] == []


class TestWatches:
    def watch(self, server: Server, since: str, seconds: int = 1, **given: Any) -> list[Any]:
        return list(
            server.api.watch(
                KIND, namespace=server.namespace, since=since, timeout_s=seconds, **given
            )
        )

    def test_it_tells_what_changed_after_a_version_in_order(self, server):
        _, since = server.api.list(KIND, namespace=server.namespace)
        made = server.create()
        server.patch({KEY: f"{MAP}:2"}, since=made)
        told = server.write_status("words", {"lifecycleState": "STABLE"})
        server.api.request("DELETE", server.path("words"))
        events = [e for e in self.watch(server, since) if e[0] != "BOOKMARK"]
        assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        versions = [int(version(body)) for _, body in events]
        assert versions == sorted(set(versions))
        assert events[2][1]["metadata"]["resourceVersion"] == version(told)

    def test_it_ends_in_time_and_a_bookmark_tells_how_far_it_saw(self, server):
        namespace = server.namespace
        _, since = server.api.list(KIND, namespace=namespace)
        began = time.monotonic()
        # A real server tells it two seconds before the end, or twice.
        stream = server.api.watch(KIND, namespace=namespace, since=since, timeout_s=4, name="words")
        other = server.create("other")
        events = list(stream)
        assert 3.5 < (time.monotonic() - began) / server.watch_second_s < 8
        assert {kind for kind, _ in events} == {"BOOKMARK"}
        assert int(version(events[-1][1])) >= int(version(other))

    def test_it_tells_a_change_at_once(self, server):
        _, since = server.api.list(KIND, namespace=server.namespace)
        stream = server.api.watch(KIND, namespace=server.namespace, since=since, timeout_s=20)
        began = time.monotonic()
        server.create()
        assert next(stream)[0] == "ADDED"
        assert time.monotonic() - began < 10
        stream.stop()
        assert [kind for kind, _ in stream if kind != "BOOKMARK"] == []
        assert time.monotonic() - began < 15

    def test_what_leaves_the_selector_is_told_as_deleted(self, server):
        made = server.create(labels={"team": "ads"})
        labels = {"metadata": {"labels": {"team": "shop"}}}
        server.api.request(
            "PATCH", server.path("words"), (), labels, "application/merge-patch+json"
        )
        events = self.watch(server, version(made), selector="team=ads")
        assert [kind for kind, _ in events if kind != "BOOKMARK"] == ["DELETED"]

    def test_a_version_to_come_is_silent(self, server):
        _, since = server.api.list(KIND, namespace=server.namespace)
        server.create()
        events = self.watch(server, str(int(since) + 100_000))
        assert [kind for kind, _ in events if kind != "BOOKMARK"] == []

    def test_a_version_that_is_none_is_an_error(self, server):
        refusal(lambda: self.watch(server, "yesterday"), "Other")

    def test_a_version_that_is_too_old_is_gone(self, server):
        _, since = server.api.list(KIND, namespace=server.namespace)
        server.fake.store.forget()
        error = refusal(lambda: self.watch(server, since), "Gone")
        assert "too old resource version" in str(error)

    def test_a_quiet_stream_tells_a_bookmark_now_and_then(self, server):
        server.fake.bookmark_s = 0.3 * server.watch_second_s
        _, since = server.api.list(KIND, namespace=server.namespace)
        assert len(self.watch(server, since)) >= 3


class TestAccounts:
    def test_a_reader_reads_and_is_proven_to_do_no_more(self, server, tmp_path):
        made, reader = server.create(), server.seen_by(server.account("reader"), tmp_path)
        api, namespace = reader.api, server.namespace
        assert api.get(KIND, namespace, "words") == made
        assert api.list(KIND, namespace=namespace)[0] == [made]
        for dry_run in (False, True):
            refusal(
                lambda dry_run=dry_run: reader.patch({KEY: "x:1"}, since=made, dry_run=dry_run),
                "Forbidden",
            )
        refusal(lambda: api.request("DELETE", server.path("words")), "Forbidden")
        refusal(lambda: api.get("Lease", namespace, "any"), "Forbidden")
        assert prove_read_only(api, namespace).is_read_only

    def test_of_what_a_reader_tries_to_write_nothing_is_let_in(self, server, tmp_path):
        fake, made = server.fake, server.create()
        reader = server.seen_by(server.account("reader"), tmp_path)
        for dry_run in (False, True):
            refusal(
                lambda dry_run=dry_run: reader.patch({KEY: "x:1"}, since=made, dry_run=dry_run),
                "Forbidden",
            )
        refusal(lambda: reader.api.request("DELETE", server.path("words")), "Forbidden")
        assert prove_read_only(reader.api, server.namespace).is_read_only
        tried = [r.code for r in fake.writes() if r.account == "reader"]
        assert tried == [403, 403, 403]

    def test_an_administrator_is_told_that_he_may_write(self, server):
        assert server.api.may("patch", KIND, server.namespace)
        assert not prove_read_only(server.api, server.namespace).is_read_only

    def test_the_rules_of_an_account_are_told_with_those_that_everybody_has(self, server, tmp_path):
        granted = {"flinkdeployments": READS, "pods/exec": ("create",), "secrets@one": ("get",)}
        api = server.seen_by(server.account("some", granted), tmp_path).api
        rules = rules_of(api, server.namespace)
        assert rules.lacks is None
        told = {
            (verb, group, resource, rule.names)
            for rule in rules.listed
            for verb in rule.verbs
            for group in rule.groups
            for resource in rule.resources
        }
        assert told >= {
            ("get", "flink.apache.org", "flinkdeployments", ()),
            ("create", "", "pods/exec", ()),
            ("get", "", "secrets", ("one",)),
            ("create", "authorization.k8s.io", "selfsubjectrulesreviews", ()),
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews", ()),
        }
        proof = prove_read_only(api, server.namespace)
        assert set(proof.excessive) == {"create pods/exec", "get secrets 'one'"}
        asked = [("create", "pods/exec"), ("create", "pods/attach"), ("get", "secrets")]
        answers = [api.review(verb, "", what, server.namespace) for verb, what in asked]
        assert [answer.allowed for answer in answers] == [True, False, False]
        assert api.review("get", "", "secrets", server.namespace, "one").allowed

    def test_the_rules_of_other_namespaces_are_told_to_whoever_may_list_them(
        self, server, tmp_path
    ):
        other = server.other_namespace()
        rights = {"flinkdeployments": READS, "namespaces": ("list",)}
        lister = server.seen_by(server.account("lister", rights), tmp_path).api
        reader = server.seen_by(server.account("reader"), tmp_path).api
        assert {server.namespace, other} <= {*lister.namespaces()}
        refusal(reader.namespaces, "Forbidden")
        proof = prove_read_only(lister, server.namespace)
        assert proof.is_read_only
        assert other in proof.elsewhere.looked_at
        server.grant(other, "lister", {"pods/exec": ("create",), "configmaps": ("get",)})
        proof = prove_read_only(lister, server.namespace)
        assert proof.excessive == ()
        assert proof.elsewhere.excessive == ((other, ("create pods/exec",)),)
        assert lister.review("create", "", "pods/exec", other).allowed
        for elsewhere in (server.namespace, ""):  # of which "" stands for all at once
            assert not lister.review("create", "", "pods/exec", elsewhere).allowed

    def test_wildcards_stand_for_groups_resources_and_subresources(self, server, tmp_path):
        granted = {"*.apps": ("get",), "*.batch/status": ("*",)}
        api = server.seen_by(server.account("wild", granted), tmp_path).api
        namespace = server.namespace
        assert api.review("get", "apps", "deployments", namespace).allowed
        assert api.review("get", "apps", "deployments/scale", namespace).allowed
        assert api.review("patch", "batch", "jobs/status", namespace).allowed
        assert not api.review("patch", "batch", "jobs", namespace).allowed
        assert not api.review("get", "batch", "jobs/scale", namespace).allowed
        assert not api.review("get", "", "pods", namespace).allowed

    def test_a_wrong_token_is_unauthorized(self, server, tmp_path):
        api = server.seen_by("wrong", tmp_path).api
        refusal(lambda: api.list(KIND, namespace=server.namespace), "Unauthorized")
        refusal(lambda: prove_read_only(api, server.namespace), "Unauthorized")

    def test_without_a_token_one_is_anonymous_and_forbidden(self, server, tmp_path):
        api = server.seen_by("", tmp_path).api
        error = refusal(lambda: api.list(KIND, namespace=server.namespace), "Forbidden")
        assert "system:anonymous" in str(error)

    def test_a_token_file_that_is_rotated_is_read_again(self, server, tmp_path):
        file, token = tmp_path / "token", server.account("reader")
        file.write_text(token)
        api = server.seen_by("", tmp_path, token_file=file).api
        assert api.list(KIND, namespace=server.namespace)
        token = server.rotate(token)

        def ask_for_a_while() -> None:
            deadline = time.monotonic() + server.remembers_s
            api.list(KIND, namespace=server.namespace)
            while time.monotonic() < deadline:
                time.sleep(0.2)
                api.list(KIND, namespace=server.namespace)

        refusal(ask_for_a_while, "Unauthorized")
        file.write_text(f"{token}\n")
        assert api.list(KIND, namespace=server.namespace)


class TestLeases:
    def test_one_of_two_holds_it_until_it_is_released(self, server):
        mine = Lease(server.api, server.namespace, "words", "me", 30)
        other = Lease(server.api, server.namespace, "words", "other", 30)
        assert mine.try_acquire()
        assert not other.try_acquire()
        assert mine.is_held_now()
        assert not other.is_held_now()
        mine.release()
        assert other.try_acquire()
        assert not mine.is_held_now()

    def test_what_a_holder_leaves_is_kept_and_inherited(self, server):
        mine = Lease(server.api, server.namespace, "words", "me", 30)
        assert mine.try_acquire()
        mine.memory = "rests until noon " + "x" * 100_000
        assert mine.try_acquire()
        mine.release()
        other = Lease(server.api, server.namespace, "words", "other", 30)
        assert other.try_acquire()
        assert other.inherited == mine.memory

    def test_a_stale_replacement_is_a_conflict(self, server):
        Lease(server.api, server.namespace, "words", "me", 30).try_acquire()
        old = server.api.get("Lease", server.namespace, "words")
        server.api.replace("Lease", server.namespace, "words", {**old, "spec": {}})
        refusal(lambda: server.api.replace("Lease", server.namespace, "words", old), "Conflict")


class TestFaults:
    def test_a_server_that_is_killed_is_unreachable_and_its_past_is_gone(self, server):
        host, namespace = server.breakable, server.namespace
        _, since = server.api.list(KIND, namespace=namespace)
        stream = server.api.watch(KIND, namespace=namespace, since=since, timeout_s=30)
        host.kill()
        assert refusal(lambda: next(stream), "Unreachable").may_have_acted is False
        error = refusal(lambda: server.api.list(KIND, namespace=namespace), "Unreachable")
        assert "API server" in str(error)
        body = server.body()
        error = refusal(lambda: server.api.create(KIND, namespace, body), "Unreachable")
        assert not error.may_have_acted
        host.restart()
        assert server.api.list(KIND, namespace=namespace)
        late = server.api.watch(KIND, namespace=namespace, since=since, timeout_s=1)
        refusal(lambda: next(late), "Gone")

    def test_a_frozen_server_costs_one_time_limit_and_no_more(self, server, tmp_path):
        token = server.account("actuator", [*READS, "patch"])
        limit_s = max(2.0 * server.watch_second_s, 0.8)
        made, hasty = server.create(), server.seen_by(token, tmp_path, timeout_s=limit_s)
        server.breakable.freeze()
        try:
            for call in (
                lambda: hasty.api.get(KIND, server.namespace, "words"),
                lambda: hasty.patch({KEY: f"{SINK}:2"}, since=made),
            ):
                began = time.monotonic()
                error = refusal(call, "Timeout")
                assert time.monotonic() - began < 1.95 * limit_s  # a retry takes as long again
            assert error.may_have_acted
        finally:
            server.breakable.thaw()

    def test_an_answer_that_is_lost_may_hide_a_write(self, server):
        made = server.create()
        server.fake.lost_answers = 1
        error = refusal(lambda: server.patch({KEY: f"{MAP}:2"}, since=made), "Unreachable")
        assert error.may_have_acted
        now = server.api.get(KIND, "jobs", "words")
        assert now["spec"]["flinkConfiguration"][KEY] == f"{MAP}:2"

    def test_requests_are_counted_by_verb_and_account(self, server, tmp_path):
        fake = server.fake
        api = server.seen_by(server.account("reader"), tmp_path).api
        prove_read_only(api, "jobs")
        api.list(KIND, namespace="jobs")
        mine = [request for request in fake.requests if request.account == "reader"]
        assert {request.method for request in mine} == {"GET", "POST"}
        assert [request for request in mine if request.is_write] == []
