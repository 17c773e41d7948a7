"""One turn of the loop: ask a policy about a snapshot, and let guardrails restrict the answer.

The control loop over a simulation, the environment, `dsp-gym decide` and decisions over HTTP all
call `take_turn`, so that a policy and its guardrails do the same with the same snapshot everywhere.
The loop beside a real job calls its halves, `guarded_turn` and `settle_turn`: whether a decision
was enacted is known only afterwards.

Policy and guardrails see the snapshot without implausible values (`plausible`). Where there were
any the turn keeps the running configuration and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.plausible import doubts, plausible
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
    if wrong := doubts(seen):
        decision = _held(seen, decision, wrong)
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


def _held(
    snapshot: MetricsSnapshot, decision: ScalingDecision, wrong: Sequence[str]
) -> ScalingDecision:
    """Keep the running configuration of the jobs with doubtful metrics, a sentence per job."""
    rows = np.array([bool(sentence) for sentence in wrong])[:, None]
    return ScalingDecision(
        np.where(rows, snapshot.parallelism, decision.parallelism),
        np.where(rows, snapshot.memory_level, decision.memory_level),
        tuple(
            f"hold: {sentence}" if sentence else reason
            for sentence, reason in zip(wrong, decision.reasons, strict=True)
        ),
    )
