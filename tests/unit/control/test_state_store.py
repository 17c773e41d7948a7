"""State of a run outlives its process: rests, canary counts, roll-backs, budgets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.lease import reason_not_to_write
from dsp_gym.config.files import parse
from dsp_gym.control import start
from dsp_gym.control.config import RunConfig
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.modes import CanaryConfig, RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.state_store import MEMORY, StateStore, _text
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.policies.registry import make
from dsp_gym.records.journal import Journal, read
from tests.living import Living

NAMES = ("source", "map", "sink")
GUARDRAILS = {
    "guardrails": [{"kind": "cool_down"}, {"kind": "excess_budget", "policy": "justin-paper"}]
}


class Process:
    """What one process remembers of a job."""

    def __init__(
        self, folder: Path, living: Living, guardrails=None, leadership: Leadership | None = None
    ) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []
        self.permission = Permission("canary", CanaryConfig(share=0.5))
        self.roll_back = RollBack(RollBackConfig(return_s=60))
        self.restraint = Restraint()
        self.seat = GuardedPolicy(
            make("ds2"),
            build(guardrails)
            if isinstance(guardrails, str)
            else build(GuardrailsConfig.model_validate(guardrails or GUARDRAILS)),
        )
        self.seat.reset(living.topology, np.array([0]))
        self.store = StateStore(
            folder, living.topology, self.permission, self.roll_back, self.restraint, (self.seat,),
            leadership,
            lambda event, body: self.told.append((event, body)),
        )  # fmt: skip

    def takes_over(self, now_s: float) -> list[str]:
        """What it tells at its first decision in leadership."""
        self.told.clear()
        self.store.take_over(now_s)
        return [event for event, _ in self.told]


class Leadership:
    """A leadership that a test fills and empties."""

    def __init__(self, holder: str, inherited: str | None = None) -> None:
        self.holder, self.inherited = holder, inherited
        self.term, self.memory, self.why = 1, None, None

    def standby(self) -> str | None:
        return self.why


@pytest.fixture
def living() -> Living:
    return Living()


def at(seen: MetricsSnapshot, t_s: float, tasks: int = 1) -> MetricsSnapshot:
    p = seen.parallelism.copy()
    p[0, 1] = tasks
    return replace(seen, t_s=np.array([t_s]), running_since_s=np.array([t_s - 50.0]), parallelism=p)


def asks(seen: MetricsSnapshot, tasks: int) -> GuardedDecision:
    p = seen.parallelism.copy()
    p[0, 1] = tasks
    return GuardedDecision.unchanged(ScalingDecision(p, seen.memory_level.copy(), ("x",)))


def test_a_rest_and_the_count_of_a_canary_continue(tmp_path, living):
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    held = [first.permission.against(60.0 * i, changes=True) is not None for i in range(3)]
    first.permission.rest(200.0, 3600.0)
    first.store.save(200.0)
    assert second.store.restore(300.0) == []
    assert second.permission.against(300.0, changes=True).code == "rests"
    assert second.permission.rests_until_s == 3800.0
    assert held == [True, False, True]
    assert second.permission.against(4000.0, changes=True) is None  # the fourth change


def test_a_roll_back_is_due_in_the_next_process(tmp_path, living):
    seen = living.seen()
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    first.roll_back.asked(at(seen, 1000.0, tasks=1))
    first.store.save(1000.0)
    assert second.store.restore(1030.0) == []
    down = [
        replace(at(seen, t_s, tasks=3), status=np.array([int(Status.RESTARTING)]))
        for t_s in (1050.0, 1110.0, 1111.0)
    ]
    # For 50 s nobody has watched: the job may well have run.
    assert [second.roll_back.due(one) for one in down[:2]] == [None, None]
    due = second.roll_back.due(down[2])
    assert due.before.parallelism[0, 1] == 1
    assert "61 s and 50 s in which nothing watched after the change" in due.reason
    assert due.is_down


@pytest.mark.parametrize(("kept_s", "tasks"), [(900.0, 2), (995.0, 1)])
def test_a_change_that_only_the_journal_knows_of_is_watched_too(tmp_path, living, kept_s, tasks):
    seen = living.seen()
    watch = RollBack(RollBackConfig(return_s=60))
    watch.asked(at(seen, kept_s, tasks=1))  # what was kept: another, or the same
    before = Configuration({"source": 4, "map": 2, "sink": 1}, dict.fromkeys(NAMES, 0))
    watch.recall(1000.0, before, living.topology)
    for t_s in (1010.0, 1100.0):
        down = replace(at(seen, t_s, tasks=3), status=np.array([int(Status.RESTARTING)]))
        due = watch.due(down)
    assert due.before.parallelism[0].tolist() == [4, tasks, 1]


def test_a_run_recalls_a_change_from_its_journal(tmp_path, living, monkeypatch):
    monkeypatch.setattr(start, "connected", lambda *given, **named: living.backend)
    job = tmp_path / "line.yaml"
    job.write_text(living.spec.model_dump_json(by_alias=True, exclude_defaults=True))
    config = parse(RunConfig, {"job": str(job), "policy": "ds2", "guardrails": None}, "run.yaml")
    tasks = [{"source": 4, "map": count, "sink": 1} for count in (2, 1)]
    levels = dict.fromkeys(NAMES, 0)
    before, after = ({"parallelism": one, "memory_level": levels} for one in tasks)
    with Journal(tmp_path / "journal") as journal:
        asked = {"event": "asked", "from": before, "to": after}
        journal.append("actuation", 1.0, "line", None, asked)
    with start.started(config, mode="active", journal=tmp_path / "journal") as run:
        assert run.roll_back.state()["before"] == [[[4, 2, 1]], [[0, 0, 0]]]


def test_guardrails_continue_where_they_were(tmp_path, living):
    seen = living.seen()
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    for t_s, tasks in ((1000.0, 1), (1060.0, 1), (1120.0, 3)):
        look = at(seen, t_s, tasks)
        guarded = first.seat.chain.allow(look, first.seat.policy.decide(look))
        first.seat.chain.commit(look, guarded)
    first.store.save(1120.0)
    now = at(seen, 1180.0, tasks=3)
    fewer = ScalingDecision(asks(seen, 1).parallelism, seen.memory_level.copy(), ("one is enough",))
    fresh = second.seat.chain.state()
    assert second.store.restore(1180.0) == []
    assert second.seat.chain.state() == first.seat.chain.state() != fresh
    expected = first.seat.chain.allow(now, fewer)
    np.testing.assert_array_equal(
        second.seat.chain.allow(now, fewer).parallelism, expected.parallelism
    )


def test_a_run_that_is_started_again_goes_on_resting(tmp_path, living, monkeypatch):
    monkeypatch.setattr(start, "connected", lambda *given, **named: living.backend)
    job = tmp_path / "line.yaml"
    job.write_text(living.spec.model_dump_json(by_alias=True, exclude_defaults=True))
    given = {"job": str(job), "policy": "ds2", "guardrails": "default"}
    config = parse(RunConfig, given, "run.yaml")
    with start.started(config, mode="active", journal=tmp_path / "journal") as run:
        run.permission.rest(living.now_s, 3600.0)
        run.turn()
        assert run.decide().held_code == "rests"
    with start.started(config, mode="active", journal=tmp_path / "journal") as again:
        assert again.decide().held_code == "rests"
        assert not living.asked
    with start.started(config, mode="shadow", journal=tmp_path / "journal") as watching:
        assert watching.decide().held_code is None  # what does not act does not rest
    events = [e.body["event"] for e in read(tmp_path / "journal") if e.kind == "actuation"]
    assert "started anew" not in events


@pytest.mark.parametrize("damage", ["cut", "flipped", "not JSON", "another schema"])
def test_what_is_damaged_is_told_and_nothing_of_it_is_used(tmp_path, living, damage):
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    first.permission.rest(200.0, 3600.0)
    first.store.save(200.0)
    file = tmp_path / MEMORY
    text = file.read_text()
    damaged = {
        "cut": text[:100],
        "flipped": text.replace("3800.0", "3900.0"),
        "not JSON": "[",
        "another schema": text.replace("memory/1", "memory/9"),
    }
    file.write_text(damaged[damage])
    (said,) = second.store.restore(300.0)
    assert "rests, counts and guardrails start over" in said
    assert second.permission.rests_until_s == -math.inf


def test_guardrails_of_another_configuration_start_anew_and_say_so(tmp_path, living):
    first = Process(tmp_path, living)
    first.permission.rest(200.0, 3600.0)
    first.store.save(200.0)
    second = Process(tmp_path, living, {"guardrails": [{"kind": "cool_down"}]})
    (said,) = second.store.restore(300.0)
    assert said == "the guardrails of ds2 start over: they are configured otherwise now"
    assert second.permission.rests_until_s == 3800.0


def test_a_rest_lasts_as_long_where_the_clock_went_back_while_nothing_ran(tmp_path, living):
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    first.permission.rest(9000.0, 3600.0)
    first.restraint.restore(first.restraint.state() | {"asked_s": [8990.0], "until_s": 9600.0})
    first.store.save(9000.0)
    (said,) = second.store.restore(300.0)
    assert "the clock went back by 8700 s" in said
    assert second.permission.rests_until_s == 3900.0
    restraint = second.restraint.state()
    assert (restraint["asked_s"], restraint["until_s"]) == ([290.0], 900.0)


def test_on_a_full_disk_the_memory_before_stays(tmp_path, living, limited_files):
    first, second = Process(tmp_path, living), Process(tmp_path, living)
    first.permission.rest(200.0, 3600.0)
    first.store.save(200.0)
    limited_files(50)
    first.store.save(260.0)
    (told,) = first.told
    assert told[0] == "not kept"
    assert "cannot be written" in told[1]["reason"]
    limited_files(None)
    assert second.store.restore(300.0) == []
    assert second.permission.rests_until_s == 3800.0
    assert [file.name for file in tmp_path.iterdir()] == [MEMORY]


def test_a_successor_continues_where_the_former_one_was(tmp_path, living):
    seen, leadership = living.seen(), Leadership("first")
    first = Process(tmp_path / "first", living, leadership=leadership)
    assert first.takes_over(1000.0) == []
    for t_s, tasks in ((1000.0, 1), (1060.0, 1), (1120.0, 3)):
        look = at(seen, t_s, tasks)
        guarded = first.seat.chain.allow(look, first.seat.policy.decide(look))
        first.seat.chain.commit(look, guarded)
    first.roll_back.asked(at(seen, 1120.0, tasks=1))
    first.permission.rest(1120.0, 3600.0)
    (tmp_path / "first").mkdir()
    first.store.save(1120.0)
    second = Process(
        tmp_path / "second", living, leadership=Leadership("second", leadership.memory)
    )
    assert second.takes_over(1100.0) == ["took over"]  # its clock is behind
    assert second.told[0][1] == {"from": "first", "kept_s": 1120.0, "term": 1}
    assert second.permission.state() == first.permission.state()
    assert second.roll_back.state() == first.roll_back.state()
    assert second.seat.chain.state() == first.seat.chain.state()
    assert second.takes_over(1180.0) == []  # once a term


def test_a_lease_in_a_folder_hands_the_memory_over(tmp_path, living):
    leases = [FileLease(tmp_path / "leases", "words", holder=name) for name in ("one", "two")]
    assert leases[0].try_acquire()
    first = Process(tmp_path / "first", living, leadership=leases[0])
    assert first.takes_over(1000.0) == []
    first.permission.rest(1120.0, 3600.0)
    (tmp_path / "first").mkdir()
    first.store.save(1120.0)
    assert reason_not_to_write(leases[0], 1.0) is None  # as an actuator asks before a change
    leases[0].release()
    second = Process(tmp_path / "second", living, leadership=leases[1])
    assert second.takes_over(1130.0) == []  # it does not lead yet
    assert leases[1].try_acquire()
    assert second.takes_over(1180.0) == ["took over"]
    assert second.permission.state() == first.permission.state()


def test_who_stands_by_keeps_nothing_and_takes_nothing_over(tmp_path, living):
    leadership = Leadership("me", "{}")
    leadership.why = "another instance holds the lease"
    waiting = Process(tmp_path, living, leadership=leadership)
    assert waiting.takes_over(100.0) == []
    waiting.store.save(100.0)
    assert (leadership.memory, list(tmp_path.iterdir())) == (None, [])
    leadership.why = None
    waiting.store.save(160.0)  # in leadership, and what was left is not looked at yet
    assert (leadership.memory, list(tmp_path.iterdir())) == (None, [])


@pytest.mark.parametrize(("left_s", "rests"), [(200.0, True), (100.0, False)])
def test_of_its_own_memories_a_process_takes_the_younger(tmp_path, living, left_s, rests):
    """The disk was full, or the server was out of reach, when one of them was kept."""
    leadership = Leadership("pod-0")
    before = Process(tmp_path, living, leadership=leadership)
    before.takes_over(50.0)
    before.store.save(150.0)
    if rests:
        before.permission.rest(left_s, 3600.0)
    text = before.store._body(left_s, "pod-0")
    again = Process(tmp_path, living, leadership=Leadership("pod-0 again", _text(text)))
    assert again.store.restore(300.0) == []
    assert again.takes_over(300.0) == (["took over"] if rests else [])
    assert math.isfinite(again.permission.rests_until_s) is rests


def test_what_another_left_counts_more_than_an_own_file_however_their_clocks_go(tmp_path, living):
    mine = Process(tmp_path, living, leadership=Leadership("me"))
    mine.takes_over(100.0)
    mine.store.save(900.0)
    other = Process(tmp_path, living, leadership=Leadership("other"))
    other.permission.rest(100.0, 3600.0)
    left = _text(other.store._body(100.0, "other"))
    again = Process(tmp_path, living, leadership=Leadership("me again", left))
    assert again.store.restore(1000.0) == []
    assert again.takes_over(1000.0) == ["took over"]
    assert again.permission.rests_until_s == 3700.0


@pytest.mark.parametrize(
    "left", ["", "[" * 100_000, '{"schema": "dsp-gym/memory/1"}', "null", '{"schema": 1}']
)
def test_a_text_that_is_no_memory_is_told_and_nothing_of_it_is_used(tmp_path, living, left):
    process = Process(tmp_path, living, leadership=Leadership("me", left))
    before = process.permission.state(), process.seat.chain.state()
    assert process.takes_over(100.0) == ["started anew"]
    assert "rests, counts and guardrails start over" in process.told[0][1]["reason"]
    assert (process.permission.state(), process.seat.chain.state()) == before
    process.store.save(160.0)
    assert process.store._leadership.memory is not None


def test_a_memory_too_long_for_an_annotation_leaves_the_guardrails_out(
    tmp_path, living, monkeypatch
):
    monkeypatch.setattr("dsp_gym.control.state_store._MOST_BYTES", 500)
    leadership = Leadership("first")
    first = Process(tmp_path, living, leadership=leadership)
    first.takes_over(100.0)
    first.permission.rest(100.0, 3600.0)
    first.store.save(100.0)
    second = Process(tmp_path, living, leadership=Leadership("second", leadership.memory))
    assert second.takes_over(160.0) == ["took over", "started anew"]
    said = "the guardrails of ds2 start over: nothing was kept of them"
    assert second.told[1][1] == {"reason": said}
    assert second.permission.rests_until_s == 3700.0


def test_what_a_handover_takes_is_small(tmp_path, living):
    leadership = Leadership("first")
    first = Process(tmp_path, living, "deployed", leadership)
    first.takes_over(100.0)
    first.store.save(100.0)
    assert len(leadership.memory) < 20_000
