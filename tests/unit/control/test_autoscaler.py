"""The loop on a real job: journaled completely, and not ended by failures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.backends.base import Platform
from dsp_gym.backends.interference import Interference
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.turn import Hooks, Turn
from dsp_gym.errors import FlinkError, KubernetesError, StorageError
from dsp_gym.guardrails.chain import Chain, build
from dsp_gym.guardrails.restriction import Restriction
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.wire import decision_from_json, snapshot_from_json
from dsp_gym.policies.registry import make
from dsp_gym.records.journal import Journal, read
from tests.living import Living

KINDS = ["snapshot", "decision", "guard", "actuation", "outcome"]


class Asks:
    """A policy that wants that many tasks of the map; 0 raises."""

    name = "asks"

    def __init__(self, *tasks: int) -> None:
        self._tasks = list(tasks)
        self.saw: list[float] = []

    def reset(self, jobs, seeds, mask=None) -> None:
        self.seeds = seeds

    def decide(self, snapshot) -> ScalingDecision:
        self.saw.append(float(snapshot.t_s[0]))
        p = snapshot.parallelism.copy()
        tasks = self._tasks.pop(0) if len(self._tasks) > 1 else self._tasks[0]
        if tasks == 0:
            raise ZeroDivisionError("no rate")
        p[:, 1] = tasks
        return ScalingDecision(p, snapshot.memory_level.copy(), (f"wants {tasks}",))

    def state(self) -> dict:
        return {}

    def restore(self, state: dict) -> None:
        pass


@pytest.fixture
def living() -> Living:
    return Living()


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path) as written:
        yield written


def started(living: Living, policy, journal, guardrails=None, **rest) -> JobAutoscaler:
    writer = JournalWriter(journal, "line", policy.name, living.clock)
    permission = Permission(rest.pop("mode", "active"))
    hooks = Hooks(on_turn=rest.pop("on_turn", lambda turn: None))
    rest = {"permission": permission, "hooks": hooks, **rest}
    return JobAutoscaler(living.backend, [GuardedPolicy(policy, guardrails)], writer, **rest)


def test_every_decision_leaves_its_five_entries_in_order(living, journal):
    run = started(living, Asks(1), journal)
    run.run(steps=3)
    entries = list(read(journal.folder))
    assert [entry.kind for entry in entries] == KINDS * 3
    assert [entry.seq for entry in entries] == list(range(15))
    assert {(entry.job, entry.policy) for entry in entries} == {("line", "asks")}
    times = [entry.t_s for entry in entries]
    assert times == sorted(times)


def test_what_stands_in_the_journal_can_be_decided_on_again(living, journal):
    run = started(living, make("ds2"), journal)
    run.run(steps=5)
    entries = list(read(journal.folder))
    again = make("ds2")
    for number in range(5):
        seen, decided = entries[5 * number].body, entries[5 * number + 1].body
        snapshot = snapshot_from_json([seen])
        if number == 0:
            again.reset(snapshot.topology, np.array([0]))
        there = decision_from_json([decided], snapshot.topology)
        np.testing.assert_array_equal(again.decide(snapshot).parallelism, there.parallelism)


def test_ds2_scales_the_job_up_through_the_loop(living, journal):
    turns: list[Turn] = []
    run = started(living, make("ds2"), journal, on_turn=turns.append)
    run.run(duration_s=600)
    assert living.now_s == 600
    assert living.simulated.state.parallelism[0, 1] == 2  # 1,500/s at 1,000/s per task
    assert sum(turn.changes for turn in turns) >= 1
    assert all(turn.held is None for turn in turns)


def test_guardrails_hold_on_the_way(living, journal):
    run = started(living, Asks(20), journal, build("default"))
    run.run(steps=6)
    guards = [entry.body for entry in read(journal.folder) if entry.kind == "guard"]
    assert any(guard["interventions"] for guard in guards)
    assert max(guard["vertices"][1]["parallelism"] for guard in guards) < 20


def test_a_policy_that_raises_keeps_the_configuration_and_is_asked_again(living, journal):
    turns: list[Turn] = []
    run = started(living, Asks(1, 0, 2), journal, on_turn=turns.append)
    run.run(steps=3)
    errors = [entry.body for entry in read(journal.folder) if entry.kind == "error"]
    assert [error["stage"] for error in errors] == ["policy"]
    assert "ZeroDivisionError: no rate" in errors[0]["reason"]
    assert turns[1].held is not None
    assert not turns[1].changes
    assert [len(asked.parallelism) for asked in living.asked] == [1, 1]
    assert living.asked[-1].parallelism[0, 1] == 2


def test_a_run_ends_with_the_reason_when_its_platform_says_that_nothing_may_go_on(living, journal):
    found = KubernetesError("the account may write", reason="Invalid")

    class Ending(Platform):
        def must_end(self) -> KubernetesError | None:
            return found if living.now_s > 100 else None

    living.backend.platform = Ending()
    run = started(living, Asks(1), journal, mode="shadow")
    with pytest.raises(KubernetesError, match="the account may write"):
        run.run(steps=5)
    assert run.turns == 2
    (entry,) = [entry.body for entry in read(journal.folder) if entry.kind == "error"]
    assert (entry["stage"], entry["api"]) == ("account", "kubernetes")


def test_unknown_metrics_freeze_the_loop_and_it_goes_on_when_they_are_back(living, journal):
    run = started(living, Asks(3), journal)
    living.shown_trouble = FlinkError(
        "Prometheus at http://127.0.0.1:9090 does not answer", api="prometheus", reason="Timeout"
    )
    first = run.turn()
    assert first.held == str(living.shown_trouble)
    assert not living.asked
    living.shown_trouble = None
    living.sleep(2)  # the look that ended the interval is no longer new
    assert run.turn().held is None
    assert len(living.asked) == 1
    kinds = [entry.kind for entry in read(journal.folder)]
    assert kinds == ["snapshot", "error", *KINDS[1:], *KINDS]
    decided = [e.body for e in read(journal.folder) if e.kind == "actuation"]
    assert [body["asked"] for body in decided] == [False, True]
    assert decided[0]["held"].startswith("Prometheus")
    errors = [e.body for e in read(journal.folder) if e.kind == "error"]
    assert [(body["api"], body["kind"]) for body in errors] == [("prometheus", "Timeout")]


def test_a_job_that_cannot_be_looked_at_is_waited_for(living, journal):
    policy = Asks(2)
    run = started(living, policy, journal, interval_s=30)
    living.refuses = "2 jobs are named 'line'"
    turn = run.turn()
    assert turn.snapshot is None
    assert "2 jobs" in turn.held
    assert living.now_s == 30
    assert not policy.saw
    assert [e.kind for e in read(journal.folder)] == ["error", "error"]
    living.refuses = None
    assert run.turn().snapshot is not None


def test_a_journal_that_cannot_be_written_ends_the_run(living, journal):
    run = started(living, Asks(2), journal)
    run.turn()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        run.turn()


def test_a_dry_run_says_what_it_would_have_asked_for(living, journal):
    run = started(living, Asks(3), journal, mode="shadow")
    turn = run.turn()
    assert turn.changes
    assert not turn.applied
    decided = next(e.body for e in read(journal.folder) if e.kind == "actuation")
    assert decided == {
        "event": "decided", "asked": False, "applied": False, "held": None, "mode": "shadow"
    }  # fmt: skip
    assert not living.asked


def test_steps_of_the_actuator_stand_between_the_others(living, journal):
    run = started(living, Asks(1), journal)
    run.turn()
    run.writer.step("savepoint", {"bytes": 5})
    assert list(read(journal.folder))[-1].body == {"event": "savepoint", "bytes": 5}


def test_the_seed_reaches_the_policy(living, journal):
    policy = Asks(1)
    started(living, policy, journal, seed=7)
    assert policy.seeds.tolist() == [7]


def test_a_change_that_made_the_job_late_is_taken_back_and_then_it_rests(living, journal):
    living.simulated.reset(np.arange(1), np.array([[1500.0]]), parallelism=np.array([[4, 3, 1]]))
    turns: list[Turn] = []
    advance = living.backend.advance

    def late_with_one_task(seconds):
        outcome = advance(seconds)
        late = living.simulated.state.parallelism[0, 1] == 1
        return replace(outcome, slo_s=outcome.seconds * (0.9 if late else 0.0))

    living.backend.advance = late_with_one_task
    run = started(living, Asks(3, 3, 3, 3, 1), journal, on_turn=turns.append,
                  roll_back=RollBack(RollBackConfig(cool_down_s=900)))  # fmt: skip
    run.run(steps=30)
    held = [turn.held_code for turn in turns]
    taken_back = held.index("rolled_back")
    assert turns[taken_back].snapshot.parallelism[0, 1] == 1
    assert set(held[taken_back + 1 : taken_back + 15]) == {"rests"}
    assert living.asked[-1].parallelism[0, 1] in (1, 3)
    steps = [e.body for e in read(journal.folder) if e.body.get("event") == "rolled_back"]
    assert "outside the objective" in steps[0]["reason"]
    decided = [e.body for e in read(journal.folder) if e.body.get("event") == "decided"]
    assert not decided[taken_back]["asked"]


def test_a_clock_that_goes_back_makes_policies_start_anew_and_nothing_is_asked(living, journal):
    policy = Asks(1, 1, 3)
    turns: list[Turn] = []
    run = started(living, policy, journal, on_turn=turns.append)
    run.run(steps=2)
    resets = []
    policy.reset = lambda *given: resets.append(given)
    before = living.simulated.snapshot

    def earlier():
        seen = before()
        return replace(seen, t_s=seen.t_s - 3600, running_since_s=seen.running_since_s - 3600)

    living.simulated.snapshot = earlier
    living.sleep(2)  # the look that ended the interval is no longer new
    run.run(steps=4)
    assert turns[2].held_code == "clock"
    assert "the clock went back by 3" in turns[2].held
    assert len(resets) == 1
    assert not turns[2].asked
    assert turns[3].held is None
    assert turns[3].asked


def test_a_rest_lasts_no_longer_where_the_clock_goes_back(living, journal):
    turns: list[Turn] = []
    run = started(living, Asks(3), journal, on_turn=turns.append)
    run.turn()
    run.permission.rest(living.now_s + 3600, 300)  # the clock was ahead by an hour
    run._collector._last_s += 3600
    run.run(steps=8)
    codes = [turn.held_code for turn in turns[1:]]
    assert codes[0] == "clock"
    assert codes[1:5] == ["rests"] * 4
    assert "rests" not in codes[5:]


def test_a_rest_is_not_cut_short_where_the_clock_is_set_forward(living, journal, monkeypatch):
    turns: list[Turn] = []
    run, before = started(living, Asks(3), journal, on_turn=turns.append), living.simulated.snapshot
    run.turn()
    run.permission.rest(living.now_s, 300)

    def ahead():
        seen = before()
        return replace(seen, t_s=seen.t_s + 3600)

    living.simulated.snapshot = ahead
    monkeypatch.setattr(run.backend, "now_s", lambda: living.now_s + 3600)
    monkeypatch.setattr(run.backend, "elapsed_s", lambda: living.now_s)
    living.sleep(2)  # the look that ended the interval is no longer new
    run.run(steps=8)
    codes = [turn.held_code for turn in turns[1:]]
    assert codes[:4] == ["rests"] * 4
    assert "rests" not in codes[5:]
    assert turns[1].failures[0].reason.startswith("the clock was set forward by 3600 s")


def test_time_that_was_slept_through_is_told_and_holds_nothing(living, journal):
    run = started(living, Asks(1), journal)
    run.turn()
    living.sleep(3600)
    turn = run.turn()
    assert turn.held is None
    assert turn.failures == (("clock", "3660 s went by since the last decision", None, None),)


def test_what_nobody_expected_is_told_and_the_loop_goes_on(living, journal, monkeypatch):
    run = started(living, Asks(2), journal)

    def odd():
        raise KeyError("vertices")

    with monkeypatch.context() as patch:
        patch.setattr(living, "seen", odd)
        turn = run.turn()
    assert turn.held == "KeyError: 'vertices'"
    assert turn.held_code == "collector"
    assert living.now_s == 60
    assert run.turn().held is None


def test_a_full_disk_stops_the_journal_and_not_the_loop(living, journal, limited_files):
    run = started(living, Asks(1), journal)
    run.run(steps=3)
    size = max(file.stat().st_size for file in journal.folder.glob("*.jsonl"))
    limited_files(size + 700)  # in the middle of an entry
    for _ in range(3):
        turn = run.turn()
        assert turn.guarded is not None
        assert run.writer.trouble is not None
    assert "large" in run.writer.trouble
    limited_files(None)
    run.run(steps=8)
    assert run.writer.trouble is None
    entries = list(read(journal.folder))
    assert [e.seq for e in entries] == list(range(len(entries)))
    said = [e.body["reason"] for e in entries if e.body.get("stage") == "journal"]
    assert all("entries are missing before this one" in reason for reason in said)
    assert sum(int(reason.split()[0]) for reason in said) == run.writer.lost
    decided = [e for e in entries if e.kind == "decision"]
    assert 5 <= len(decided) < 8
    assert run.writer.lost >= run.turns - len(decided)


def test_the_acting_policy_is_one_of_several_and_the_others_touch_nothing(living, journal):
    timid, bold = Asks(1), Asks(3)
    timid.name, bold.name = "timid", "bold"
    writer = JournalWriter(journal, "line", None, living.clock)
    run = JobAutoscaler(living.backend, [GuardedPolicy(timid), GuardedPolicy(bold)], writer,
                  acting="timid", permission=Permission("active"))  # fmt: skip
    run.run(steps=4)
    assert all(asked.parallelism[0, 1] == 1 for asked in living.asked)
    assert len(bold.saw) == len(timid.saw) == 4


class Counts(Restriction):
    """A guardrail that allows everything and counts what became of it."""

    name = "counts"

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[int] = []
        self.watched = 0

    def restrict(self, snapshot, parallelism, level):
        return np.zeros(len(snapshot), dtype=bool)

    def commit(self, snapshot, guarded) -> None:
        self.committed.append(int(guarded.parallelism[0, 1]))

    def watch(self, snapshot) -> None:
        self.watched += 1


@pytest.mark.parametrize(
    ("mode", "committed", "watched"),
    [("active", ([1] * 4, []), (0, 4)), ("shadow", ([], []), (4, 4))],
)
def test_guardrails_count_what_was_enacted_and_nothing_else(
    living, journal, mode, committed, watched
):
    timid, bold = Asks(1), Asks(3)
    timid.name, bold.name = "timid", "bold"
    first, second = Counts(), Counts()
    seats = [GuardedPolicy(timid, Chain([first])), GuardedPolicy(bold, Chain([second]))]
    writer = JournalWriter(journal, "line", None, living.clock)
    permission = Permission(mode)
    JobAutoscaler(living.backend, seats, writer, acting="timid", permission=permission).run(steps=4)
    assert (first.committed, second.committed) == committed
    assert (first.watched, second.watched) == watched


def test_a_decision_that_the_actuator_refused_is_not_counted(living, journal, monkeypatch):
    def refuses(_):
        raise FlinkError("no slots")

    monkeypatch.setattr(living.backend.actuator, "apply", refuses)
    counts = Counts()
    run = started(living, Asks(3), journal, Chain([counts]))
    run.run(steps=2)
    assert (counts.committed, counts.watched) == ([], 2)


class Held:
    """An leadership that another process holds until a test says otherwise."""

    holder, term, inherited, memory = "me", 0, None, None

    def __init__(self) -> None:
        self.why: str | None = "another instance holds the lease 'words': other"

    def standby(self) -> str | None:
        return self.why


def test_while_another_process_acts_nothing_is_asked_told_or_rolled_back(living, journal):
    leadership, told = Held(), []
    living.backend.platform = type(
        "Substitute",
        (Platform,),
        {"leadership": leadership, "tell": lambda *_, **__: told.append(1)},
    )()
    run = started(living, Asks(3), journal)
    seen = living.seen()
    run.roll_back.asked(seen)
    living.status_shown = Status.RESTARTING
    run.turn()  # the job is down after a change, and the other process sees to it
    living.now_s += 10_000
    living.status_shown = None
    turn = run.turn()
    assert (turn.held_code, turn.held) == ("standby", leadership.why)
    assert (living.asked, living.taken_back, told) == ([], [], [])
    leadership.why = None
    turn = run.turn()
    assert turn.held_code is None
    assert len(living.asked) == 1
    assert told == [1]


def test_before_a_change_is_asked_for_what_is_remembered_of_it_is_kept(living, journal):
    kept: list[tuple[int, bool]] = []

    class Store:
        def take_over(self, t_s: float) -> None: ...

        def save(self, t_s: float) -> None:
            kept.append((len(living.asked), run.roll_back.state()["before"] is not None))

    run = started(living, Asks(3), journal, store=Store())
    run.turn()
    assert kept == [(0, True), (1, True)]


def test_a_change_that_could_not_be_asked_for_is_not_watched(living, journal):
    run = started(living, Asks(3), journal)
    before = run.roll_back.state()

    def refuse(guarded) -> None:
        raise FlinkError("no")

    living.apply = refuse
    assert run.decide().held_code == "actuator"
    after = run.roll_back.state()
    assert after == before | {"looked_s": after["looked_s"]}


def test_a_job_that_somebody_else_has_changed_is_left_alone(living, journal):
    class Meddled(Platform):
        def interference(self):
            return Interference("map=1", "map=4", 0.0, "kubectl")

    living.backend.platform = Meddled()
    run = started(living, Asks(2), journal)
    turn = run.turn()
    assert turn.held_code == "interference"
    assert turn.held.startswith("kubectl has changed the job")
    assert living.asked == []
    watching = started(living, Asks(2), journal, mode="shadow")
    assert watching.turn().held is None
