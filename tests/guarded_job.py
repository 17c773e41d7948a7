"""A job simple enough to check by hand, source 100/s -> map -> window -> sink, with a guardrail."""

from __future__ import annotations

import numpy as np

from dsp_gym.guardrails import GuardrailsConfig, build
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec

NAN = np.nan
TOPOLOGY = Topology.of([chain_spec()])


def chain(**parts):
    guards = build(
        GuardrailsConfig.model_validate(
            {"guardrails": [{"kind": kind, **params} for kind, params in parts.items()]}
        )
    )
    guards.reset(TOPOLOGY, np.array([0]))
    return guards


def snapshot(t_s=600.0, p=(4, 4), level=1, hit=0.7, busy=(500.0, 500.0), **values):
    """source 100/s -> map(p) -> window(p, level) -> sink(1)."""
    return blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "parallelism": [[2, *p, 1]],
            "memory_level": [[-1, -1, level, -1]],
            "records_in_per_s": 100.0,
            "records_out_per_s": 100.0,
            "busy_ms_per_s": [[100.0, *busy, 100.0]],
            "cache_hit_rate": [[NAN, NAN, hit, NAN]],
            "latency_p95_s": 0.1,
            "outage_s": 80.0,
            "pending_growth_per_s": [[0.0, NAN, NAN, NAN]],
            "pending_records": [[0.0, NAN, NAN, NAN]],
        }
        | values,
    )


def wanted(*p, level=1, stateless=-1):
    """A decision for map and window."""
    levels = [[-1, stateless, level, -1]]
    return ScalingDecision(np.array([[2, *p, 1]]), np.array(levels), ("test",))


def allowed(guards, seen, decision):
    """(map tasks, window tasks, window level) after guarding, and the words."""
    guarded = guards.allow(seen, decision)
    p, level = guarded.parallelism[0], guarded.memory_level[0]
    words = " ".join(f"{i.guardrail}: {i.reason}" for i in guarded.interventions)
    return (int(p[1]), int(p[2]), int(level[2])), words
