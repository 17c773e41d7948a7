"""Other controllers: each changes the parallelism of one job, and knows nothing of dsp-gym."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.overrides import KEY, Override, text_of
from dsp_gym.backends.kubernetes.resources import Stamp
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.base import Body
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.nemesis.journals import Tail
from tests.nemesis.replicas import Replica
from tests.nemesis.sinks import Violation

__all__ = [
    "MANAGER",
    "DirectRival",
    "OperatedRival",
    "Rival",
    "RivalWrite",
    "check_stopped",
    "has_named",
    "other_than",
]

Document = dict[str, Any]

MANAGER = "kubectl"
"""Whom the API server notes as the author of a rival's write."""

VERTEX = "flatmap"
"""Whose tasks a rival changes."""

_LOOKS = 2
"""Who has decided so often since it acts has looked at what stands."""

_BEGUN = ("asked", "stopping", "submitted")
_DONE = ("savepoint", "stopped", "submitted")
_ENDED = ("reached", "restored", "left", "recovered", "alarm")


@dataclass(slots=True)
class RivalWrite:
    """One change that a rival has made."""

    tasks: Mapping[str, int]  # by vertex
    wrote_s: float  # Unix seconds
    steps: Mapping[str, int]  # in the journal of each process, by its name
    starts: int  # of these processes
    term: object  # of who acts
    is_late: bool  # a change had been begun, which could not know of it
    is_open: bool = True
    """Whether nobody has been started again since, to take up the job as it was found then."""


class Rival(ABC):
    """One of them.

    Args:
        tails: journals of the processes that may act on its job, by their names.
        replicas: these processes.
    """

    def __init__(self, tails: Mapping[str, Tail], replicas: Mapping[str, Replica]) -> None:
        self.tails, self.replicas = tails, replicas
        self.writes: list[RivalWrite] = []
        self._term: object = None
        self._decisions: dict[str, int] = {}  # of each process when the term began

    def tend(self) -> None:
        """See who acts: a process that has taken over since takes the job as it has found it."""
        for tail in self.tails.values():  # before: what they say was done by who acts now
            tail.take_in()
        term = self._acting()
        if term != self._term:
            self._term, self._decisions = term, self._decided()
        for one in self.writes[-1:]:
            one.is_open &= self._starts() == one.starts and term == one.term

    def write(self, tasks: int) -> bool:
        """Change the job, if somebody acts on it who would notice, and no rescale is under way.

        Returns:
            Whether it did.
        """
        self.tend()
        if self._term is None or not self._have_looked() or self._is_busy():
            return False
        try:
            wanted = self._change(tasks)
        except FlinkError:
            return False
        now_s = time.time()
        steps = {name: len(tail.steps) for name, tail in self.tails.items()}
        is_late = self._is_busy()
        self.writes.append(RivalWrite(wanted, now_s, steps, self._starts(), self._term, is_late))
        return True

    def named(self) -> str | None:
        """Who has said that somebody else has changed the job, and waits for a person.

        Returns:
            The name of the process; None where none waits.

        Raises:
            Violation: It has changed the job all the same.
        """
        self.tend()
        last = self.writes[-1] if self.writes else None
        if last is None or not last.is_open:
            return None
        for name, tail in self.tails.items():
            steps = tail.steps[last.steps[name] :]
            if has_named(steps):
                if not last.is_late:
                    check_stopped(name, steps)
                return name
        return None

    def missing(self) -> str | None:
        """What has not come about since its last write; None: nothing."""
        self.tend()
        last = self.writes[-1] if self.writes else None
        if last is None or not last.is_open or last.is_late:
            return None
        return f"{' or '.join(self.tails)} has not named the rival, and been started again"

    def restart(self, name: str) -> None:
        """Start the process anew that has named it, as a person does."""
        self.writes[-1].is_open = False
        self.replicas[name].restart()

    def noticed_after_s(self, since_s: float) -> float | None:
        """How long its last write went unnoticed; None: none was made since, or it was never."""
        last = self.writes[-1] if self.writes else None
        if last is None or last.is_late or last.wrote_s < since_s:
            return None
        found = [
            float(step["seen_s"]) - last.wrote_s
            for name, tail in self.tails.items()
            for step in tail.steps[last.steps[name] :]
            if step["event"] == "interference"
        ]
        return min(found, default=None)

    def _starts(self) -> int:
        return sum(one.starts for one in self.replicas.values())

    def _decided(self) -> dict[str, int]:
        return {name: tail.kinds["decision"] for name, tail in self.tails.items()}

    def _have_looked(self) -> bool:
        decided = self._decided()
        return all(decided[name] >= began + _LOOKS for name, began in self._decisions.items())

    def _is_busy(self) -> bool:
        for tail in self.tails.values():
            tail.take_in()
        return any(is_under_way(tail.steps) for tail in self.tails.values())

    @abstractmethod
    def _acting(self) -> object:
        """Which process acts since when; None: none."""

    @abstractmethod
    def _change(self, tasks: int) -> Mapping[str, int]:
        """Ask for so many tasks of the vertex; returns all that is asked for then."""


class DirectRival(Rival):
    """Puts resource requirements to the JobManager."""

    def __init__(
        self, rest: FlinkRest, spec: JobSpec, tails: Mapping[str, Tail],
        replicas: Mapping[str, Replica],
    ) -> None:  # fmt: skip
        super().__init__(tails, replicas)
        self._rest, self._spec = rest, spec

    def _acting(self) -> object:
        (replica,) = self.replicas.values()
        return replica.starts if replica.is_alive else None

    def _change(self, tasks: int) -> Mapping[str, int]:
        job = RunningJob.find(self._rest, self._spec.job, self._spec)
        wanted = self._rest.resource_requirements(job.id)
        bounds = wanted[job.vertex_ids[VERTEX]]["parallelism"]
        bounds["upperBound"] = other_than(bounds["upperBound"], tasks)
        self._rest.set_resource_requirements(job.id, wanted)
        return {
            name: int(wanted[vertex_id]["parallelism"]["upperBound"])
            for name, vertex_id in job.vertex_ids.items()
        }


class OperatedRival(Rival):
    """Writes the override, as `kubectl edit` does: without a stamp."""

    def __init__(
        self, server: FakeKubernetes, names: Mapping[str, str], tails: Mapping[str, Tail],
        replicas: Mapping[str, Replica],
    ) -> None:  # fmt: skip
        super().__init__(tails, replicas)
        self._server, self._names = server, names

    def _acting(self) -> object:
        body = self._server.object("FlinkDeployment", "operated")
        epoch = Stamp.of(body["metadata"].get("annotations") or {}).epoch
        return epoch or None

    def _change(self, tasks: int) -> Mapping[str, int]:
        written: dict[str, int] = {}

        def change(old: Document) -> Document:
            options = old["spec"]["flinkConfiguration"]
            before = Override.of(options).values
            for vertex_id, name in self._names.items():
                stands = before.get(vertex_id, 1)
                written[vertex_id] = other_than(stands, tasks) if name == VERTEX else stands
            return {
                **old,
                "spec": {**old["spec"], "flinkConfiguration": {**options, KEY: text_of(written)}},
            }

        resource = self._server.resources["flinkdeployments"]
        self._server.store.change(resource, "jobs", "operated", change, MANAGER, of_status=False)
        return {self._names[vertex_id]: number for vertex_id, number in written.items()}


def other_than(stands: int, tasks: int) -> int:
    """A number of tasks that is a change: after a change of its own that still stands, one more."""
    return tasks + 1 if stands == tasks else tasks


def has_named(steps: Sequence[Body]) -> bool:
    """Whether a process has named another controller."""
    return any(step["event"] == "interference" for step in steps)


def check_stopped(name: str, steps: Sequence[Body]) -> None:
    """See that a process changes nothing once another controller has.

    Args:
        name: of the process.
        steps: of its journal, since the other's change.

    Raises:
        Violation: It has changed the job all the same.
    """
    done = [step["event"] for step in steps if step["event"] in _DONE]
    if done:
        raise Violation(f"{name} went on after the change of another controller: {done[0]}")


def is_under_way(steps: Sequence[Body]) -> bool:
    """Whether a change was begun that has neither come about nor been given up."""
    begun = is_touched = False
    for step in steps:
        event = step["event"]
        if event in _BEGUN:
            begun, is_touched = True, event != "asked"
        elif event in _ENDED or (event == "failed" and not is_touched):
            begun = False
    return begun
