"""The look-ahead: the cheapest configuration from this minute on, compiled for all jobs.

Letters: j a job's row of the batch, k the row of its job file, v a vertex, a a place on its
frontier of N configurations; p a parallelism (V,) and x a memory level (V,) that run, q and y those
offered. Loads, capacities and backlogs are multiples of the reference rate, prices are seconds of
the configuration that carries it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from agents.planning.laws import Laws, add_laws, empty_row, shares_of
from agents.planning.load import HISTORY, level_of, state_of
from agents.planning.recall import SINCE_SOLVED, Recall
from agents.planning.value import StepPrices, minute_price, move_price
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import JOB, RUNNING, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.arrivals import BLIND_S, ENOUGH_FILL, pending_records
from dsp_gym.sizing.frontier import Frontiers, cheapest, subtask_cost_per_s
from dsp_gym.sizing.lateness import IN_TIME, LONGEST_S, catch_up_s, rescale_late_s
from dsp_gym.sizing.service import Believed, believed

HOLD, MOVE, BLIND, UNKNOWN, DOWN, YOUNG = 0, 1, 2, 3, 4, 5
"""Outcomes of a look-ahead."""

_CHANGED = 0.04
"""Logarithm of a ratio of capacities beyond which they count as changed: about 4 %."""

_KEPT_S = 3600.0
"""Seconds for which a configuration off the frontier is assumed to stay, at its extra cost."""


class Solved(NamedTuple):
    """Solutions of all jobs that a look-ahead reads."""

    frontiers: Frontiers
    value: Floats  # (J, STATES, N)
    laws: Laws
    late_price: Floats  # (J,) of a late second, in seconds of the reference configuration


class Stakes(NamedTuple):
    """`MdpConfig` in the form that compiled code takes."""

    terms: StepPrices  # all that is a job's own is a placeholder, filled in per job
    headroom: float
    own_weight: float


class Outlook(NamedTuple):
    """Outcome of a look-ahead."""

    what: Ints  # (J,) HOLD, MOVE and so on
    load_per_s: Floats  # (J,) level
    running_per_s: Floats  # (J,) capacity of the running configuration
    wanted_per_s: Floats  # capacity of the chosen configuration
    parallelism: Ints  # (J, V)
    level: Ints  # (J, V)


@direct
@njit(cache=True, nogil=True)
def compare(
    facts: Handle[JobFacts],
    model: Handle[Believed],
    found: Frontiers,
    asked: Bools,
    changed: Bools,
) -> None:
    """Mark the jobs with a frontier configuration whose estimated capacity has changed.

    Args:
        facts: Facts of the jobs.
        model: Estimates of the service model.
        found: Frontiers, with the capacities estimated when they were computed.
        asked: (J,) jobs to check.
        changed: (J,), set to True where one capacity moved by more than `_CHANGED`.
    """
    for j in range(asked.shape[0]):
        if asked[j]:
            for a in range(found.size[j]):
                p, level = found.parallelism[j, a], found.level[j, a]
                now = believed(model.arrays, facts.arrays, j, p, level)
                # The logarithm treats growth and decline alike.
                if abs(math.log(now / found.rate_per_s[j, a])) > _CHANGED:
                    changed[j] = True


@direct
@njit(cache=True, nogil=True)
def look_ahead(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    recall: Handle[Recall],
    model: Handle[Believed],
    solved: Handle[Solved],
    stakes: Stakes,
    outlook: Outlook,
) -> None:
    """Choose, for each job, the configuration with the least price now and expected later.

    The right-hand side of the equation of `agents.planning.value`, for the present state, with what
    the solution leaves out: the backlog, cold caches and running configurations off the frontier.

    Args:
        facts: Facts of the jobs.
        seen: The snapshot.
        recall: Memory of loads and restarts.
        model: Estimates of the service model.
        solved: Frontiers and values.
        stakes: Prices.
        outlook: Outcomes, written; holds the running configuration on entry, and all as HOLD.
    """
    # Handles pass one pointer instead of dozens of arrays, which numba would unpack on every call.
    t, r, known, s = facts.arrays, recall.arrays, model.arrays, solved.arrays
    for j in range(seen.status.shape[0]):
        count, minutes = s.frontiers.size[j], r.watch.minutes[j]
        filled = seen.job[JOB.window_fill, j] >= ENOUGH_FILL
        young = not filled and math.isnan(pending_records(t, seen, j))
        outlook.what[j] = _obstacle(seen.status[j], r.watch.blind_s[j], minutes, count, young)
        # Below two minutes of load there is no level: the job holds.
        if outlook.what[j] == HOLD and minutes >= 2:
            _choose(t, seen, r, known, s, stakes, j, outlook)


@njit(cache=True, nogil=True)
def _choose(
    t: JobFacts,
    seen: SnapshotArrays,
    r: Recall,
    known: Believed,
    s: Solved,
    stakes: Stakes,
    j: int,
    outlook: Outlook,
) -> None:
    """Choose for job j: keep the running configuration p, x, or move to the cheapest place a."""
    k, count = t.row[j], s.frontiers.size[j]
    # load: the last minutes known, up to HISTORY, oldest first, as multiples of the reference.
    reference = r.watch.reference_per_s[j]
    load = r.minutes.load_per_s[j, HISTORY - min(r.watch.minutes[j], HISTORY) :] / reference
    state, level = state_of(load), level_of(load)
    backlog = pending_records(t, seen, j) / reference
    # Metrics may lack the backlog: then none is assumed.
    backlog = 0.0 if math.isnan(backlog) else backlog
    # c: the prices, with this job's outage, losses and bound filled in.
    c = _prices(t, r, stakes, s.late_price[j], j)
    # The unit of money, as in `Solved.value`: the cost of the configuration for the reference rate.
    unit = s.frontiers.cost_per_s[j, cheapest(s.frontiers, j, reference)]
    later = _expected(s, r, state, stakes.own_weight, j, count) * c.discount

    # The running configuration: `here` is its place on the frontier, -1 off it.
    p, x = seen.parallelism[j], seen.memory_level[j]
    running = believed(known, t, j, p, x)
    cost = _cost_per_s(t, k, p, x) / unit
    here, offered = _running_place(t, s.frontiers, j, p, x), _offered(known, t, s.frontiers, j)
    capacity = running * stakes.headroom / reference
    keep = minute_price(level, capacity, cost, c)
    late_s = catch_up_s(level, capacity, backlog, c.in_time_s, _cold_s(r, j))
    keep += c.late_price * late_s
    frontier_cost = s.frontiers.cost_per_s[j, :count] / unit
    if here >= 0:
        keep += later[here]
    else:
        # Off the frontier there is no value: interpolated between the neighbours in capacity, plus
        # its extra cost over them for an hour.
        keep += _between(offered, later, running)
        keep += (cost - _between(offered, frontier_cost, running)) * _KEPT_S

    # Strictly cheaper moves only: ties keep the running configuration, and among moves the smaller.
    best, place = keep, -1
    for a in range(count):
        if a == here:
            continue
        carries = offered[a] * stakes.headroom / reference
        if late_s > 0.0 and not _is_sooner(level, capacity, carries, backlog, late_s, c):
            continue
        # The old configuration is paid for during the outage: the value's equation adds it, too.
        price = move_price(level, carries, frontier_cost[a], backlog, c)
        price += later[a] + cost * c.outage_s
        if price < best:
            best, place = price, a
    outlook.load_per_s[j], outlook.running_per_s[j] = level * reference, running
    if place >= 0:
        _move(t, s.frontiers, j, place, outlook)


@njit(cache=True, nogil=True)
def _is_sooner(
    load: float, runs: float, carries: float, backlog: float, late_s: float, c: StepPrices
) -> bool:
    """Return whether a move brings a late job back in time sooner than its running configuration.

    To a job that is late anyway any move looks free, and each loses what its caches have gained:
    while it catches up, no money is worth a move.

    Args:
        load: Level of the load.
        runs: Capacity of the running configuration.
        carries: Capacity of the other.
        backlog: Waiting records.
        late_s: Seconds until the running configuration has caught up.
        c: Prices.
    """
    if late_s >= LONGEST_S:  # beyond what counts: more capacity is all that helps
        return carries > runs
    then_s = rescale_late_s(load, carries, backlog, c.outage_s, c.in_time_s, c.lost_s)
    return then_s < late_s


@njit(cache=True, nogil=True)
def _cold_s(r: Recall, j: int) -> float:
    """Return what the last restart of a job still costs: capacity lost to cold caches, s.

    The loss that is expected less what was measured of it; none once the job has left its limit.
    """
    if math.isnan(r.losses.seen_s[j]):
        return 0.0
    # missing_s is the loss so far; noise may make it negative.
    return float(max(0.0, r.losses.lost_s[j] - max(0.0, r.losses.missing_s[j])))


@njit(cache=True, nogil=True)
def _prices(t: JobFacts, r: Recall, stakes: Stakes, late_price: float, j: int) -> StepPrices:
    """Fill in the prices of a step of job j: outage, cold caches, bound, s, and its noise."""
    # A minute counts as in time below a share of the latency bound.
    terms = stakes.terms
    return StepPrices(
        late_price,
        terms.rescale_price,
        r.watch.outage_s[j],
        r.losses.lost_s[j],
        IN_TIME * t.slo_s[t.row[j]],
        r.watch.noise[j],
        terms.discount,
        terms.tolerance,
    )


@njit(cache=True, nogil=True)
def _obstacle(status: int, blind_s: float, minutes: int, count: int, young: bool) -> int:
    """Return why a job stays as it is without a look at prices; HOLD: nothing stands in the way.

    Args:
        status: Status of the job.
        blind_s: Seconds since its load was last measured.
        minutes: Minutes of load known of it; with less than two it holds.
        count: Configurations on its frontier; 0: a vertex was not seen yet.
        young: Whether it has just restarted and shows no backlog yet, which may be any.
    """
    if status != RUNNING:
        return DOWN
    if blind_s > BLIND_S:
        return BLIND
    if minutes >= 2 and count == 0:
        return UNKNOWN
    return YOUNG if young else HOLD


@njit(cache=True, nogil=True)
def _running_place(t: JobFacts, frontiers: Frontiers, j: int, p: Ints, x: Ints) -> int:
    """Find the place of the running configuration p, x on its job's frontier; -1: it is off it."""
    here = -1
    for a in range(frontiers.size[j]):
        if _is_same(t, t.row[j], p, x, frontiers.parallelism[j, a], frontiers.level[j, a]):
            here = a
    return here


@njit(cache=True, nogil=True)
def _offered(known: Believed, t: JobFacts, frontiers: Frontiers, j: int) -> Floats:
    """Return the capacity of each configuration on the frontier of job j, records/s, (count,)."""
    found = np.empty(frontiers.size[j])
    for a in range(found.shape[0]):
        # As estimated now, not as the frontier was last computed.
        found[a] = believed(known, t, j, frontiers.parallelism[j, a], frontiers.level[j, a])
    return found


@njit(cache=True, nogil=True)
def _move(t: JobFacts, frontiers: Frontiers, j: int, place: int, outlook: Outlook) -> None:
    """Ask for the configuration at a place of the frontier of job j; v is a vertex."""
    k = t.row[j]
    outlook.what[j] = MOVE
    outlook.wanted_per_s[j] = frontiers.rate_per_s[j, place]
    for v in range(t.n[k]):
        # Sources cannot be rescaled by policies: they keep their parallelism.
        if t.kind[k, v] != SOURCE:
            outlook.parallelism[j, v] = frontiers.parallelism[j, place, v]
            outlook.level[j, v] = frontiers.level[j, place, v]


@njit(cache=True, nogil=True)
def _between(offered: Floats, values: Floats, rate_per_s: float) -> float:
    """Interpolate a value of the frontier at a rate; beyond its ends the nearest value is taken."""
    # A linear search: frontiers have at most 64 places, sorted by rate.
    above = 0
    while above < offered.shape[0] and offered[above] < rate_per_s:
        above += 1
    if above == 0 or above == offered.shape[0]:
        return float(values[max(0, above - 1)])
    low, high = offered[above - 1], offered[above]
    share = (rate_per_s - low) / (high - low)
    return float(values[above - 1] + share * (values[above] - values[above - 1]))


@njit(cache=True, nogil=True)
def _expected(s: Solved, r: Recall, state: int, own_weight: float, j: int, count: int) -> Floats:
    """Compute the expected value of each configuration after the next minute, (count,)."""
    # The row of the present state is added up here, as values are solved for hours: it includes
    # the evidence and the job's transitions up to the last minute, its latest OWN minutes like the
    # chain of the values.
    row, own = empty_row(s.laws.minutes.shape[0]), r.own.state[j]
    add_laws(s.laws, shares_of(r.heard.evidence[j]), state, row, 0)
    minutes = row.minutes
    if own_weight > 0.0:
        for i in range(SINCE_SOLVED, own.shape[0] - 1):
            if own[i] == state and own[i + 1] >= 0:
                minutes[own[i + 1]] += own_weight
    found = np.zeros(count)
    for after in range(minutes.shape[0]):
        if minutes[after] > 0.0:
            for a in range(count):
                found[a] += minutes[after] * s.value[j, after, a]
    return np.asarray(found / minutes.sum())


@njit(cache=True, nogil=True)
def _cost_per_s(t: JobFacts, k: int, parallelism: Ints, level: Ints) -> float:
    """Return the cost of a configuration per second, without sources."""
    total = 0.0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            # Levels count from -1, columns of prices from 0.
            total += parallelism[v] * subtask_cost_per_s(t, k, level[v] + 1)
    return total


@njit(cache=True, nogil=True)
def _is_same(t: JobFacts, k: int, p: Ints, x: Ints, other_p: Ints, other_x: Ints) -> bool:
    """Return whether two configurations agree, without sources."""
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE and (p[v] != other_p[v] or x[v] != other_x[v]):
            return False
    return True
