"""A policy that runs alongside: asked about every snapshot, followed where a guardrail says so."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Ints, plain
from dsp_gym.errors import ConfigError
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import SIZED
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import NONE, hold_unknown, marked
from dsp_gym.policies import PolicyConfig, capabilities_of, make
from dsp_gym.policies.capabilities import Requirement, without_reasons


class ShadowPolicy:
    """A policy made by name whose answer is kept for the snapshot.

    A policy advances when it decides, and a guardrail may be asked several times about one
    snapshot; the answer is therefore kept until the next snapshot comes.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = without_reasons(policy)
        self.can = capabilities_of(policy)
        self.model = self.can.capacity
        self._seen: MetricsSnapshot | None = None
        self._decision: ScalingDecision | None = None
        self._needed_for: MetricsSnapshot | None = None
        self._needed: Requirement | None = None

    @property
    def name(self) -> str:
        return self.policy.name

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self.policy.reset(jobs, seeds, mask)
        self._seen = self._needed_for = None

    def decided(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Ask the policy about this snapshot, once.

        Whatever the policy, a vertex gives up nothing while metrics are unknown that it needs.

        Returns:
            Its decision on all J jobs.
        """
        if self._decision is None or self._seen is not snapshot:
            self._decision = without_loss(snapshot, self.policy.decide(snapshot))
            self._seen = snapshot
        return self._decision

    def required(self, snapshot: MetricsSnapshot) -> Requirement | None:
        """Ask the policy's model about this snapshot, once.

        Returns:
            What the jobs need, (J, V); None for a policy without a model.
        """
        if self.model is None:
            return None
        if self._needed is None or self._needed_for is not snapshot:
            needed = self.model.required(snapshot)
            self._needed = Requirement(*map(plain, needed))
            self._needed_for = snapshot
        return self._needed

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Let the model remember the snapshot without a decision."""
        if self.model is not None and self._seen is not snapshot:
            self.model.observe(snapshot)

    def memories(self) -> tuple[RowMemory, ...] | None:
        """Return the policy's memory, where it is kept by rows.

        Returns:
            Its memories; None where they are not known to be all.
        """
        return None if self.can.memories is None else self.can.memories()

    def state(self) -> State:
        return self.policy.state()

    def restore(self, state: State) -> None:
        self.policy.restore(state)
        self._seen = self._needed_for = None


def without_loss(snapshot: MetricsSnapshot, decision: ScalingDecision) -> ScalingDecision:
    """Return a decision that takes nothing from those that cannot spare it.

    Those are vertices whose needed metrics are unknown, and jobs that are late or have work waiting
    (`dsp_gym.loop.backlog`).

    Returns:
        The decision itself where there are none.
    """
    rows = behind(snapshot).is_behind
    if rows.any():
        tasks, level = (
            np.where(rows[:, None], np.maximum(wanted, running), wanted)
            for wanted, running in (
                (decision.parallelism, snapshot.parallelism),
                (decision.memory_level, snapshot.memory_level),
            )
        )
        decision = ScalingDecision(tasks, level, decision.reasons)
    seen = marked(snapshot, SIZED)
    if seen is snapshot:
        return decision
    kept = hold_unknown(seen, decision.parallelism, decision.memory_level, NONE)
    return ScalingDecision(*kept, decision.reasons)


class Shadows:
    """Shadow policies of one chain; guardrails that name the same policy share it."""

    def __init__(self) -> None:
        self._made: dict[str, ShadowPolicy] = {}

    def of(
        self, policy: str | PolicyConfig, guardrail: str, *, model: bool = False
    ) -> ShadowPolicy:
        """Return the shadow of a policy.

        Args:
            policy: its name, file or configuration.
            guardrail: name of the guardrail, for errors.
            model: whether it must have a model of the required tasks.

        Returns:
            The shadow, one and the same for equal policies.

        Raises:
            ConfigError: The policy needs the future load, or lacks the model.
        """
        key = policy if isinstance(policy, str) else policy.model_dump_json()
        if key not in self._made:
            self._made[key] = ShadowPolicy(make(policy))
        shadow = self._made[key]
        if shadow.can.know_future is not None:
            raise ConfigError(
                "needs the future load, which is unknown here",
                key=f"{guardrail}.policy",
                value=shadow.name,
                remedy="Name a policy that decides on metrics, such as ds2.",
            )
        if model and shadow.model is None:
            raise ConfigError(
                "computes no capacity, so it cannot be a floor",
                key=f"{guardrail}.policy",
                value=shadow.name,
                remedy="Name ds2, justin-paper or justin-artifact.",
            )
        return shadow
