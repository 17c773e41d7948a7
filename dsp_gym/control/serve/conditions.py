"""Conditions of a live loop: what holds and what does not, since when and why."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.executor import INTERFERENCE, STANDBY
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.control.serve.history import lateness
from dsp_gym.control.turn import Turn
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.snapshot import Status

Truth = Literal["True", "False", "Unknown"]

CONDITIONS = (
    "Ready",
    "DataFresh",
    "InDistribution",
    "Limited",
    "FallbackActive",
    "Journaling",
    "ManagedByBuiltin",
    "Paused",
    "Behind",
)
"""Ready: the job is seen. DataFresh: its metrics window is full. InDistribution: it looks like what
the acting policy was trained on. Limited: guardrails changed its decision. FallbackActive: another
policy decided. Journaling: decisions are written down. ManagedByBuiltin: the operator's own
autoscaler scales the job. Paused: nothing may be enacted, or not what the policy wants. Behind: the
job is down or late, or has work waiting."""

FULL = 1.0 - 1e-9

_PAUSES = {
    "rests": "RolledBack",
    STANDBY: "Standby",
    INTERFERENCE: "Interference",
    "runaway": "Runaway",
    "too_many": "TooManyChanges",
}
"""Reason of the condition Paused, by the word for what held a decision."""


class Found(NamedTuple):
    """How a condition stands now."""

    status: Truth
    reason: str  # a word
    message: str
    since_s: float = 0.0  # t_s at which the status last changed


class Conditions:
    """The conditions of one loop; each remembers since when it stands as it does."""

    def __init__(self, t_s: float) -> None:
        starting = Found("Unknown", "Starting", "no decision was made yet")
        self._known = dict.fromkeys(CONDITIONS, starting._replace(since_s=t_s))

    def __getitem__(self, name: str) -> Found:
        return self._known[name]

    def document(self) -> list[dict[str, object]]:
        """List the conditions as Kubernetes writes them.

        Returns:
            Type, status, reason, message and time of the last change of each.
        """
        return [{"type": name, **found._asdict()} for name, found in self._known.items()]

    def update(self, run: JobAutoscaler, turn: Turn, managed: str | None, age_s: float) -> None:
        """Take in a decision.

        Args:
            run: the loop.
            turn: its last decision.
            managed: how the operator's own autoscaler scales the job; None: it does not.
            age_s: of the newest sample, s.
        """
        acting = next((one for one in turn.judgements if one.policy == run.acting), None)
        found = {
            "Ready": _ready(turn),
            "DataFresh": _data_fresh(turn, age_s),
            "InDistribution": _in_distribution(acting),
            "Limited": _limited(acting),
            "FallbackActive": _fallback(acting),
            "Journaling": _journaling(run),
            "ManagedByBuiltin": Found("False", "NotManaged", "the built-in autoscaler is off")
            if managed is None
            else Found("True", "Managed", managed),
            "Paused": _paused(run, turn),
            "Behind": _behind(turn),
        }
        for name, now in found.items():
            before = self._known[name]
            since_s = before.since_s if before.status == now.status else turn.t_s
            self._known[name] = now._replace(since_s=since_s)


def _trouble(turn: Turn) -> str | None:
    return next((found.reason for found in turn.failures if found.stage == "collector"), None)


def _ready(turn: Turn) -> Found:
    trouble = _trouble(turn)
    if trouble is not None:
        return Found("False", "JobNotSeen", trouble)
    return Found("True", "Watching", "the job is seen")


def _data_fresh(turn: Turn, age_s: float) -> Found:
    trouble = _trouble(turn)
    if turn.snapshot is None or trouble is not None:
        return Found("False", "Stale", trouble or "the job could not be looked at")
    fill = float(turn.snapshot.window_fill[0])
    if not fill >= FULL:
        said = f"{100 * max(fill, 0.0):.0f} % of the metrics window is covered"
        return Found("False", "WindowFilling", said)
    aged = f", the newest sample is {age_s:.0f} s old" if age_s >= 0 else ""
    return Found("True", "Fresh", f"the metrics window is full{aged}")


def _in_distribution(acting: Judgement | None) -> Found:
    if acting is None or acting.in_distribution is None:
        return Found("Unknown", "NotTrained", "there is no training to compare the job with")
    if acting.in_distribution:
        return Found("True", "Known", "every feature lies within the range of the training")
    names = ", ".join(acting.unfamiliar or ())
    return Found("False", "Unlike", f"outside the range of the training: {names}")


def _limited(acting: Judgement | None) -> Found:
    if acting is None:
        return Found("Unknown", "NothingDecided", "nothing was decided")
    said = [f"{i.guardrail}: {i.reason}" for i in acting.guarded.interventions]
    if said:
        return Found("True", "Guarded", "; ".join(said))
    return Found("False", "AsWanted", "the decision is as the policy wants it")


def _fallback(acting: Judgement | None) -> Found:
    if acting is None:
        return Found("Unknown", "NothingDecided", "nothing was decided")
    if acting.failure is not None:
        return Found("True", f"Policy{acting.failure.cause.title()}", acting.failure.reason)
    if acting.replaced_by is not None:
        said = [
            f"{i.guardrail}: {i.reason}"
            for i in acting.guarded.interventions
            if i.kind == "replaced"
        ]
        agrees = f"{acting.replaced_by} decides and wants what the policy wants"
        return Found("True", "Guarded", "; ".join(said) or agrees)
    return Found("False", "PolicyDecides", "the policy itself decides")


def _journaling(run: JobAutoscaler) -> Found:
    if run.writer.folder is None:
        return Found("False", "NotAsked", "no journal is kept")
    if run.writer.trouble is not None:
        said = f"{run.writer.trouble}; {run.writer.missing} entries are lost so far"
        return Found("False", "CannotWrite", said)
    return Found("True", "Writing", "every decision is written down")


def _paused(run: JobAutoscaler, turn: Turn) -> Found:
    reason = run.permission.pause()
    if reason is not None:
        return Found("True", "Stopped", reason)
    word = _PAUSES.get(turn.held_code or "")
    if word is not None:
        return Found("True", word, turn.held or "")
    return Found("False", "Running", "nothing stops the policy from acting")


def _behind(turn: Turn) -> Found:
    seen = turn.snapshot
    if seen is None:
        return Found("Unknown", "NotSeen", "the job could not be looked at")
    status = Status(int(seen.status[0]))
    if status not in (Status.RUNNING, Status.SAVEPOINTING):
        return Found("True", "Down", _trouble(turn) or f"the job is {status.name}")
    found = lateness(seen)
    if math.isnan(found):
        return Found("Unknown", "NotKnown", "neither latency nor backlog is known")
    late_s, waits_s = float(seen.latency_p95_s[0]), float(behind(seen).waits_s[0])
    late = f"p95 latency {late_s:.1f} s, " if late_s >= 0 else ""
    said = f"{late}work waiting for {waits_s:.0f} s"
    return Found("True", "Behind", said) if found else Found("False", "InTime", said)
