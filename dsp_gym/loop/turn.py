"""One turn of the loop: a policy is asked about a snapshot, and guardrails allow what they allow.

The control loop over a simulation, the environment, the loop beside a real job, `dsp-gym decide`
and decisions over HTTP all call `take_turn`, so that a policy and its guardrails do the same with
the same snapshot wherever they are asked.
"""

from __future__ import annotations

from collections.abc import Callable

from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["take_turn"]


def take_turn(
    snapshot: MetricsSnapshot,
    decide: Callable[[MetricsSnapshot], ScalingDecision],
    guardrails: Guardrail | None = None,
    before_commit: Callable[[GuardedDecision], None] | None = None,
) -> GuardedDecision:
    """Ask for a decision on a snapshot, guard it, and let the guardrails count it.

    Args:
        snapshot: of J jobs.
        decide: gives the wanted configuration; usually a policy's `decide`.
        guardrails: one guardrail or a chain; None: the decision stands as it is.
        before_commit: looks at the guarded decision while the guardrails' counters still are those
            it was allowed with, for example to ask for the range they leave.

    Returns:
        The allowed configuration, (J, V); `proposed` is the wanted one.
    """
    decision = decide(snapshot)
    guarded = (
        GuardedDecision.unchanged(decision)
        if guardrails is None
        else guardrails.allow(snapshot, decision)
    )
    if before_commit is not None:
        before_commit(guarded)
    if guardrails is not None:
        guardrails.commit(snapshot, guarded)
    return guarded
