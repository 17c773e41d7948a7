"""The history of a job: load, configurations and lateness of every slot, whatever its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.control.config import RunConfig
from dsp_gym.errors import MetricsError
from dsp_gym.job.cost import requested
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.window import WindowConfig

DAY_S = 86_400

BRIDGED_S = 600.0
"""Longest gap over which the load is interpolated; a longer one cuts the history."""

LEAST_SLOTS = 10
"""Slots of the shortest stretch that is replayed."""

GAP_INTERVALS = 3.0
"""Slots that begin further apart than this many intervals have a gap between them."""

LONGEST_S = 7 * 86_400.0
"""Longest stretch, s: the decisions of a week ago do not matter today, and the load of a stretch is
held in memory for every predicted job."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One policy's decisions beside the job over K slots of V vertices; -1: it was not asked."""

    parallelism: Ints  # (K, V) after guardrails
    memory_level: Ints
    proposed: Ints  # (K, V) parallelism before them
    asked: Bools  # (K,)
    trips_s: Mapping[
        str, Floats
    ]  # begins of the slots in which a guardrail stepped in, by its name
    failures_s: Mapping[str, Floats]  # and of those in which the policy failed, by cause

    @property
    def trips(self) -> dict[str, int]:
        """How often each guardrail stepped in."""
        return {name: len(times) for name, times in self.trips_s.items()}

    @property
    def failures(self) -> dict[str, int]:
        """How often the policy failed, by cause."""
        return {cause: len(times) for cause, times in self.failures_s.items()}

    def since(self, begin_s: float, kept: Bools) -> Decided:
        """Keep the decisions of the last slots.

        Args:
            begin_s: when these begin, s.
            kept: (K,) whether a slot is one of them.

        Returns:
            The decisions, trips and failures from that moment on.
        """
        return Decided(
            parallelism=self.parallelism[kept],
            memory_level=self.memory_level[kept],
            proposed=self.proposed[kept],
            asked=self.asked[kept],
            trips_s=_from(begin_s, self.trips_s),
            failures_s=_from(begin_s, self.failures_s),
        )


def _from(begin_s: float, moments: Mapping[str, Floats]) -> dict[str, Floats]:
    """The moments from `begin_s` on; without the names that have none."""
    later = {name: times[times >= begin_s] for name, times in moments.items()}
    return {name: times for name, times in later.items() if len(times)}


@dataclass(frozen=True, slots=True)
class WatchedPolicy:
    """What a run recorded beside the job: its configuration, and the decisions of its policies."""

    config: RunConfig
    decided: Mapping[str, Decided]
    held_s: Floats  # when a slot had no snapshot or no answer; the journal has the reason

    def since(self, begin_s: float, kept: Bools) -> WatchedPolicy:
        """Keep what was recorded in the last slots.

        Args:
            begin_s: when these begin, s.
            kept: (K,) whether a slot is one of them.

        Returns:
            The same run from that moment on.
        """
        decided = {name: one.since(begin_s, kept) for name, one in self.decided.items()}
        return WatchedPolicy(self.config, decided, self.held_s[self.held_s >= begin_s])


@dataclass(frozen=True, slots=True, eq=False)
class JobHistory:
    """One job over K slots; V vertices in topological order; NaN: not known."""

    name: str
    spec: JobSpec
    t_s: Floats  # (K,) begin of each slot, s; since 1970 where `is_dated`
    interval_s: float  # between two slots without a gap
    seconds: Floats  # (K,) length of each slot
    arrived: Floats  # (K,) records that arrived in it; NaN cuts the history
    parallelism: Ints  # (K, V) as running when the slot begins
    memory_level: Ints  # (K, V)
    wanted: Ints  # (K, V) tasks of the configuration that follows the decision of the slot
    wanted_level: Ints  # (K, V)
    settled: Bools  # (K,) whether that configuration will stay as it is here
    late: Floats  # (K,) late share of the slot
    lag_s: Floats  # (K,) backlog at its end in seconds of arrivals
    latency_s: Floats  # (K,) p95, end to end
    cost_per_h: Floats  # (K,) price of the requested resources
    rescales: Floats  # (K,)
    pending: Floats  # (K, V) records in the logs of the sources when the slot begins
    outage_s: Floats  # (K,) of the rescale that the slot's decision asks for, restore included
    running_since_s: Floats  # (K,)
    age_s: Floats  # (K,) of the newest sample behind the slot's figures, whose counts end there
    arrivals: tuple[Floats, ...] = ()  # (K) of (N, 2): when how many had arrived; (): evenly
    drawn_outages_s: tuple[float, ...] = ()  # from which those of other policies are drawn
    down_share: float | None = None  # of outages; the rest is their savepoints
    simulated: bool = False  # whether the job was a simulated one, seen without a collector
    window: WindowConfig = field(default_factory=WindowConfig)  # over which a policy sees means
    parts: tuple[SteadyPart, ...] = ()  # what the model is fitted to; none: it stays as it is
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()  # numbers of the model that nothing in the history shows
    is_dated: bool = False
    watched: WatchedPolicy | None = None  # None: no policy ran beside the job

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def load_per_s(self) -> Floats:
        """Records per second that arrived, (K,)."""
        return np.asarray(self.arrived / np.maximum(self.seconds, 1e-9))

    @property
    def days(self) -> float:
        """From the first slot to the last."""
        return float(self.t_s[-1] - self.t_s[0] + self.interval_s) / DAY_S if len(self) else 0.0

    @property
    def coverage(self) -> float:
        """Share of the slots of that time whose load is known."""
        if not len(self):
            return 0.0
        wanted = max(1.0, round((self.t_s[-1] - self.t_s[0]) / self.interval_s) + 1.0)
        return float(min(1.0, np.count_nonzero(np.isfinite(self.seconds * self.arrived)) / wanted))

    @property
    def tells_latency(self) -> bool:
        """Whether sinks measured the age of records."""
        return bool(np.isfinite(self.latency_s).any())

    def stretches(self) -> list[slice]:
        """Cut the history into stretches without a gap, each of ten slots or more.

        Where backlogs are known, a stretch begins with a known one. It lasts a week at most.

        Returns:
            Slices over the slots; none where no stretch is that long.
        """
        known = np.isfinite(self.arrived) & (self.seconds > 0)
        owed = np.isfinite(self.pending).any(axis=1)
        begins = known & (owed | ~owed.any())
        late = np.diff(self.t_s, prepend=self.t_s[:1]) > GAP_INTERVALS * self.interval_s
        found, begin = [], None
        for k in range(len(self) + 1):
            ends = k == len(self) or not known[k] or late[k]
            ends = ends or (begin is not None and self.t_s[k] - self.t_s[begin] >= LONGEST_S)
            if begin is not None and ends:
                found.append(slice(begin, k))
                begin = None
            if begin is None and k < len(self) and begins[k]:
                begin = k
        return [part for part in found if part.stop - part.start >= LEAST_SLOTS]

    def usable(self) -> list[slice]:
        """The stretches.

        Returns:
            Slices over the slots, at least one.

        Raises:
            MetricsError: There is none.
        """
        if found := self.stretches():
            return found
        raise MetricsError(
            f"job '{self.name}': the load is known in no stretch of {LEAST_SLOTS} slots of "
            f"{self.interval_s:g} s; there are {len(self)} slots",
            remedy="Watch for longer, or give metrics with fewer gaps.",
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GridSlots:
    """Slots of about equal length, (K,) each; configurations are those that a slot begins with."""

    t_s: Floats  # when a slot begins
    interval_s: int
    load_per_s: Floats  # records/s that arrived
    tasks: Ints  # (K, V)
    level: Ints  # (K, V)
    late: Floats
    lag_s: Floats
    latency_s: Floats
    outage_s: Floats | None = None  # of the rescale with which a slot begins
    seconds: Floats | None = None  # lengths of the slots; None: the interval
    pending: Floats | None = None  # records in all logs when a slot begins; None: by `lag_s`
    running_since_s: Floats | None = None  # of the configuration before; None, -inf: not known


def gridded(
    name: str,
    spec: JobSpec,
    grid: GridSlots,
    *,
    parts: tuple[SteadyPart, ...] = (),
    notes: Sequence[str] = (),
    is_dated: bool = False,
) -> JobHistory:
    """Build a history of slots of equal length.

    Args:
        name: Name of the job.
        spec: The job.
        grid: The slots.
        parts: Steady parts to fit the model to.
        notes: Sentences for the page.
        is_dated: Whether times are seconds since 1970.

    Returns:
        The history.
    """
    t_s, tasks, level, load_per_s = grid.t_s, grid.tasks, grid.level, grid.load_per_s
    unknown = np.full_like(t_s, np.nan)
    outages = unknown if grid.outage_s is None else grid.outage_s
    seconds = np.full_like(t_s, grid.interval_s) if grid.seconds is None else grid.seconds
    owed_s = np.concatenate([grid.lag_s[:1], grid.lag_s[:-1]])
    pending = owed_s * load_per_s if grid.pending is None else grid.pending
    since_s = unknown if grid.running_since_s is None else grid.running_since_s
    before = np.maximum(np.arange(len(t_s)) - 1, 0)
    moved = np.any((tasks != tasks[before]) | (level != level[before]), axis=1)
    return JobHistory(
        name=name,
        spec=spec,
        t_s=t_s,
        interval_s=float(grid.interval_s),
        seconds=seconds,
        arrived=np.maximum(load_per_s, 0.0) * seconds,
        parallelism=tasks[before],
        memory_level=level[before],
        wanted=tasks,
        wanted_level=level,
        settled=np.ones(len(t_s), np.bool_),
        late=grid.late,
        lag_s=grid.lag_s,
        latency_s=grid.latency_s,
        cost_per_h=deployed_costs(spec, tasks, level),
        rescales=moved.astype(np.float64),
        pending=_owed(spec, pending),
        outage_s=outages,
        running_since_s=np.where(np.isfinite(since_s), since_s, np.nan)[before],
        age_s=np.zeros(len(t_s)),
        drawn_outages_s=tuple(outages[np.isfinite(outages)].tolist()),
        parts=parts,
        notes=tuple(notes),
        is_dated=is_dated,
    )


def _owed(spec: JobSpec, pending: Floats) -> Floats:
    """Records in the log of each source, (K, V), evenly; NaN at other vertices."""
    order = spec.topological_order()
    sources = [v for v, vertex in enumerate(order) if vertex.kind == "source"]
    owed = np.full((len(pending), len(order)), np.nan)
    owed[:, sources] = (pending / max(len(sources), 1))[:, None]
    return owed


def deployed_costs(spec: JobSpec, tasks: Ints, level: Ints) -> Floats:
    """The price of deployed configurations.

    Returns:
        (K,) money per hour of the requested resources, by slot.
    """
    both = np.concatenate([tasks, level], axis=1)
    distinct_rows, place = np.unique(both, axis=0, return_inverse=True)
    names = [vertex.name for vertex in spec.topological_order()]
    costs = []
    for row in distinct_rows.tolist():
        pair = (row[: len(names)], row[len(names) :])
        told = [dict(zip(names, values, strict=True)) for values in pair]
        costs.append(requested(spec, *told).money_per_hour(spec))
    return np.array(costs)[place.ravel()]


def bridged(load_per_s: Floats, interval_s: int) -> Floats:
    """Interpolate the load over short gaps; those at the ends stay.

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
    """The last days of a history, with the decisions beside the job.

    Args:
        history: of the job.
        days: counted back from its end.

    Returns:
        A copy; with a note where the load is known for less time than was asked for.
    """
    if len(history):
        history = _cut(history, history.t_s[-1] + history.interval_s - days * DAY_S)
    known = float(np.isfinite(history.arrived).sum() * history.interval_s / DAY_S)
    if known >= days * 0.98:
        return history
    told = f"{days:g} days were asked for, the load of {_time_text(known)} is known"
    return replace(history, notes=(*history.notes, told))


def _cut(history: JobHistory, begin_s: float) -> JobHistory:
    """The slots that begin at `begin_s` or later."""
    kept = history.t_s >= begin_s
    if kept.all():
        return history
    names = [one.name for one in fields(history)]
    rows = [name for name in names if isinstance(getattr(history, name), np.ndarray)]
    cut = {name: getattr(history, name)[kept] for name in rows}
    arrivals = tuple(one for one, keep in zip(history.arrivals, kept, strict=False) if keep)
    watched = None if history.watched is None else history.watched.since(begin_s, kept)
    return replace(history, **cut, arrivals=arrivals, watched=watched)


def _time_text(days: float) -> str:
    """Days, or hours or minutes where they are less than one."""
    if days >= 1:
        return f"{days:.1f} days"
    hours = 24 * days
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"


def distinct(histories: Sequence[JobHistory]) -> tuple[JobHistory, ...]:
    """Refuse two jobs of one name.

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
                remedy="Replay each in a backtest of its own.",
            )
    return tuple(histories)
