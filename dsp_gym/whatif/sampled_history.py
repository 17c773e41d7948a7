"""The history of a job from its samples: load, lateness, configurations and steady parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calibration.observations import LEAST_LOOKUPS, SATURATED, Latency, SteadyPart
from dsp_gym.errors import MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.restarts import LONGEST_OUTAGE_S
from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.history import (
    GridSlots,
    JobHistory,
    bridged,
    gridded,
)
from dsp_gym.whatif.slots import SampledSlots, sampled_slots, slot_edges

PART_S = 300.0
"""Length of the parts that a model is fitted to; a short history is cut into shorter ones."""

FEWEST_PARTS = 24

SETTLED_S = 120.0
"""After a start or a rescale nothing is steady: caches fill, a backlog is caught up."""

MOST_PARTS = 16
"""Parts that a model is fitted to, spread over configurations and rates: the time of a fit grows
with them, and beyond a dozen the same loads come again."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A configuration of a job, and since when it ran."""

    t_s: float  # its records were processed from then on; -inf: since before the history
    configuration: Configuration
    down_since_s: float  # the job was down from then to `t_s`; NaN: not known, or not at all


def measured_history(
    name: str,
    spec: JobSpec,
    samples: Samples,
    deployed: Sequence[Deployed],
    interval_s: int,
    *,
    until_s: float,
    latency: Latency = "median",
    notes: Sequence[str] = (),
    is_dated: bool = False,
) -> JobHistory:
    """Put the samples of one job on a grid.

    Args:
        name: of the job.
        spec: its graph and first numbers.
        samples: all of it.
        deployed: configurations in the order of time.
        interval_s: length of a slot.
        until_s: end of the history.
        latency: what its state latencies are.
        notes: what to know about the history.
        is_dated: whether times count from 1970.

    Returns:
        The history from the first configuration on.

    Raises:
        MetricsError: No source reported, or the history is shorter than a slot.
    """
    begin_s = deployed[0].t_s
    slots = max(0, int((until_s - begin_s) / interval_s))
    if not slots:
        raise _silent(name, max(0.0, until_s - begin_s))
    edges = slot_edges(begin_s, slots, interval_s, (one.down_since_s for one in deployed))
    seen = sampled_slots(spec, samples, edges)
    return slots_history(
        name, spec, seen, deployed, interval_s, latency=latency, notes=notes, is_dated=is_dated
    )


def slots_history(
    name: str,
    spec: JobSpec,
    seen: SampledSlots,
    deployed: Sequence[Deployed],
    interval_s: int,
    *,
    latency: Latency = "median",
    notes: Sequence[str] = (),
    is_dated: bool = False,
) -> JobHistory:
    """The history of slots that are at hand.

    Args:
        name: of the job.
        spec: its graph and first numbers.
        seen: the slots, one after the other.
        deployed: configurations in the order of time.
        interval_s: length of a slot.
        latency: what its state latencies are.
        notes: what to know about the history.
        is_dated: whether times count from 1970.

    Returns:
        The history.

    Raises:
        MetricsError: No source reported.
    """
    edges = np.append(seen.begin_s, seen.begin_s[-1] + interval_s)
    seconds = np.diff(edges)
    if not seen.known.any():
        raise _silent(name, float(edges[-1] - edges[0]))
    tasks, level, running = _configured(spec, deployed, seen.begin_s)
    arrived = np.maximum(seen.emitted + seen.grown, 0.0) / seconds
    load = bridged(np.where(seen.known, arrived, np.nan), interval_s)
    restarts = _restarts(deployed)
    load = np.where(_struck(restarts, edges), np.nan, load)
    lag_s = seen.pending / np.maximum(load, 0.1 * float(spec.source.rate_per_s))
    pending = seen.pending if spec.source.log else np.nan_to_num(seen.pending)
    outages = _outages(deployed, restarts)
    late = _late(seen, lag_s, float(spec.slo.latency_s))
    return gridded(
        name,
        spec,
        GridSlots(
            t_s=seen.begin_s,
            interval_s=interval_s,
            seconds=seconds,
            load_per_s=load,
            tasks=tasks,
            level=level,
            late=_with_outages(late, _down_share(deployed, edges)),
            lag_s=lag_s,
            pending=np.maximum(pending - seen.grown, 0.0),
            latency_s=seen.latency_s,
            running_since_s=np.array([one.t_s for one in deployed])[running],
            outage_s=np.where(np.diff(running, prepend=running[0]) > 0, outages[running], np.nan),
        ),
        parts=_parts(
            spec, seen, interval_s, seconds, load, tasks, level, _settled(deployed, edges), latency
        ),
        notes=(*notes, *_of_restarts(restarts)),
        is_dated=is_dated,
    )


def _restarts(deployed: Sequence[Deployed]) -> list[Deployed]:
    """Those that begin with the configuration of before: failures, and new submissions."""
    return [one for before, one in pairwise(deployed) if one.configuration == before.configuration]


def _outages(deployed: Sequence[Deployed], restarts: Sequence[Deployed]) -> Floats:
    """Seconds for which the job was down before each configuration; NaN: not measured."""
    known = np.array([k > 0 and one not in restarts for k, one in enumerate(deployed)])
    down_s = np.array([one.t_s - one.down_since_s for one in deployed])
    return np.where(known & (down_s > 0.0) & (down_s <= LONGEST_OUTAGE_S), down_s, np.nan)


def _struck(restarts: Sequence[Deployed], edges: Floats) -> Bools:
    """Slots in which the job was down, or came back, without a rescale."""
    struck = np.zeros(len(edges) - 1, dtype=bool)
    for one in restarts:
        stopped = one.t_s if math.isnan(one.down_since_s) else one.down_since_s
        struck |= (edges[1:] > stopped) & (edges[:-1] <= one.t_s)
    return struck


def _of_restarts(restarts: Sequence[Deployed]) -> list[str]:
    if not restarts:
        return []
    times = "once" if len(restarts) == 1 else f"{len(restarts)} times"
    gone_s = sum(one.t_s - one.down_since_s for one in restarts if math.isfinite(one.down_since_s))
    return [
        f"the job restarted {times} without a rescale: it was gone for {gone_s:.0f} s, which are "
        "not replayed and count as late for every policy"
    ]


def _silent(name: str, seconds: float) -> MetricsError:
    return MetricsError(
        f"job '{name}': no source reported how many records it took over {seconds:.0f} s",
        remedy="Check that the history holds numRecordsOut of the sources.",
    )


def _late(seen: SampledSlots, lag_s: Floats, bound_s: float) -> Floats:
    """Late share of the samples; where no sink reports it, whether the log is too far behind."""
    if np.isfinite(seen.late).any():
        return seen.late
    told = np.isfinite(lag_s) & seen.known
    return np.where(told, (lag_s > bound_s).astype(float), np.nan)


def _with_outages(late: Floats, down: Floats) -> Floats:
    """Late share of the slots, those seconds included in which the job was down.

    While a job is down no sink reports; of such a slot those seconds are known at least.
    """
    rest = np.where(np.isnan(late) & (down > 0), 0.0, late)
    return np.asarray(np.clip(down + (1 - down) * rest, 0.0, 1.0))


def _configured(
    spec: JobSpec, deployed: Sequence[Deployed], begins: Floats
) -> tuple[Ints, Ints, Ints]:
    """Tasks and levels (K, V) of each slot, and which configuration it is (K,)."""
    names = [vertex.name for vertex in spec.topological_order()]
    running = np.searchsorted([one.t_s for one in deployed], begins + 1e-6, side="right") - 1
    running = np.maximum(running, 0)  # slots before the first configuration
    # What a rescale leads to is deployed from its begin on, when the old configuration stops.
    stopped = np.array([one.down_since_s for one in deployed])
    following = np.minimum(running + 1, len(deployed) - 1)
    running = np.where(begins >= np.nan_to_num(stopped[following], nan=np.inf), following, running)
    tasks = np.array([[one.configuration.parallelism[n] for n in names] for one in deployed])
    level = np.array([[one.configuration.memory_level[n] for n in names] for one in deployed])
    return tasks[running].astype(np.int64), level[running].astype(np.int64), running


def _down_share(deployed: Sequence[Deployed], edges: Floats) -> Floats:
    """Share of each slot in which the job was down."""
    down = np.zeros(len(edges) - 1)
    for one in deployed[1:]:
        if math.isfinite(one.down_since_s):
            inside = np.minimum(edges[1:], one.t_s) - np.maximum(edges[:-1], one.down_since_s)
            down += np.maximum(inside, 0.0)
    return np.asarray(np.minimum(down / np.diff(edges), 1.0), dtype=np.float64)


def _settled(deployed: Sequence[Deployed], edges: Floats) -> Bools:
    """Slots long enough after every start."""
    settled = np.ones(len(edges) - 1, dtype=bool)
    for one in deployed:
        stopped = one.t_s if math.isnan(one.down_since_s) else one.down_since_s
        settled &= (edges[1:] <= stopped) | (edges[:-1] >= one.t_s + SETTLED_S)
    return settled


def _parts(
    spec: JobSpec,
    seen: SampledSlots,
    interval_s: int,
    seconds: Floats,
    load: Floats,
    tasks: Ints,
    level: Ints,
    settled: Bools,
    latency: Latency,
) -> tuple[SteadyPart, ...]:
    """Steady parts spread over configurations and rates; those that catch up are left out."""
    part_s = min(PART_S, len(load) * interval_s / FEWEST_PARTS)
    each = max(3, round(part_s / interval_s))
    usable = settled & seen.known & np.isfinite(load)
    found = []
    for begin in range(0, len(load) - each + 1, each):
        part = slice(begin, begin + each)
        same = np.all(tasks[part] == tasks[begin]) and np.all(level[part] == level[begin])
        if same and usable[part].all():
            configured = Configuration(*_by_name(spec, tasks[begin], level[begin]))
            one = _part(spec, seen, seconds[part], load[part], configured, part, latency)
            if one is not None:
                found.append(one)
    found.sort(key=lambda one: (str(one.configuration), one.rate_per_s))
    if len(found) <= MOST_PARTS:
        return tuple(found)
    chosen = np.unique(np.linspace(0, len(found) - 1, MOST_PARTS).round().astype(int))
    return tuple(found[i] for i in chosen.tolist())


def _by_name(spec: JobSpec, tasks: Ints, level: Ints) -> tuple[dict[str, int], dict[str, int]]:
    names = [vertex.name for vertex in spec.topological_order()]
    pair = (tasks.tolist(), level.tolist())
    by_name = [dict(zip(names, values, strict=True)) for values in pair]
    return by_name[0], by_name[1]


def _part(
    spec: JobSpec,
    seen: SampledSlots,
    seconds: Floats,
    load: Floats,
    configured: Configuration,
    part: slice,
    latency: Latency,
) -> SteadyPart | None:
    rates = seen.emitted[part] / seconds
    rate, offered = (float(np.average(values, weights=seconds)) for values in (rates, load))
    if not rate > 0 or rate > offered / SATURATED:
        return None
    saturated = rate < SATURATED * offered
    # Of a job that keeps up, only what it does not take of a changing load is unsteady.
    held = rates if saturated else rates / np.maximum(load, 1e-9)
    half = len(held) // 2
    before, after = float(held[:half].mean()), float(held[half:].mean())
    drift = math.log(after / before) if before > 0 and after > 0 else math.nan
    busy, hit, selectivity = _of_vertices(spec, seen, part)
    return SteadyPart(
        f"{seen.begin_s[part.start]:.0f} s",
        0.0,
        float(seconds.sum()),
        configured.parallelism,
        configured.memory_level,
        math.inf if saturated else offered,
        rate,
        float(np.std(held) / np.mean(held)),
        drift,
        saturated,
        busy=busy,
        hit=hit,
        selectivity=selectivity,
        latency=latency,
        base_mib=float(spec.memory.base_mib),
    )


def _of_vertices(
    spec: JobSpec, seen: SampledSlots, part: slice
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Busy share, hit rate and selectivity of the vertices that report them."""
    busy, hit, selectivity = {}, {}, {}
    for v, vertex in enumerate(spec.topological_order()):
        used = seen.busy[part, v]
        if np.isfinite(used).any():
            busy[vertex.name] = float(np.nanmean(used))
        hits, misses = float(seen.hits[part, v].sum()), float(seen.misses[part, v].sum())
        if hits + misses >= LEAST_LOOKUPS:
            hit[vertex.name] = hits / (hits + misses)
        came, went = float(seen.came[part, v].sum()), float(seen.went[part, v].sum())
        if vertex.kind == "operator" and came > 0 and math.isfinite(went):
            selectivity[vertex.name] = went / came
    return busy, hit, selectivity
