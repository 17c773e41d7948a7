"""Runs of environments as rows of decisions, beside the environments' own output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dsp_gym.envs.core import EnvCore
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot

Decide = Callable[[EnvCore], tuple[ScalingDecision, np.ndarray | None]]
"""The decision, and the actions (J, 2 V) or (J, 1) it was decoded from where it was."""

Row = dict[str, Any]


def run_decisions(
    env: EnvCore, decide: Decide, *, policy: str, begun: bool = False
) -> tuple[list[Row], list[list[Row]]]:
    """One episode of every job: rows of DECISIONS, and by job what the environment gave.

    Args:
        env: seeded.
        decide: decides for all jobs at once.
        policy: its name.
        begun: the episode was begun by the caller.
    """
    observation = env.observation if begun else env.reset()
    rows: list[Row] = []
    given: list[list[Row]] = [[] for _ in range(len(env))]
    alive = np.ones(len(env), dtype=bool)
    step = 0
    while alive.any():
        seen, masks = env.snapshot, env.action_masks()
        decision, actions = decide(env)
        told = env.encode_decision(decision) if actions is None else actions
        before = observation.copy()
        came = env.enact(decision)
        observation = came.observation
        for j in np.flatnonzero(alive):
            spec = env.topology.spec(j)
            n = len(spec.vertices)
            rows.append(
                _row(env, j, seen, step)
                | {
                    "policy": policy,
                    "guardrails": None if env.guardrails is None else "default",
                    "propensity": 1.0,
                    "action": None if actions is None else actions[j, : 2 * n].tolist(),
                    "proposed_parallelism": decision.parallelism[j, :n].tolist(),
                    "proposed_memory_level": decision.memory_level[j, :n].tolist(),
                    "parallelism": came.guarded.parallelism[j, :n].tolist(),
                    "memory_level": came.guarded.memory_level[j, :n].tolist(),
                    "reward_source": env.reward_source,
                    **{name: float(v[j]) for name, v in came.terms.items()},
                    "terminated": bool(came.terminated[j]),
                    "truncated": bool(came.truncated[j]),
                }
            )
            given[j].append(
                {
                    "observation": before[j].copy(),
                    "action": told[j].copy(),
                    "action_mask": masks[j].copy(),
                    "reward": np.float32(came.reward[j]),
                    "next_observation": observation[j].copy(),
                    "terminated": bool(came.terminated[j]),
                    "truncated": bool(came.truncated[j]),
                }
            )
        step += 1
        ended = alive & (came.terminated | came.truncated)
        rows += [_row(env, j, env.snapshot, step) for j in np.flatnonzero(ended)]
        alive &= ~ended
    return rows, given


def decisions_table(rows: list[Row]) -> pa.Table:
    """The rows with the columns of DECISIONS."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_pipelines.schema import DECISIONS

    return pa.Table.from_pylist(rows, schema=to_arrow_schema(DECISIONS))


def _row(env: EnvCore, j: int, seen: MetricsSnapshot, step: int) -> Row:
    """What was seen; nothing decided."""
    spec = env.topology.spec(j)
    n = len(spec.vertices)
    snapshot = {name: _plain(getattr(seen, name)[j]) for name in PER_JOB}
    snapshot |= {name: [_plain(x) for x in getattr(seen, name)[j, :n]] for name in PER_VERTEX}
    return {
        "source": "test",
        "job": spec.job,
        "run": f"run-{j}",
        "day": "0000-00-00",
        "step": step,
        "t_s": float(seen.t_s[j]),
        "snapshot": snapshot,
    }


def _plain(value: Any) -> float | int | None:
    """Unknown is null."""
    number = value.item()
    return None if number != number else number
