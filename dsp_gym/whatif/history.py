"""The history of a job on a regular grid: load, configuration and lateness of every slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.errors import MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig

__all__ = ["DAY_S", "JobHistory", "bridged", "distinct", "lasting", "since"]

DAY_S = 86_400

BRIDGED_S = 600.0
"""Longest gap over which the load is interpolated; a longer one cuts the history."""

LEAST_SLOTS = 10
"""Slots of the shortest stretch that is replayed."""


@dataclass(frozen=True, slots=True, eq=False)
class JobHistory:
    """One job over K slots of equal length; V vertices in topological order.

    Slots follow each other without a gap, but where `load_per_s` is not known.
    """

    name: str
    spec: JobSpec
    t_s: Floats  # (K,) begin of each slot, s; since 1970 where `is_dated`
    interval_s: int
    load_per_s: Floats  # (K,) records/s that arrived; NaN: not known
    parallelism: Ints  # (K, V) as deployed when the slot begins
    memory_level: Ints  # (K, V)
    late: Floats  # (K,) late share of the slot; NaN: not measured
    lag_s: Floats  # (K,) backlog at its end in seconds of arrivals; NaN: not measured
    latency_s: Floats  # (K,) p95, end to end; NaN: not measured
    outage_s: Floats  # (K,) of the rescale with which the slot begins; NaN: not known
    window: WindowConfig = field(default_factory=WindowConfig)  # over which a policy sees means
    parts: tuple[SteadyPart, ...] = ()  # what the model is fitted to; none: it stays as it is
    notes: tuple[str, ...] = ()
    is_dated: bool = False

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def days(self) -> float:
        """Days whose load is known."""
        return float(np.isfinite(self.load_per_s).sum() * self.interval_s / DAY_S)

    @property
    def tells_lateness(self) -> bool:
        """Whether anything says how late the job was."""
        return bool(np.isfinite(self.late).any())

    @property
    def rescaled(self) -> Bools:
        """(K,) slots that begin with another configuration than the one before."""
        tasks, level = self.parallelism, self.memory_level
        changed = np.any(np.diff(tasks, axis=0) != 0, axis=1)
        changed |= np.any(np.diff(level, axis=0) != 0, axis=1)
        return np.concatenate([[False], changed])

    def stretches(self) -> list[slice]:
        """Cuts the history where its load is not known.

        Returns:
            Slices over the slots, each of ten slots or more.

        Raises:
            MetricsError: No stretch is that long.
        """
        known = np.concatenate([[False], np.isfinite(self.load_per_s), [False]])
        edges = np.flatnonzero(np.diff(known.astype(np.int8)))
        pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        found = [slice(a, b) for a, b in pairs if b - a >= LEAST_SLOTS]
        if not found:
            raise MetricsError(
                f"job '{self.name}': the load is known in no stretch of {LEAST_SLOTS} slots of "
                f"{self.interval_s} s",
                remedy="Give a longer history, or metrics with fewer gaps.",
            )
        return found


def bridged(load_per_s: Floats, interval_s: int) -> Floats:
    """Interpolates the load over short gaps; those at the ends stay.

    Returns:
        (K,) records/s; NaN where a gap is longer than ten minutes.

    >>> bridged(np.array([1.0, np.nan, 3.0, np.nan]), 60).tolist()
    [1.0, 2.0, 3.0, nan]
    """
    known = np.flatnonzero(np.isfinite(load_per_s))
    if len(known) < 2:
        return load_per_s
    slots = np.arange(len(load_per_s))
    filled = np.interp(slots, known, load_per_s[known], left=np.nan, right=np.nan)
    place = np.searchsorted(known, slots, side="right")
    before, after = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    wide = (after - before - 1) * interval_s > BRIDGED_S
    return np.where(wide & ~np.isfinite(load_per_s), np.nan, filled)


def since(history: JobHistory, days: float) -> JobHistory:
    """The last days of a history.

    Returns:
        A copy; with a note where the history is shorter than asked.
    """
    if history.days < days * 0.98:
        have = f"{history.days:.1f} days" if history.days >= 1 else f"{24 * history.days:.1f} hours"
        told = f"{days:g} days were asked for, the load of {have} is known"
        return replace(history, notes=(*history.notes, told))
    kept = history.t_s >= history.t_s[-1] + history.interval_s - days * DAY_S
    names = ("t_s", "load_per_s", "parallelism", "memory_level", "late", "lag_s", "latency_s")
    return replace(history, **{n: getattr(history, n)[kept] for n in (*names, "outage_s")})


def distinct(histories: Sequence[JobHistory]) -> tuple[JobHistory, ...]:
    """Refuses two jobs of one name.

    Returns:
        The histories, as they are.

    Raises:
        MetricsError: Two have the same name.
    """
    names = [history.name for history in histories]
    for name in names:
        if names.count(name) > 1:
            raise MetricsError(
                f"two jobs are called '{name}': their histories cannot be told apart",
                remedy="Name one of them, or select by namespace.",
            )
    return tuple(histories)


def lasting(interval_s: float) -> int:
    """The slot's length for a job that is decided on so often.

    Returns:
        Whole samples, s.
    """
    return max(SAMPLE_S, SAMPLE_S * round(interval_s / SAMPLE_S))
