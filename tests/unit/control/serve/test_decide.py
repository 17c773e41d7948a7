"""Histories of clients' jobs: bounded in bytes, and none in use is dropped."""

from __future__ import annotations

import copy
import json
import math
import threading
from typing import Any

import pytest

from baselines.static import Static
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.serve.client_memory import CLIENTS, ClientMemory, KeptClient, Key
from dsp_gym.control.serve.decide import (
    AHEAD_S,
    SILENT_S,
    BusyError,
    Decisions,
    FullError,
    Question,
)
from dsp_gym.control.serve.sizes import size_of
from dsp_gym.errors import DspGymError, MetricsError
from dsp_gym.guardrails.chain import build_for
from dsp_gym.loop.documents import DecisionDocument
from dsp_gym.policies.registry import make
from tests.properties.test_snapshot_reader import document

NOW_S = 1_000_000.0


class Clocks:
    """Unix seconds, and monotonic ones."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        self.passed_s = 0.0


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def seat() -> GuardedPolicy:
    policy = make("ds2")
    return GuardedPolicy(policy, build_for(policy, "deployed"), tells_range=False)


def decisions(clocks: Clocks, most_bytes: int = 2**24, **seats: Any) -> Served:
    return Served(
        {"ds2": seat, **seats},
        "ds2",
        most_bytes=most_bytes,
        now=lambda: clocks.now_s,
        clock=lambda: clocks.passed_s,
    )


class Served(Decisions):
    """Answers documents."""

    def said(
        self, document: Any, policy: str | None = None, client: str = "", enacts: bool = True
    ) -> dict[str, Any]:
        return self.answer(Question(json.dumps(document).encode(), policy, client, enacts))


def snapshot(t_s: float, job: str = "orders") -> dict[str, Any]:
    return {**document(), "job": job, "t_s": t_s}


def test_a_time_in_the_future_is_refused_and_not_remembered(clocks):
    served = decisions(clocks)
    for job in ("orders", "fresh"):
        if job == "orders":
            served.said(snapshot(NOW_S - 60))
        with pytest.raises(MetricsError, match="ahead of this machine's clock"):
            served.said(snapshot(NOW_S + AHEAD_S + 1, job))
        assert served.said(snapshot(NOW_S, job))["t_s"] == NOW_S
    assert served.said(snapshot(NOW_S + AHEAD_S))["job"] == "orders"


def test_a_replay_is_refused_however_many_jobs_there_are(clocks):
    served = decisions(clocks, static=lambda: GuardedPolicy(make("static")))
    for number in range(70):
        served.said(snapshot(NOW_S, f"job-{number}"), "static")
    for number in (0, 50, 69):
        with pytest.raises(MetricsError, match="does not follow"):
            served.said(snapshot(NOW_S, f"job-{number}"), "static")


def test_clients_do_not_share_a_history(clocks):
    served = decisions(clocks)
    served.said(snapshot(NOW_S), client="operator")
    served.said(snapshot(NOW_S), client="another")
    with pytest.raises(MetricsError, match="does not follow"):
        served.said(snapshot(NOW_S), client="operator")


def test_where_there_is_no_room_a_new_job_is_refused_and_the_others_go_on(clocks):
    served = decisions(clocks, most_bytes=2**20)
    jobs: list[str] = []

    def filled() -> None:
        for number in range(1000):
            served.said(snapshot(NOW_S - 60, f"job-{number}"))
            jobs.append(f"job-{number}")

    with pytest.raises(FullError, match=r"no room for job 'job-\d+'.*serve\.history_mib"):
        filled()
    assert 2 < len(jobs) < 1000
    assert served.held_bytes <= 2**20
    for job in jobs:
        served.said(snapshot(NOW_S, job))
    clocks.passed_s += SILENT_S + 1
    clocks.now_s += SILENT_S + 1
    for job in jobs[1:]:
        served.said(snapshot(clocks.now_s, job))
    served.said(snapshot(clocks.now_s, "new"))  # in place of the first, silent for a day
    with pytest.raises(FullError):
        served.said(snapshot(clocks.now_s, "newer"))


def test_what_was_given_up_cannot_be_replayed(clocks):
    served = decisions(clocks, most_bytes=1)  # one at a time
    served.said(snapshot(NOW_S))
    clocks.passed_s += SILENT_S + 1
    clocks.now_s += SILENT_S + 1
    served.said(snapshot(clocks.now_s, "new"))
    clocks.passed_s += SILENT_S + 1
    with pytest.raises(MetricsError, match="does not follow"):
        served.said(snapshot(NOW_S))


def grown(t_s: float, more: int) -> dict[str, Any]:
    """The job with so many vertices more."""
    changed = copy.deepcopy(snapshot(t_s))
    by_name = {vertex["name"]: vertex for vertex in changed["vertices"]}
    for number in range(more):
        changed["vertices"].append(copy.deepcopy(by_name["flatmap"]) | {"name": f"new-{number}"})
    return changed


@pytest.mark.parametrize("more", [1, 60])
def test_another_graph_is_refused_each_time_and_the_job_goes_on_with_its_own(clocks, more):
    served = decisions(clocks)

    def asked(document: dict[str, Any]) -> dict[str, Any]:
        """Ask as the server does: together with others where that is possible."""
        question = Question(json.dumps(document).encode(), None, "", True)
        (answer,) = served.answer_batch([question])
        return served.answer(question) if answer is None else answer

    names = [vertex["name"] for vertex in asked(snapshot(NOW_S - 600))["vertices"]]
    for minute in range(9, 1, -2):
        with pytest.raises(MetricsError, match="A changed graph is another job"):
            asked(grown(NOW_S - 60 * minute, more))
    for minute in (1, 0):
        answer = asked(snapshot(NOW_S - 60 * minute))
        assert [vertex["name"] for vertex in answer["vertices"]] == names
    question = Question(json.dumps(snapshot(NOW_S + 1)).encode(), None, "", True)
    assert served.answer_batch([question]) != [None]  # with others, as before


def test_a_document_that_is_refused_leaves_no_history(clocks):
    served = decisions(clocks)
    with pytest.raises(DspGymError):
        served.said({**snapshot(NOW_S), "status": "DANCING"})
    assert served.held_bytes == 0


def test_a_job_whose_decision_hangs_keeps_no_other_waiting(clocks, monkeypatch):
    monkeypatch.setattr("dsp_gym.control.serve.decide.WAIT_S", 0.05)
    hangs, let_go = threading.Event(), threading.Event()

    class Hanging(Static):
        def decide(self, snapshot):
            hangs.set()
            let_go.wait(10)
            return super().decide(snapshot)

    served = decisions(clocks, hanging=lambda: GuardedPolicy(Hanging()))
    first = threading.Thread(target=served.said, args=(snapshot(NOW_S - 60), "hanging"))
    first.start()
    assert hangs.wait(10)
    try:
        with pytest.raises(BusyError, match="under way"):
            served.said(snapshot(NOW_S), "hanging")
        assert served.said(snapshot(NOW_S))["job"] == "orders"
    finally:
        let_go.set()
        first.join()
    assert served.said(snapshot(NOW_S), "hanging")["job"] == "orders"


def test_a_thousand_decisions_of_a_job_hold_no_more_than_its_first(clocks):
    served = decisions(clocks)
    one = snapshot(0.0)
    held = []
    for number in range(513):
        served.said({**one, "t_s": 60.0 * number})
        held.append(served.held_bytes)
    assert held[-1] < 1.2 * held[63]


def test_a_planner_holds_no_more_after_a_hundred_plans_than_after_a_few(clocks):
    policy = make("mdp")
    served = decisions(
        clocks, planner=lambda: GuardedPolicy(policy, tells_range=False, answers=True)
    )
    one, held = snapshot(0.0), []
    one["metrics"]["window_fill"] = 1.0
    for hour in range(100):
        for vertex in one["vertices"]:
            rate_per_s = 300.0 + 10.0 * (hour % 7)
            vertex["metrics"] |= {"records_in_per_s": rate_per_s, "busy_ms_per_s": 500.0}
            vertex["metrics"]["records_in_total"] = 3600.0 * rate_per_s * hour
        served.said({**one, "t_s": 3600.0 * hour}, "planner")
        (job,) = served._jobs.values()
        served._weigh(job)
        held.append(served.held_bytes)
    assert job.due is not None  # it plans every hour
    assert max(held) < 1.2 * held[5]


def test_the_size_of_an_object_is_that_of_all_it_holds() -> None:
    assert size_of([bytes(10_000), bytes(5_000)]) > 15_000
    shared = [bytes(10_000)]
    assert size_of([shared, bytes(5_000)], (shared,)) < 10_000
    twice = bytes(10_000)
    assert size_of([twice, twice]) < 12_000
    assert size_of(copy) < 1_000  # a module belongs to all


def test_what_is_only_shown_is_not_counted_as_enacted(clocks):
    settled: list[bool] = []

    class Told(GuardedPolicy):
        def settle(self, snapshot, judged, *, enacted):
            settled.append(enacted)
            return super().settle(snapshot, judged, enacted=enacted)

    served = decisions(clocks, static=lambda: Told(make("static")))
    served.said(snapshot(NOW_S - 60), "static")
    served.said(snapshot(NOW_S), "static", enacts=False)
    assert settled == [True, False]


def test_a_policy_with_a_model_of_the_load_adds_its_forecast(clocks):
    planner = make("mdp")
    served = decisions(
        clocks, planner=lambda: GuardedPolicy(planner, tells_range=False, answers=True)
    )
    found = [served.said(snapshot(NOW_S - 60 * k), "planner") for k in range(5, 0, -1)]
    assert "forecast" not in served.said(snapshot(NOW_S), "ds2")
    last = found[-1]["forecast"]
    assert last["records_in_per_s"] > 0
    assert (last["quantile"], last["horizon_s"], last["error"]) == (0.9, 1200.0, None)
    assert DecisionDocument.model_validate(found[-1]).forecast is not None


def test_a_forecast_that_fails_takes_no_decision_with_it(clocks):
    planner = make("mdp")
    planner.forecast = lambda: 1 / 0
    served = decisions(clocks, planner=lambda: GuardedPolicy(planner, answers=True))
    assert "forecast" not in served.said(snapshot(NOW_S), "planner")


def fill(served: Served, client: str, most: int = 1000) -> int:
    """Begin histories of a client until one is refused."""
    for number in range(most):
        try:
            served.said(snapshot(NOW_S - 60, f"{client}-{number}"), client=client)
        except FullError:
            return number
    return most


def test_a_client_that_fills_its_share_makes_room_for_another_and_is_refused_itself(clocks):
    served = decisions(clocks, most_bytes=2**20)
    alone = fill(served, "greedy")
    assert 4 < alone < 1000
    other = fill(served, "other")
    assert 0.3 * alone < other < 0.7 * alone
    assert served.held_bytes <= 1.2 * 2**20
    with pytest.raises(FullError, match="of this client"):
        served.said(snapshot(NOW_S, "one-more"), client="greedy")
    for number in range(other):  # all of the other's go on
        served.said(snapshot(NOW_S, f"other-{number}"), client="other")
    newest = f"greedy-{alone - 1}"  # and the newest of the first
    served.said(snapshot(NOW_S, newest), client="greedy")


def test_a_client_has_so_many_jobs_whatever_others_have(clocks):
    served = Served({"ds2": seat}, "ds2", most_jobs=3, now=lambda: clocks.now_s,
                    clock=lambda: clocks.passed_s)  # fmt: skip
    assert fill(served, "one") == 3
    assert fill(served, "two") == 3
    clocks.passed_s += SILENT_S + 1
    served.said(snapshot(NOW_S, "new"), client="one")  # in place of its own oldest
    served.said(snapshot(NOW_S, "two-0"), client="two")


def test_the_name_of_a_job_is_bounded(clocks):
    served = decisions(clocks)
    served.said(snapshot(NOW_S, "j" * 253))
    with pytest.raises(MetricsError, match="more than 253 characters"):
        served.said(snapshot(NOW_S, "j" * 254))


def cooled(clocks: Clocks, memory: ClientMemory) -> Served:
    return Served({"ds2": seat}, "ds2", most_bytes=2**20, memory=memory,
                  now=lambda: clocks.now_s, clock=lambda: clocks.passed_s)  # fmt: skip


def remembers(served: Served, client: str = "one") -> Any:
    """What the guardrails of a job remember."""
    (job,) = [job for key, job in served._jobs.items() if key.client == client]
    assert job.policy.chain is not None
    return job.policy.chain.state()


def test_a_restart_goes_on_with_cool_downs_and_replays_nothing(clocks, tmp_path):
    file = tmp_path / CLIENTS
    first = cooled(clocks, ClientMemory(file, 2**20))
    for t_s in (NOW_S - 120, NOW_S - 60):
        moved = snapshot(t_s, "orders")
        for vertex in moved["vertices"]:
            vertex["parallelism"] = 2 if t_s < NOW_S - 60 else 3
        first.said(moved, client="one")
    before = remembers(first)
    assert "cool_down" in before
    first.close()
    assert file.stat().st_mode & 0o777 == 0o600
    second = cooled(clocks, ClientMemory(file, 2**20))
    with pytest.raises(MetricsError, match="does not follow"):
        second.said(snapshot(NOW_S - 60, "orders"), client="one")
    assert remembers(second) == before
    second.said(snapshot(NOW_S, "orders"), client="one")
    second.said(snapshot(NOW_S - 60, "orders"), client="two")  # of its own


def test_what_another_client_displaced_goes_on_where_it_was(clocks):
    served = decisions(clocks, most_bytes=2**20)
    served.said(snapshot(NOW_S - 60, "first"), client="greedy")
    alone = fill(served, "greedy")
    for number in range(alone // 2):
        served.said(snapshot(NOW_S - 60, f"other-{number}"), client="other")
    assert Key("greedy", "ds2", "first") not in served._jobs
    clocks.passed_s += SILENT_S + 1
    with pytest.raises(MetricsError, match="does not follow"):
        served.said(snapshot(NOW_S - 60, "first"), client="greedy")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "dsp-gym/clients/1", "crc32": 7}'])
def test_a_damaged_memory_is_told_and_starts_over(clocks, tmp_path, caplog, text):
    file = tmp_path / CLIENTS
    file.write_text(text)
    served = cooled(clocks, ClientMemory(file, 2**20))
    assert "start over" in caplog.text
    served.said(snapshot(NOW_S, "orders"), client="one")


def test_the_memory_of_clients_is_bounded_and_drops_the_oldest_of_the_largest(tmp_path):
    memory = ClientMemory(tmp_path / CLIENTS, 10_000)
    memory.keep(Key("small", "ds2", "a"), KeptClient(1.0, ("v",), "{}"))
    for number in range(100):
        memory.keep(Key("large", "ds2", f"j{number}"), KeptClient(float(number), ("v",), "x" * 300))
    assert memory.find(Key("small", "ds2", "a"), ("v",)) is not None
    assert memory.find(Key("large", "ds2", "j99"), ("v",)) is not None
    assert memory.find(Key("large", "ds2", "j0"), ("v",)) is None
    assert memory.gone_s("large") > 0
    assert memory.gone_s("small") == -math.inf
