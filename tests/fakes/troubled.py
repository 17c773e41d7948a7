"""A stepped job with every kind of production trouble, at random times."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dsp_gym.backends.base import Actuator, Backend, Collector
from dsp_gym.errors import FlinkError, KubernetesError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import PER_VERTEX, MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology

__all__ = ["TROUBLES", "Troubled", "TroubledPolicy"]

CONFIGURATION = ("parallelism", "memory_level")

TROUBLES = (
    "prometheus is down", "prometheus is slow", "metrics are stale", "metrics are partial",
    "metrics are NaN", "metrics are infinite", "the job restarts", "the job has failed",
    "another id", "the api server is down", "the api server answers nonsense", "the clock jumps",
    "the clock goes back", "the outcome cannot be had",
)  # fmt: skip


class Troubled(Backend):
    """Passes everything on to a job, and lets troubles come over it.

    Args:
        jobs: the job.
        rng: draws when what happens.
        share: of the decisions something happens to.
    """

    def __init__(self, jobs: Backend, rng: np.random.Generator, share: float) -> None:
        self._jobs, self._rng, self._share = jobs, rng, share
        self.met: dict[str, int] = dict.fromkeys(TROUBLES, 0)
        self._now: str | None = None
        self._shift_s = 0.0
        self.trouble: FlinkError | None = None

    @property
    def collector(self) -> Collector:
        return self

    @property
    def actuator(self) -> Actuator | None:
        return None

    @property
    def topology(self) -> Topology:
        return self._jobs.collector.topology

    @property
    def age_s(self) -> float:
        return self._jobs.collector.age_s

    arrivals = ()

    def now_s(self) -> float:
        return self._jobs.now_s() + self._shift_s

    def close(self) -> None:
        self._jobs.close()

    def snapshot(self) -> MetricsSnapshot:
        self._now = self.trouble = None
        if self._rng.random() < self._share:
            self._now = str(self._rng.choice(TROUBLES))
            self.met[self._now] += 1
        match self._now:
            case "prometheus is down":
                raise FlinkError("no luck", api="prometheus", reason="Unreachable")
            case "prometheus is slow":
                raise FlinkError("no luck", api="prometheus", reason="Timeout")
            case "the api server is down":
                raise KubernetesError("https://k: connection refused", reason="Unreachable")
            case "the api server answers nonsense":
                raise KeyError("metadata")
            case "the clock jumps":
                self._shift_s += 7200.0
            case "the clock goes back":
                self._shift_s -= 1800.0
        return self._seen(self._jobs.collector.snapshot())

    def _seen(self, seen: MetricsSnapshot) -> MetricsSnapshot:
        changes: dict[str, Any] = {
            "t_s": seen.t_s + self._shift_s, "running_since_s": seen.running_since_s + self._shift_s
        }  # fmt: skip
        match self._now:
            case "metrics are stale":
                self.trouble = FlinkError("too old", api="prometheus", reason="NoMetrics")
                changes |= _everything(seen, np.nan) | {"window_fill": np.zeros(1)}
            case "metrics are partial":
                changes["busy_ms_per_s"] = seen.busy_ms_per_s.copy()
                changes["busy_ms_per_s"][0, 1] = np.nan
            case "metrics are NaN":
                changes |= _everything(seen, np.nan)
            case "metrics are infinite":
                changes |= _everything(seen, np.inf)
            case "the job restarts":
                changes |= {"status": np.array([int(Status.RESTARTING)])}
            case "the job has failed":
                changes |= {"status": np.array([int(Status.FAILED)])}
            case "another id":
                changes |= {"running_since_s": seen.t_s + self._shift_s - 1.0}
                changes |= {"window_fill": np.zeros(1)}
        return replace(seen, **changes)

    def advance(self, seconds: int) -> Outcome:
        outcome = self._jobs.advance(seconds)
        if self._now == "the outcome cannot be had":
            raise FlinkError("no luck", api="prometheus", reason="Timeout")
        return outcome


def _everything(seen: MetricsSnapshot, value: float) -> dict[str, Any]:
    names = [f.name for f in fields(seen) if f.name in PER_VERTEX and f.name not in CONFIGURATION]
    return {name: np.full_like(getattr(seen, name), value) for name in names}


class TroubledPolicy:
    """A policy that raises, leaves or answers nonsense at drawn times, and else keeps what runs."""

    name = "troubled"

    def __init__(self, rng: np.random.Generator, share: float) -> None:
        self._rng, self._share = rng, share
        self.failures = 0

    def reset(self, jobs: Any, seeds: Any, mask: Any = None) -> None:
        pass

    def decide(self, snapshot: MetricsSnapshot) -> Any:
        p, level = snapshot.parallelism.copy(), snapshot.memory_level.copy()
        if self._rng.random() < self._share:
            self.failures += 1
            match int(self._rng.integers(5)):
                case 0:
                    raise ZeroDivisionError("no rate")
                case 1:
                    sys.exit(1)
                case 2:
                    return None
                case 3:
                    return ScalingDecision(p * 0.5, level, ("half",))
                case _:
                    p[:] = -1
        return ScalingDecision(p, level, ("keeps",))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass
