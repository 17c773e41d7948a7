"""One second of records through one job."""

from __future__ import annotations

from numba import njit

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.tables import NO_WINDOW, SESSION, SOURCE, TUMBLING
from dsp_gym.simulation import state as col

Row = Floats

HOP_S = 0.02
"""Network and buffer time of one hop while nothing queues (buffers flushed well below 100 ms)."""

BURSTINESS = 3.0
"""p95 over mean of a queueing delay: exponential waiting times have -ln(0.05) = 3.0."""

MAX_LOAD = 0.98
"""Load above which the queueing formula rho / (1 - rho) is cut; the fluid queue takes over."""


@njit(cache=True, nogil=True, inline="always")
def flow(
    n: int, c: Row, upstream: Ints, in_share: Row, x: Row, rate: float, tick: int
) -> tuple[float, float, float]:
    """One second of records through a running job.

    Backwards, what each vertex may process: its capacity, and what the vertices after it can take
    (capacity and free buffer, shared over their inputs as their flows are). Forwards, what it
    does process. Returns records taken from the log, backlog, and p95 latency in seconds.
    """
    inputs = upstream.shape[1]
    for v in range(n):
        x[v, col.X_ALLOWED] = 1e300  # what the vertex may put out
    for v in range(n - 1, -1, -1):
        room_out = x[v, col.X_ALLOWED]
        take = x[v, col.X_CAPACITY]
        window = c[v, col.C_WINDOW]
        if window != NO_WINDOW and window != SESSION:
            x[v, col.X_EMIT] = min(x[v, col.X_OUTBOX], room_out)
            if x[v, col.X_OUTBOX] > x[v, col.X_EMIT]:
                take = 0.0  # blocked on its own results
        elif c[v, col.C_SELECTIVITY] > 0.0:
            take = min(take, room_out / c[v, col.C_SELECTIVITY])
        x[v, col.X_ALLOWED] = take
        if c[v, col.C_KIND] != SOURCE:
            room = take + max(0.0, x[v, col.X_BUFFER] - x[v, col.X_QUEUE])
            for i in range(inputs):
                u = upstream[v, i]
                if u < 0:
                    break
                x[u, col.X_ALLOWED] = min(x[u, col.X_ALLOWED], room * in_share[v, i])
    taken = backlog = latest = 0.0
    for v in range(n):
        capacity = x[v, col.X_CAPACITY]
        before = 0.0
        if c[v, col.C_KIND] == SOURCE:
            offered = rate * c[v, col.C_SHARE]
            if c[v, col.C_HAS_LOG] == 0.0:  # a generator that is held back emits less
                offered = min(offered, x[v, col.X_ALLOWED])
            x[v, col.X_ARRIVED] += offered
            have = x[v, col.X_PENDING] + offered
            done = min(have, x[v, col.X_ALLOWED])
            left = have - done
            x[v, col.X_PENDING] = left
            taken += done
            backlog += left
        else:
            have = x[v, col.X_QUEUE]
            for i in range(inputs):
                u = upstream[v, i]
                if u < 0:
                    break
                have += x[u, col.X_NOW]
                before = max(before, x[u, col.X_WAIT])
            done = min(have, x[v, col.X_ALLOWED])
            left = have - done
            x[v, col.X_QUEUE] = left
        load = min(done * x[v, col.X_LOAD_PER], MAX_LOAD)
        delay = HOP_S + BURSTINESS * x[v, col.X_SERVICE] * load / (1.0 - load)
        if left > 0.0:
            delay += left / max(done, c[v, col.C_LEAST])
        x[v, col.X_WAIT] = before + delay
        latest = max(latest, before + delay)
        out = done * c[v, col.C_SELECTIVITY]
        if c[v, col.C_WINDOW] != NO_WINDOW:
            out = hold(c, x, v, done, out, tick)
        x[v, col.X_NOW] = out
        x[v, col.X_IN] += done
        x[v, col.X_OUT] += out
        if left > 0.0 and x[v, col.X_ALLOWED] < capacity * 0.999999:
            x[v, col.X_S_BACK] += max(0.0, 1.0 - done * x[v, col.X_BUSY_PER])
    return taken, backlog, latest


@njit(cache=True, nogil=True, inline="always")
def hold(c: Row, x: Row, v: int, done: float, results: float, tick: int) -> float:
    """A second of a window: records enter, results leave when it fires. Returns records out."""
    if c[v, col.C_WINDOW] == TUMBLING:
        x[v, col.X_CONTENT] += done
    else:  # what is older than the window (or the session's gap) leaves
        x[v, col.X_CONTENT] += done - x[v, col.X_CONTENT] / c[v, col.C_LENGTH]
    if c[v, col.C_WINDOW] == SESSION:  # sessions end all the time
        return results
    x[v, col.X_OUTBOX] -= x[v, col.X_EMIT]
    x[v, col.X_PANE] += results
    if (tick + 1) % max(1, int(c[v, col.C_SLIDE])) == 0:
        x[v, col.X_OUTBOX] += x[v, col.X_PANE]
        x[v, col.X_PANE] = 0.0
        if c[v, col.C_WINDOW] == TUMBLING:
            x[v, col.X_CONTENT] = 0.0
    return float(x[v, col.X_EMIT])


@njit(cache=True, nogil=True)
def stand_still(n: int, c: Row, x: Row, rate: float) -> float:
    """One second of a job that is down: its log grows. Returns the backlog."""
    backlog = 0.0
    for v in range(n):
        arrived = rate * c[v, col.C_SHARE] * c[v, col.C_HAS_LOG]
        x[v, col.X_ARRIVED] += arrived
        x[v, col.X_PENDING] += arrived
        backlog += x[v, col.X_PENDING]
    return backlog
