"""Resources are followed through all failures of the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsp_gym.backends.kubernetes.access import RightsWatch, missing_rights, prove_read_only
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.loop.watchers import WatcherFailures
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.flink_resources import MAP, deployment

KIND = "FlinkDeployment"


@pytest.fixture
def fake() -> Iterator[FakeKubernetes]:
    with served_kubernetes() as server:
        server.put(deployment(overrides={MAP: 1}, labels={"team": "ads"}))
        yield server


@pytest.fixture
def token(fake) -> str:
    return fake.account("reader")


@pytest.fixture
def api(fake, token, tmp_path) -> KubernetesApi:
    (tmp_path / "token").write_text(token)
    file = fake.kubeconfig(tmp_path / "config", "", token_file=tmp_path / "token")
    place = KubernetesPlace(
        kubeconfig=file, name="words", timeout_s=0.5, connect_timeout_s=0.5, namespace="jobs"
    )
    return KubernetesApi.connect(place)


@pytest.fixture
def watch(api) -> Iterator[Callable[..., Watcher]]:
    made = []

    def start(selector: str | None = None, **given) -> Watcher:
        given = {"watch_s": 1, "least_wait_s": 0.05, **given}
        made.append(Watcher(api, KIND, "jobs", selector, **given))
        assert made[-1].wait(5)
        return made[-1]

    yield start
    for one in made:
        one.close()


def until(holds: Callable[[], bool], seconds: float = 8.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.01)


def overridden(watcher: Watcher, name: str = "words") -> dict[str, int]:
    return dict(watcher.resources()[name].overrides)


def test_what_changes_appears_and_goes(fake, watch):
    watcher = watch()
    assert overridden(watcher) == {MAP: 1}
    fake.put(deployment(overrides={MAP: 2}))
    fake.put(deployment("other"))
    until(lambda: set(watcher.resources()) == {"words", "other"})
    assert overridden(watcher) == {MAP: 2}
    fake.delete(KIND, "other")
    until(lambda: set(watcher.resources()) == {"words"})
    assert watcher.lists == 1
    assert not watcher.errors


def test_only_what_is_selected_is_followed(fake, watch):
    watcher, named = watch("team=ads"), watch(name="other")
    fake.put(deployment("other"))
    fake.put(deployment("more", labels={"team": "ads"}))
    until(lambda: set(watcher.resources()) == {"words", "more"})
    until(lambda: set(named.resources()) == {"other"})


def test_watches_end_and_go_on_without_listing_anew(fake, watch):
    fake.watch_second_s = 0.2
    watcher = watch()
    until(lambda: sum(r.query.get("watch") == "true" for r in fake.requests) >= 3)
    assert watcher.lists == 1
    assert watcher.age_s() < 2


def test_a_server_that_was_killed_is_listed_anew(fake, watch):
    watcher = watch()
    fake.kill()
    until(lambda: watcher.errors["Unreachable"] >= 2)
    assert "words" in watcher.resources()  # what is known stays, and its age tells
    assert watcher.trouble is not None
    fake.store.forget()
    fake.put(deployment(overrides={MAP: 5}))
    fake.put(deployment("new"))
    fake.start()
    until(lambda: set(watcher.resources()) == {"words", "new"})
    assert overridden(watcher) == {MAP: 5}
    assert watcher.trouble is None
    assert watcher.lists == 2


def test_a_server_that_has_forgotten_is_listed_anew(fake, watch):
    watcher = watch()
    fake.store.forget()
    fake.put(deployment(overrides={MAP: 4}))
    until(lambda: watcher.lists == 2 or overridden(watcher) == {MAP: 4})
    until(lambda: overridden(watcher) == {MAP: 4})
    assert set(watcher.errors) <= {"Gone"}


def test_a_frozen_server_is_noticed_and_comes_back(fake, watch):
    watcher = watch()
    fake.freeze()
    until(lambda: watcher.errors["Timeout"] >= 1)
    assert watcher.age_s() > 1
    fake.thaw()
    fake.put(deployment(overrides={MAP: 6}))
    until(lambda: overridden(watcher) == {MAP: 6})
    until(lambda: watcher.trouble is None)


def test_rights_that_are_taken_away_and_given_back(fake, watch):
    watcher = watch()
    rights = fake.accounts["reader"]
    fake.accounts["reader"] = {}
    until(lambda: watcher.errors["Forbidden"] >= 1)
    assert "cannot watch" in str(watcher.trouble)
    fake.accounts["reader"] = rights
    fake.put(deployment(overrides={MAP: 7}))
    until(lambda: overridden(watcher) == {MAP: 7})


def test_a_token_that_is_rotated_is_read_again(fake, token, tmp_path: Path, watch):
    watcher = watch()
    new = fake.rotate(token)
    until(lambda: watcher.errors["Unauthorized"] >= 1)
    (tmp_path / "token").write_text(new)
    fake.put(deployment(overrides={MAP: 8}))
    until(lambda: overridden(watcher) == {MAP: 8})


def test_closing_ends_a_watch_that_is_quiet(watch):
    watcher = watch(watch_s=30)
    time.sleep(0.1)
    assert watcher.is_following
    began = time.monotonic()
    watcher.close()
    until(lambda: not watcher.is_following)
    assert time.monotonic() - began < 9  # the watch itself would take 30 s


def test_a_reader_never_writes_whatever_happens(fake, api, watch):
    watcher = watch()
    for fault in (fake.restart, fake.store.forget, fake.freeze):
        fault()
        time.sleep(0.2)
        fake.thaw()
        fake.put(deployment(overrides={MAP: 9}))
        until(lambda: overridden(watcher) == {MAP: 9})
        fake.put(deployment(overrides={MAP: 1}))
    until(lambda: _proves(api))
    assert [r for r in fake.requests if r.is_write] == []


def _proves(api: KubernetesApi) -> bool:
    return prove_read_only(api, "jobs").is_read_only and missing_rights(api, KIND, "jobs") == []


def test_rights_that_are_missing_are_named(fake, api):
    fake.accounts["reader"] = {"flinkdeployments": ("get", "list", "patch")}
    assert missing_rights(api, KIND, "jobs") == ["watch"]
    assert prove_read_only(api, "jobs").excessive == ("patch FlinkDeployment",)


@pytest.fixture
def failures(monkeypatch) -> Iterator[WatcherFailures]:
    """Of this test alone; the metric shows those of the process."""
    counted = WatcherFailures()
    with monkeypatch.context() as patch:
        patch.setattr("dsp_gym.loop.watchers.WATCHER_FAILURES", counted)
        yield counted


def test_a_watcher_that_fails_at_something_unexpected_lists_anew(fake, api, failures):
    def break_off(*given: object, **named: object) -> object:
        api.watch = watch
        raise ValueError("nobody thought of this")

    watch, api.watch = api.watch, break_off
    watcher = Watcher(api, KIND, "jobs", least_wait_s=0.01)
    try:
        end = time.monotonic() + 10
        while watcher.lists < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert watcher.is_following
        assert watcher.errors["Other"] == 1
        assert failures.times()["resources"] == 1
    finally:
        watcher.close()


def test_a_proof_that_fails_at_something_unexpected_is_repeated(failures):
    asked = []

    def prove() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("nobody thought of this")

    watch = RightsWatch(prove, every_s=0.01)
    try:
        end = time.monotonic() + 10
        while len(asked) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        watch.close()
