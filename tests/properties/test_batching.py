"""A decision does not depend on the other rows of a batch, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.control.client_history import RequestHistory
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.serve.decide import Decisions, Question
from dsp_gym.errors import DspGymError
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import JOB, unknown_snapshot
from dsp_gym.loop.snapshot_stream import SnapshotReader
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.policies.registry import make

JOBS = {"words": "flink-wordcount", "more words": "flink-wordcount", "q5": "nexmark-q5"}
POLICIES = ("ds2", "justin-artifact", "planner", "static")
START_S = 1_000_000.0


def document(job: str) -> dict[str, Any]:
    """A job that runs as its file says, of which everything is known but the age of its metrics."""
    spec = load_job(JOBS[job])
    topology = Topology.of([spec])
    seen = unknown_snapshot(topology)
    seen.arrays.job[:], seen.arrays.vertex[:] = 1.0, 1.0
    seen.arrays.job[JOB.counted_s] = np.nan  # as of each document's own time
    seen.arrays.parallelism[0] = [vertex.parallelism for vertex in spec.topological_order()]
    seen.arrays.memory_level[:] = 0
    return {**snapshot_to_json(seen.job(0)), "job": job}


DOCUMENTS = {job: document(job) for job in JOBS}


def seats() -> dict[str, Callable[[], GuardedPolicy]]:
    def maker(name: str) -> Callable[[], GuardedPolicy]:
        def made() -> GuardedPolicy:
            policy = make(name)
            return GuardedPolicy(
                policy, build_for(policy, "deployed"), tells_range=False, answers=True
            )

        return made

    return {name: maker(name) for name in POLICIES}


class Alone:
    """Each client's job with a seat of its own, asked as before there was anything faster."""

    def __init__(self) -> None:
        self.seats = seats()
        self.jobs: dict[
            tuple[str, str, str], tuple[GuardedPolicy, SnapshotReader, RequestHistory]
        ] = {}

    def answer(self, question: Question) -> dict[str, Any]:
        given = json.loads(question.body)
        key = question.client, question.policy or "ds2", given["job"]
        if key not in self.jobs:
            reader = SnapshotReader("request")
            first, seat = reader.read(given), self.seats[key[1]]()
            seat.reset(first.topology, np.zeros(1, np.int64))
            order = "Send the snapshots of a job in order, each once."
            self.jobs[key] = seat, reader, RequestHistory(first, order)
        seat, reader, history = self.jobs[key]
        snapshot = reader.read(given)
        history.take(snapshot)
        judged = seat.decide(snapshot)
        answer = decision_to_json(judged.guarded, snapshot.job(0))
        if judged.forecast is not None:
            answer["forecast"] = judged.forecast.document(0)
        settled = seat.settle(snapshot, judged, enacted=question.enacts)
        if seat.is_due:
            seat.plan(snapshot)
        failure = judged.failure or settled
        return answer if failure is None else {**answer, "reason": failure.reason}


def said(answer: Callable[[], Any]) -> str:
    try:
        return json.dumps(answer())
    except DspGymError as error:
        return str(error)


@st.composite
def questions(draw: st.DrawFn) -> list[list[Question]]:
    """Requests of several clients about several jobs, some of them together."""
    times: dict[tuple[str, str], float] = {}
    found = []
    for _ in range(draw(st.integers(1, 8))):
        together = []
        for _ in range(draw(st.integers(1, 6))):
            job, client = draw(st.sampled_from(list(JOBS))), draw(st.sampled_from(["a", "b"]))
            last_s = times.get((client, job), START_S)
            t_s = last_s + draw(st.sampled_from([60.0, 60.0, 60.0, 5.0, 86_400.0, 0.0, -60.0]))
            times[client, job] = max(t_s, last_s)
            body = moved(draw, DOCUMENTS[job], t_s)
            policy = draw(st.sampled_from([None, *POLICIES]))
            enacts = draw(st.booleans())
            together.append(Question(body, policy, client, enacts))
        found.append(together)
    return found


def moved(draw: st.DrawFn, given: dict[str, Any], t_s: float) -> bytes:
    """A document with other metrics, running another configuration; sometimes none at all."""
    seen = json.loads(json.dumps({**given, "t_s": t_s}))
    rate, busy = draw(st.floats(0, 1e5)), draw(st.floats(0, 1000))
    seen["metrics"]["window_fill"] = draw(st.sampled_from([1.0, 1.0, 0.4, None]))
    seen["metrics"]["running_since_s"] = START_S - draw(st.sampled_from([1e4, -100.0]))
    seen["metrics"]["latency_p95_s"] = draw(st.sampled_from([0.1, 1e3]))
    seen["status"] = draw(st.sampled_from(["RUNNING", "RUNNING", "RUNNING", "RESTARTING"]))
    for vertex in seen["vertices"]:
        vertex["metrics"] |= {"records_in_per_s": rate, "records_out_per_s": rate}
        vertex["metrics"]["records_in_total"] = rate * max(0.0, t_s - START_S)
        vertex["metrics"] |= {"busy_ms_per_s": busy, "pending_growth_per_s": rate / 10}
        vertex["metrics"]["cache_hit_rate"] = draw(st.sampled_from([0.2, 0.99, None, 7.0]))
        vertex["parallelism"] += draw(st.sampled_from([0, 0, 1]))
        if vertex["kind"] == "source":
            vertex["parallelism"] = 1
    odd = draw(st.sampled_from([""] * 12 + ["graph", "level", "metric", "spaces", "text"]))
    if odd == "graph":
        seen["buffer_records"] = 3000.0
    elif odd == "level":
        seen["vertices"][-1]["memory_level"] = 99
    elif odd == "metric":
        seen["metrics"]["new"] = 1.0
    elif odd == "text":
        seen["vertices"][0]["metrics"]["busy_ms_per_s"] = "much"
    return json.dumps(seen, indent=1 if odd == "spaces" else None).encode()


@settings(max_examples=20)
@given(asked=questions(), plans=st.lists(st.booleans()))
def test_together_every_answer_is_that_of_a_seat_alone(
    asked: list[list[Question]], plans: list[bool]
) -> None:
    later: list[Callable[[], None]] = []
    alone = Alone()
    served = Decisions(seats(), "ds2", later=later.append, now=lambda: START_S + 1e8)
    for number, together in enumerate(asked):
        while later and number < len(plans) and plans[number]:
            later.pop()()  # before the next request, which otherwise does it
        at_once = served.answer_batch(together)
        for question, found in zip(together, at_once, strict=True):
            ours = json.dumps(found) if found else said(lambda q=question: served.answer(q))  # type: ignore[misc]
            assert ours == said(lambda q=question: alone.answer(q))  # type: ignore[misc]


def body(job: str, t_s: float) -> bytes:
    return json.dumps({**DOCUMENTS["words"], "job": job, "t_s": t_s}).encode()


def test_jobs_of_one_graph_are_decided_about_in_one_call() -> None:
    calls: list[int] = []

    class Counted(GuardedPolicy):
        def decide(self, snapshot: Any) -> Any:
            calls.append(len(snapshot))
            return super().decide(snapshot)

    def made() -> GuardedPolicy:
        policy = make("ds2")
        return Counted(policy, build_for(policy, "deployed"), tells_range=False)

    served = Decisions({"ds2": made}, "ds2")
    jobs = [f"job-{number}" for number in range(20)]
    for job in jobs:
        served.answer(Question(body(job, START_S), None, "", True))
    calls.clear()
    later = [Question(body(job, START_S + 60), None, "", True) for job in jobs]
    found = served.answer_batch(later)
    assert calls == [16, 4]
    assert [answer and answer["job"] for answer in found] == jobs
    assert served.answer_batch(later) == [None] * 20  # a replay is looked at alone


def test_the_planner_decides_at_once_and_only_a_job_that_it_has_to_plan_for_waits() -> None:
    later: list[Callable[[], None]] = []
    served = Decisions(seats(), "planner", later=later.append)
    jobs, t_s = ["words", "other words"], START_S

    def ask(asked: list[str]) -> list[bool]:
        found = served.answer_batch([Question(body(job, t_s), None, "", True) for job in asked])
        return [answer is not None for answer in found]

    for _ in range(2):  # a new job, and its first plan
        assert ask(jobs) == [False, False]
        for job in jobs:
            served.answer(Question(body(job, t_s), None, "", True))
        t_s += 60.0
    for _ in range(3):
        t_s += 60.0
        assert ask(jobs) == [True, True]
    assert later == []
    t_s += 3600.0
    assert ask(jobs[:1]) == [True]
    assert len(later) == 1  # the answer is there, its plan is not
    t_s += 60.0
    assert ask(jobs) == [False, True]
    assert len(later) == 2
    waiting = Question(body(jobs[0], t_s), None, "", True)
    assert served.planned(waiting)  # the request makes the plan
    assert not served.planned(waiting)
    assert ask(jobs[:1]) == [True]
    for plan in later:
        plan()
    t_s += 60.0
    assert ask(jobs) == [True, True]
    assert len(later) == 2
