"""A named policy decides where another guardrail asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, replace
from dsp_gym.guardrails.shadow import Shadows, without_loss
from dsp_gym.loop.per_job_state import Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig


class Demanding(Protocol):
    """A guardrail that can ask for the fallback."""

    name: str

    def demands(self, snapshot: MetricsSnapshot) -> Bools:
        """Mark the jobs for which it asks for the fallback.

        Returns:
            (J,) flags; True asks for the fallback policy.
        """


class FallbackConfig(ConfigModel):
    """The policy that decides instead."""

    kind: Literal["fallback"] = Field("fallback", description="this guardrail")
    policy: str | PolicyConfig = Field(
        "ds2", description="policy that decides where a guardrail with action fallback asks for it"
    )


class Fallback(Restriction):
    """Let the named policy decide for jobs where another guardrail asks for it."""

    name = "fallback"
    kind = "replaced"

    def __init__(
        self,
        config: FallbackConfig | None = None,
        shadows: Shadows | None = None,
        asking: Sequence[Demanding] = (),
    ) -> None:
        super().__init__()
        self.config = config or FallbackConfig()
        self.shadow = (shadows or Shadows()).of(self.config.policy, self.name)
        self._kept = Parts(policy=self.shadow)
        self._asking = tuple(asking)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self.shadow.reset(jobs, seeds, mask)

    @property
    def replacement(self) -> str:
        return self.shadow.name

    @property
    def is_inert(self) -> bool:
        return all(isinstance(one, Restriction) and one.is_inert for one in self._asking)

    def replaces(self, snapshot: MetricsSnapshot) -> Bools:
        asked = np.zeros(len(snapshot), dtype=bool)
        for guardrail in self._asking:
            asked |= guardrail.demands(snapshot)
        return asked

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        asked = self.replaces(snapshot)
        if not asked.any():
            return asked
        wanted = without_loss(snapshot, self.shadow.decided(snapshot))
        return replace(snapshot, asked, wanted.parallelism, wanted.memory_level, parallelism, level)

    def watch(self, snapshot: MetricsSnapshot) -> None:
        self.shadow.decided(snapshot)  # so that its memory is current when it is needed

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        asking = [g for g in self._asking if g.demands(snapshot)[job]]
        why = "; ".join(
            f"{g.name} ({g.reason(snapshot, job)})" if isinstance(g, Restriction) else g.name
            for g in asking
        )
        return f"{self.shadow.name} decides, asked for by {why}"

    def memories(self) -> tuple[RowMemory, ...] | None:
        return self.shadow.memories()
