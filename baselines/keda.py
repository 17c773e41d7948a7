"""KEDA's Kafka scaler: replicas = lag over threshold, with Kubernetes' HPA behind it.

Semantics of KEDA 2 (`pkg/scalers/apache_kafka_scaler.go`, `pkg/scaling/executor`): the lag goes to
the HPA as an external metric with an average value; replicas beyond the partitions would idle. A
scaler that is not active for the cool-down time takes its target to the least replicas at once.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.replicas import (
    MOST,
    NOTHING,
    ROUND_OFF,
    Behavior,
    HorizontalController,
    can_scale,
)
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import needs
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import ExplainingPolicy

NEEDS = needs(("busy_ms_per_s", "records_in_per_s"), ("pending_records",), demand=False)
"""The metrics that a decision on a vertex needs; the first are those of one that works at all."""


class KedaConfig(ConfigModel):
    """Parameters of a ScaledObject with a Kafka trigger; the defaults are KEDA's."""

    lag_threshold_records: float = Field(
        10.0, gt=0, description="lag one replica may have (lagThreshold), records"
    )
    activation_lag_records: float = Field(
        0.0, ge=0, description="lag above which the scaler is active (activationLagThreshold)"
    )
    allow_idle_consumers: bool = Field(
        False, description="true: more replicas than partitions are allowed"
    )
    min_replicas: int = Field(
        1, ge=1, description="minReplicaCount; KEDA's 0 would stop the job, which runs on"
    )
    max_replicas: int = Field(100, ge=1, description="maxReplicaCount")
    cooldown_s: float = Field(
        300.0, ge=0, description="time without activity until the least replicas, s"
    )
    tolerance: float = Field(
        0.1, ge=0, lt=1, description="|lag / wanted lag - 1| that is left alone (Kubernetes)"
    )
    sync_period_s: float = Field(15.0, gt=0, description="time between evaluations, s (Kubernetes)")
    behavior: Behavior = Field(
        default_factory=Behavior, description="stabilisation and limits of the change"
    )

    @model_validator(mode="after")
    def _ordered(self) -> KedaConfig:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas {self.min_replicas} is above max_replicas {self.max_replicas}"
            )
        return self


class Keda(Kept, ExplainingPolicy):
    """KEDA's lag scaling: replicas = lag / threshold, at most one per partition, HPA behind it."""

    Config = KedaConfig

    def __init__(self, config: KedaConfig | None = None) -> None:
        self.name = "keda"
        self.config = c = config or KedaConfig()
        self._controller = HorizontalController(
            c.behavior, sync_period_s=c.sync_period_s, per_vertex=False
        )
        self._memory = RowMemory({"active_s": ("job", np.nan)})
        self._last_known = LastKnown(NEEDS)
        self._kept = Parts(
            controller=self._controller, activity=self._memory, last_known=self._last_known
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._controller.reset(jobs, mask)
        self._memory.reset(jobs, mask)
        self._last_known.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c, jobs = self.config, snapshot.topology
        snapshot = self._last_known.filled(snapshot)
        source = jobs.mask & (jobs.tables.kind[jobs.row] == SOURCE)
        lag = np.where(source, snapshot.pending_records, 0.0).sum(axis=1)
        # Partitions bound the replicas only where those of every source are known.
        partitions = np.where(source, jobs.tables.partitions[jobs.row], 0)
        known = np.all((partitions > 0) | ~source, axis=1)
        most = np.where(known & (not c.allow_idle_consumers), partitions.sum(axis=1), 0)
        current = self._controller.current(snapshot)
        wanted = lag_replicas(
            current, lag[:, None], c.lag_threshold_records, most[:, None], c.tolerance
        )
        bounded = np.clip(wanted, c.min_replicas, c.max_replicas)
        pods = self._controller.replicas(snapshot, current, np.where(wanted >= 0, bounded, NOTHING))
        cold = self._cold(snapshot, lag)
        scalable = can_scale(jobs)
        least = np.maximum(jobs.tables.min_parallelism[jobs.row], c.min_replicas)
        lowest = np.minimum(least, np.maximum(snapshot.parallelism, 1))
        # A cold scaler jumps to the least replicas, past the HPA's rules.
        pods = np.where(cold[:, None] & scalable, lowest, pods)

        def why(job: int, v: int) -> str:
            held = reasons.amount(lag[job])
            if cold[job]:
                return f"lag {held} records: inactive for more than {c.cooldown_s:g} s"
            return f"lag {held} records, {c.lag_threshold_records:g} per replica"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )

    def _cold(self, snapshot: MetricsSnapshot, lag: Floats) -> Bools:
        """Return True where the scaler has not been active for the cool-down time, (J,).

        The time counts from the first snapshot: earlier activity is unknown.
        """
        c, last = self.config, self._memory["active_s"]
        active = np.isnan(last) | (snapshot.running & (lag > c.activation_lag_records))
        last[active] = snapshot.t_s[active]
        quiet = snapshot.running & (lag <= c.activation_lag_records)
        return np.asarray(quiet & (snapshot.t_s - last > c.cooldown_s))


def lag_replicas(
    current: Ints, lag: Floats, threshold: float, partitions: Ints, tolerance: float
) -> Ints:
    """Divide the lag by the threshold: at most one replica per partition.

    The HPA compares the lag with the share of the current replicas; partitions 0 are unknown.

    >>> lag_replicas(np.array([4]), np.array([95.0]), 10.0, np.array([8]), 0.1).tolist()
    [8]

    Returns:
        Replicas: `current` within the tolerance, `NOTHING` where the lag is unknown.
    """
    # KEDA caps the lag at threshold x partitions, so that no more replicas than partitions result.
    seen = np.where((partitions > 0) & (lag > partitions * threshold), partitions * threshold, lag)
    ratio = seen / (threshold * np.maximum(current, 1))
    wanted = np.clip(np.ceil(seen / threshold - ROUND_OFF), 0, MOST)
    wanted = np.where(np.abs(ratio - 1) <= tolerance, current, wanted)
    return np.where(np.isnan(lag), float(NOTHING), wanted).astype(np.int64)
