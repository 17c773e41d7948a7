"""Chains for tests: every guardrail alone, the shipped chains, and a strict one with all."""

from __future__ import annotations

from typing import Any

from dsp_gym.guardrails import Chain, GuardrailsConfig, build
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision

BOX = {"busy_ms_per_s": (100.0, 900.0), "latency_p95_s": (0.0, 2.0)}
FLOOR = {"policy": "justin-paper", "params": {"ds2": {"source_rate": "offered"}}}

PARTS: dict[str, dict[str, Any]] = {
    "bounds_and_quota": {"max_parallelism": 12, "cores": 20, "memory_mib": 8000},
    "step_limit": {},
    "cool_down": {"scale_up_s": 60},
    "settle": {"unchanged_s": 120.0},
    "freeze": {},
    "stale_metrics": {},
    "out_of_distribution": {"bounds": BOX, "action": "hold"},
    "capacity_floor": {"policy": FLOOR, "margin": 0.2, "memory_factor": 2.0},
    "excess_budget": {"policy": "ds2-justin", "window_s": 3600.0, "outage_share": 0.05},
}

CHAINS: dict[str, GuardrailsConfig | str] = {
    "none": "none",
    "default": "default",
    "strict": GuardrailsConfig.model_validate(
        {
            "guardrails": [
                {"kind": kind, **params}
                for kind, params in PARTS.items()
                if kind not in ("out_of_distribution", "settle", "stale_metrics")
            ]
            + [
                {"kind": "out_of_distribution", "bounds": BOX},
                {"kind": "stale_metrics", "action": "fallback"},
                {"kind": "fallback", "policy": "hpa-cpu"},
            ]
        }
    ),
} | {
    kind: GuardrailsConfig.model_validate({"guardrails": [{"kind": kind, **params}]})
    for kind, params in PARTS.items()
}


def chain(name: str, *, explain: bool = False) -> Chain:
    """A chain of this module by name."""
    return build(CHAINS[name], explain=explain)


def again(guarded: GuardedDecision) -> ScalingDecision:
    """What was allowed, as the next thing wanted."""
    return ScalingDecision(guarded.parallelism, guarded.memory_level, guarded.proposed.reasons)
