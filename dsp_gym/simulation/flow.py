"""One second of records through one job."""

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
    """One second of records through a running job.

    Backwards, what each vertex may process: its capacity, and what the vertices after it can take
    (capacity and free buffer, shared over their inputs as their flows are). A window whose results
    find no room is blocked for that share of the second (`dsp_gym.job.bursts`). Forwards, what each
    vertex does process.

    Args:
        n: Vertices v of the job, in topological order.
        c: (V, len(C)) their fixed columns.
        upstream: (V, inputs) column u of each input, -1 = none.
        in_share: (V, inputs) share of a vertex's input that comes over each edge.
        x: (V, len(X)) their state, changed in place.
        rate: Records offered to the whole job.
        tick: Seconds since reset.

    Returns:
        Records taken from the log, backlog in records, p95 latency in seconds, and whether records
        wait at its end.
    """
    limit(n, c, upstream, in_share, x)
    return process(n, c, upstream, x, rate, tick)


@njit(cache=True, nogil=True, inline="always")
def limit(n: int, c: Row, upstream: Ints, in_share: Row, x: Row) -> None:
    """What each vertex may process in a second, the backward half of `flow`; its arguments."""
    for v in range(n):
        x[v, X.allowed] = 1e300  # what the vertex may put out
        x[v, X.blocked] = 0.0
    for v in range(n - 1, -1, -1):
        room_out = x[v, X.allowed]
        take = x[v, X.capacity]
        window = c[v, C.window]
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
    """What each vertex does process, the forward half of `flow`; its arguments and result."""
    taken = backlog = latest = 0.0
    waits = False
    for v in range(n):
        capacity = x[v, X.capacity]
        before = 0.0
        if c[v, C.kind] == SOURCE:
            offered = rate * c[v, C.source_share]
            if c[v, C.has_log] == 0.0:  # a generator that is held back emits less
                offered = min(offered, x[v, X.allowed])
            x[v, X.arrived] += offered
            x[v, X.offer] = offered * c[v, C.selectivity]
            have = x[v, X.pending] + offered
            done = min(have, x[v, X.allowed])
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
        if left > 0.0 and x[v, X.allowed] < capacity * 0.999999:
            x[v, X.sample_back] += max(0.0, 1.0 - done * x[v, X.busy_per])
        elif x[v, X.blocked] > 0.0:  # nothing waits, yet it takes nothing in meanwhile
            x[v, X.sample_back] += max(0.0, min(x[v, X.blocked], 1.0 - done * x[v, X.busy_per]))
    return taken, backlog, latest, waits


@njit(cache=True, nogil=True, inline="always")
def hold(c: Row, x: Row, v: int, done: float, results: float, ends: bool) -> float:
    """A second of a window: records enter, results leave when it fires.

    Args:
        c: (V, len(C)) fixed columns.
        x: (V, len(X)) state, changed in place.
        v: The vertex.
        done: Records it processed.
        results: Records that follow from them.
        ends: Whether a period ends with the second.

    Returns:
        Records it puts out.
    """
    if c[v, C.window] == TUMBLING:
        x[v, X.content] += done
    else:  # what is older than the window (or the session's gap) leaves
        x[v, X.content] += done - x[v, X.content] / c[v, C.length_s]
    if c[v, C.window] == SESSION:  # sessions end all the time
        return results
    x[v, X.outbox] -= x[v, X.emit]
    x[v, X.pane] += results
    x[v, X.since] += done
    x[v, X.missing] -= done
    if ends:
        end_period(x, v)
    while x[v, X.periods] > 0.0:
        share = fired_share(x[v, X.since], x[v, X.missing], x[v, X.periods])
        if share < 0.0:
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
    """Seconds between two ends of a period of window v; its fixed columns are in c (V, len(C))."""
    return max(1, int(c[v, C.slide_s]))


@njit(cache=True, nogil=True, inline="always")
def end_period(x: Row, v: int) -> None:
    """Note the end of a window's period, which fires when all that belongs to it has come in.

    x (V, len(X)) is the state of vertex v, as in `hold`.
    """
    x[v, X.periods] += 1.0
    x[v, X.missing] = x[v, X.behind]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def stand_still(n: int, c: Row, upstream: Ints, x: Row, rate: float, tick: int) -> float:
    """One second of a job that is down: its log grows, and with it what its windows wait for.

    n vertices v with fixed columns c (V, len(C)), inputs upstream (V, inputs) and state x
    (V, len(X)); `rate` records arrive in second `tick`.

    Returns:
        The backlog, records.
    """
    backlog = 0.0
    for v in range(n):
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
        if c[v, C.kind] != SOURCE:
            x[v, X.behind] += due
        fires = c[v, C.window] != NO_WINDOW and c[v, C.window] != SESSION
        if fires and (tick + 1) % slide_s(c, v) == 0:
            end_period(x, v)
    return backlog
