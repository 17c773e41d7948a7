"""A tracker beside the work: failures of its store lose a record, never a result."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from dsp_gym.errors import RegistryError
from dsp_gym.trackers import BackgroundTracker, NullTracker, Tracker


class Store(NullTracker):
    """Keeps calls."""

    def __init__(self):
        self.calls = []

    def start(self, name, tags):
        self.run_id = f"run of {name}"
        self.calls.append(("start", tags["kind"]))

    def params(self, values):
        self.calls.append(("params", dict(values)))

    def metrics(self, values, step):
        self.calls.append(("metrics", dict(values), step))

    def artifact(self, path, folder=""):
        self.calls.append(("artifact", path, folder))

    def register(self, folder, model, alias):
        self.calls.append(("register", folder))
        return f"models:/{model}@{alias}"

    def end(self, status="FINISHED"):
        self.calls.append(("end", status))


def work(tracker, tmp_path):
    """All calls of a run, and the address it was registered under."""
    tracker.start("q11", {"kind": "train"})
    values = {"loss": 1.0}
    tracker.params(values)
    tracker.metrics(values, 3)
    values["loss"] = 2.0  # the caller may go on with its own
    tracker.artifact(tmp_path, "policy")
    address = tracker.register(tmp_path, "q11", "champion")
    tracker.end()
    return address


def test_calls_reach_the_store_in_their_order(tmp_path):
    store, entered = Store(), []

    @contextmanager
    def around():
        entered.append(threading.current_thread())
        yield
        entered.append(threading.current_thread())

    tracker = BackgroundTracker(lambda: store, around=around)
    assert isinstance(tracker, Tracker)
    assert work(tracker, tmp_path) == "models:/q11@champion"
    assert store.calls == [
        ("start", "train"),
        ("params", {"loss": 1.0}),
        ("metrics", {"loss": 1.0}, 3),
        ("artifact", tmp_path, "policy"),
        ("register", tmp_path),
        ("end", "FINISHED"),
    ]
    assert (tracker.run_id, tracker.problem) == ("run of q11", None)
    assert entered == [threading.main_thread()] * 2


@pytest.mark.parametrize("where", ["opened", "metrics", "register"])
def test_a_store_that_never_answers_delays_the_work_no_longer_than_its_limit(tmp_path, where):
    answers = threading.Event()

    def silent(*_, **__):
        answers.wait()
        return store

    store = Store()
    if where != "opened":
        setattr(store, where, silent)
    tracker = BackgroundTracker(silent if where == "opened" else lambda: store, wait_s=0.3)
    begun = time.monotonic()
    try:
        assert work(tracker, tmp_path) is None
        assert time.monotonic() - begun < 5
        assert tracker.problem == "the store did not answer within 0.3 s"
    finally:
        answers.set()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RegistryError("the MLflow store failed"), "the MLflow store failed"),
        (ConnectionError("refused"), "ConnectionError: refused"),
    ],
)
def test_after_a_failure_the_work_goes_on_and_the_run_is_marked(tmp_path, caplog, error, says):
    store, failed = Store(), threading.Event()

    def fail(values):
        failed.set()
        raise error

    store.params = fail
    tracker = BackgroundTracker(lambda: store)
    tracker.start("q11", {"kind": "train"})
    tracker.params({})
    assert failed.wait(10)
    while tracker.problem is None:
        time.sleep(0.01)
    tracker.metrics({"loss": 1.0}, 1)
    assert tracker.register(tmp_path, "q11", None) is None
    tracker.end()
    assert tracker.problem == says
    assert [name for name, _ in store.calls] == ["start", "end"]
    assert store.calls[-1] == ("end", "FAILED")
    assert says in caplog.text  # at once, not only at the end


def test_one_that_was_never_started_ends_at_once():
    BackgroundTracker(Store).end()
