"""The range that guardrails leave each vertex now: what they make of the least and the most."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuota
from dsp_gym.guardrails.chain import Chain
from dsp_gym.guardrails.restriction import is_coupled
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot


def each_alone(chain: Chain) -> Chain:
    """Leave out the guardrails of a chain that couple vertices.

    Args:
        chain: may also hold guardrails that couple vertices, such as a quota.

    Returns:
        A chain that shares the guardrails, and does not put in words what they change.
    """
    return Chain([g for g in chain.guardrails if not is_coupled(g)], explain=False)


def allowed_range(
    chain: Chain | None,
    snapshot: MetricsSnapshot,
    guarded: GuardedDecision,
    alone: Chain | None = None,
) -> tuple[Ints, Ints]:
    """Find the lowest and the highest parallelism of every vertex, (1, V) each.

    Guardrails clamp each vertex by itself, so the range is what they make of the least and the most
    that the job file allows. A quota couples vertices: each has the room that is left if no other
    vertex grows. Call it before the decision is committed.

    Args:
        chain: the guardrails; None: none.
        snapshot: what they were asked about.
        guarded: the decision they allowed.
        alone: what `each_alone` makes of the chain; None: it is made here.

    Returns:
        (1, V) lowest and (1, V) highest number of tasks per vertex.
    """
    tables, row = snapshot.topology.tables, snapshot.topology.row
    least, most = tables.min_parallelism[row], tables.max_parallelism[row]
    if chain is None:
        return least, most
    alone = alone or each_alone(chain)
    lower, upper = (_allowed(alone, snapshot, guarded, p) for p in (least, most))
    for guardrail in chain.guardrails:
        if isinstance(guardrail, BoundsAndQuota) and guardrail.coupled:
            lower, upper = _within_quota(guardrail, snapshot, guarded, lower, upper)
    # What was decided is allowed, even where the job already runs outside the bounds.
    return np.minimum(lower, guarded.parallelism), np.maximum(upper, guarded.parallelism)


def _allowed(
    chain: Chain, snapshot: MetricsSnapshot, guarded: GuardedDecision, parallelism: Ints
) -> Ints:
    wanted = ScalingDecision(parallelism.copy(), guarded.memory_level, ("",) * len(guarded))
    return chain.allow(snapshot, wanted).parallelism


def _within_quota(
    guardrail: BoundsAndQuota,
    snapshot: MetricsSnapshot,
    guarded: GuardedDecision,
    lower: Ints,
    upper: Ints,
) -> tuple[Ints, Ints]:
    c, tables, row = guardrail.config, snapshot.topology.tables, snapshot.topology.row
    k = int(row[0])
    low, high = tables.min_parallelism[row], tables.max_parallelism[row]
    scalable = low < high
    if c.max_parallelism is not None:
        upper = np.where(scalable, np.minimum(upper, c.max_parallelism), upper)
    lower = np.where(scalable, np.maximum(lower, c.min_parallelism), lower)
    counted = tables.kind[row] > 0
    tasks = np.where(counted, guarded.parallelism, 0)
    each_mib = tables.subtask_mib[k][guarded.memory_level + 1]
    more = np.full(tasks.shape, np.iinfo(np.int64).max // 2)
    if c.cores is not None:
        more = np.minimum(more, np.floor(c.cores - tasks.sum()).astype(np.int64))
    if c.memory_mib is not None:
        left_mib = c.memory_mib - float((tasks * each_mib).sum())
        more = np.minimum(more, np.floor(left_mib / np.maximum(each_mib, 1.0)).astype(np.int64))
    room = guarded.parallelism + np.maximum(more, 0)
    return lower, np.where(counted & scalable, np.minimum(upper, room), upper)
