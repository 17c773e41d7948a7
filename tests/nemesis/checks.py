"""Conditions that hold after every round, and conditions that hold at any time.

A `Violation` ends the nemesis. What only has to come about is a sentence until it has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Submission, all_running
from dsp_gym.backends.kubernetes.overrides import Override
from dsp_gym.backends.kubernetes.resources import Stamp
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.records.base import Body
from dsp_gym.records.finishing import is_stood_by
from dsp_gym.records.rescales import unfinished
from tests.nemesis.rivals import MANAGER
from tests.nemesis.sinks import Violation
from tests.nemesis.world import World

__all__ = ["Checks", "Writes", "check_asked", "check_increases", "check_written"]

Document = dict[str, Any]

Tasks = Mapping[str, int]

_KILLED = -9
_RUNS = ("RUNNING", "SAVEPOINTING")
_TRACE = b"Traceback (most recent call last)"


class Writes:
    """Every change of the resource on the API server, in order."""

    def __init__(self, world: World) -> None:
        self._world, self._version = world, 0
        self._stamp, self._generation = Stamp(), 1
        self._rivals_epoch: int | None = None  # in which another controller wrote last
        self.epochs: list[int] = []
        self.of_decision: dict[str, list[Mapping[str, int]]] = {}

    def take_in(self) -> None:
        """Look at the changes since the last time.

        Raises:
            Violation: An epoch did not rise, or a write came from another than who had stamped it,
                or from somebody who had seen that of another controller.
        """
        resource = self._world.server.resources["flinkdeployments"]
        store = self._world.server.store
        for version, _, body in store.after(resource, "jobs", self._version, {}):
            self._version = version
            self._take(body)

    def _take(self, body: Document) -> None:
        before, stamp = self._stamp, Stamp.of(body["metadata"].get("annotations") or {})
        generation = body["metadata"]["generation"]
        if (stamp.epoch, stamp.holder) != (before.epoch, before.holder):
            if stamp.epoch <= before.epoch:
                raise Violation(f"the epoch went from {before} to {stamp}")
            self.epochs.append(stamp.epoch)
        if generation != self._generation and _is_rivals(body):
            self._rivals_epoch = stamp.epoch
        elif generation != self._generation:
            if stamp.epoch == self._rivals_epoch:
                raise Violation(f"{stamp} wrote over the change of another controller")
            if stamp.holder != before.holder:
                raise Violation(f"{stamp} wrote over the stamp {before}")
            if stamp.decision is None:
                raise Violation(f"generation {generation} was written without a decision: {stamp}")
            overrides = Override.of(body["spec"]["flinkConfiguration"]).values
            self.of_decision.setdefault(stamp.decision, []).append(overrides)
        self._stamp, self._generation = stamp, generation


class Checks:
    """Looks at a world; made when its jobs run."""

    def __init__(self, world: World) -> None:
        self.world, self.writes = world, Writes(world)
        self.journals = world.tails
        self._names = world.operated.names()
        self._decisions: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._looked_at: Counter[str] = Counter()  # bytes of logs
        self._exits: dict[str, tuple[int, int]] = {}
        self._began_s = 0.0

    def begin(self) -> None:
        """A round begins: what is in the journals now was before."""
        self._errors, self._began_s = self._said(), time.time()
        self._exits = self._ends()

    def healed(self) -> None:
        """All faults are over: from now on every process must decide again."""
        self._decisions = self._counted("decision")

    def missing(self) -> list[str]:
        """Say what has not come about yet.

        Returns:
            Sentences; none where all is as it must be.

        Raises:
            Violation: Something that may never be so.
        """
        self.writes.take_in()
        self._look_at_logs()
        for name, tail in self.journals.items():
            check_asked(name, tail.steps)
            check_increases(name, tail.steps, tail.statuses)
        ledgers = self.world.ledgers.values()
        found = [said for ledger in ledgers if (said := ledger.settled()) is not None]
        found += self._of_replicas()
        found += [said for one in self.world.rivals.values() if (said := one.missing()) is not None]
        if not found:
            found += self._of_jobs()
        if not found:
            found += [*self._of_direct(), *self._of_operated()]
        if not found:
            for tail in self.journals.values():
                tail.check()
        return found

    def told(self, replica: str) -> bool:
        """Whether a process has written down, in this round, that something was out of reach."""
        return self._said()[replica] > self._errors[replica]

    def ended_by_itself(self, replica: str) -> bool:
        """Whether a process has ended in this round, and nobody killed it."""
        ends, kills = self._ends()[replica]
        ended, killed = self._exits[replica]
        return ends > ended and kills == killed

    def rival_went_unnoticed_s(self, job: str) -> float | None:
        """How long another controller's change in this round went unnoticed; None: it did not."""
        return self.world.rivals[job].noticed_after_s(self._began_s)

    def _ends(self) -> dict[str, tuple[int, int]]:
        return {name: (len(one.exits), one.kills) for name, one in self.world.replicas.items()}

    def _counted(self, kind: str) -> Counter[str]:
        for tail in self.journals.values():
            tail.take_in()
        return Counter({name: tail.kinds[kind] for name, tail in self.journals.items()})

    def _said(self) -> Counter[str]:
        """Errors of looks, and changes that failed."""
        said = self._counted("error")
        for name, tail in self.journals.items():
            said[name] += sum(step["event"] == "failed" for step in tail.steps)
        return said

    def _look_at_logs(self) -> None:
        for name, replica in self.world.replicas.items():
            wrong = [code for code in replica.exits if code not in (_KILLED, USER_ERROR)]
            if wrong:
                raise Violation(f"{name} ended with exit code {wrong[0]}: {replica.log}")
            if not replica.log.exists():
                continue
            with replica.log.open("rb") as log:
                log.seek(self._looked_at[name])
                new = log.read()
            self._looked_at[name] += len(new)
            if _TRACE in new:
                raise Violation(f"{name} printed a traceback: {replica.log}")

    def _of_jobs(self) -> Iterator[str]:
        rest = self.world.cluster.rest
        for name in self.world.specs:
            alive = [job for job in rest.jobs() if job.name == name and job.state not in ENDED]
            if len(alive) > 1:
                raise Violation(f"{len(alive)} jobs named {name} run")
            if not alive:
                yield f"no job named {name} runs"
            elif not all_running(rest.job(alive[0].id)):
                yield f"{name} is {alive[0].state}, and not all of it runs"

    def _of_replicas(self) -> Iterator[str]:
        decisions = self._counted("decision")
        for name, replica in self.world.replicas.items():
            if not replica.is_alive:
                yield f"{name} does not run"
            elif decisions[name] < self._decisions[name] + 2:
                yield f"{name} has not decided twice since"

    def _running(self, name: str) -> dict[str, int]:
        rest, spec = self.world.cluster.rest, self.world.specs[name]
        return dict(Submission.of_running(rest, rest.find_job(name).id, spec)[1].parallelism)

    def _of_direct(self) -> Iterator[str]:
        """Its journal, played, gives the running configuration."""
        folder = self.world.replicas["direct"].journal
        if unfinished(folder) is not None:
            yield "direct: a rescale is under way"
            return
        if is_stood_by(folder):
            yield "direct: a second process is there, and no rescale is under way"
        expected = start = {vertex.name: 1 for vertex in self.world.specs["direct"].vertices}
        asked: Body = {}
        rivals = {one.steps["direct"]: one.tasks for one in self.world.rivals["direct"].writes}
        steps = self.journals["direct"].steps
        for number, body in enumerate(steps):
            expected = rivals.get(number, expected)
            if body["event"] == "asked":
                asked = body
            elif body["event"] == "reached":
                expected = body["configuration"]["parallelism"]
            elif body["event"] == "restored" and asked:  # else the journal took no request
                expected = asked["from"]["parallelism"]
            elif body["event"] == "recovered":
                expected = body["runs"]
            if body["event"] in ("reached", "restored", "recovered"):
                asked = {}
        expected = rivals.get(len(steps), expected)
        running = self._running("direct")
        if running == start and self.world.people["direct"].restarts:
            return  # which is how a person starts it
        if running != expected:
            yield f"direct: the journal says {expected}, and {running} runs"

    def _of_operated(self) -> Iterator[str]:
        """What was written last is in a journal, was written once, and runs."""
        body = self.world.server.object("FlinkDeployment", "operated")
        overrides = Override.of(body["spec"]["flinkConfiguration"]).values
        intents: dict[str, Body] = {}
        for name in ("first", "second"):
            if _is_under_way(self.journals[name].steps):
                yield f"{name}: a change is under way"
            intents |= {
                step["id"]: step for step in self.journals[name].steps if step["event"] == "asked"
            }
        check_written(
            {
                decision: [_by_name(overrides, self._names) for overrides in writes]
                for decision, writes in self.writes.of_decision.items()
            },
            intents,
        )
        running = self._running("operated")
        named = _by_name(overrides, self._names)
        if overrides and running != named:
            yield f"operated: the resource says {named}, and {running} runs"


def check_asked(name: str, steps: Sequence[Body]) -> None:
    """See that nothing was asked of a job twice for one decision.

    Raises:
        Violation: It was.
    """
    asked = Counter(step["decision"] for step in steps if step["event"] == "asked")
    twice = [decision for decision, times in asked.items() if times > 1]
    if twice:
        raise Violation(f"{name} asked {asked[twice[0]]} times for decision {twice[0]}")


def check_written(
    written: Mapping[str, Sequence[Mapping[str, int]]], intents: Mapping[str, Body]
) -> None:
    """See that each decision on the resource was in a journal, and written once, or taken back.

    Args:
        written: tasks by vertex name of each write, by id of the decision.
        intents: what was asked, by the same id.

    Raises:
        Violation: It was not.
    """
    for decision, writes in written.items():
        if decision not in intents:
            raise Violation(f"decision {decision} was written and is in no journal")
        asked = intents[decision]
        allowed = [asked["to"]["parallelism"], asked["from"]["parallelism"]]
        if list(writes) not in (allowed[:1], allowed, allowed[1:]):
            raise Violation(f"decision {decision}: {allowed} was asked, {writes} was written")


def check_increases(name: str, steps: Sequence[Body], statuses: Sequence[str]) -> None:
    """See that an increase was taken back only while the job did not run.

    Args:
        name: of the process.
        steps: of its journal; the increase may be that of a process before it.
        statuses: what the job was at each of them.

    Raises:
        Violation: It was taken back from a job that ran.
    """
    asked: Body | None = None
    for number, step in enumerate(steps):
        if step["event"] == "asked":
            asked = step
        elif step["event"] == "rolled_back" and statuses[number] in _RUNS:
            undone = _undone(asked, steps[number + 1 :])
            if undone is not None and _increases(*undone):
                raise Violation(f"{name} took an increase back from a job that ran: {undone}")


def _undone(asked: Body | None, after: Sequence[Body]) -> tuple[Tasks, Tasks] | None:
    """The change, from and to, that a roll-back takes back; None: it is not known."""
    for step in after:
        if step["event"] == "asked":
            return step["to"]["parallelism"], step["from"]["parallelism"]
        if step["event"] in ("restored", "rolled_back"):
            break
    return None if asked is None else (asked["from"]["parallelism"], asked["to"]["parallelism"])


def _increases(before: Tasks, after: Tasks) -> bool:
    return before != after and all(after[name] >= tasks for name, tasks in before.items())


def _is_rivals(body: Document) -> bool:
    """Whether another controller has written this version."""
    return body["metadata"]["managedFields"][-1]["manager"] == MANAGER


def _is_under_way(steps: Sequence[Body]) -> bool:
    """Whether a change of the resource was begun that has neither come about nor been given up."""
    begun = False
    for step in steps:
        if step["event"] == "submitted":
            begun = True
        elif step["event"] in ("reached", "restored", "left", "recovered", "alarm"):
            begun = False
    return begun


def _by_name(overrides: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    return {names[vertex_id]: tasks for vertex_id, tasks in overrides.items()}
