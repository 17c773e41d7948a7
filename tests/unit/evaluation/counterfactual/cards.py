"""Scorecards of a shadow with constructed figures, for the pages' tests."""

from __future__ import annotations

import numpy as np

from dsp_gym.control.gate import GateConfig
from dsp_gym.evaluation.counterfactual.claims import Claim, Estimated, ModelError, Trust
from dsp_gym.evaluation.counterfactual.course import OUTCOMES, ObservedRun
from dsp_gym.evaluation.counterfactual.evaluation import CounterfactualEvaluation, Line
from dsp_gym.evaluation.counterfactual.verdict import judge

EXACT = ModelError((10.0, 10.0), (0.01, 0.01), (1.0, 1.0))
COST = {"cost_per_h": Estimated(2.0, 1.9, 2.1)}
GOOD = {"saving": Estimated(0.145, 0.123, 0.164), "later": Estimated(0.001, -0.001, 0.002)}


def course(days: float, slots: int = 96) -> ObservedRun:
    """A job of two vertices that was watched without a gap."""
    zeros = np.zeros(slots)
    interval_s = 86_400 * days / slots
    return ObservedRun(
        job="orders",
        vertices=("a", "b"),
        t_s=interval_s * np.arange(slots),
        up=zeros == 0,
        parallelism=np.ones((slots, 2), np.int64),
        memory_level=np.zeros((slots, 2), np.int64),
        running_since_s=zeros,
        outage_s=zeros,
        pending=np.zeros((slots, 2)),
        state_mib=np.zeros((slots, 2)),
        outcome=dict.fromkeys(OUTCOMES, zeros + 1),
        age_s=zeros,
        arrivals=(),
        savepoints=np.empty((0, 2)),
        decided={},
        held=0,
        interval_s=interval_s,
        configuration=None,
    )


def card(
    figures: dict[str, dict[str, Estimated]],
    days: float = 2.0,
    error: ModelError = EXACT,
    trips: dict[str, int] | None = None,
) -> CounterfactualEvaluation:
    """The scorecard of policies whose figures are given, the incumbent at a cost of 2 an hour."""
    watched = course(days)
    claims = [Claim("incumbent", COST if any(figures.values()) else {}, 1.0, 1.0, {}, {}, 96)]
    claims += [Claim(name, found, 0.5, 0.6, trips or {}, {}, 96) for name, found in figures.items()]
    shown = {
        key: tuple(float(2 + np.sin(k / 9)) for k in range(96))
        for key in ("cost_per_h", "lag_s", "latency_p95_s", "subtasks", "load_per_s")
    }
    return CounterfactualEvaluation(
        job="orders",
        days=watched.days,
        coverage=watched.coverage,
        decisions=96,
        held=0,
        segments=1,
        error=error,
        claims=tuple(claims),
        verdicts={
            one.policy: judge(watched, one, error, GateConfig(), Trust()) for one in claims[1:]
        },
        line=Line(tuple(watched.t_s.tolist()), shown, {c.policy: shown for c in claims}, 2.0),
        notes=("a note",),
    )
