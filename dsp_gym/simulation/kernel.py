"""The simulation: seconds of a batch of jobs, one compiled loop for one job and for thousands.

A fluid model. Each second: sources take records from their log, vertices process new and queued
records up to their capacity, bounded buffers push back, windows hold and release, the block cache
warms, a savepoint or an outage counts down. Every 5 s the kernel renews capacities and keeps a
sample of the metrics; where nothing waits, it computes these 5 s at once. No Python per vertex, no
allocation per second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.snapshot import RESTARTING, RUNNING, SAVEPOINTING
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.simulation.capacity import packing_room, renew, renew_capacity, slowed
from dsp_gym.simulation.flow import stand_still
from dsp_gym.simulation.rescaling import begin_outage, deploy, draw_faults, restart
from dsp_gym.simulation.sampling import (
    NOISE_SAMPLES,
    ShownSignals,
    count_latency,
    draw_noise,
    is_known,
    keep_sample,
    load_of,
    noise_lanes,
    note,
    warm,
    widest,
)
from dsp_gym.simulation.state import OUTCOME, SEEN, TRACE, Model, SimulationState
from dsp_gym.simulation.stride import Q, each_second, lanes, quiet_stride, see

Row = Floats


class Room(NamedTuple):
    """The arrays in which a job's seconds are computed."""

    q: Floats  # (V + 1, len(Q), LANES)
    noise: Floats  # (3, V * NOISE_SAMPLES)
    runs: Floats  # (2 V, 3)

    @classmethod
    def of(cls, vertices: int) -> Room:
        """Allocate room for jobs of so many vertices.

        Returns:
            Arrays with undefined content.
        """
        return cls(lanes(vertices), noise_lanes(vertices), packing_room(vertices))


@direct
@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def advance(
    model: Handle[Model],
    state: Handle[SimulationState],
    rates: Row,
    seconds: int,
    low: int,
    high: int,
    outcome: Row,
    trace: Row,
    seen: Row,
    room: Room,
) -> None:
    """Advance jobs low..high-1 by whole seconds.

    Letters: j is a job of the batch, k its row of the tables t, v a vertex; of job j, n is the
    number of vertices, c their fixed columns (V, len(C)), x their state (V, len(X)), o its outcome
    and q the lanes of a stride (`dsp_gym.simulation.stride`).

    Args:
        model: What is fixed: tables, fixed columns, parameters.
        state: State of the batch, changed in place.
        rates: (J, T) records/s offered in each second since reset; the last one stays.
        seconds: Seconds to advance.
        low: First job.
        high: One past the last job.
        outcome: (J, len(OUTCOME)), the true values of the interval are added.
        trace: (J, seconds, len(TRACE)), filled where it has room.
        seen: (J, seconds, len(SEEN)) sinks' measurements of each second of this call, or empty.
        room: Scratch arrays, one set per thread; nothing is allocated between seconds.
    """
    # `.arrays` gives the named tuples behind the handles: numba unboxes a handle (one pointer) in
    # nanoseconds, a tuple of forty arrays in microseconds (`dsp_gym.numba_handles`).
    m, s = model.arrays, state.arrays
    t, row, fixed, par = m.t, m.row, m.fixed, m.par
    q, noise, runs = room
    last = rates.shape[1] - 1
    traced_s, is_seen = trace.shape[1], seen.shape[1] > 0
    faulty = par.failures_per_hour + par.slow_per_hour + par.gaps_per_hour > 0
    noisy = par.noise_cv + par.service_cv > 0
    for j in range(low, high):
        k = row[j]
        n, c, x, o = t.n[k], fixed[k], s.vertex[j], outcome[j]
        upstream, in_share, slo_s = t.upstream[k], t.in_share[k], t.slo_s[k]
        hits = t.hit[k]
        # Sums are local variables, stored once per call, so that LLVM can keep them in registers.
        load, histogram = rates[j], s.histogram[j]
        backlog = processed = offered = latencies = worst = slo = 0.0
        latency = s.latency_s[j]
        known_bin = (0, math.inf, 0.0)  # bin, and its two edges, of the last counted latency
        waits = False  # whether records wait, as far as is known
        drawn_from = -NOISE_SAMPLES * SAMPLE_S  # no noise is drawn yet
        tick = s.tick[j]
        end = tick + seconds
        # One turn of this loop is a stride: up to the next sample where the job runs, else a
        # second.
        while tick < end:
            if tick % SAMPLE_S == 0:
                # Capacities hold for the 5 s of a sample; so does a fault.
                if faulty and draw_faults(t, s, k, j, par):
                    o[OUTCOME.failures] += 1
                if tick == par.deploy_at:
                    deploy(t, s, k, j)
                speed = slowed(s.speed[j], tick, s.slow_until[j], s.tm_count[j], par)
                renew_capacity(n, c, hits, x, speed, s.service_factor[j], par)
            status = s.status[j]
            # Until the first sample after a restart the cache warms second by second, if that is
            # wanted: 5 s are much of a short outage's catch-up.
            warms = par.warms_each_second and status < RESTARTING and s.samples_taken[j] == 0
            if warms:
                warm(n, c, x)
                renew(t, s, fixed, k, j, par)
            single = warms or status != RUNNING
            stride = min(end, tick + 1 if single else tick + SAMPLE_S - tick % SAMPLE_S)
            cores, mib = s.cores[j], s.mib[j]
            span = float(stride - tick)
            o[OUTCOME.core_s] += cores * span
            o[OUTCOME.mib_s] += mib * span
            o[OUTCOME.tm_s] += s.tm_count[j] * span
            # Down: latency grows by one second per second, because nothing reaches the sinks.
            if status >= RESTARTING:
                backlog = stand_still(n, c, upstream, x, load[min(tick, last)], tick)
                offered += load[min(tick, last)]
                latency += 1.0
                latencies += latency
                worst = max(worst, latency)
                o[OUTCOME.down_s] += 1
                slo += 1.0
                s.phase_left_s[j] -= 1.0
                s.tick[j] = stride
                if is_seen:
                    at_sinks = seen[j, tick - end + seconds]
                    at_sinks[SEEN.pending], at_sinks[SEEN.within_s] = backlog, 0.0
                    at_sinks[SEEN.left_s] = s.phase_left_s[j]
                if s.phase_left_s[j] <= 0.0:
                    restart(t, s, k, j, runs)
                    renew(t, s, fixed, k, j, par)
                    waits = False
                known_bin = count_latency(histogram, latency, known_bin)
                if tick < traced_s:
                    note(trace[j, tick], load[min(tick, last)], 0.0, latency, backlog)
            else:
                # A quiet stride is the fast path. It changes nothing where it returns False, so
                # that the same seconds can be taken one by one, with the same result bit for bit.
                count = stride - tick
                quiet = (
                    par.quiet_strides
                    and not waits
                    and status == RUNNING
                    and count == SAMPLE_S
                    and quiet_stride(n, c, upstream, in_share, x, load, tick, q)
                )
                if not quiet:
                    waits = each_second(n, c, upstream, in_share, x, load, tick, count, q)
                lowest, highest = math.inf, 0.0
                # Row n of the lanes is the job: done = load, now = taken, wait_s = latency, due =
                # backlog.
                for i in range(count):
                    latency = q[n, Q.wait_s, i]
                    offered += q[n, Q.done, i]
                    processed += q[n, Q.now, i]
                    latencies += latency
                    lowest, highest = min(lowest, latency), max(highest, latency)
                worst = max(worst, highest)
                backlog = q[n, Q.due, count - 1]
                # Where the last bin holds all latencies of the stride, one addition counts them.
                place, least, most = known_bin
                if least < lowest and highest < most:
                    histogram[place] += span
                else:
                    for i in range(count):
                        known_bin = count_latency(histogram, q[n, Q.wait_s, i], known_bin)
                if highest > slo_s:
                    for i in range(count):
                        if q[n, Q.wait_s, i] > slo_s:
                            slo += 1.0
                if is_seen:
                    see(n, c, q, count, seen[j, tick - end + seconds :])
                for i in range(min(count, traced_s - tick)):
                    line = trace[j, tick + i]
                    rate, taken = q[n, Q.done, i], q[n, Q.now, i]
                    note(line, rate, taken, q[n, Q.wait_s, i], q[n, Q.due, i])
                s.tick[j] = stride
                # At the end of a sample: decide whether it is lost, draw noise for several samples
                # at once where the last draw is used up, and keep it in the ring.
                if stride % SAMPLE_S == 0:
                    known = is_known(s.seed[j], stride - 1, s.gap_until[j], par)
                    drawn = (stride - drawn_from) // SAMPLE_S
                    if noisy and not 0 <= drawn < NOISE_SAMPLES:
                        drawn_from, drawn = stride, 0
                        draw_noise(n, s.seed[j], stride - 1, noise)
                    ring, taken_before = s.samples[j], s.samples_taken[j]
                    job_load = load_of(n, c, x) if t.has_signals[k] else -1.0
                    signals = ShownSignals(job_load, widest(n, c, x), t.responses[k])
                    at = keep_sample(n, c, x, ring, taken_before, known, noise, drawn, par, signals)
                    # The noise of a source's busy time, which it never shows, is that of the load.
                    s.load_samples[j, at] = job_load * (1.0 + par.noise_cv * noise[1, drawn])
                    s.sample_known[j, at] = known
                    s.latency_samples[j, at] = latency
                    s.samples_taken[j] += 1
                # The savepoint counts down while the job still runs; the outage follows.
                if status == SAVEPOINTING:
                    s.phase_left_s[j] -= 1.0
                    if s.phase_left_s[j] <= 0.0:
                        begin_outage(t, s, k, j, par)
            for second in range(tick, min(stride, traced_s)):
                trace[j, second, TRACE.cores], trace[j, second, TRACE.mib] = cores, mib
            tick = stride
        s.latency_s[j] = latency
        o[OUTCOME.seconds] += seconds
        o[OUTCOME.slo_s] += slo
        o[OUTCOME.latency_p95_s] += latencies
        o[OUTCOME.latency_max_s] = max(o[OUTCOME.latency_max_s], worst)
        o[OUTCOME.arrived] += offered
        o[OUTCOME.processed] += processed
        o[OUTCOME.pending] = backlog
        # pending_s is the backlog over the current arrival rate. A log without arrivals is measured
        # by a tenth of the job's reference rate.
        arrivals = max(load[max(0, min(tick - 1, last))], 0.1 * t.rate_per_s[k])
        o[OUTCOME.pending_s] = backlog / arrivals
        # Prices: per core hour and GiB hour of requested resources, and of whole TaskManagers.
        gib_s = o[OUTCOME.mib_s] / 1024.0
        o[OUTCOME.cost] = (o[OUTCOME.core_s] * t.core_hour[k] + gib_s * t.gib_hour[k]) / 3600.0
        tm_hour = t.tm_cores[k] * t.core_hour[k] + t.tm_mib[k] / 1024.0 * t.gib_hour[k]
        o[OUTCOME.cost_provisioned] = o[OUTCOME.tm_s] * tm_hour / 3600.0
