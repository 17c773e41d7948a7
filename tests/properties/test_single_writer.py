"""Two leaders, one resource: no stale write, whatever is late, lost, frozen or taken away.

Each call of an instance waits until the test delivers it, so every interleaving of calls, status
writes of the operator, lost answers, writes that arrive late, crashes and passing time can come up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import Stamp
from dsp_gym.backends.kubernetes.writer import OverrideWriter
from dsp_gym.errors import KubernetesError
from tests.fakes.kubernetes_schema import RESOURCES
from tests.fakes.kubernetes_selectors import merged
from tests.fakes.kubernetes_store import Refused, Store
from tests.flink_resources import MAP, deployment, stable

WHERE = ("FlinkDeployment", "jobs", "words")
KINDS = {resource.kind: resource for resource in RESOURCES.values()}
LEASE_S, TIMEOUT_S, INTERVAL_S = 15.0, 5.0, 6.0
REASONS = {404: "NotFound", 409: "Conflict", 422: "Invalid"}

Document = dict[str, Any]


class Crash(BaseException):
    """The process of an instance ends in the middle of a call."""


@dataclass
class Decision:
    """One decision of an instance to write a number nobody else writes."""

    instance: str
    number: int
    since_s: float  # when it was made
    base: int | None = None  # generation of the spec it was made for
    ended: str | None = None


@dataclass
class Call:
    """One call that waits to be delivered."""

    run: Callable[[], Document]
    what: str
    answered: threading.Event = field(default_factory=threading.Event)
    result: Document | BaseException | None = None


class Instance:
    """One process: a lease, a writer, and a thread while it decides."""

    def __init__(self, name: str, machine: SingleWriter) -> None:
        self.name, self.machine = name, machine
        self.lease = Lease(
            self, "jobs", "words", name, LEASE_S, lambda: machine.now_s, lambda: 1e9 + machine.now_s
        )
        self.writer = OverrideWriter(
            self, *WHERE, self.lease, attempts=4, sleep=lambda s: None, clock=lambda: machine.now_s
        )
        self.timeout_s = TIMEOUT_S
        self.call: Call | None = None
        self.decision: Decision | None = None
        self.holder_seen: str | None = None
        self._blocked = threading.Event()
        self._thread: threading.Thread | None = None

    # what the lease and the writer ask of an API server

    def get(self, kind: str, namespace: str, name: str) -> Document:
        body = self._ask("get " + kind, lambda: self.machine.get(kind, name))
        if kind == "Lease" and threading.current_thread() is self._thread:
            self.holder_seen = body["spec"].get("holderIdentity")
        return body

    def create(self, kind: str, namespace: str, body: Document) -> Document:
        return self._ask("create " + kind, lambda: self.machine.create(kind, body))

    def replace(self, kind: str, namespace: str, name: str, body: Document) -> Document:
        return self._ask("replace " + kind, lambda: self.machine.change(kind, name, lambda o: body))

    def merge_patch(
        self, kind: str, namespace: str, name: str, body: Document, *, resource_version: str
    ) -> Document:
        patch = merged(body, {"metadata": {"resourceVersion": resource_version}})
        if "spec" not in body:
            return self._ask("stamp", lambda: self.machine.stamped(patch))
        assert self.holder_seen == self.name, "written without a look at the lease"
        decision = self.decision
        assert decision is not None
        age_s = self.machine.now_s - decision.since_s
        assert age_s < INTERVAL_S, "a decision older than its interval was sent"
        return self._ask("patch", lambda: self.machine.patched(decision, patch))

    def _ask(self, what: str, run: Callable[[], Document]) -> Document:
        if threading.current_thread() is not self._thread:
            return run()  # whoever keeps the lease
        self.call = call = Call(run, what)
        self._blocked.set()
        call.answered.wait()
        if isinstance(call.result, BaseException):
            raise call.result
        assert call.result is not None
        return call.result

    # what the test does with it

    def decide(self, number: int) -> None:
        self.decision = Decision(self.name, number, self.machine.now_s)
        self.machine.decisions.append(self.decision)
        self._blocked.clear()
        self._thread = threading.Thread(target=self._decide, args=(self.decision,))
        self._thread.start()
        self._blocked.wait()

    def answer(self, result: Document | BaseException) -> None:
        call, self.call = self.call, None
        assert call is not None
        self._blocked.clear()
        call.result = result
        call.answered.set()
        self._blocked.wait()

    def end(self) -> None:
        if self.call is not None:
            self.answer(Crash())
        if self._thread is not None:
            self._thread.join()

    def _decide(self, decision: Decision) -> None:
        try:
            if not self.lease.try_acquire():
                decision.ended = "not the leader"
                return
            seen = self.writer.read()
            decision.base = seen.generation
            after = self.writer.write(
                seen,
                {MAP: decision.number},
                decision=str(decision.number),
                until_s=decision.since_s + INTERVAL_S,
            )
            assert after.overrides[MAP] == decision.number
            decision.ended = "written"
        except KubernetesError as error:
            decision.ended = "unknown" if error.may_have_acted else f"refused: {error}"
        except Crash:
            decision.ended = "crashed"
        except BaseException as error:
            self.machine.failure = error
        finally:
            self.decision = None
            self._blocked.set()


NAMES = st.sampled_from([0, 1])


class SingleWriter(RuleBasedStateMachine):
    """The server, the operator, two instances, and a network that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.crashes, self.number, self.last = 0.0, 0, 1, 1
        self.failure: BaseException | None = None
        self.store = Store(lambda: "2026-01-01T00:00:00Z")
        self.decisions: list[Decision] = []
        self.landed: list[tuple[Decision, int]] = []  # with the generation it made
        self.leaders: list[tuple[int, str]] = []  # epoch and holder of every stamp, in order
        self.stale: list[tuple[Decision, Stamp]] = []  # landed on the stamp of another
        self.late: list[Callable[[], Document]] = []
        self.create("FlinkDeployment", deployment(overrides={MAP: 1}))
        self._take_in()
        self.instances = [Instance("a", self), Instance("b", self)]

    # the server

    def get(self, kind: str, name: str) -> Document:
        return self._served(lambda: self.store.get(KINDS[kind], "jobs", name))

    def create(self, kind: str, body: Document) -> Document:
        return self._served(lambda: self.store.create(KINDS[kind], "jobs", body, "dsp-gym", False))

    def change(
        self, kind: str, name: str, change: Callable[[Document], Document], of_status: bool = False
    ) -> Document:
        return self._served(
            lambda: self.store.change(
                KINDS[kind], "jobs", name, change, "dsp-gym", of_status=of_status
            )
        )

    def patched(self, decision: Decision, patch: Document) -> Document:
        before = self.store.get(KINDS[WHERE[0]], *WHERE[1:])["metadata"]
        after = self.change(WHERE[0], WHERE[2], lambda old: merged(old, patch))
        if after["metadata"]["generation"] != before["generation"]:
            self.last = decision.number
            self.landed.append((decision, after["metadata"]["generation"]))
            stamp = Stamp.of(before.get("annotations") or {})
            if stamp.holder != decision.instance:
                self.stale.append((decision, stamp))
        return after

    def stamped(self, patch: Document) -> Document:
        after = self.change(WHERE[0], WHERE[2], lambda old: merged(old, patch))
        stamp = Stamp.of(after["metadata"]["annotations"])
        self.leaders.append((stamp.epoch, stamp.holder))
        return after

    def _served(self, run: Callable[[], Document]) -> Document:
        try:
            return run()
        except Refused as error:
            raise KubernetesError(error.message, reason=REASONS[error.code]) from error

    def _take_in(self) -> None:
        body = self.store.get(KINDS[WHERE[0]], *WHERE[1:])
        status = stable(body, body["metadata"]["generation"])
        self.change(WHERE[0], WHERE[2], lambda old: {**old, "status": status}, of_status=True)

    # what may happen

    @rule(which=NAMES)
    def begin(self, which: int) -> None:
        instance = self.instances[which]
        if instance.decision is None:
            self.number += 1
            instance.decide(self.number)

    @rule(which=NAMES, calls=st.sampled_from([1, 1, 1, 2, 3, 5, 12]))
    def deliver(self, which: int, calls: int) -> None:
        for _ in range(calls):
            instance = self.instances[which]
            if instance.call is None:
                return
            try:
                instance.answer(instance.call.run())
            except KubernetesError as error:
                instance.answer(error)

    @rule(which=NAMES, arrives=st.sampled_from(["never", "late", "at once"]))
    def lose(self, which: int, arrives: str) -> None:
        instance = self.instances[which]
        if instance.call is None:
            return
        self.now_s += TIMEOUT_S
        is_write = not instance.call.what.startswith("get")
        if is_write and arrives == "late":
            self.late.append(instance.call.run)
        elif is_write and arrives == "at once":
            self._quietly(instance.call.run)
        instance.answer(KubernetesError("late", reason="Timeout", may_have_acted=is_write))

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9))
    def arrive(self, which: int) -> None:
        self._quietly(self.late.pop(which % len(self.late)))

    @rule(which=NAMES)
    def keep_the_lease(self, which: int) -> None:
        instance = self.instances[which]
        if instance.call is None or "Lease" not in instance.call.what:  # one call at a time
            self._quietly(instance.lease.try_acquire)

    @rule(which=NAMES)
    def lead(self, which: int) -> None:
        """The lease's thread: takes the lease, and stamps the resource at once."""
        instance = self.instances[which]
        if instance.decision is None:
            self._quietly(lambda: instance.lease.try_acquire() and instance.writer.claim())

    @rule(taken_in=st.booleans())
    def somebody_else_writes(self, taken_in: bool) -> None:
        self.number += 1
        self.last = self.number
        options = {"spec": {"flinkConfiguration": {KEY: f"{MAP}:{self.number}"}}}
        self.change(WHERE[0], WHERE[2], lambda old: merged(old, options))
        if taken_in:
            self._take_in()

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def operator_takes_the_spec_in(self) -> None:
        self._take_in()

    @rule()
    def operator_writes_its_status(self) -> None:
        beat = {"reconciliationTimestamp": self.store.version}
        self.change(
            WHERE[0], WHERE[2],
            lambda old: {**old, "status": {**old["status"], "taskManager": beat}}, of_status=True,
        )  # fmt: skip

    @rule(which=NAMES)
    def crash(self, which: int) -> None:
        self.instances[which].end()
        self.crashes += 1
        self.instances[which] = Instance(f"{'ab'[which]}{self.crashes}", self)

    def _quietly(self, run: Callable[[], object]) -> None:
        try:
            run()
        except KubernetesError:
            return

    # what holds

    @invariant()
    def nothing_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    @invariant()
    def of_decisions_for_one_spec_at_most_one_applies(self) -> None:
        bases = [decision.base for decision, _ in self.landed]
        assert len(bases) == len(set(bases)), self.landed

    @invariant()
    def no_write_lands_after_another_leader_has_stamped(self) -> None:
        assert self.stale == []

    @invariant()
    def epochs_increase(self) -> None:
        epochs = [epoch for epoch, _ in self.leaders]
        assert epochs == sorted(set(epochs)), self.leaders

    @invariant()
    def a_write_lands_on_the_spec_it_was_decided_for(self) -> None:
        for decision, generation in self.landed:
            assert generation == decision.base + 1

    @invariant()
    def a_decision_that_was_refused_never_applies(self) -> None:
        landed = {id(decision) for decision, _ in self.landed}
        for decision in self.decisions:
            if decision.ended is not None and decision.ended.startswith(("refused", "not")):
                assert id(decision) not in landed, decision

    @invariant()
    def the_spec_is_what_was_written_last(self) -> None:
        options = self.store.get(KINDS[WHERE[0]], *WHERE[1:])["spec"]["flinkConfiguration"]
        assert options[KEY] == f"{MAP}:{self.last}"

    def teardown(self) -> None:
        for instance in self.instances:
            instance.end()


class ManySchedules(SingleWriter):
    """The same, over 10,000 schedules."""


SingleWriter.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestSingleWriter = pytest.mark.slow(SingleWriter.TestCase)

ManySchedules.TestCase.settings = settings(max_examples=10_000, stateful_step_count=50)
TestManySchedules = pytest.mark.validate(ManySchedules.TestCase)


def test_a_decision_that_waits_longer_than_its_interval_is_refused():
    machine = SingleWriter()
    try:
        machine.begin(0)
        machine.deliver(0, 3)
        machine.wait(4.0)
        machine.wait(4.0)
        machine.keep_the_lease(0)
        machine.deliver(0, 12)
        assert "older than its interval" in machine.decisions[0].ended
    finally:
        machine.teardown()


def test_the_machine_can_write_at_all():
    """Both instances, one after the other: what the laws above are about does come up."""
    machine = SingleWriter()
    try:
        machine.begin(0)
        machine.deliver(0, 12)
        machine.operator_takes_the_spec_in()
        machine.begin(1)
        machine.deliver(1, 12)
        assert [d.ended for d in machine.decisions] == ["written", "not the leader"]
        machine.wait(16.0)
        machine.begin(1)
        machine.deliver(1, 12)
        assert machine.decisions[-1].ended == "written"
        assert [generation for _, generation in machine.landed] == [2, 3]
    finally:
        machine.teardown()


def test_a_write_that_arrives_late_is_not_called_refused():
    machine = SingleWriter()
    try:
        machine.begin(0)
        while not machine.instances[0].call.what.startswith("patch"):
            machine.deliver(0, 1)
        machine.lose(0, "late")
        machine.wait(16.0)  # the lease is over, so it is not repeated
        machine.deliver(0, 12)
        assert machine.decisions[0].ended == "unknown"
        machine.arrive(0)
        assert [decision.number for decision, _ in machine.landed] == [2]
    finally:
        machine.teardown()


def test_a_leader_frozen_between_its_look_at_the_lease_and_its_write_is_fenced():
    machine = SingleWriter()
    try:
        machine.lead(0)
        machine.begin(0)
        while not machine.instances[0].call.what.startswith("patch"):
            machine.deliver(0, 1)
        machine.lead(1)  # has seen the lease
        machine.wait(16.0)
        machine.lead(1)
        assert machine.leaders == [(1, "a"), (2, "b")]
        machine.deliver(0, 12)
        assert "'b' has taken over" in machine.decisions[0].ended
        assert machine.landed == []
    finally:
        machine.teardown()


def test_a_stamp_that_arrives_late_is_below_that_of_the_new_leader():
    machine = SingleWriter()
    try:
        machine.begin(0)
        while not machine.instances[0].call.what.startswith("stamp"):
            machine.deliver(0, 1)
        machine.lead(1)  # has seen the lease
        machine.wait(16.0)
        machine.lead(1)
        machine.deliver(0, 12)
        assert machine.leaders == [(1, "b")]
        assert machine.decisions[0].ended.startswith("refused")
    finally:
        machine.teardown()


def test_a_spec_that_changed_between_two_looks_is_left_alone():
    machine = SingleWriter()
    try:
        machine.begin(0)
        machine.deliver(0, 3)  # no lease, a lease, the resource the decision is for
        machine.somebody_else_writes(taken_in=True)
        machine.deliver(0, 12)
        assert "another client has changed its spec" in machine.decisions[0].ended
        machine.the_spec_is_what_was_written_last()
    finally:
        machine.teardown()


def test_a_write_without_an_answer_that_was_written_over_is_not_called_refused():
    state = SingleWriter()
    try:
        state.lead(0)
        state.begin(0)
        while state.instances[0].call.what != "patch":
            state.deliver(0, 1)
        state.lose(0, "at once")
        state.somebody_else_writes(taken_in=True)
        state.deliver(0, 5)
        (decision,) = state.decisions
        assert [landed for landed, _ in state.landed] == [decision]
        assert decision.ended is not None
        state.a_decision_that_was_refused_never_applies()
    finally:
        state.teardown()
