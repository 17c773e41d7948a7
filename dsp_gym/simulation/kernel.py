"""The simulation: seconds of a batch of jobs, one compiled loop for one job and for thousands.

A fluid model. Each second: sources take records from their log, vertices process what arrived and
what is queued up to their capacity, bounded buffers push back, windows hold and release, the block
cache warms, a savepoint or an outage runs down. Every 5 s capacities are renewed and a sample
of the metrics is kept. No Python per vertex, no allocation per second.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dsp_gym.job.service import entries, hit_rate, service_s, working_set_mib
from dsp_gym.job.tables import NO_WINDOW, SESSION, SOURCE, TUMBLING, JobTables
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation import state as col
from dsp_gym.simulation.options import SAMPLE_S
from dsp_gym.simulation.state import LATENCY_BINS, LATENCY_MAX_S, LATENCY_MIN_S, SimulationState

Row = NDArray[np.float64]
Ints = NDArray[np.int64]

RUNNING, SAVEPOINTING, RESTARTING, FAILED = 0, 1, 2, 3
BLOCK_MIB = 4096 / (1024.0 * 1024.0)
"""What a cache miss brings in: one RocksDB block of 4 KiB."""

HOP_S = 0.02
"""Network and buffer time of one hop while nothing queues (buffers flushed well below 100 ms)."""

BURSTINESS = 3.0
"""p95 over mean of a queueing delay: exponential waiting times have -ln(0.05) = 3.0."""

MAX_LOAD = 0.98
"""Load above which the queueing formula rho / (1 - rho) is cut; the fluid queue takes over."""

_LOG_MIN = math.log(LATENCY_MIN_S)
_BIN_WIDTH = (math.log(LATENCY_MAX_S) - _LOG_MIN) / LATENCY_BINS

# columns of the kernel's numeric options
(P_SERVICE_CV, P_MEASURE_CV, P_MISSING, P_FAIL, P_RECOVERY, P_SLOW, P_SLOW_FACTOR, P_SLOW_S, P_GAP,
 P_GAP_S, P_FAILED_RESCALE, P_WARM_UP, P_RESCALE_ON, P_GAUGE) = range(14)  # fmt: skip


@njit(cache=True, nogil=True)
def bin_pack(t: JobTables, k: int, parallelism: NDArray[np.int64], level: NDArray[np.int64]) -> int:
    """TaskManagers that hold the job's subtasks, sources left out: first fit, largest first.

    A TaskManager offers its slots and, for tasks, the memory of that many level-0 subtasks.
    """
    slots = t.slots[k]
    room = slots * t.subtask_mib[k, 1]
    if t.slot_sharing[k]:
        widest = 1
        for v in range(t.n[k]):
            if t.kind[k, v] != SOURCE:
                widest = max(widest, parallelism[v])
        return int((widest + slots - 1) // slots)
    total = 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            total += parallelism[v]
    free_slots = np.full(total, slots, np.int64)
    free_mib = np.full(total, room)
    used = 0
    for x in range(t.levels[k], -1, -1):  # column of a level; 0 holds "no memory"
        need = t.subtask_mib[k, x]
        for v in range(t.n[k]):
            if t.kind[k, v] == SOURCE or level[v] + 1 != x:
                continue
            tm = 0
            for _ in range(parallelism[v]):
                while tm < used and (free_slots[tm] < 1 or free_mib[tm] < need - 1e-9):
                    tm += 1
                if tm == used:
                    used += 1
                free_slots[tm] -= 1
                free_mib[tm] -= need
    return used


@njit(cache=True, nogil=True)
def configure(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """What follows from the configuration of job j: resources, TaskManagers, speed, tables."""
    cores = mib = 0.0
    tasks = widest = 0
    for v in range(t.n[k]):
        p, x = s.parallelism[j, v], s.vertex[j, v]
        column = s.level[j, v] + 1
        x[col.X_P], x[col.X_USEFUL], x[col.X_HOT] = p, t.useful[k, v, p], t.hot[k, v, p]
        x[col.X_CACHE] = t.cache_mib[k, v, column]
        x[col.X_WRITE_FACTOR] = t.write_factor[k, v, column]
        x[col.X_BUFFER] = t.buffer_records[k] * p
        if t.kind[k, v] == SOURCE:
            continue
        cores += p
        mib += p * t.subtask_mib[k, column]
        tasks += p
        widest = max(widest, p)
    s.cores[j], s.mib[j] = cores, mib
    s.tm_count[j] = bin_pack(t, k, s.parallelism[j], s.level[j])
    used = min(t.slots[k], widest if t.slot_sharing[k] else tasks)
    s.speed[j] = max(0.05, 1.0 - t.contention[k] * (used - 1))


@njit(cache=True, nogil=True)
def renew_capacity(
    n: int, c: Row, hit_curves: Row, x: Row, speed: float, factor: float, par: Row
) -> None:  # fmt: skip
    """Service time, hit rate and capacity of every vertex of one job, as of now."""
    for v in range(n):
        hit = 1.0
        if c[v, col.C_STATEFUL] > 0.0:
            held = entries(
                c[v, col.C_KEYS], x[v, col.X_CONTENT], c[v, col.C_PANES], c[v, col.C_PREFILLED] > 0
            )
            x[v, col.X_STATE] = held * c[v, col.C_ENTRY]
            cache = x[v, col.X_CACHE]
            if par[P_WARM_UP] > 0:
                cache = min(cache, x[v, col.X_CACHED])
            wanted = working_set_mib(held, c[v, col.C_ENTRY], c[v, col.C_UNSHARED], x[v, col.X_P])
            hit = hit_rate(hit_curves[v], cache, wanted)
        x[v, col.X_HIT] = hit
        base = service_s(
            c[v, col.C_CPU] * factor, c[v, col.C_READS], c[v, col.C_READ_HIT],
            c[v, col.C_READ_MISS], c[v, col.C_WRITES], c[v, col.C_WRITE],
            x[v, col.X_WRITE_FACTOR], hit,
        )  # fmt: skip
        base *= max(0.5, 1.0 + par[P_SERVICE_CV] * x[v, col.X_NOISE])
        # Sources stand on TaskManagers of their own.
        x[v, col.X_SERVICE] = base if c[v, col.C_KIND] == SOURCE else base / speed
        x[v, col.X_BUSY_PER] = x[v, col.X_SERVICE] / x[v, col.X_USEFUL]
        x[v, col.X_LOAD_PER] = x[v, col.X_BUSY_PER] * x[v, col.X_HOT]
        x[v, col.X_CAPACITY] = 1.0 / x[v, col.X_LOAD_PER]


@njit(cache=True, nogil=True)
def slowed(speed: float, slow: bool, tm_count: int, par: Row) -> float:
    """Speed of a job while one of its TaskManagers is slow: that one's share suffers."""
    return speed * (1.0 - (1.0 - par[P_SLOW_FACTOR]) / max(1.0, float(tm_count))) if slow else speed


@njit(cache=True, nogil=True)
def renew(t: JobTables, s: SimulationState, fixed: Row, k: int, j: int, par: Row) -> None:
    """`renew_capacity` of job j of a batch."""
    speed = slowed(s.speed[j], s.tick[j] < s.slow_until[j], s.tm_count[j], par)
    renew_capacity(
        t.n[k],
        fixed[k],
        t.hit[k],
        s.vertex[j],
        speed,
        s.service_factor[j],
        par,
    )


@njit(cache=True, nogil=True)
def restart(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """The job comes back: new configuration, counters at zero, cache cold, window empty."""
    for v in range(t.n[k]):
        s.parallelism[j, v] = s.next_parallelism[j, v]
        s.level[j, v] = s.next_level[j, v]
        x = s.vertex[j, v]
        x[col.X_CACHED] = 0.0
        x[col.X_PAST_IN] += x[col.X_IN]
        x[col.X_PAST_OUT] += x[col.X_OUT]
        for m in range(col.X_IN, col.X_LAST_OUT + 1):
            x[m] = 0.0
        x[col.X_S_BACK] = x[col.X_G_BUSY] = x[col.X_G_BACK] = 0.0
    s.samples_taken[j] = 0
    s.running_since[j] = s.tick[j]
    s.outage_s[j] = float(s.tick[j] - s.outage_begun[j])
    s.status[j] = RUNNING
    configure(t, s, k, j)


@njit(cache=True, nogil=True)
def outage_draw(t: JobTables, k: int, u: float) -> float:
    """Outage in seconds at quantile u: linear between p10, p50 and p90, short tails beyond."""
    low, middle, high = t.outage_s[k, 0], t.outage_s[k, 1], t.outage_s[k, 2]
    if u < 0.1:
        return float(low * (0.8 + 2.0 * u))
    if u < 0.5:
        return float(low + (middle - low) * (u - 0.1) / 0.4)
    if u < 0.9:
        return float(middle + (high - middle) * (u - 0.5) / 0.4)
    return float(high + (high - middle) * 2.5 * (u - 0.9))


@njit(cache=True, nogil=True)
def begin_outage(t: JobTables, s: SimulationState, k: int, j: int, par: Row) -> None:
    """The job stops to come back with its next configuration."""
    word, other = rng.philox(s.seed[j], rng.OUTAGE, s.rescales[j], 0)
    total_mib = 0.0
    for v in range(t.n[k]):
        total_mib += s.vertex[j, v, col.X_STATE]
    s.phase_left_s[j] = outage_draw(t, k, rng.uniform(word)) + total_mib / t.restore_mib_s[k]
    s.rescale_failed[j] = 0
    if rng.uniform(other) < par[P_FAILED_RESCALE]:
        s.rescale_failed[j] = 1
        keep_configuration(t, s, k, j)
    s.status[j] = RESTARTING
    s.outage_begun[j] = s.tick[j]


@njit(cache=True, nogil=True)
def keep_configuration(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """The job will come back as it was."""
    for v in range(t.n[k]):
        s.next_parallelism[j, v] = s.parallelism[j, v]
        s.next_level[j, v] = s.level[j, v]


@njit(cache=True, nogil=True)
def ask(
    t: JobTables, row: Ints, s: SimulationState, par: Row, parallelism: Ints, level: Ints,
    answer: Ints, started: Row,
) -> None:  # fmt: skip
    """Start rescaling every running job whose wanted configuration differs from its own.

    `answer` is 0 where nothing was asked, 1 where a rescale started, 3 where the job was not
    running and the request was refused.
    """
    for j in range(row.shape[0]):
        k = row[j]
        differs = False
        for v in range(t.n[k]):
            p = min(max(parallelism[j, v], t.min_parallelism[k, v]), t.max_parallelism[k, v])
            x = min(max(level[j, v], -1), t.levels[k] - 1)
            if p != s.parallelism[j, v] or x != s.level[j, v]:
                differs = True
        answer[j] = 0
        if not differs:
            continue
        if s.status[j] != RUNNING:
            answer[j] = 3
            continue
        answer[j] = 1
        drain = state_mib = 0.0
        for v in range(t.n[k]):
            x = s.vertex[j, v]
            s.next_parallelism[j, v] = min(
                max(parallelism[j, v], t.min_parallelism[k, v]), t.max_parallelism[k, v]
            )
            s.next_level[j, v] = min(max(level[j, v], -1), t.levels[k] - 1)
            state_mib += x[col.X_STATE]
            drain += x[col.X_QUEUE] / max(x[col.X_CAPACITY], 1e-9)
        s.rescales[j] += 1
        started[j] += 1.0
        if par[P_RESCALE_ON] == 0:
            s.outage_begun[j] = s.tick[j]
            restart(t, s, k, j)
        elif t.in_place[k]:
            begin_outage(t, s, k, j, par)
        else:
            s.status[j] = SAVEPOINTING
            s.phase_left_s[j] = drain + state_mib / t.savepoint_mib_s[k]


@njit(cache=True, nogil=True)
def draw_faults(t: JobTables, s: SimulationState, k: int, j: int, par: Row) -> bool:
    """Faults of the coming 5 s; True where the job just failed."""
    first, second = rng.philox(s.seed[j], rng.FAULT, s.tick[j], 0)
    third, _ = rng.philox(s.seed[j], rng.FAULT, s.tick[j], 1)
    share = SAMPLE_S / 3600.0
    if rng.uniform(second) < par[P_SLOW] * share:
        s.slow_until[j] = s.tick[j] + int(par[P_SLOW_S])
    if rng.uniform(third) < par[P_GAP] * share:
        s.gap_until[j] = s.tick[j] + int(par[P_GAP_S])
    if rng.uniform(first) < par[P_FAIL] * share and s.status[j] != RESTARTING:
        if s.status[j] == SAVEPOINTING:
            s.rescale_failed[j] = 1
        keep_configuration(t, s, k, j)
        s.status[j] = RESTARTING
        s.outage_begun[j] = s.tick[j]
        s.phase_left_s[j] = par[P_RECOVERY]
        return True
    return False


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
def keep_sample(
    n: int, c: Row, x: Row, ring: Row, taken: int, gauge: int, seed: int, tick: int, par: Row
) -> None:
    """Close the 5 s sample of one job in its ring (R, V, SAMPLE_COLUMNS).

    Service times are constant within a sample, so busy time and state accesses follow from the
    records. The cache warms, and the time gauges move on.
    """
    size = ring.shape[0]
    at, oldest = taken % size, (taken - gauge) % size
    spans = min(taken + 1, gauge)
    noisy = par[P_MEASURE_CV] + par[P_SERVICE_CV] > 0
    for v in range(n):
        records = x[v, col.X_IN] - x[v, col.X_LAST_IN]
        if c[v, col.C_WINDOW] == NO_WINDOW:
            x[v, col.X_CONTENT] += records
        busy = min(1.0, records * x[v, col.X_BUSY_PER] / SAMPLE_S)
        back = min(1.0 - busy, x[v, col.X_S_BACK] / SAMPLE_S)
        noise = 1.0
        if noisy:
            first, second = rng.philox(seed, rng.NOISE, tick, v)
            x[v, col.X_NOISE] = rng.normal(first)  # of service times until the next sample
            # Busy is what idle and backpressured leave: a task that never waits reads 1000.
            change = (
                par[P_MEASURE_CV] * rng.low_normal(second) * min(busy, max(0.0, 1.0 - busy - back))
            )
            busy += change
            noise = max(0.2, 1.0 + par[P_MEASURE_CV] * rng.high_normal(second))
        if taken >= gauge:
            x[v, col.X_G_BUSY] -= ring[oldest, v, col.S_RAW_BUSY]
            x[v, col.X_G_BACK] -= ring[oldest, v, col.S_RAW_BACK]
        x[v, col.X_G_BUSY] += busy
        x[v, col.X_G_BACK] += back
        reads = records * c[v, col.C_READS]
        hits = reads * x[v, col.X_HIT]
        misses = reads - hits
        x[v, col.X_HITS] += hits
        x[v, col.X_MISSES] += misses
        ring[at, v, col.S_IN] = records
        ring[at, v, col.S_OUT] = x[v, col.X_OUT] - x[v, col.X_LAST_OUT]
        mean_busy = min(1.0, max(0.0, x[v, col.X_G_BUSY] / spans))
        ring[at, v, col.S_BUSY] = mean_busy
        ring[at, v, col.S_BUSY_MAX] = min(1.0, mean_busy * x[v, col.X_HOT])
        ring[at, v, col.S_BACK] = min(1.0 - mean_busy, max(0.0, x[v, col.X_G_BACK] / spans))
        ring[at, v, col.S_HITS], ring[at, v, col.S_MISSES] = hits, misses
        ring[at, v, col.S_RAW_BUSY], ring[at, v, col.S_RAW_BACK] = busy, back
        ring[at, v, col.S_PENDING] = x[v, col.X_PENDING]
        read_s = c[v, col.C_READ_HIT] + (1.0 - x[v, col.X_HIT]) * c[v, col.C_READ_MISS]
        ring[at, v, col.S_READ] = read_s * noise
        ring[at, v, col.S_WRITE] = c[v, col.C_WRITE] * x[v, col.X_WRITE_FACTOR] * noise
        if misses > 0.0:
            brought = misses / x[v, col.X_P] * max(BLOCK_MIB, c[v, col.C_ENTRY])
            x[v, col.X_CACHED] = min(x[v, col.X_CACHE], x[v, col.X_CACHED] + brought)
        x[v, col.X_LAST_IN], x[v, col.X_LAST_OUT] = x[v, col.X_IN], x[v, col.X_OUT]
        x[v, col.X_S_BACK] = 0.0


@njit(cache=True, nogil=True)
def advance(
    t: JobTables, fixed: Row, row: Ints, s: SimulationState, par: Row, rates: Row, seconds: int,
    low: int, high: int, outcome: Row, trace: Row,
) -> None:  # fmt: skip
    """Advance jobs low..high-1 by whole seconds; `outcome` (J, OUTCOME_COLUMNS) gets the truth."""
    last = rates.shape[1] - 1
    ring = s.samples.shape[1]
    gauge = int(par[P_GAUGE])
    faulty = par[P_FAIL] + par[P_SLOW] + par[P_GAP] > 0
    for j in range(low, high):
        k = row[j]
        n, c, x, o = t.n[k], fixed[k], s.vertex[j], outcome[j]
        upstream, in_share, slo_s = t.upstream[k], t.in_share[k], t.slo_s[k]
        hits = t.hit[k]
        load, histogram = rates[j], s.histogram[j]
        backlog = processed = offered = latencies = worst = slo = 0.0
        latency = s.latency_s[j]
        tick = s.tick[j]
        end = tick + seconds
        while tick < end:
            if tick % SAMPLE_S == 0:
                if faulty and draw_faults(t, s, k, j, par):
                    o[col.O_FAILURES] += 1
                speed = slowed(s.speed[j], tick < s.slow_until[j], s.tm_count[j], par)
                renew_capacity(n, c, hits, x, speed, s.service_factor[j], par)
            status = s.status[j]
            stride = min(end, tick + 1 if status != RUNNING else tick + SAMPLE_S - tick % SAMPLE_S)
            cores, mib = s.cores[j], s.mib[j]
            span = float(stride - tick)
            o[col.O_CORE_S] += cores * span
            o[col.O_MIB_S] += mib * span
            o[col.O_TM_S] += s.tm_count[j] * span
            if status >= RESTARTING:
                backlog = stand_still(n, c, x, load[min(tick, last)])
                offered += load[min(tick, last)]
                latency += 1.0
                latencies += latency
                worst = max(worst, latency)
                o[col.O_DOWN] += 1
                slo += 1.0
                s.phase_left_s[j] -= 1.0
                s.tick[j] = stride
                if s.phase_left_s[j] <= 0.0:
                    restart(t, s, k, j)
                    renew(t, s, fixed, k, j, par)
                count_latency(histogram, latency)
                if tick < trace.shape[1]:
                    note(trace[j, tick], load[min(tick, last)], 0.0, latency, backlog)
            else:
                while tick < stride:
                    rate = load[min(tick, last)]
                    taken, backlog, latency = flow(n, c, upstream, in_share, x, rate, tick)
                    if latency > slo_s:
                        slo += 1.0
                    processed += taken
                    offered += rate
                    latencies += latency
                    worst = max(worst, latency)
                    count_latency(histogram, latency)
                    if tick < trace.shape[1]:
                        note(trace[j, tick], rate, taken, latency, backlog)
                    tick += 1
                s.tick[j] = stride
                if stride % SAMPLE_S == 0:
                    at = s.samples_taken[j] % ring
                    keep_sample(
                        n, c, x, s.samples[j], s.samples_taken[j], gauge, s.seed[j], stride - 1, par
                    )
                    s.sample_known[j, at] = is_known(s.seed[j], stride - 1, s.gap_until[j], par)
                    s.latency_samples[j, at] = latency
                    s.samples_taken[j] += 1
                if status == SAVEPOINTING:
                    s.phase_left_s[j] -= 1.0
                    if s.phase_left_s[j] <= 0.0:
                        begin_outage(t, s, k, j, par)
            for second in range(stride - int(span), min(stride, trace.shape[1])):
                trace[j, second, col.T_CORES], trace[j, second, col.T_MIB] = cores, mib
            tick = stride
        s.latency_s[j] = latency
        o[col.O_SECONDS] += seconds
        o[col.O_SLO] += slo
        o[col.O_LATENCY] += latencies
        o[col.O_LATENCY_MAX] = max(o[col.O_LATENCY_MAX], worst)
        o[col.O_ARRIVED] += offered
        o[col.O_PROCESSED] += processed
        o[col.O_PENDING] = backlog
        # A log without arrivals is measured by a tenth of the job's reference rate.
        arrivals = max(load[max(0, min(tick - 1, last))], 0.1 * t.rate_per_s[k])
        o[col.O_PENDING_S] = backlog / arrivals
        gib_s = o[col.O_MIB_S] / 1024.0
        o[col.O_COST] = (o[col.O_CORE_S] * t.core_hour[k] + gib_s * t.gib_hour[k]) / 3600.0
        tm_hour = t.tm_cores[k] * t.core_hour[k] + t.tm_mib[k] / 1024.0 * t.gib_hour[k]
        o[col.O_COST_PROVISIONED] = o[col.O_TM_S] * tm_hour / 3600.0


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


@njit(cache=True, nogil=True, inline="always")
def count_latency(histogram: Row, latency: float) -> None:
    """Count a second in the bin of its latency."""
    place = (math.log(max(latency, LATENCY_MIN_S)) - _LOG_MIN) / _BIN_WIDTH
    histogram[min(LATENCY_BINS - 1, int(place))] += 1.0


@njit(cache=True, nogil=True)
def note(line: Row, rate: float, taken: float, latency: float, backlog: float) -> None:
    """Keep a second for plots."""
    line[col.T_RATE], line[col.T_PROCESSED] = rate, taken
    line[col.T_LATENCY], line[col.T_PENDING] = latency, backlog


@njit(cache=True, nogil=True)
def is_known(seed: int, tick: int, gap_until: int, par: Row) -> int:
    """0 where the sample was lost or fell into a metric gap."""
    if tick < gap_until:
        return 0
    if par[P_MISSING] > 0:
        word, _ = rng.philox(seed, rng.LOSS, tick, 0)
        if rng.uniform(word) < par[P_MISSING]:
            return 0
    return 1
