"""One turn of the loop: ask a policy about a snapshot, and let guardrails restrict the answer.

The control loop over a simulation, the environment, `dsp-gym decide` and decisions over HTTP all
call `take_turn`, so that a policy and its guardrails do the same with the same snapshot everywhere.
The loop beside a real job calls its halves, `guarded_turn` and `settle_turn`: whether a decision
was enacted is known only afterwards.

Policy and guardrails see the snapshot without implausible values (`plausible`). Where there were
any the turn says so: a job with one of its own keeps the running configuration, a vertex with one
gives up nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.plausible import Doubted, doubted, plausible
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.snapshot import MetricsSnapshot


def take_turn(
    snapshot: MetricsSnapshot,
    decide: Callable[[MetricsSnapshot], ScalingDecision],
    guardrails: Guardrail | None = None,
) -> GuardedDecision:
    """Ask for a decision on a snapshot, guard it, and let the guardrails count it as enacted.

    Args:
        snapshot: J jobs.
        decide: returns the wanted configuration; usually a policy's `decide`.
        guardrails: one guardrail or a chain; None: the decision stands unchanged.

    Returns:
        The allowed configuration, (J, V); `proposed` is the wanted one.
    """
    guarded = guarded_turn(snapshot, decide, guardrails)
    settle_turn(snapshot, guarded, guardrails)
    return guarded


def guarded_turn(
    snapshot: MetricsSnapshot,
    decide: Callable[[MetricsSnapshot], ScalingDecision],
    guardrails: Guardrail | None = None,
) -> GuardedDecision:
    """Ask for a decision on a snapshot and guard it; the guardrails count nothing yet.

    Args:
        snapshot: J jobs.
        decide: returns the wanted configuration; usually a policy's `decide`.
        guardrails: one guardrail or a chain; None: the decision stands unchanged.

    Returns:
        The allowed configuration, (J, V); `proposed` is the wanted one.
    """
    # The same object at each call for one snapshot, so that policy memos hold.
    seen = plausible(snapshot)
    decision = decide(seen)
    if (doubt := doubted(seen)) is not None:
        decision = _held(seen, decision, doubt)
    if guardrails is None:
        return GuardedDecision.unchanged(decision)
    return guardrails.allow(seen, decision)


def settle_turn(
    snapshot: MetricsSnapshot, guarded: GuardedDecision | None, guardrails: Guardrail | None
) -> None:
    """Report the result of a turn to the guardrails, once.

    Args:
        snapshot: J jobs.
        guarded: the decision that was enacted; None: none was, as in shadow mode, so later events
            are not the policy's doing.
        guardrails: the guardrails of the turn.
    """
    if guardrails is None:
        return
    seen = plausible(snapshot)
    if guarded is not None:
        guardrails.commit(seen, guarded)
    else:
        guardrails.watch(seen)


def _held(snapshot: MetricsSnapshot, decision: ScalingDecision, doubt: Doubted) -> ScalingDecision:
    """Keep the running configuration where metrics are doubtful, and say so, a sentence per job."""
    wanted = decision.parallelism, decision.memory_level
    now = snapshot.parallelism, snapshot.memory_level
    # A trade of tasks for memory takes away, too.
    takes = (wanted[0] < now[0]) | (wanted[1] < now[1])
    keeps = doubt.jobs[:, None] | (doubt.vertices & takes)
    reasons = [
        f"hold: {sentence}" if of_job else "; ".join(filter(None, (reason, sentence)))
        for sentence, of_job, reason in zip(
            doubt.sentences, doubt.jobs.tolist(), decision.reasons, strict=True
        )
    ]
    parallelism, level = (np.where(keeps, a, b) for a, b in zip(now, wanted, strict=True))
    return ScalingDecision(parallelism, level, tuple(reasons))
