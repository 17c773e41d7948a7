"""No learned decision on observations unlike those of the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import MetricsError, did_you_mean
from dsp_gym.guardrails.restriction import Restriction, hold
from dsp_gym.loop.lacking import needs
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import VERTEX_FLOATS, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import LastKnown

Features = Callable[[MetricsSnapshot], Mapping[str, Floats | Floats32]]
"""A function from a snapshot to features by name, (J,) or (J, V); NaN: unknown."""


class OutOfDistributionConfig(ConfigModel):
    """The box of values seen in training."""

    kind: Literal["out_of_distribution"] = Field(
        "out_of_distribution", description="this guardrail"
    )
    bounds: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="lowest and highest value by feature, as `quantile_box` learns them; "
        "without a feature hook the names are those of snapshot metrics",
    )
    tolerated: int = Field(
        0, ge=0, description="features that may be outside their bounds at one time"
    )
    alone: tuple[str, ...] = Field(
        ("disagreement",),
        description="features of which one outside its bounds is enough, however many are "
        "tolerated; the members of an ensemble disagree where none of them has learned",
    )
    action: Literal["hold", "fallback"] = Field(
        "fallback", description="hold the running configuration, or let the fallback decide"
    )

    @field_validator("bounds")
    @classmethod
    def _bounds_rise(cls, bounds: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in bounds.items():
            if low > high:
                raise ValueError(f"bounds of {name!r} are {low:g}, {high:g}: lowest comes first")
        return bounds


class OutOfDistribution(Restriction):
    """Step in where features lie outside the box learned at training.

    A feature of many vertices is outside if it is for one of them. Where a vertex does not report,
    its last known value counts, if there is one; `stale_metrics` guards against unknown values.
    """

    name = "out_of_distribution"
    kind = "held"

    def __init__(
        self, config: OutOfDistributionConfig | None = None, features: Features | None = None
    ) -> None:
        super().__init__()
        self.config = config or OutOfDistributionConfig()
        self._features = features
        # A policy's own features stand on last known values already.
        names = [] if features else [n for n in self.config.bounds if n in VERTEX_FLOATS]
        self._remembers = bool(names)
        self._kept = self._last_known = LastKnown(needs(names, of_source=(), of_inputs=()))
        self._known: tuple[MetricsSnapshot, dict[str, Bools]] | None = None
        self._asks: Bools | None = None  # answer of `demands` for the known snapshot

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._last_known.reset(jobs, mask)
        self._known = None

    def watch(self, snapshot: MetricsSnapshot) -> None:
        if self._remembers:
            self._last_known.filled(snapshot)

    def memories(self) -> tuple[RowMemory, ...]:
        return self._last_known.memories()

    @property
    def is_inert(self) -> bool:
        return not self.config.bounds

    def demands(self, snapshot: MetricsSnapshot) -> Bools:
        """Return True where more features than tolerated are outside, or one of `alone`, (J,).

        Returns:
            Flags by job; all False without bounds.
        """
        if not self.config.bounds:
            return np.zeros(len(snapshot), dtype=bool)
        if self._known is None or self._known[0] is not snapshot or self._asks is None:
            found = self._outside(snapshot)
            asks = np.sum(list(found.values()), axis=0) > self.config.tolerated
            for name in self.config.alone:
                asks |= found.get(name, False)
            self._asks = np.asarray(asks)
        return self._asks.copy()

    def unfamiliar(self, snapshot: MetricsSnapshot, job: int) -> tuple[str, ...]:
        """List features of a job outside their bounds; none where no more are than tolerated.

        Returns:
            Names of the features, in the order of the bounds.
        """
        if not self.demands(snapshot)[job]:
            return ()
        return tuple(name for name, flags in self._outside(snapshot).items() if flags[job])

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        if self.config.action == "fallback" or not self.config.bounds:
            return np.zeros(len(parallelism), dtype=bool)
        return hold(snapshot, self.demands(snapshot), parallelism, level)

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        names = [name for name, flags in self._outside(snapshot).items() if flags[job]]
        return f"unlike anything seen in training: {', '.join(names)}"

    def _outside(self, snapshot: MetricsSnapshot) -> dict[str, Bools]:
        """Return flags by feature, kept for the snapshot: a chain asks more than once."""
        if self._known is None or self._known[0] is not snapshot:
            self._known, self._asks = (snapshot, self._looked(snapshot)), None
        return self._known[1]

    def _looked(self, snapshot: MetricsSnapshot) -> dict[str, Bools]:
        found = {} if self._features is None else dict(self._features(snapshot))
        known = self._last_known.filled(snapshot, remember=False) if self._remembers else snapshot
        for name in self.config.bounds:
            values = found.get(name) if self._features else getattr(known, name, None)
            if not isinstance(values, np.ndarray):
                names = found if self._features else MetricsSnapshot.__dataclass_fields__
                raise MetricsError(
                    f"guardrail 'out_of_distribution': there is no feature '{name}'",
                    key=f"bounds.{name}",
                    remedy=did_you_mean(name, names),
                )
            found[name] = values
        return outside(found, self.config.bounds, snapshot.topology.mask)


def outside(
    features: Mapping[str, Floats | Floats32],
    bounds: Mapping[str, tuple[float, float]],
    mask: Bools,
) -> dict[str, Bools]:
    """Mark the jobs whose features lie outside their bounds.

    Args:
        features: Values by name, (J,) or (J, V); NaN is never outside.
        bounds: Lowest and highest value by feature, as `quantile_box` learns them.
        mask: (J, V) True for existing vertices.

    Returns:
        Flags (J,) by feature, in the order of the bounds; a feature of many vertices is outside if
        it is for one of them.

    >>> outside({"swing": np.array([0.5, 2.0])}, {"swing": (0.0, 1.0)}, np.ones((2, 1), bool))
    {'swing': array([False,  True])}
    """
    alike: dict[tuple[int, np.dtype[np.generic]], list[str]] = {}
    for name in bounds:
        alike.setdefault((features[name].ndim, features[name].dtype), []).append(name)
    found: dict[str, Bools] = {}
    for (dimensions, _), names in alike.items():
        # Features of the same shape and type are compared at once: one by one, a single job would
        # take as long as 64.
        block = np.stack([features[name] for name in names])
        limits = np.array([bounds[name] for name in names], block.dtype)
        low, high = limits.T.reshape(2, -1, *[1] * dimensions)
        flags = (block < low) | (block > high)
        if dimensions == 2:
            flags = np.any(flags & mask, axis=2)
        found |= dict(zip(names, flags, strict=True))
    return {name: found[name] for name in bounds}


def quantile_box(
    samples: Mapping[str, Floats | Floats32], tail: float = 0.001, widen: float = 0.1
) -> dict[str, tuple[float, float]]:
    """Learn bounds by feature that hold all but the tails of the samples, widened by a share.

    Returns:
        Lower and upper bound by feature, in the feature's unit; features without a finite sample
        are left out.

    >>> quantile_box({"busy_ms_per_s": np.array([0.0, 1000.0])}, tail=0.0)
    {'busy_ms_per_s': (-100.0, 1100.0)}
    """
    box = {}
    for name, values in samples.items():
        known = values[np.isfinite(values)]
        if known.size:
            low, high = np.quantile(known, [tail, 1 - tail])
            margin = widen * (high - low)
            box[name] = (float(low - margin), float(high + margin))
    return box
