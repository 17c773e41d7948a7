"""Guardrails one after the other, the same in training, evaluation, shadow and live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from dsp_gym.arrays import Bools, Ints
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuota, BoundsAndQuotaConfig
from dsp_gym.guardrails.capacity_floor import CapacityFloor, CapacityFloorConfig
from dsp_gym.guardrails.config import (
    INSTALLED,
    GuardrailConfig,
    GuardrailsConfig,
    InstalledGuardrail,
)
from dsp_gym.guardrails.cool_down import CoolDown, CoolDownConfig
from dsp_gym.guardrails.excess_budget import ExcessBudget, ExcessBudgetConfig
from dsp_gym.guardrails.fallback import Fallback, FallbackConfig
from dsp_gym.guardrails.freeze import Freeze, FreezeConfig
from dsp_gym.guardrails.out_of_distribution import (
    Features,
    OutOfDistribution,
    OutOfDistributionConfig,
)
from dsp_gym.guardrails.restriction import Restriction, copied, is_coupled
from dsp_gym.guardrails.settle import Settle, SettleConfig
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.guardrails.shipped import ShippedPass
from dsp_gym.guardrails.stale_metrics import StaleMetrics, StaleMetricsConfig
from dsp_gym.guardrails.step_limit import StepLimit, StepLimitConfig
from dsp_gym.loop.decision import GuardedDecision, Intervention, ScalingDecision
from dsp_gym.loop.per_job_state import RowMemory, all_of
from dsp_gym.loop.protocols import Guardrail, Mask, Policy, RemembersTimes, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import capabilities_of

ORDER = (
    "step_limit",
    "cool_down",
    "settle",
    "out_of_distribution",
    "capacity_floor",
    "fallback",
    "excess_budget",
    "stale_metrics",
    "freeze",
    "bounds_and_quota",
)
"""First limits on the policy's decision, then guardrails that hand over, then hard bounds.

So the fallback's decisions are not slowed down by limits meant for the policy, and hard bounds hold
for all.
"""

_SHIPPED = frozenset(
    {
        BoundsAndQuota,
        CapacityFloor,
        CoolDown,
        ExcessBudget,
        Fallback,
        Freeze,
        OutOfDistribution,
        Settle,
        StaleMetrics,
        StepLimit,
    }
)

PASSES = 4
"""Most passes of a chain: hard bounds may undo changes of an earlier guardrail."""


class Chain:
    """A guardrail made of guardrails, in the order of `ORDER`; unknown ones act first, as given."""

    def __init__(self, guardrails: Sequence[Guardrail] = (), *, explain: bool = True) -> None:
        place = {name: position for position, name in enumerate(ORDER)}
        self.guardrails: tuple[Guardrail, ...] = tuple(
            sorted(guardrails, key=lambda guardrail: place.get(guardrail.name, -1))
        )
        self.name = "chain"
        self.names = tuple(guardrail.name for guardrail in self.guardrails)
        self.explain = explain
        """Whether `allow` explains its changes in words; a large batch does without."""
        self.under_way: str | None = None
        """Name of the guardrail that is being asked, for those who wait; None: none is."""
        # Another pass is due for jobs that one of these changed.
        self.again = _places_of_another_pass(self.guardrails)
        # Asking an inert guardrail in Python takes as long as the whole compiled pass.
        self._places = [p for p, g in enumerate(self.guardrails) if not _is_inert(g)]
        self.active = tuple(self.guardrails[p] for p in self._places)
        """The guardrails that step in at all."""
        self.compiled_pass = ShippedPass(self.active)
        # Only guardrails with their own `commit` or `watch` are called there, once per decision.
        self._committing = tuple(
            guardrail
            for guardrail in self.guardrails
            if getattr(type(guardrail), "commit", None) is not Restriction.commit
            or getattr(type(guardrail), "watch", None) is not Restriction.watch
        )
        self._replacing = tuple(
            (guardrail, guardrail.replacement)
            for guardrail in self.guardrails
            if isinstance(guardrail, Restriction)
            and guardrail.replacement is not None
            and not guardrail.is_inert
        )
        self._trained = next(
            (g for g in self.guardrails if isinstance(g, OutOfDistribution) and g.config.bounds),
            None,
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        for guardrail in self._told():
            guardrail.reset(jobs, seeds, mask)

    def allow(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> GuardedDecision:
        parallelism, level = copied(decision)

        def otherwise(guardrail: Guardrail) -> Bools:
            self.under_way = guardrail.name
            changed = _restrict(guardrail, snapshot, decision, parallelism, level)
            self.under_way = None
            return changed

        changes, some = self._passed(snapshot, parallelism, level, otherwise)
        if some and self.again:
            # A job at rest leaves another pass unchanged; its changes on the way are no
            # interventions, and must not depend on its neighbours in the batch.
            at_work = changes[self.again].any(axis=0)
            for _ in range(1, PASSES):
                if not at_work.any():
                    break
                changed, _ = self._passed(snapshot, parallelism, level, otherwise)
                changes |= changed & at_work
                at_work &= changed[self.again].any(axis=0)
        trips = changes.T
        found = self._interventions(snapshot, trips) if some else ()
        if not self.explain:
            return GuardedDecision(parallelism, level, decision, trips, found)
        return GuardedDecision(
            parallelism,
            level,
            decision,
            trips,
            found,
            self._replaced_by(snapshot),
            self._unfamiliar(snapshot),
        )

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        for guardrail in self._committing:
            self.under_way = guardrail.name
            guardrail.commit(snapshot, guarded)
        self.under_way = None

    def watch(self, snapshot: MetricsSnapshot) -> None:
        for guardrail in self._committing:
            self.under_way = guardrail.name
            guardrail.watch(snapshot)
        self.under_way = None

    def set_forward(self, seconds: float) -> None:
        """Tell the guardrails that remember times that the clock was set forward."""
        for guardrail in self._told():
            if isinstance(guardrail, RemembersTimes):
                guardrail.set_forward(seconds)

    def memories(self) -> tuple[RowMemory, ...] | None:
        """Return all memory of the guardrails; None where one is not shipped, and may keep more.

        Returns:
            The memories, in the order of the guardrails.
        """
        return all_of(*(_memories(guardrail) for guardrail in self.guardrails))

    @property
    def may_take_long(self) -> tuple[str, ...]:
        """Names of guardrails that are not shipped, or ask a policy that may wait for something."""
        return tuple(g.name for g in self.guardrails if _memories(g) is None)

    def state(self) -> State:
        return {guardrail.name: guardrail.state() for guardrail in self._told()}

    def restore(self, state: State) -> None:
        if set(state) != set(self.names):
            raise SchemaError(
                f"the saved state is of the guardrails {', '.join(sorted(state)) or 'none'}, "
                f"this chain has {', '.join(self.names) or 'none'}",
                remedy="Build the chain from the configuration the state was saved with.",
            )
        for guardrail in self._told():
            guardrail.restore(state[guardrail.name])

    def _told(self) -> Iterator[Guardrail]:
        """List the guardrails; the one that is being asked is `under_way` meanwhile."""
        for guardrail in self.guardrails:
            self.under_way = guardrail.name
            yield guardrail
        self.under_way = None

    def _passed(
        self,
        snapshot: MetricsSnapshot,
        parallelism: Ints,
        level: Ints,
        otherwise: Callable[[Guardrail], Bools],
    ) -> tuple[Bools, bool]:
        """Let every guardrail restrict once.

        Returns:
            Flags by guardrail and job, (guardrails, J), and whether one is set.
        """
        changes, some = self.compiled_pass.run(snapshot, parallelism, level, otherwise)
        # The compiled pass knows the active guardrails only; inert ones have no flags.
        if len(self._places) == len(self.guardrails):
            return changes, some
        of_all = np.zeros((len(self.guardrails), len(snapshot)), np.bool_)
        of_all[self._places] = changes
        return of_all, some

    def _interventions(self, snapshot: MetricsSnapshot, trips: Bools) -> tuple[Intervention, ...]:
        """List the changes: one entry per job and guardrail; with a reason where wanted."""
        found, otherwise = [], "changed the decision" if self.explain else ""
        for job, position in zip(*(at.tolist() for at in trips.nonzero()), strict=True):
            guardrail = self.guardrails[position]
            self.under_way = guardrail.name
            found.append(
                guardrail.intervention(snapshot, job, explain=self.explain)
                if isinstance(guardrail, Restriction)
                else Intervention(job, guardrail.name, otherwise)
            )
        self.under_way = None
        return tuple(found)

    def _replaced_by(self, snapshot: MetricsSnapshot) -> tuple[str | None, ...]:
        """Name the policy that decides instead, (J,); of several, the last guardrail's."""
        names: list[str | None] = [None] * len(snapshot)
        for guardrail, replacement in self._replacing:
            self.under_way = guardrail.name
            for job, replaces in enumerate(guardrail.replaces(snapshot).tolist()):
                if replaces:
                    names[job] = replacement
        self.under_way = None
        return tuple(names)

    def _unfamiliar(self, snapshot: MetricsSnapshot) -> tuple[tuple[str, ...] | None, ...]:
        """List the features outside the range of the training, (J,); None without a training."""
        if self._trained is None:
            return (None,) * len(snapshot)
        return tuple(self._trained.unfamiliar(snapshot, job) for job in range(len(snapshot)))


def _places_of_another_pass(guardrails: Sequence[Guardrail]) -> list[int]:
    """Return the guardrails whose changes call for another pass of the chain.

    Those that couple vertices, and all after one that weighs a decision as a whole.
    """
    weighing = [p for p, g in enumerate(guardrails) if isinstance(g, Restriction) and g.weighs]
    first = weighing[0] + 1 if weighing else len(guardrails)
    return [p for p, g in enumerate(guardrails) if p >= first or is_coupled(g)]


def _memories(guardrail: Guardrail) -> tuple[RowMemory, ...] | None:
    """All memory of a guardrail; None where it is not shipped, and may keep more."""
    if type(guardrail) in _SHIPPED and isinstance(guardrail, Restriction):
        return guardrail.memories()
    return None


def _is_inert(guardrail: Guardrail) -> bool:
    return isinstance(guardrail, Restriction) and guardrail.is_inert


def _restrict(
    guardrail: Guardrail,
    snapshot: MetricsSnapshot,
    decision: ScalingDecision,
    parallelism: Ints,
    level: Ints,
) -> Bools:
    if isinstance(guardrail, Restriction):
        return guardrail.restrict(snapshot, parallelism, level)
    here = ScalingDecision(parallelism.copy(), level.copy(), decision.reasons)
    allowed = guardrail.allow(snapshot, here)
    parallelism[:], level[:] = allowed.parallelism, allowed.memory_level
    return np.asarray(np.any(allowed.trips, axis=1))


def build(
    config: GuardrailsConfig | str | Path,
    *,
    features: Features | None = None,
    explain: bool = True,
) -> Chain:
    """Build the chain of a configuration, of a shipped name (`default`, `none`) or of a file.

    Args:
        config: the configuration, its name or its path.
        features: computes the features of the out-of-distribution check; without it the bounds name
            snapshot metrics.
        explain: whether `allow` explains its changes in words.

    Returns:
        The guardrails in the order of `ORDER`, ready to be reset.
    """
    if not isinstance(config, GuardrailsConfig):
        config = files.load_model(GuardrailsConfig, "guardrails", config)
    # Guardrails that name the same policy share one shadow of it; the floor is shared with the step
    # limit, so that both compute the requirement once.
    shadows = Shadows()
    floor = next(
        (
            CapacityFloor(p, shadows)
            for p in config.guardrails
            if isinstance(p, CapacityFloorConfig)
        ),
        None,
    )
    plain = [
        _make(part, shadows, features, floor)
        for part in config.guardrails
        if not isinstance(part, FallbackConfig)
    ]
    asking = [
        guardrail
        for guardrail in plain
        if isinstance(guardrail, StaleMetrics | OutOfDistribution)
        and guardrail.config.action == "fallback"
    ]
    fallbacks = [
        Fallback(part, shadows, asking)
        for part in config.guardrails
        if isinstance(part, FallbackConfig)
    ]
    return Chain([*plain, *fallbacks], explain=explain)


def build_for(policy: Policy, config: GuardrailsConfig | str | Path | None) -> Chain | None:
    """Build the chain around a policy; None without a configuration.

    An out-of-distribution check without bounds takes those of the policy's training; around a
    policy without training it does nothing.

    Returns:
        The chain; None where none is configured.
    """
    if config is None:
        return None
    if not isinstance(config, GuardrailsConfig):
        config = files.load_model(GuardrailsConfig, "guardrails", config)
    training = capabilities_of(policy).training
    if training is None:
        return build(config)
    box = dict(training.training_box)
    own = tuple(
        part.model_copy(update={"bounds": box})
        if isinstance(part, OutOfDistributionConfig) and not part.bounds
        else part
        for part in config.guardrails
    )
    learned = any(a is not b for a, b in zip(own, config.guardrails, strict=True))
    return build(
        config.model_copy(update={"guardrails": own}),
        features=training.features if learned else None,
    )


def _make(
    part: GuardrailConfig,
    shadows: Shadows,
    features: Features | None,
    floor: CapacityFloor | None,
) -> Guardrail:
    match part:
        case BoundsAndQuotaConfig():
            return BoundsAndQuota(part)
        case CapacityFloorConfig():
            return floor or CapacityFloor(part, shadows)
        case CoolDownConfig():
            return CoolDown(part)
        case ExcessBudgetConfig():
            return ExcessBudget(part, shadows)
        case FallbackConfig():
            return Fallback(part, shadows)
        case FreezeConfig():
            return Freeze(part)
        case OutOfDistributionConfig():
            return OutOfDistribution(part, features)
        case SettleConfig():
            return Settle(part)
        case StaleMetricsConfig():
            return StaleMetrics(part)
        case StepLimitConfig():
            return StepLimit(part, floor)
        case InstalledGuardrail():
            return _from_elsewhere(part)


def _from_elsewhere(part: InstalledGuardrail) -> Guardrail:
    made = cast(Callable[[ConfigModel], object], INSTALLED.load(part.kind))(part.config)
    if not isinstance(made, Guardrail):
        raise ConfigError(
            f"guardrail '{part.kind}' does not keep the guardrail protocol",
            value=type(made).__name__,
            remedy=f"See {INSTALLED.guide}.",
        )
    made.name = part.kind
    return made
