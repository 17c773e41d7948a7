"""The effect of firing windows on throughput: the rule, and loads over whole window periods.

A window puts out the results of a period at once. They go into the buffers of the vertices after it
as fast as those read; until the last one has left, the window is blocked and takes no records in
(Flink: results are emitted in the task's thread, which waits for a free network buffer). Over a
period the window's own work and the time it is blocked add up. With C the window's capacity, s its
selectivity, D the rate at which the vertex after it reads, b that vertex's buffers and T the
period, one window before one slow vertex carries

    min(C, D / s, (1 + b / (D T)) / (1 / C + s / D))

records/s. Graphs with several windows have no such formula: `carried` advances queues and results
second by second, by the rule of the simulation (`dsp_gym.simulation.flow`), at fixed capacities.
"""

from __future__ import annotations

import math

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.job.service import compiled
from dsp_gym.job.tables import NO_WINDOW, SESSION, SOURCE, JobTables

LONGEST_S = 7200
"""Seconds to which a common period of several windows is cut."""

PERIODS, FEWEST_PERIODS = 16, 4
"""Periods over which a mean backlog is taken, as far as they fit into `LONGEST_S`, and at least.

A run has four spans of so many periods. The mean of the third is compared with that of the fourth:
by then queues and windows have found their rhythm, and over many periods a rhythm that drifts
against the clock shows its trend.
"""

LEAST_S = 60
"""Fewest seconds over which a mean backlog is taken."""

GROWTH = 1e-4
"""Growth of a backlog over arrivals that counts as rounding."""


@compiled
def blocked_share(results: float, free: float, taken_per_s: float) -> float:
    """Return the share of the coming second in which a window waits for room for its results.

    Args:
        results: records it has to put out.
        free: records that fit into buffers at once.
        taken_per_s: records/s that leave those buffers meanwhile.

    Returns:
        0..1; 1 where results are left at the end of the second.
    """
    waiting = results - free
    if waiting <= 0.0:
        return 0.0
    # More than can leave in a second: blocked throughout.
    if waiting >= taken_per_s:
        return 1.0
    return waiting / taken_per_s


@compiled
def fired_share(since: float, missing: float, periods: float) -> float:
    """Return the share of a window's records that fires now, if any.

    A period fires when all records offered in it have come in: on time where the job keeps up,
    later with a backlog (Flink: the watermark follows the records). Several ended periods count as
    having equally many records.

    Args:
        since: records taken in since it last fired.
        missing: records still to come in before all ended periods have fired; below 0 where records
            of the open period came in, too.
        periods: number of periods that have ended and not fired, at least 1.

    Returns:
        0..1; -1 where no period fires.
    """
    # Records per ended period: those in since the last firing, and those still missing.
    of_one = (since + missing) / periods
    # Relative and absolute slack: `since` is a sum of many small additions.
    if since < of_one - (1e-6 * since + 1e-9):
        return -1.0
    # `since` may include records of the open period, whose share stays in the window. A window that
    # took in nothing since it last fired fires all of nothing.
    return 1.0 if since <= max(0.0, of_one) else max(0.0, of_one / since)


@compiled
def _fires(tables: JobTables, k: int, v: int) -> bool:
    # Sessions end all the time, so their results leave evenly; a selectivity of 0 emits none.
    window = tables.window[k, v]
    return bool(window != NO_WINDOW and window != SESSION and tables.selectivity[k, v] > 0.0)


@compiled
def period_s(tables: JobTables, k: int) -> int:
    """Return the seconds after which all windows of a job fire together again.

    Returns:
        The least common multiple of their slides, cut to `LONGEST_S`; 0 without such a window.
    """
    period = 0
    for v in range(tables.n[k]):
        if _fires(tables, k, v):
            slide = max(1, int(tables.slide_s[k, v]))
            a, b = max(period, 1), slide
            # Euclid's algorithm: a ends as the greatest common divisor, for the least common
            # multiple.
            while b > 0:
                a, b = b, a % b
            period = max(period, 1) // a * slide
            if period > LONGEST_S:
                return LONGEST_S
    return period


@compiled
def is_blocked(tables: JobTables, k: int, buffer: Floats, rate_per_s: float) -> bool:
    """Return whether any window has more results at once than the buffers after it hold.

    Args:
        tables: compiled jobs.
        k: row of the job.
        buffer: (V,) records in the input buffers of all subtasks.
        rate_per_s: load of the job.

    Returns:
        False where the job carries what each of its vertices carries.
    """
    for v in range(tables.n[k]):
        for i in range(tables.upstream.shape[2]):
            u = tables.upstream[k, v, i]
            if u < 0:
                break
            if not _fires(tables, k, u):
                continue
            # Records/s into the buffers: load x ratio (records per record of load) x selectivity. A
            # period's results are that rate times the slide.
            into = rate_per_s * tables.ratio[k, u] * tables.selectivity[k, u]
            if into * tables.slide_s[k, u] > buffer[v] * tables.in_share[k, v, i]:
                return True
    return False


@compiled
def carried(
    tables: JobTables, k: int, capacity: Floats, buffer: Floats, rate_per_s: float, blocked: Floats
) -> bool:
    """Return whether the sources' backlog stays bounded under a constant load.

    Args:
        tables: compiled jobs.
        k: row of the job.
        capacity: (V,) records/s each vertex processes.
        buffer: (V,) records in the input buffers of all subtasks.
        rate_per_s: load of the job.
        blocked: (V,) share of the time each window waited, 0..1; filled.

    Returns:
        True where no backlog grows from period to period.
    """
    # Take columns once: each call with the tables counts references of all their arrays.
    n, inputs = tables.n[k], tables.upstream.shape[2]
    upstream, in_share, selectivity = tables.upstream[k], tables.in_share[k], tables.selectivity[k]
    ratio, source_share = tables.ratio[k], tables.source_share[k]
    fires, slide = np.zeros(n, np.bool_), np.ones(n, np.int64)
    for v in range(n):
        fires[v] = _fires(tables, k, v)
        slide[v] = max(1, int(tables.slide_s[k, v]))
    is_source = tables.kind[k] == SOURCE
    period = max(1, period_s(tables, k))
    # Between FEWEST_PERIODS and PERIODS periods, and no less than LEAST_S seconds.
    periods_meant = max(FEWEST_PERIODS, min(PERIODS, LONGEST_S // period))
    quarter = period * max(periods_meant, math.ceil(LEAST_S / period))
    # Records of each vertex: waiting in its buffers, results not yet taken, results of the open
    # period, and records sent in this second. The rest as in `dsp_gym.simulation.flow`.
    queue, outbox, pane, now = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    allowed, emit, share = np.zeros(n), np.zeros(n), np.zeros(n)
    since, missing, behind, periods = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    before = after = 0.0
    blocked[:] = 0.0
    for tick in range(4 * quarter):
        # Sum queues over the third and the fourth quarter; the first two let the rhythm settle.
        if tick >= 3 * quarter:
            after += queue.sum()
        elif tick >= 2 * quarter:
            before += queue.sum()
        # 1e300 stands for no limit: sinks have none.
        allowed[:] = 1e300
        share[:] = 0.0
        # Backwards: how much each vertex may process, given the room after it.
        for v in range(n - 1, -1, -1):
            take = capacity[v]
            if fires[v]:
                emit[v] = min(outbox[v], allowed[v])
                take *= 1.0 - share[v]
                if tick >= 3 * quarter:
                    blocked[v] += share[v] / quarter
            elif selectivity[v] > 0.0:
                take = min(take, allowed[v] / selectivity[v])
            allowed[v] = take
            free = max(0.0, buffer[v] - queue[v])
            for i in range(inputs):
                u = upstream[v, i]
                if u < 0:
                    break
                part = in_share[v, i]
                # Room for input u, in the share of its edge: what is taken in this second and what
                # is free.
                allowed[u] = min(allowed[u], (take + free) * part)
                share[u] = max(share[u], blocked_share(outbox[u], free * part, take * part))
        # Forwards: what it does process. A source's queue is its log, so the backlog is in `queue`.
        for v in range(n):
            have = queue[v]
            if is_source[v]:
                have += rate_per_s * source_share[v]
            for i in range(inputs):
                u = upstream[v, i]
                if u < 0:
                    break
                have += now[u]
            done = min(have, allowed[v])
            queue[v] = have - done
            now[v] = done * selectivity[v]
            if fires[v]:
                # Results that left in this second go on to the vertices after it; new ones join the
                # open pane.
                outbox[v] -= emit[v]
                pane[v] += now[v]
                now[v] = emit[v]
                since[v] += done
                missing[v] -= done
                behind[v] += rate_per_s * ratio[v] - done
                if (tick + 1) % slide[v] == 0:
                    periods[v] += 1.0
                    # A period has ended: all that was offered in it and has not come in is missing
                    # for it.
                    missing[v] = behind[v]
                while periods[v] > 0.0:
                    fired = fired_share(since[v], missing[v], periods[v])
                    if fired < 0.0:
                        break
                    outbox[v] += pane[v] * fired
                    pane[v] *= 1.0 - fired
                    since[v] *= 1.0 - fired
                    periods[v] -= 1.0
    # Mean backlog of the fourth quarter over that of the third, in records, against arrivals.
    return bool((after - before) / quarter <= GROWTH * rate_per_s * quarter)
