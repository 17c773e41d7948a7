"""The seconds of a quiet stride, all at once.

In a stride of 5 s capacities stay constant. It is quiet where no record waits, in a buffer, a log
or a window's outbox for want of room, and every vertex may process at once what reaches it. Then a
second hands only its sums on to the next one, so the limits are the same in each second: one pass
backwards finds them, and one pass forwards takes every vertex through all seconds.

The arithmetic is that of `dsp_gym.simulation.flow`, operation by operation and in the same order:
both ways give the same state, bit for bit.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints, Row, numbered
from dsp_gym.compiling import njit
from dsp_gym.job.tables import NO_WINDOW, SESSION, SOURCE
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation.flow import BURSTINESS, HOP_S, MAX_LOAD, hold, limit, process, slide_s
from dsp_gym.simulation.state import SEEN, C, X

LANES = 8
"""Room for the numbers of one row: a cache line, and at least `SAMPLE_S`."""

NO_LIMIT = 1e300


class _Lanes(NamedTuple):
    """The numbers of a vertex while a stride is computed, one for each second."""

    done: Annotated[int, Row("records", "it processes, of several inputs")]
    now: Annotated[int, Row("records", "it puts out")]
    wait_s: Annotated[int, Row("s", "p95 latency up to here")]
    due: Annotated[int, Row("records", "that follow for it from what the job is offered")]
    offer: Annotated[int, Row("records", "that follow from these for the vertices after it")]
    before: Annotated[int, Row("", "a window's columns outbox to content before the stride")]
    sums: Annotated[int, Row("", "columns `SUMS` after the stride")]


class _Sums(NamedTuple):
    """The sums of a vertex at the end of a stride, and its state."""

    into: Annotated[int, Row("records", "received since the last restart")]
    out: Annotated[int, Row("records", "sent since the last restart")]
    room: Annotated[int, Row("records", "of a window's results that fit into the next buffers")]
    held: Annotated[int, Row("0, 1", "a window has held back what reaches it")]
    arrived: Annotated[int, Row("records", "offered to a source since reset")]
    behind: Annotated[int, Row("records", "offered to the job that have not come in yet")]


Q = numbered(_Lanes)
"""Columns of `lanes`; q stands for the rows of one job."""

SUMS = numbered(_Sums)
"""Places in the lane `Q.sums`."""


def lanes(vertices: int) -> Floats:
    """Allocate room for a stride of a job.

    Args:
        vertices: V, of the largest job.

    Returns:
        (V + 1, len(Q), LANES). In row n, the first after the n vertices of a job, `done` is the
        load, `now` the records taken from the log, `wait_s` the job's latency and `due` the
        backlog.
    """
    return np.empty((vertices + 1, len(Q), LANES))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def each_second(
    n: int,
    c: Floats,
    upstream: Ints,
    in_share: Floats,
    x: Floats,
    load: Floats,
    tick: int,
    seconds: int,
    q: Floats,
) -> bool:
    """Take a running job through the coming seconds one by one.

    Args:
        n: Number of vertices; this and all others as in `quiet_stride`.
        c: Fixed columns.
        upstream: Inputs.
        in_share: Shares of inputs.
        x: State, changed in place.
        load: Records/s.
        tick: Seconds since reset.
        seconds: How many seconds, at most `SAMPLE_S`.
        q: Lanes; row n is filled, and `wait_s` of the others.

    Returns:
        Whether records wait at the end.
    """
    waits = False
    last = load.shape[0] - 1
    for i in range(seconds):
        # Before its start and after its end the load keeps its first and last value.
        rate = load[max(0, min(tick + i, last))]
        limit(n, c, upstream, in_share, x)
        taken, backlog, latency, waits = process(n, c, upstream, x, rate, tick + i)
        q[n, Q.done, i], q[n, Q.now, i] = rate, taken
        q[n, Q.wait_s, i], q[n, Q.due, i] = latency, backlog
        for v in range(n):
            q[v, Q.wait_s, i] = x[v, X.wait_s]
    return waits


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def quiet_stride(
    n: int,
    c: Floats,
    upstream: Ints,
    in_share: Floats,
    x: Floats,
    load: Floats,
    tick: int,
    q: Floats,
) -> bool:
    """Take a running job through the coming `SAMPLE_S` seconds if nothing waits in them.

    Args:
        n: Number of vertices v of the job, in topological order.
        c: (V, len(C)) their fixed columns.
        upstream: (V, inputs) column u of each input, -1 = none.
        in_share: (V, inputs) share of a vertex's input that comes over each edge.
        x: (V, len(X)) their state, changed in place.
        load: (T,) records/s offered to the whole job in each second since reset.
        tick: Seconds since reset.
        q: (V + 1, len(Q), LANES) filled; its row n describes the whole job.

    Returns:
        False where records would wait: the state is unchanged then.
    """
    if not _limits(n, c, upstream, in_share, x, q):
        return False
    last = load.shape[0] - 1
    for i in range(SAMPLE_S):
        q[n, Q.done, i] = load[max(0, min(tick + i, last))]
        # Row n sums over the vertices: taken records, latency and backlog start from zero.
        q[n, Q.now, i] = q[n, Q.wait_s, i] = q[n, Q.due, i] = 0.0
    for v in range(n):
        if c[v, C.kind] == SOURCE:
            _read_log(n, c, x, v, q)
            # The lane of a single input can be read where it stands, without a copy.
            row, column = v, Q.done
        else:
            row, column = _arrivals(c, upstream, v, q)
        # Loaded before the loop: stores into q might change x, as far as the compiler knows.
        allowed, selectivity = x[v, X.allowed], c[v, C.selectivity]
        load_per, delay_s = x[v, X.load_per], BURSTINESS * x[v, X.service_s]
        into, out = x[v, X.records_in], x[v, X.records_out]
        fits = True
        # The hot loop: five seconds side by side in vector registers, so no branch in it. `fits`
        # collects the test, and the parentheses keep the order of additions of `process`.
        for i in range(SAMPLE_S):
            done = q[row, column, i]
            fits &= done <= allowed
            # The delay of a queue grows with utilization u as u / (1 - u) (`flow.process`).
            part = min(done * load_per, MAX_LOAD)
            q[v, Q.wait_s, i] = q[row, Q.wait_s, i] + (HOP_S + delay_s * part / (1.0 - part))
            results = done * selectivity
            q[v, Q.now, i] = results
            into += done
            out += results
        q[v, Q.sums, SUMS.into], q[v, Q.sums, SUMS.out] = into, out
        # Only behind a window does the offer differ from what the vertex puts out.
        if q[v, Q.sums, SUMS.held] > 0.0 or _fires(c, v):
            _offer(c, x, v, q)
        entered = fits and c[v, C.window] != NO_WINDOW
        if entered:
            fits = _through_window(c, x, v, tick, q)
        # Windows changed x while they were tried; all else is still in q, so undoing them suffices.
        if not fits:
            _undo(v + 1 if entered else v, c, x, q)
            return False
        if q[v, Q.sums, SUMS.room] == NO_LIMIT:  # a sink ends every longest path
            for i in range(SAMPLE_S):
                q[n, Q.wait_s, i] = max(q[n, Q.wait_s, i], q[v, Q.wait_s, i])
    _commit(n, c, x, q)
    return True


@njit(cache=True, nogil=True, inline="always")
def _limits(n: int, c: Floats, upstream: Ints, in_share: Floats, x: Floats, q: Floats) -> bool:
    """Limit what each vertex may process in each second, the backward half of `flow`.

    The arguments are those of `quiet_stride`.

    Returns:
        False where records wait already.
    """
    for v in range(n):
        x[v, X.allowed] = NO_LIMIT
        x[v, X.blocked] = 0.0
        q[v, Q.sums, SUMS.room] = NO_LIMIT
    for v in range(n - 1, -1, -1):
        # Windows emit into `room`, all other vertices are limited by `allowed`.
        room = q[v, Q.sums, SUMS.room]
        # Exactly zero, not nearly: with any record waiting, `process` would take another path.
        if x[v, X.queue] != 0.0 or x[v, X.pending] != 0.0 or x[v, X.outbox] > room:
            return False
        take, selectivity = x[v, X.capacity], c[v, C.selectivity]
        # A firing window keeps its results in the outbox: they do not limit what it takes in.
        if selectivity > 0.0 and not _fires(c, v):
            take = min(take, x[v, X.allowed] / selectivity)
        x[v, X.allowed] = take
        if c[v, C.kind] != SOURCE:
            # No record waits, so all of the buffer is free.
            free = max(0.0, x[v, X.buffer])
            for k in range(upstream.shape[1]):
                u = upstream[v, k]
                if u < 0:
                    break
                part = in_share[v, k]
                # In a second u may send what is taken and what is free, in the share of this edge.
                x[u, X.allowed] = min(x[u, X.allowed], (take + free) * part)
                q[u, Q.sums, SUMS.room] = min(q[u, Q.sums, SUMS.room], free * part)
    return True


@njit(cache=True, nogil=True, inline="always")
def _read_log(n: int, c: Floats, x: Floats, v: int, q: Floats) -> None:
    """Read the log of source v in each second; the arguments are those of `quiet_stride`."""
    share, arrived = c[v, C.source_share], x[v, X.arrived]
    for i in range(SAMPLE_S):
        # The log is empty: a source reads what is offered, in the same second.
        offered = q[n, Q.done, i] * share
        arrived += offered
        q[n, Q.now, i] += offered
        q[v, Q.done, i] = q[v, Q.due, i] = offered
        q[v, Q.wait_s, i] = 0.0
    q[v, Q.sums, SUMS.arrived] = arrived
    q[v, Q.sums, SUMS.held] = 0.0


@njit(cache=True, nogil=True, inline="always")
def _arrivals(c: Floats, upstream: Ints, v: int, q: Floats) -> tuple[int, int]:
    """Gather what reaches vertex v in each second, and how late; arguments as in `quiet_stride`.

    Returns:
        Row and column of the lane that holds the records: that of the only input where the vertex
        is no window and nothing was held back.
    """
    u = upstream[v, 0]
    # From a window on downwards, what comes in and what is due differ.
    held = q[u, Q.sums, SUMS.held] > 0.0 or _fires(c, u)
    alone = upstream.shape[1] == 1 or upstream[v, 1] < 0
    q[v, Q.sums, SUMS.held] = 1.0 if held else 0.0
    if alone and not held and c[v, C.window] == NO_WINDOW:
        return u, Q.now
    # Inputs are added in the order of `upstream`, as `process` does: floating-point addition is not
    # associative.
    for i in range(SAMPLE_S):
        q[v, Q.done, i], q[v, Q.wait_s, i] = q[u, Q.now, i], q[u, Q.wait_s, i]
        q[v, Q.due, i] = q[u, Q.offer, i] if held else q[u, Q.now, i]
    for k in range(1, upstream.shape[1]):
        u = upstream[v, k]
        if u < 0:
            break
        late = q[u, Q.sums, SUMS.held] > 0.0 or _fires(c, u)
        if late:
            q[v, Q.sums, SUMS.held] = 1.0
        for i in range(SAMPLE_S):
            q[v, Q.done, i] += q[u, Q.now, i]
            q[v, Q.wait_s, i] = max(q[v, Q.wait_s, i], q[u, Q.wait_s, i])
            q[v, Q.due, i] += q[u, Q.offer, i] if late else q[u, Q.now, i]
    return v, Q.done


@njit(cache=True, nogil=True, inline="always")
def _fires(c: Floats, v: int) -> bool:
    """Return whether vertex v, with fixed columns c (V, len(C)), is a window that fires."""
    return bool(c[v, C.window] != NO_WINDOW and c[v, C.window] != SESSION)


@njit(cache=True, nogil=True, inline="always")
def _offer(c: Floats, x: Floats, v: int, q: Floats) -> None:
    """Compute what would follow from vertex v if no window held records back.

    Before the first window this is what the vertex puts out. The arguments are those of
    `quiet_stride`.
    """
    # behind: records offered to the job that have not come in here yet.
    behind, selectivity = x[v, X.behind], c[v, C.selectivity]
    for i in range(SAMPLE_S):
        behind += q[v, Q.due, i] - q[v, Q.done, i]
        q[v, Q.offer, i] = q[v, Q.due, i] * selectivity
    q[v, Q.sums, SUMS.behind] = behind


@njit(cache=True, nogil=True, inline="always")
def _through_window(c: Floats, x: Floats, v: int, tick: int, q: Floats) -> bool:
    """Take a window through the seconds one by one; the arguments are those of `quiet_stride`.

    Returns:
        False where its results have no room.
    """
    # The columns outbox..content stand side by side in `_Vertex`, so that one loop saves them.
    for m in range(X.outbox, X.content + 1):
        q[v, Q.before, m - X.outbox] = x[v, m]
    fires, room, fits = _fires(c, v), q[v, Q.sums, SUMS.room], True
    out = x[v, X.records_out]
    slide = slide_s(c, v)
    # Counting up spares the modulo of every second.
    phase = tick % slide
    for i in range(SAMPLE_S):
        phase += 1
        ends = phase == slide
        phase = 0 if ends else phase
        done = q[v, Q.done, i]
        if fires:
            fits &= x[v, X.outbox] <= room
            # Results of the last firing leave at once, as there is room for all of them.
            x[v, X.emit] = x[v, X.outbox]
        x[v, X.behind] += q[v, Q.due, i] - done
        now = hold(c, x, v, done, q[v, Q.now, i], ends)
        q[v, Q.now, i] = now
        out += now
    q[v, Q.sums, SUMS.out] = out
    return fits


@njit(cache=True, nogil=True, inline="always")
def _undo(n: int, c: Floats, x: Floats, q: Floats) -> None:
    """Put the windows of the first n vertices back; c, x and q are those of `quiet_stride`."""
    for v in range(n):
        if c[v, C.window] != NO_WINDOW:
            for m in range(X.outbox, X.content + 1):
                x[v, m] = q[v, Q.before, m - X.outbox]


@njit(cache=True, nogil=True, inline="always")
def _commit(n: int, c: Floats, x: Floats, q: Floats) -> None:
    """Keep the sums; the arguments are those of `quiet_stride`.

    Columns that describe a single second keep the values of the last one.
    """
    end = SAMPLE_S - 1
    for v in range(n):
        # Sums replace their columns; nothing was added to x before, so a stride can be given up.
        x[v, X.records_in], x[v, X.records_out] = q[v, Q.sums, SUMS.into], q[v, Q.sums, SUMS.out]
        held = q[v, Q.sums, SUMS.held] > 0.0
        if c[v, C.kind] == SOURCE:
            x[v, X.arrived] = q[v, Q.sums, SUMS.arrived]
        elif held and c[v, C.window] == NO_WINDOW:
            x[v, X.behind] = q[v, Q.sums, SUMS.behind]
        x[v, X.now], x[v, X.wait_s] = q[v, Q.now, end], q[v, Q.wait_s, end]
        offers = held or _fires(c, v)
        x[v, X.offer] = q[v, Q.offer, end] if offers else q[v, Q.now, end]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def see(n: int, c: Floats, q: Floats, count: int, seen: Floats) -> None:
    """Keep the backlog of each second, and how long records are on their way to the sinks.

    Args:
        n: Vertices v of the job.
        c: (V, len(C)) their fixed columns.
        q: (V + 1, len(Q), LANES) what happened in the seconds.
        count: Seconds.
        seen: (seconds, len(SEEN)), its first rows are filled.
    """
    for i in range(count):
        all_s = sources_s = 0.0
        for v in range(n):
            wait_s = q[v, Q.wait_s, i]
            all_s = max(all_s, wait_s)
            if c[v, C.kind] == SOURCE:
                sources_s = max(sources_s, wait_s)
        seen[i, SEEN.pending], seen[i, SEEN.within_s] = q[n, Q.due, i], all_s - sources_s
        seen[i, SEEN.left_s] = math.nan
