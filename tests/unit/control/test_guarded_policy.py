"""A policy beside others: called in isolation, replaced when it fails, blocking none of them."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

from dsp_gym.backends.upstream.timed_calls import LateError, Worker, Workers
from dsp_gym.control.guarded_policy import FAULTS, GuardedPolicy
from dsp_gym.errors import PolicyError
from dsp_gym.guardrails.chain import Chain, build, build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.guardrails.out_of_distribution import OutOfDistribution, OutOfDistributionConfig
from dsp_gym.guardrails.restriction import Restriction, hold, replace
from dsp_gym.guardrails.shadow import ShadowPolicy
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.policies.capabilities import Capabilities
from dsp_gym.policies.registry import make
from tests.simulating import constant, exact, line


class Answers:
    """A policy that answers what a function makes of the snapshot."""

    name = "answers"

    def __init__(self, function) -> None:
        self.function = function
        self.asked = 0

    def reset(self, jobs, seeds, mask=None) -> None:
        pass

    def decide(self, snapshot):
        self.asked += 1
        return self.function(snapshot)

    def state(self) -> dict:
        return {}

    def restore(self, state: dict) -> None:
        pass


def decision(snapshot, tasks=2, level=None, **given) -> ScalingDecision:
    parallelism = snapshot.parallelism.copy()
    parallelism[:, 1] = tasks
    values = {
        "parallelism": parallelism,
        "memory_level": snapshot.memory_level.copy(),
        "reasons": ("wants more",),
    } | given
    return ScalingDecision(**values)


@pytest.fixture
def seen():
    jobs = constant(line(), 1500.0, exact())
    jobs.advance(300)
    return jobs.snapshot()


def seat(policy, seen, *args, **given) -> GuardedPolicy:
    made = GuardedPolicy(policy, *args, **given)
    made.reset(seen.topology, np.array([0]))
    return made


def fallback(name: str = "ds2") -> ShadowPolicy:
    return ShadowPolicy(make(name))


def raises(_):
    raise ZeroDivisionError("no rate")


def leaves(_):
    sys.exit(3)


NONSENSE = {
    "None": lambda s: None,
    "an array of another shape": lambda s: decision(s, parallelism=np.ones((1, 99), np.int64)),
    "an array of one dimension": lambda s: decision(s, parallelism=np.ones(3, np.int64)),
    "NaN": lambda s: decision(s, parallelism=np.full(s.parallelism.shape, np.nan)),
    "broken numbers": lambda s: decision(s, parallelism=s.parallelism + 0.5),
    "no tasks at all": lambda s: decision(s, tasks=0),
    "tasks below none": lambda s: decision(s, tasks=-3),
    "more tasks than key groups": lambda s: decision(s, tasks=2**20),
    "a level that is not there": lambda s: decision(s, memory_level=s.memory_level + 50),
    "reasons of another number": lambda s: decision(s, reasons=("a", "b")),
    "reasons that are no tuple": lambda s: decision(s, reasons="because"),
}


def test_a_sound_decision_passes_with_its_range(seen):
    made = seat(Answers(decision), seen)
    begun = time.perf_counter()
    judged = made.decide(seen)
    assert 0 < judged.seconds <= time.perf_counter() - begun
    assert judged.failure is None
    assert judged.replaced_by is None
    assert judged.guarded.parallelism[0, 1] == 2
    assert judged.lower[0, 1] <= 2 <= judged.upper[0, 1]


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_replaced_by_the_fallback_and_counted_as_such(seen, what):
    expected = fallback()
    expected.reset(seen.topology, np.array([0]))
    judged = seat(Answers(NONSENSE[what]), seen, replacement=fallback()).decide(seen)
    assert judged.failure.cause == "invalid"
    assert judged.failure.replaced_by == "ds2"
    assert judged.replaced_by is not None
    np.testing.assert_array_equal(judged.guarded.parallelism, expected.decided(seen).parallelism)
    assert "nonsense" in judged.guarded.proposed.reasons[0]


@pytest.mark.parametrize("function", [raises, leaves])
@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_a_policy_that_raises_or_leaves_is_replaced(seen, function, timeout_s):
    made = seat(Answers(function), seen, replacement=fallback(), timeout_s=timeout_s)
    judged = made.decide(seen)
    assert judged.failure.cause == "raised"
    assert judged.failure.replaced_by == "ds2"


def test_without_a_fallback_what_runs_is_kept(seen):
    judged = seat(Answers(raises), seen).decide(seen)
    assert judged.failure.replaced_by is None
    assert "ZeroDivisionError: no rate" in judged.failure.reason
    np.testing.assert_array_equal(judged.guarded.parallelism, seen.parallelism)


def test_the_fallback_of_the_guardrails_is_taken(seen):
    rules = GuardrailsConfig.model_validate({"guardrails": [{"kind": "fallback"}]})
    judged = seat(Answers(raises), seen, build(rules)).decide(seen)
    assert judged.failure.replaced_by == "ds2"
    assert judged.guarded.parallelism[0, 1] == 2  # 1,500/s at 1,000/s per task


def test_a_fallback_that_fails_too_keeps_what_runs(seen):
    judged = seat(Answers(raises), seen, replacement=ShadowPolicy(Answers(raises))).decide(seen)
    assert judged.failure.replaced_by is None
    assert "its fallback failed, too" in judged.failure.reason
    np.testing.assert_array_equal(judged.guarded.parallelism, seen.parallelism)


def test_guardrails_that_raise_keep_what_runs(seen):
    rules = {"guardrails": [{"kind": "out_of_distribution", "bounds": {"busy_ms_per_s": [0, 1]},
                             "action": "hold"}]}  # fmt: skip
    chain = build(GuardrailsConfig.model_validate(rules), features=raises)
    judged = seat(Answers(decision), seen, chain).decide(seen)
    assert judged.failure.cause == "guardrails"
    np.testing.assert_array_equal(judged.guarded.parallelism, seen.parallelism)


def test_a_late_policy_is_replaced_until_it_is_done_and_then_asked_again(seen):
    let_go = threading.Event()

    def slow(snapshot):
        let_go.wait(10)
        return decision(snapshot)

    policy = Answers(slow)
    made = seat(policy, seen, replacement=fallback(), timeout_s=0.05)
    begun = time.monotonic()
    first, second = made.decide(seen), made.decide(seen)
    assert time.monotonic() - begun < 5
    assert (first.failure.cause, second.failure.cause) == ("late", "late")
    assert "within 0.05 s" in first.failure.reason
    assert policy.asked == 1  # it is not asked anew while it is at work
    let_go.set()
    deadline = time.monotonic() + 10
    while made.decide(seen).failure is not None:
        assert time.monotonic() < deadline


class Hangs(Restriction):
    """A guardrail of somebody else's that waits in one of its methods."""

    name = "hangs"

    def __init__(self, where: str, let_go: threading.Event) -> None:
        super().__init__()
        self.where, self.let_go = where, let_go

    def _at(self, where: str) -> None:
        if where == self.where:
            self.let_go.wait(10)

    def restrict(self, snapshot, parallelism, level):
        self._at("restrict")
        parallelism[:, 1] = 3
        return np.ones(len(snapshot), np.bool_)

    def reason(self, snapshot, job):
        self._at("reason")
        return "three tasks"

    def commit(self, snapshot, guarded):
        self._at("commit")

    def watch(self, snapshot):
        self._at("watch")

    def reset(self, jobs, seeds, mask=None):
        self._at("reset")
        super().reset(jobs, seeds, mask)

    def state(self):
        self._at("state")
        return {}

    def restore(self, state):
        self._at("restore")

    def set_forward(self, seconds):
        self._at("set_forward")


@pytest.fixture
def let_go():
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("where", ["restrict", "reason", "commit", "watch"])
def test_a_guardrail_that_hangs_costs_its_turn_a_time_limit_and_is_named(seen, let_go, where):
    chain, workers = Chain([Hangs(where, let_go)]), Workers()
    made = seat(Answers(decision), seen, chain, timeout_s=0.05, workers=workers)
    begun = time.monotonic()
    judged = made.decide(seen)
    told = made.settle(seen, judged, enacted=where != "watch")
    assert time.monotonic() - begun < 0.05 + 1.0
    failure = told or judged.failure
    assert failure.cause == "guardrails"
    assert failure.reason.startswith("the guardrail 'hangs' is late: it did not answer within 0.")
    if told is None:
        np.testing.assert_array_equal(judged.guarded.parallelism, seen.parallelism)
    begun = time.monotonic()
    again = made.decide(seen)  # costs the turns to come nothing
    assert time.monotonic() - begun < 0.25
    assert again.failure.reason == (
        "the guardrail 'hangs' is late: it is still at work on an earlier decision"
    )
    other = seat(Answers(decision), seen, Chain([Hangs("", let_go)]), timeout_s=5, workers=workers)
    assert other.decide(seen).failure is None
    let_go.set()
    deadline = time.monotonic() + 10
    while made.decide(seen).failure is not None:
        assert time.monotonic() < deadline
    assert made.decide(seen).guarded.parallelism[0, 1] == 3


def hung(seen, let_go, where: str, monkeypatch) -> GuardedPolicy:
    """A policy whose guardrail hangs in one of its methods, and not while it is made."""
    monkeypatch.setattr("dsp_gym.control.guarded_policy.START_S", 0.05)
    guardrail = Hangs("", let_go)
    made = seat(Answers(decision), seen, Chain([guardrail]), timeout_s=0.05, workers=Workers())
    guardrail.where = where
    return made


@pytest.mark.parametrize("where", ["reset", "restrict", "restore"])
def test_a_guardrail_that_hangs_does_not_keep_a_process_from_ending_at_its_start(
    seen, let_go, where, monkeypatch
):
    made = hung(seen, let_go, where, monkeypatch)
    seeds = np.zeros(1, np.int64)
    begin = {
        "reset": lambda: made.reset(seen.topology, seeds, 0.05),
        "restrict": lambda: made.warm_up(seen),
        "restore": lambda: made.recall({"hangs": {}}),
    }[where]
    begun = time.monotonic()
    with pytest.raises(
        PolicyError, match="the guardrail 'hangs' does not start: it did not answer"
    ):
        begin()
    assert time.monotonic() - begun < 1.0


def test_a_policy_that_hangs_in_its_reset_is_named(seen, let_go):
    policy = Answers(decision)
    made = seat(policy, seen, timeout_s=0.05, workers=Workers())
    policy.reset = lambda jobs, seeds: let_go.wait(10)
    with pytest.raises(PolicyError, match="the policy answers does not start"):
        made.reset(seen.topology, np.zeros(1, np.int64), 0.05)


def test_a_guardrail_that_hangs_in_a_reset_on_the_way_is_asked_again(seen, let_go, monkeypatch):
    made = hung(seen, let_go, "reset", monkeypatch)
    failure = made.start_over(seen.topology, np.zeros(1, np.int64))
    assert "the guardrail 'hangs' does not start" in failure.reason
    assert made.decide(seen).failure.cause == "guardrails"
    let_go.set()
    deadline = time.monotonic() + 10
    while made.decide(seen).failure is not None:
        assert time.monotonic() < deadline


def test_a_guardrail_that_hangs_in_its_state_leaves_the_one_before(seen, let_go, monkeypatch):
    made = hung(seen, let_go, "", monkeypatch)
    assert made.remembered() == {"hangs": {}}
    before = FAULTS.times().get((made.name, "memory"), 0)
    made.chain.guardrails[0].where = "state"
    begun = time.monotonic()
    assert made.remembered() == {"hangs": {}}
    made.set_forward(5.0)  # it is still at work
    assert time.monotonic() - begun < 1.0
    assert FAULTS.times()[made.name, "memory"] == before + 2


def test_a_late_policy_with_guardrails_and_a_fallback_that_hang_ends_its_turn_in_time(seen, let_go):
    def waits(snapshot):
        let_go.wait(10)
        return decision(snapshot)

    made = seat(
        Answers(waits), seen, Chain([Hangs("restrict", let_go)]), timeout_s=0.05,
        replacement=ShadowPolicy(Answers(waits)), workers=Workers(),
    )  # fmt: skip
    begun = time.monotonic()
    judged = made.decide(seen)
    assert made.settle(seen, judged, enacted=False) is None  # nothing is asked of it again
    assert time.monotonic() - begun < 0.05 + 1.0
    np.testing.assert_array_equal(judged.guarded.parallelism, seen.parallelism)


def test_an_answer_to_a_request_waits_no_longer_for_guardrails(seen, let_go):
    chain = Chain([Hangs("restrict", let_go)])
    made = seat(make("ds2"), seen, chain, turn_s=0.05, workers=Workers(), tells_range=False)
    assert made._worker is None  # the policy decides in a moment
    assert not made.is_prompt
    begun = time.monotonic()
    assert "the guardrail 'hangs' is late" in made.decide(seen).failure.reason
    assert time.monotonic() - begun < 0.05 + 1.0


def test_a_guardrail_that_leaves_ends_its_turn_and_not_the_process(seen, let_go):
    chain = Chain([Hangs("", let_go)])
    chain.guardrails[0].restrict = lambda *_: leaves(seen)
    judged = seat(Answers(decision), seen, chain, timeout_s=5.0).decide(seen)
    assert judged.failure.reason.startswith("the guardrails failed: SystemExit")


@pytest.mark.parametrize("takes_long", [False, True])
def test_only_guardrails_of_others_need_a_thread(seen, let_go, takes_long):
    chain = build("deployed") if not takes_long else Chain([Hangs("", let_go)])
    assert chain.may_take_long == (("hangs",) if takes_long else ())
    made = seat(Answers(decision), seen, chain, timeout_s=5.0)
    assert (made._guarding is not None) == takes_long


class Plans(Answers):
    """A policy that plans; `number` is of the plan it answers with."""

    def __init__(self, function=lambda: None) -> None:
        super().__init__(decision)
        self.plans_after, self.number, self.asked_with = False, 0, []
        self.make = function

    @property
    def has_plan(self) -> bool:
        return self.number > 0

    @property
    def is_due(self) -> bool:
        return self.number < self.asked

    def decide(self, snapshot):
        self.asked_with.append(self.number)
        return super().decide(snapshot)

    def capabilities(self):
        return Capabilities(later_plans=self, forecast=lambda: self.forecast())

    def forecast(self):
        return None

    def plan(self, snapshot) -> None:
        self.make()
        self.number += 1


def answering(policy, seen, **given) -> GuardedPolicy:
    return seat(policy, seen, tells_range=False, answers=True, **given)


def test_a_seat_that_answers_requests_lets_a_policy_plan_after_its_answer(seen):
    policy = Plans()
    made = answering(policy, seen)
    assert policy.plans_after
    assert (made.has_plan, made.is_due) == (False, False)
    for _ in range(2):
        assert made.decide(seen).failure is None
        assert made.is_due
        made.plan(seen)
        assert (made.has_plan, made.is_due) == (True, False)
    assert policy.asked_with == [0, 1]


@pytest.mark.parametrize("given", [{}, {"answers": True, "timeout_s": 5.0}])
def test_in_the_loop_and_under_a_time_limit_a_policy_plans_as_it_decides(seen, given):
    policy = Plans()
    made = seat(policy, seen, **given)
    made.decide(seen)
    made.plan(seen)
    assert (policy.plans_after, policy.number) == (False, 0)
    assert (made.has_plan, made.is_due) == (True, False)


def test_a_plan_or_a_forecast_that_fails_is_counted_and_logged_and_the_decision_stands(
    seen, caplog
):
    policy = Plans(lambda: 1 / 0)
    policy.forecast = lambda: 1 / 0
    made = answering(policy, seen, name="fails beside")
    for _ in range(11):
        assert made.decide(seen).failure is None
        made.plan(seen)
    times = FAULTS.times()
    assert (times["fails beside", "forecast"], times["fails beside", "plan"]) == (11, 11)
    said = [one for one in caplog.messages if "fails beside: its plan failed" in one]
    assert ["ZeroDivisionError" in one for one in said] == [True, True]  # the first and the tenth


@pytest.mark.parametrize(
    ("name", "timeout_s", "is_prompt", "is_rows"),
    [
        ("ds2", None, True, True),
        ("planner", None, True, False),
        ("planner", 5.0, False, False),
        ("static", None, False, False),
    ],
)
def test_only_a_policy_that_says_so_decides_without_a_thread(
    seen, name, timeout_s, is_prompt, is_rows
):
    policy = make(name)
    made = seat(policy, seen, build_for(policy, "deployed"), timeout_s=timeout_s)
    assert made.is_prompt == is_prompt
    assert (made.memories() is not None) == is_rows


def test_one_thread_serves_every_callee_and_ends_when_there_is_no_more_to_do():
    workers = Workers(idle_s=0.2)
    several = [Worker(f"policy {n}", workers) for n in range(20)]
    used = {worker.call(threading.current_thread, 5.0) for worker in several}
    (thread,) = used
    with pytest.raises(ValueError, match="own error"):
        several[0].call(lambda: (_ for _ in ()).throw(ValueError("own error")), 5.0)
    thread.join(5)
    assert not thread.is_alive()
    assert several[0].call(lambda: 3, 5.0) == 3  # in a new one


def test_a_worker_that_is_late_says_so():
    worker, let_go = Worker("late"), threading.Event()
    with pytest.raises(LateError, match=r"within 0\.01 s"):
        worker.call(lambda: let_go.wait(10), 0.01)
    with pytest.raises(LateError, match="earlier"):
        worker.call(lambda: 1, 0.01)
    let_go.set()


def test_a_policy_that_hangs_on_every_job_leaves_the_others_their_threads():
    workers, let_go = Workers(most=3, most_of_one=2), threading.Event()
    hung = [Worker("hangs", workers) for _ in range(5)]
    for worker in hung:
        with pytest.raises(LateError):
            worker.call(lambda: let_go.wait(10), 0.01)
    assert Worker("fine", workers).call(lambda: 3, 5.0) == 3
    let_go.set()
    deadline = time.monotonic() + 10
    while True:  # what hung may be asked again once it has ended
        try:
            assert hung[0].call(lambda: 4, 5.0) == 4
            break
        except LateError:
            assert time.monotonic() < deadline


def test_the_range_is_what_every_guardrail_leaves(seen):
    rules = {"guardrails": [{"kind": "step_limit", "tasks": 2, "up_factor": 1, "down_factor": 1},
                            {"kind": "bounds_and_quota", "max_parallelism": 2}]}  # fmt: skip
    judged = seat(Answers(lambda s: decision(s, tasks=9)), seen,
                  build(GuardrailsConfig.model_validate(rules))).decide(seen)  # fmt: skip
    assert seen.parallelism[0, 1] == 1
    assert (judged.lower[0, 1], judged.upper[0, 1]) == (1, 2)
    assert judged.guarded.parallelism[0, 1] == 2
    assert judged.guarded.proposed.parallelism[0, 1] == 9


def test_a_quota_leaves_a_vertex_what_the_others_do_not_take(seen):
    rules = {"guardrails": [{"kind": "bounds_and_quota", "cores": 6}]}
    judged = seat(Answers(decision), seen,
                  build(GuardrailsConfig.model_validate(rules))).decide(seen)  # fmt: skip
    # Of six cores the sink takes one and the map two: three more are there for the map.
    assert judged.upper[0, 1] == 5


def test_while_a_guardrail_holds_the_range_is_what_runs():
    jobs = constant(line(), 1500.0, exact())
    jobs.advance(5)  # the metrics window is not full
    early = jobs.snapshot()
    judged = seat(Answers(lambda s: decision(s, tasks=9)), early, build("default")).decide(early)
    np.testing.assert_array_equal(judged.lower, early.parallelism)
    np.testing.assert_array_equal(judged.upper, early.parallelism)


def test_warming_up_leaves_no_trace_and_raises_nothing_but_what_the_user_can_put_right(seen):
    seat(Answers(raises), seen).warm_up(seen)
    made, other = (seat(make("ds2"), seen) for _ in range(2))
    made.warm_up(seen)
    made.reset(seen.topology, np.array([0]))
    assert made.policy.state() == other.policy.state()


class Holiday(Restriction):
    """A guardrail of somebody's own that keeps the running configuration."""

    name = "holiday"
    kind = "held"

    def restrict(self, snapshot, parallelism, level):
        everywhere = np.ones(len(snapshot), dtype=bool)
        return hold(snapshot, everywhere, parallelism, level)

    def reason(self, snapshot, job: int) -> str:
        return "the operators are at a training"


class Deputy(Restriction):
    """A guardrail of somebody's own that lets a policy of its own decide."""

    name = "deputy"
    kind = "replaced"
    replacement = "two-for-all"

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._tasks = tasks

    def replaces(self, snapshot):
        return np.ones(len(snapshot), dtype=bool)

    def restrict(self, snapshot, parallelism, level):
        wanted = snapshot.parallelism.copy()
        wanted[:, 1] = self._tasks
        rows = self.replaces(snapshot)
        return replace(snapshot, rows, wanted, snapshot.memory_level, parallelism, level)

    def reason(self, snapshot, job: int) -> str:
        return "the deputy decides"


def test_a_word_in_a_guardrails_sentence_says_nothing_about_the_training(seen):
    box = OutOfDistribution(
        OutOfDistributionConfig(bounds={"busy_ms_per_s": (-2.0, -1.0)}, action="hold")
    )
    judged = seat(Answers(decision), seen, Chain([Holiday(), box])).decide(seen)
    assert [i.guardrail for i in judged.guarded.interventions] == ["holiday"]
    assert judged.unfamiliar == ("busy_ms_per_s",)
    familiar = OutOfDistribution(OutOfDistributionConfig(bounds={"busy_ms_per_s": (0.0, 1000.0)}))
    judged = seat(Answers(decision), seen, Chain([Holiday(), familiar])).decide(seen)
    assert judged.in_distribution is True
    judged = seat(Answers(decision), seen, Chain([Holiday()])).decide(seen)
    assert judged.in_distribution is None


@pytest.mark.parametrize(("tasks", "changes"), [(5, 1), (2, 0)])
def test_a_guardrail_of_ones_own_says_who_decides_changed_or_not(seen, tasks, changes):
    judged = seat(Answers(decision), seen, Chain([Deputy(tasks)])).decide(seen)
    assert judged.replaced_by == "two-for-all"
    said = [(i.kind, i.by) for i in judged.guarded.interventions]
    assert said == [("replaced", "two-for-all")] * changes


def test_an_intervention_says_what_it_did_as_data(seen):
    rules = GuardrailsConfig.model_validate(
        {"guardrails": [{"kind": "bounds_and_quota", "max_parallelism": 3}]}
    )
    judged = seat(Answers(lambda s: decision(s, tasks=9)), seen, build(rules)).decide(seen)
    (one,) = judged.guarded.interventions
    assert (one.job, one.guardrail, one.kind, one.by) == (0, "bounds_and_quota", "limited", None)
