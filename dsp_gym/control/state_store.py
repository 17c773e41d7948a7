"""What a run carries over a restart: rests, canary counts, the roll-back's memory, guardrails.

It stands beside the journal in one small file that is replaced whole before every change and after
every decision of a mode that acts. The journal says what was done; this says what must still be
remembered of it. Where several processes may act, the one that does leaves the same text in the
leadership it holds, and its successor continues from there.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

from dsp_gym.backends.base import Leadership, OnEvent
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.permission import Permission, RollBack
from dsp_gym.errors import SchemaError
from dsp_gym.loop.protocols import State
from dsp_gym.loop.topology import Topology

__all__ = ["MEMORY", "MEMORY_SCHEMA", "StateStore", "problem_of"]

MEMORY = "memory.json"
MEMORY_SCHEMA = "dsp-gym/memory/1"

_MOST_BYTES = 200_000
"""Longest text that is left in an leadership: annotations of an object take 256 KiB together."""

_SKEW_S = 60.0
"""By how much the clock of another machine may be ahead."""

_OF_THE_POLICY = "policy"
"""Key under which a guardrail keeps the state of a policy, which may grow."""


class StateStore:
    """Keeps and gives back the memory of a run.

    Args:
        folder: of the journal.
        topology: the job.
        permission: its counts and its rest.
        roll_back: the change that it watches.
        policies: the policies, whose guardrails remember.
        leadership: the right to act, where several processes may.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        permission: Permission,
        roll_back: RollBack,
        policies: tuple[GuardedPolicy, ...],
        leadership: Leadership | None = None,
    ) -> None:
        self.file = folder / MEMORY
        self._vertices = list(topology.names(0))
        self._permission, self._roll_back, self._policies = permission, roll_back, policies
        self._leadership = leadership
        self._term = 0  # of the leadership, whose inheritance was looked at
        self._known = "", -math.inf  # who kept what is remembered, and when, s

    def keep(self, t_s: float) -> None:
        """Write the memory down, unless another process acts.

        Args:
            t_s: the time of the decision, Unix seconds.

        Raises:
            StorageError: The file cannot be written; the one before is unchanged.
        """
        leadership = self._leadership
        if leadership is not None and (
            leadership.standby() is not None or leadership.term != self._term
        ):
            return
        body = self._body(t_s, "" if leadership is None else leadership.holder)
        self._known = body["holder"], t_s
        text = _text(body)
        if leadership is not None:
            fits = len(text) <= _MOST_BYTES
            leadership.memory = text if fits else _text({**body, "guardrails": {}})
        write_atomic(self.file, text)

    def _body(self, t_s: float, holder: str) -> State:
        return {
            "schema": MEMORY_SCHEMA,
            "t_s": t_s,
            "holder": holder,
            "vertices": self._vertices,
            "permission": self._permission.state(),
            "roll_back": self._roll_back.state(),
            "guardrails": {
                policy.name: policy.chain.state()
                for policy in self._policies
                if policy.chain is not None
            },
        }

    def take_over(self, now_s: float, tell: OnEvent) -> None:
        """Continue from what the process before left in the leadership, once it was taken.

        Args:
            now_s: the time of the job, Unix seconds.
            tell: receives `took over`, and what starts anew and why.
        """
        leadership = self._leadership
        if leadership is None or leadership.standby() is not None or leadership.term == self._term:
            return
        self._term = leadership.term
        if leadership.inherited is None:
            return
        try:
            body = _parsed(leadership.inherited)
            before, t_s = str(body["holder"]), float(body["t_s"])
            if before == self._known[0] and t_s <= self._known[1]:
                return  # it is older than this process's own file
            tell("took over", {"from": before, "kept_s": t_s, "term": self._term})
            anew = self._continued(body, now_s + _SKEW_S)
        except Exception as error:  # an annotation may hold anything
            anew = [f"rests, counts and guardrails start anew: what was left of them {error}"]
        for reason in anew:
            tell("started anew", {"reason": reason})

    def give_back(self, now_s: float) -> list[str]:
        """Continue from what was kept.

        Args:
            now_s: the time of the job, Unix seconds.

        Returns:
            What starts anew, and why, a sentence each; empty where everything continues, and where
            nothing was kept.
        """
        try:
            body = _read(self.file)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, SchemaError) as error:
            return [f"rests, counts and guardrails start anew: {self.file}: {error}"]
        return self._continued(body, now_s)

    def _continued(self, body: State, now_s: float) -> list[str]:
        if float(body["t_s"]) > now_s:
            return ["rests, counts and guardrails start anew: the clock went back since"]
        if body["vertices"] != self._vertices:
            return ["rests, counts and guardrails start anew: the job has other vertices"]
        permission, roll_back = self._permission.state(), self._roll_back.state()
        try:
            self._permission.restore(body["permission"])
            self._roll_back.restore(body["roll_back"])
        except MISFITS as error:
            self._permission.restore(permission)
            self._roll_back.restore(roll_back)
            return [f"rests, counts and guardrails start anew: what was kept of them: {error!r}"]
        self._known = str(body.get("holder", "")), float(body["t_s"])
        kept = body["guardrails"]
        return [
            said
            for policy in self._policies
            if (said := _restored(policy, kept.get(policy.name))) is not None
        ]


def problem_of(folder: Path) -> str | None:
    """Say why a restart would not continue from the memory beside a journal.

    Args:
        folder: of the journal.

    Returns:
        A sentence; None where nothing is wrong, or nothing was kept.
    """
    file = folder / MEMORY
    try:
        _read(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, SchemaError) as error:
        return f"{file}: {error}; rests, counts and guardrails start anew"
    return None


def _read(file: Path) -> State:
    return _parsed(file.read_bytes())


def _parsed(text: str | bytes) -> State:
    body: State = parse_json(text)
    if not isinstance(body, dict) or body.get("schema") != MEMORY_SCHEMA:
        raise SchemaError(f"is no document {MEMORY_SCHEMA}")
    if body.pop("crc32", None) != _sum(body):
        raise SchemaError("its crc32 does not match")
    if type(body.get("t_s")) not in (int, float) or not isinstance(body.get("guardrails"), dict):
        raise SchemaError("its time or its guardrails are missing")
    return body


def _restored(policy: GuardedPolicy, state: State | None) -> str | None:
    """Why the guardrails of a policy start anew; None where they continue."""
    if policy.chain is None:
        return None
    if state is None:
        return f"the guardrails of {policy.name} start anew: nothing was kept of them"
    fresh = policy.chain.state()
    if not _fits(fresh, state):
        return f"the guardrails of {policy.name} start anew: they are configured otherwise now"
    try:
        policy.chain.restore(state)
    except MISFITS as error:
        policy.chain.restore(fresh)
        return f"the guardrails of {policy.name} start anew: {error!r}"
    return None


def _fits(fresh: object, kept: object) -> bool:
    """Whether a state has the shape of another: compiled code reads arrays of a known size."""
    if isinstance(fresh, dict) and isinstance(kept, dict):
        same = fresh.keys() == kept.keys()
        return same and all(key == _OF_THE_POLICY or _fits(fresh[key], kept[key]) for key in fresh)
    if isinstance(fresh, list) and isinstance(kept, list):
        pairs = zip(fresh, kept, strict=False)
        return len(fresh) == len(kept) and all(_fits(one, other) for one, other in pairs)
    return not isinstance(fresh, dict | list) and not isinstance(kept, dict | list)


def _text(body: State) -> str:
    return json.dumps({**body, "crc32": _sum(body)}, sort_keys=True) + "\n"


def _sum(body: State) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
