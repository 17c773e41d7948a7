"""What outlives a restart: rests, canary counts, the watched change, the guardrails' counters.

It stands beside the journal in one small file that is replaced whole before every change and after
every decision of a mode that acts. The journal says what was done; this says what must still be
remembered of it. Where several processes may act, the one that does leaves the same text in the
leadership it holds, and its successor continues from there.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

from dsp_gym.backends.base import Leadership, OnEvent, ignored
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.permission import Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.errors import PolicyError, SchemaError, StorageError
from dsp_gym.loop.protocols import State
from dsp_gym.loop.topology import Topology

MEMORY = "memory.json"
MEMORY_SCHEMA = "dsp-gym/memory/1"

_MOST_BYTES = 200_000
"""Longest text that is left in an leadership: annotations of an object take 256 KiB together."""

_SKEW_S = 60.0
"""By how much the clock of another machine may be ahead."""

_OF_THE_POLICY = "policy"
"""Key under which a guardrail keeps the state of a policy, which may grow."""


class StateStore:
    """Saves and restores what outlives the process.

    Args:
        folder: of the journal.
        topology: the job.
        permission: its counts and its rest.
        roll_back: the change that it watches.
        restraint: the changes that it counts.
        policies: the policies, whose guardrails remember.
        leadership: the right to act, where several processes may.
        tell: receives `took over`, what starts over and why, and `not kept`.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        permission: Permission,
        roll_back: RollBack,
        restraint: Restraint,
        policies: Sequence[GuardedPolicy],
        leadership: Leadership | None = None,
        tell: OnEvent = ignored,
    ) -> None:
        self.file = folder / MEMORY
        self._vertices = list(topology.names(0))
        self._permission, self._roll_back, self._policies = permission, roll_back, policies
        self._restraint = restraint
        self._leadership, self._tell = leadership, tell
        self._term = 0  # of the leadership, whose inheritance was looked at
        self._known = "", -math.inf  # who kept what is remembered, and when, s

    def save(self, t_s: float) -> None:
        """Write the state down, unless another process acts; a failure is reported, not raised.

        Args:
            t_s: the time of the decision, Unix seconds.
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
        try:
            write_atomic(self.file, text, private=True)
        except StorageError as error:  # the file before is unchanged
            said = f"a restart would forget this decision: {error}"
            self._tell("not kept", {"reason": said})

    def _body(self, t_s: float, holder: str) -> State:
        return {
            "schema": MEMORY_SCHEMA,
            "t_s": t_s,
            "holder": holder,
            "vertices": self._vertices,
            "permission": self._permission.state(),
            "roll_back": self._roll_back.state(),
            "restraint": self._restraint.state(),
            "guardrails": {
                policy.name: remembered
                for policy in self._policies
                if (remembered := policy.remembered()) is not None
            },
        }

    def take_over(self, now_s: float) -> None:
        """Continue from what the process before left in the leadership, once it was taken.

        Args:
            now_s: the time of the job, Unix seconds.
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
            self._tell("took over", {"from": before, "kept_s": t_s, "term": self._term})
            reasons = self._continued(body, now_s + _SKEW_S)
        except Exception as error:  # an annotation may hold anything
            reasons = [f"rests, counts and guardrails start over: what was left of them {error}"]
        self._tell_all(reasons)

    def restore(self, now_s: float) -> list[str]:
        """Continue from what was saved.

        Args:
            now_s: the time of the job, Unix seconds.

        Returns:
            What starts over, and why, a sentence each; empty where everything continues, and where
            nothing was saved. It is reported, too.
        """
        try:
            reasons = self._continued(_read(self.file), now_s)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, SchemaError) as error:
            reasons = [f"rests, counts and guardrails start over: {self.file}: {error}"]
        self._tell_all(reasons)
        return reasons

    def _tell_all(self, reasons: Sequence[str]) -> None:
        for reason in reasons:
            self._tell("started anew", {"reason": reason})

    def _continued(self, body: State, now_s: float) -> list[str]:
        if body["vertices"] != self._vertices:
            return ["rests, counts and guardrails start over: the job has other vertices"]
        permission, roll_back = self._permission.state(), self._roll_back.state()
        restraint = self._restraint.state()
        try:
            self._permission.restore(body["permission"])
            self._roll_back.restore(body["roll_back"])
            self._restraint.restore(body.get("restraint", restraint))  # an earlier release has none
        except MISFITS as error:
            self._permission.restore(permission)
            self._roll_back.restore(roll_back)
            self._restraint.restore(restraint)
            return [f"rests, counts and guardrails start over: what was kept of them: {error!r}"]
        self._known = str(body.get("holder", "")), float(body["t_s"])
        kept = body["guardrails"]
        reasons = [
            said
            for policy in self._policies
            if (said := _restored(policy, kept.get(policy.name))) is not None
        ]
        if (ahead_s := float(body["t_s"]) - now_s) > 0:
            self._set_back(ahead_s)
            reasons.append(
                f"the clock went back by {ahead_s:.0f} s since; rests and counts go on as if no "
                "time had passed"
            )
        return reasons

    def _set_back(self, seconds: float) -> None:
        """Let what rests rest as long as it would have."""
        self._permission.set_back(seconds)
        self._roll_back.set_back(seconds)
        self._restraint.set_back(seconds)
        for policy in self._policies:
            policy.set_forward(-seconds)


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
        return f"{file}: {error}; rests, counts and guardrails start over"
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
    """Say why the guardrails of a policy start over; None where they continue."""
    if policy.chain is None:
        return None
    if state is None:
        return f"the guardrails of {policy.name} start over: nothing was kept of them"
    fresh = policy.remembered()
    if fresh is None or not fits(fresh, state):
        return f"the guardrails of {policy.name} start over: they are configured otherwise now"
    try:
        policy.recall(state)
    except PolicyError as error:
        return f"the guardrails of {policy.name} start over: {error}"
    except MISFITS as error:
        policy.recall(fresh)
        return f"the guardrails of {policy.name} start over: {error!r}"
    return None


def fits(fresh: object, kept: object) -> bool:
    """Check that a state has the shape of another: compiled code reads arrays of a known size.

    Returns:
        True where a restore of `kept` leaves arrays as they are in `fresh`.
    """
    if isinstance(fresh, dict) and isinstance(kept, dict):
        same = fresh.keys() == kept.keys()
        return same and all(key == _OF_THE_POLICY or fits(fresh[key], kept[key]) for key in fresh)
    if isinstance(fresh, list) and isinstance(kept, list):
        pairs = zip(fresh, kept, strict=False)
        return len(fresh) == len(kept) and all(fits(one, other) for one, other in pairs)
    return not isinstance(fresh, dict | list) and not isinstance(kept, dict | list)


def _text(body: State) -> str:
    return json.dumps({**body, "crc32": _sum(body)}, sort_keys=True) + "\n"


def _sum(body: State) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
