"""One second of records through one job.

A fluid model: records are real numbers. The notation of all functions here: n vertices v in
topological order, u a vertex upstream of v, c their fixed columns (V, len(C)) and x their state (V,
len(X)). The order of additions is part of the result: `dsp_gym.simulation.stride` repeats it
operation by operation and must arrive at the same bits.

How these functions are compiled, here and in the package: `error_model="numpy"` divides without
testing for zero, so that loops can become vector code; divisors that may be zero are guarded.
`borrows` spares counting references to arrays, which would cost more than a small function's work.
`inline="always"` merges a function into its caller before types are found: calls in the loop over
seconds vanish.
"""

from __future__ import annotations

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.bursts import blocked_share, fired_share
from dsp_gym.job.tables import NO_WINDOW, SESSION, SOURCE, TUMBLING
from dsp_gym.simulation.state import C, X

Row = Floats

HOP_S = 0.02
"""Network and buffer time of one hop while nothing queues (buffers flushed well below 100 ms)."""

BURSTINESS = 3.0
"""p95 over mean of a queueing delay: exponential waiting times have -ln(0.05) = 3.0."""

MAX_LOAD = 0.98
"""Load above which the queueing formula rho / (1 - rho) is cut; the fluid queue takes over."""


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def flow(
    n: int, c: Row, upstream: Ints, in_share: Row, x: Row, rate: float, tick: int
) -> tuple[float, float, float, bool]:
    """Move one second of records through a running job.

    Backwards: what each vertex may process, which is its capacity, limited by what the vertices
    after it can take (their capacity and free buffer, shared over their inputs as their flows are).
    A window whose results find no room is blocked for that share of the second
    (`dsp_gym.job.bursts`). Forwards: what each vertex does process.

    Args:
        n: Number of vertices v of the job, in topological order.
        c: (V, len(C)) their fixed columns.
        upstream: (V, inputs) column u of each input, -1 = none.
        in_share: (V, inputs) share of a vertex's input that comes over each edge.
        x: (V, len(X)) their state, changed in place.
        rate: Records offered to the whole job in this second.
        tick: Seconds since reset.

    Returns:
        Records taken from the log, backlog in records, p95 latency in seconds, and whether records
        wait at the end of the second.
    """
    limit(n, c, upstream, in_share, x)
    return process(n, c, upstream, x, rate, tick)


@njit(cache=True, nogil=True, inline="always")
def limit(n: int, c: Row, upstream: Ints, in_share: Row, x: Row) -> None:
    """Limit what each vertex may process in a second: the backward half of `flow`."""
    for v in range(n):
        x[v, X.allowed] = 1e300  # so far no bound on what the vertex may put out
        x[v, X.blocked] = 0.0
    # Sinks first: when v is reached, all vertices after it have lowered x[v, allowed].
    for v in range(n - 1, -1, -1):
        room_out = x[v, X.allowed]
        take = x[v, X.capacity]
        window = c[v, C.window]
        # A firing window stores results in its outbox: its input is held back only while the outbox
        # is blocked. Any other vertex passes results on in the same second.
        if window != NO_WINDOW and window != SESSION:
            x[v, X.emit] = min(x[v, X.outbox], room_out)
            take *= 1.0 - x[v, X.blocked]
        elif c[v, C.selectivity] > 0.0:
            take = min(take, room_out / c[v, C.selectivity])
        x[v, X.allowed] = take
        if c[v, C.kind] != SOURCE:
            free = max(0.0, x[v, X.buffer] - x[v, X.queue])
            for i in range(upstream.shape[1]):
                u = upstream[v, i]
                if u < 0:
                    # Credit-based flow control (Flink): upstream may send what v processes plus
                    # free buffers.
                    break
                part = in_share[v, i]
                x[u, X.allowed] = min(x[u, X.allowed], (take + free) * part)
                if x[u, X.outbox] > free * part:
                    waits = blocked_share(x[u, X.outbox], free * part, take * part)
                    x[u, X.blocked] = max(x[u, X.blocked], waits)


@njit(cache=True, nogil=True, inline="always")
def process(
    n: int, c: Row, upstream: Ints, x: Row, rate: float, tick: int
) -> tuple[float, float, float, bool]:
    """Process what each vertex may: the forward half of `flow`; its arguments and result."""
    taken = backlog = latest = 0.0
    waits = False
    for v in range(n):
        capacity = x[v, X.capacity]
        # `before` is the latency at which records reach v: the slowest path up to here.
        before = 0.0
        if c[v, C.kind] == SOURCE:
            offered = rate * c[v, C.source_share]
            if c[v, C.has_log] == 0.0:  # a generator that is held back emits less
                offered = min(offered, x[v, X.allowed])
            # `offer` follows the records from the log as if nothing waited: the difference to what
            # really came (`behind`) shows a window when all of its period has arrived.
            x[v, X.arrived] += offered
            x[v, X.offer] = offered * c[v, C.selectivity]
            have = x[v, X.pending] + offered
            ready = have - held_back(x, v, offered) if x[v, X.cold] > 0.0 else have
            done = min(ready, x[v, X.allowed])
            left = have - done
            x[v, X.pending] = left
            taken += done
            backlog += left
        else:
            have = x[v, X.queue]
            due = 0.0
            for i in range(upstream.shape[1]):
                u = upstream[v, i]
                if u < 0:
                    break
                have += x[u, X.now]
                due += x[u, X.offer]
                before = max(before, x[u, X.wait_s])
            done = min(have, x[v, X.allowed])
            left = have - done
            x[v, X.queue] = left
            x[v, X.behind] += due - done
            x[v, X.offer] = due * c[v, C.selectivity]
        # Mean wait of a queue with exponential times, rho / (1 - rho) services (M/M/1), times the
        # factor from the mean to p95; while records queue, the fluid wait is queue / throughput.
        load = min(done * x[v, X.load_per], MAX_LOAD)
        delay = HOP_S + BURSTINESS * x[v, X.service_s] * load / (1.0 - load)
        if left > 0.0:
            waits = True
            delay += left / max(done, c[v, C.least_per_s])
        x[v, X.wait_s] = before + delay
        latest = max(latest, before + delay)
        out = done * c[v, C.selectivity]
        if c[v, C.window] != NO_WINDOW:
            out = hold(c, x, v, done, out, (tick + 1) % slide_s(c, v) == 0)
        x[v, X.now] = out
        x[v, X.records_in] += done
        x[v, X.records_out] += out
        # Less than its capacity because of the vertices after it: all time that is not busy is
        # backpressured. The factor spares a vertex that stops at its own capacity, apart from
        # rounding.
        if left > 0.0 and x[v, X.allowed] < capacity * 0.999999:
            x[v, X.sample_back] += max(0.0, 1.0 - done * x[v, X.busy_per])
        elif x[v, X.blocked] > 0.0:  # nothing waits, yet it takes nothing in meanwhile
            x[v, X.sample_back] += max(0.0, min(x[v, X.blocked], 1.0 - done * x[v, X.busy_per]))
    return taken, backlog, latest, waits


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def held_back(x: Row, v: int, offered: float) -> float:
    """Hold back the records of partitions whose tasks a rescale has just added.

    While they are cold these tasks process nothing; then they work off what waited for them.

    Args:
        x: (V, len(X)) state, changed in place.
        v: A source.
        offered: Records that arrive in this second.

    Returns:
        Records that no task can take yet.
    """
    x[v, X.held] += offered * x[v, X.cold]
    if x[v, X.cold_s] > 0.0:
        x[v, X.cold_s] -= 1.0
        return float(min(x[v, X.held], x[v, X.pending] + offered))
    x[v, X.held] -= x[v, X.allowed] * x[v, X.cold]
    if x[v, X.held] <= 0.0:
        x[v, X.held] = x[v, X.cold] = 0.0
    return float(min(x[v, X.held], x[v, X.pending] + offered))


@njit(cache=True, nogil=True, inline="always")
def hold(c: Row, x: Row, v: int, done: float, results: float, ends: bool) -> float:
    """Take a window through a second: records enter, results leave when it fires.

    A period is the time between two firings. It ends by the clock, but it fires only when the last
    of its records has come in, so a window behind a backlog has several ended periods waiting.

    Args:
        c: (V, len(C)) fixed columns.
        x: (V, len(X)) state, changed in place.
        v: The vertex.
        done: Records it processed.
        results: Records that follow from them.
        ends: Whether a period ends with this second.

    Returns:
        Records it puts out.
    """
    # A tumbling window empties when it fires (below); sliding windows and sessions lose a share 1 /
    # length each second, as if record ages were uniform.
    if c[v, C.window] == TUMBLING:
        x[v, X.content] += done
    else:  # records older than the window (or the session's gap) leave
        x[v, X.content] += done - x[v, X.content] / c[v, C.length_s]
    if c[v, C.window] == SESSION:  # sessions end all the time
        return results
    # emit was fixed by `limit`: what found room downstream this second leaves the outbox.
    x[v, X.outbox] -= x[v, X.emit]
    x[v, X.pane] += results
    x[v, X.since] += done
    x[v, X.missing] -= done
    if ends:
        end_period(x, v)
    # Fire each ended period whose records are all in: `share` of the open pane belongs to it.
    while x[v, X.periods] > 0.0:
        share = fired_share(x[v, X.since], x[v, X.missing], x[v, X.periods])
        if share < 0.0:
            # A share below 0 says that records of the period are still missing.
            break
        x[v, X.outbox] += x[v, X.pane] * share
        x[v, X.pane] *= 1.0 - share
        x[v, X.since] *= 1.0 - share
        x[v, X.periods] -= 1.0
        if c[v, C.window] == TUMBLING:
            x[v, X.content] *= 1.0 - share
    return float(x[v, X.emit])


@njit(cache=True, nogil=True, inline="always")
def slide_s(c: Row, v: int) -> int:
    """Return the seconds between two period ends of window v; c (V, len(C)) are fixed columns."""
    return max(1, int(c[v, C.slide_s]))


@njit(cache=True, nogil=True, inline="always")
def end_period(x: Row, v: int) -> None:
    """Note the end of a window's period, which fires when all that belongs to it has come in.

    x (V, len(X)) is the state of vertex v, as in `hold`.
    """
    x[v, X.periods] += 1.0
    # All that is on its way now belongs to this period or an earlier one.
    x[v, X.missing] = x[v, X.behind]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def stand_still(n: int, c: Row, upstream: Ints, x: Row, rate: float, tick: int) -> float:
    """Pass one second of a job that is down: its log grows, and what its windows wait for.

    n vertices v with fixed columns c (V, len(C)), inputs upstream (V, inputs) and state x (V,
    len(X)); `rate` records arrive in second `tick`.

    Returns:
        The backlog, in records.
    """
    backlog = 0.0
    for v in range(n):
        # Only a log keeps records: a generator without one (has_log = 0) emits nothing meanwhile.
        arrived = rate * c[v, C.source_share] * c[v, C.has_log]
        x[v, X.arrived] += arrived
        x[v, X.pending] += arrived
        backlog += x[v, X.pending]
        due = arrived
        for i in range(upstream.shape[1]):
            u = upstream[v, i]
            if u < 0:
                break
            due += x[u, X.offer]
        x[v, X.offer] = due * c[v, C.selectivity]
        # Periods go on by the clock while the job is down; they fire after the restart.
        if c[v, C.kind] != SOURCE:
            x[v, X.behind] += due
        fires = c[v, C.window] != NO_WINDOW and c[v, C.window] != SESSION
        if fires and (tick + 1) % slide_s(c, v) == 0:
            end_period(x, v)
    return backlog
