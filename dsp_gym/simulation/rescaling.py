"""Savepoint, outage, restart; and the faults that force them."""

from __future__ import annotations

from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE, JobTables
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import RESTARTING, RUNNING, SAVEPOINTING
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.simulation import philox as rng
from dsp_gym.simulation.capacity import configure, renew
from dsp_gym.simulation.options import Parameters
from dsp_gym.simulation.state import OUTCOME, Model, S, SimulationState, X

PENDING, FAILED = int(ActuatorStatus.PENDING), int(ActuatorStatus.FAILED)

Row = Floats


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def restart(t: JobTables, s: SimulationState, k: int, j: int, runs: Row) -> None:
    """Restart the job: new configuration, counters at zero, cache cold, window empty.

    j is the job of the batch, k its row of the tables t; x is the state of its vertex v; `runs` is
    scratch of `bin_pack`.
    """
    before = after = 0
    for v in range(t.n[k]):
        if t.kind[k, v] != SOURCE:
            before = max(before, s.parallelism[j, v])
            after = max(after, s.next_parallelism[j, v])
    added = (after - before) / after if 0 < before < after and t.cold_s[k] > 0.0 else 0.0
    for v in range(t.n[k]):
        s.parallelism[j, v] = s.next_parallelism[j, v]
        s.level[j, v] = s.next_level[j, v]
        x = s.vertex[j, v]
        x[X.cached] = 0.0
        x[X.cold], x[X.cold_s], x[X.held] = added, t.cold_s[k], added * x[X.pending]
        # Flink's counters begin at zero in new tasks; past_* keep the totals since reset.
        x[X.past_in] += x[X.records_in]
        x[X.past_out] += x[X.records_out]
        x[X.records_in] = x[X.records_out] = x[X.last_in] = 0.0
        x[X.hits] = x[X.misses] = 0.0
        x[X.sample_back] = x[X.gauge_busy] = x[X.gauge_back] = 0.0
    s.samples_taken[j] = 0
    s.running_since[j] = s.tick[j]
    s.outage_s[j] = float(s.tick[j] - s.outage_begun[j])
    s.status[j] = RUNNING
    configure(t, s, k, j, runs)


@direct
@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def start(model: Handle[Model], state: Handle[SimulationState], jobs: Ints, runs: Row) -> None:
    """Bring jobs up in their next configuration, as after a reset; `runs` is scratch."""
    m, s = model.arrays, state.arrays
    t, row, fixed, par = m.t, m.row, m.fixed, m.par
    for i in range(jobs.shape[0]):
        j = jobs[i]
        restart(t, s, row[j], j, runs)
        renew(t, s, fixed, row[j], j, par)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def outage_draw(t: JobTables, k: int, u: float) -> float:
    """Return the outage of job file k at quantile u, by its three measured quantiles.

    Linear between p10, p50 and p90, with short linear tails beyond.

    Returns:
        Seconds.
    """
    low, middle, high = t.outage_s[k, 0], t.outage_s[k, 1], t.outage_s[k, 2]
    # u = 0 gives 0.8 p10; u = 1 gives p90 + (p90 - p50) / 4.
    if u < 0.1:
        return float(low * (0.8 + 2.0 * u))
    if u < 0.5:
        return float(low + (middle - low) * (u - 0.1) / 0.4)
    if u < 0.9:
        return float(middle + (high - middle) * (u - 0.5) / 0.4)
    return float(high + (high - middle) * 2.5 * (u - 0.9))


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def restore_s(t: JobTables, s: SimulationState, k: int, j: int) -> float:
    """Return the seconds in which job j, row k of the tables t, reads all its state back."""
    total_mib = 0.0
    for v in range(t.n[k]):
        total_mib += s.vertex[j, v, X.state]
    return float(total_mib / t.restore_mib_s[k])


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def begin_outage(t: JobTables, s: SimulationState, k: int, j: int, par: Parameters) -> None:
    """Stop the job; it restarts with its next configuration."""
    # The draw is keyed by the number of rescales, not by time: the same rescale lasts equally long
    # whenever it comes.
    word, other = rng.philox(s.seed[j], rng.OUTAGE, s.rescales[j], 0)
    # Restoring adds the time to read all state back from the checkpoint.
    s.phase_left_s[j] = outage_draw(t, k, rng.uniform(word)) + restore_s(t, s, k, j)
    s.rescale_failed[j] = 0
    # A failed rescale costs its outage, and restarts the old configuration.
    if rng.uniform(other) < par.failed_rescale:
        s.rescale_failed[j] = 1
        keep_configuration(t, s, k, j)
    if t.in_place[k] and t.checkpoint_s[k] > 0.0:
        read_again(t, s, k, j)
    s.status[j] = RESTARTING
    s.outage_begun[j] = s.tick[j]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def read_again(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """Put back into the logs what job j has read since its last checkpoint.

    The checkpoint is uniformly long ago, up to the interval, and no longer than the job has run.
    """
    word, _ = rng.philox(s.seed[j], rng.OUTAGE, s.tick[j], 2)
    since_s = t.checkpoint_s[k] * rng.uniform(word)
    ring, taken = s.samples.shape[1], s.samples_taken[j]
    # The rate over an interval of samples, at least one: the ring has the counters of each.
    span = min(taken, max(1, int(t.checkpoint_s[k]) // SAMPLE_S), ring - 1)
    if span == 0:
        return
    for v in range(t.n[k]):
        if t.kind[k, v] == SOURCE:
            x = s.vertex[j, v]
            counted = s.samples[j, (taken - 1) % ring, v, S.records_in]
            before = s.samples[j, (taken - 1 - span) % ring, v, S.records_in]
            per_s = (counted - (before if taken > span else 0.0)) / (span * SAMPLE_S)
            x[X.pending] += min(x[X.records_in], since_s * per_s)


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def keep_configuration(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """Let the job restart with its old configuration."""
    for v in range(t.n[k]):
        s.next_parallelism[j, v] = s.parallelism[j, v]
        s.next_level[j, v] = s.level[j, v]


@direct
@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def ask(
    model: Handle[Model],
    state: Handle[SimulationState],
    parallelism: Ints,
    level: Ints,
    low: int,
    high: int,
    answer: Ints,
    outcome: Row,
    runs: Row,
) -> None:
    """Start rescaling those of jobs low..high-1 that run and whose wanted configuration differs.

    Args:
        model: Compiled jobs; k is the row of job j.
        state: State of the batch, changed in place.
        parallelism: (J, V) wanted subtasks.
        level: (J, V) wanted memory levels.
        low: First job.
        high: One past the last job.
        answer: (J,) becomes PENDING where a rescale started, FAILED where the job was not
            running; it stays where no change was asked for.
        outcome: (J, len(OUTCOME)), rescales are counted.
        runs: Scratch of `bin_pack`, one per thread.
    """
    m, s = model.arrays, state.arrays
    t, row, par = m.t, m.row, m.par
    # Two passes: the first only compares, so that an unchanged job is left alone.
    for j in range(low, high):
        k = row[j]
        differs = False
        for v in range(t.n[k]):
            # Requests beyond the job's bounds are clipped before they are compared.
            p = min(max(parallelism[j, v], t.min_parallelism[k, v]), t.max_parallelism[k, v])
            x = min(max(level[j, v], -1), t.levels[k] - 1)
            if p != s.parallelism[j, v] or x != s.level[j, v]:
                differs = True
        if not differs:
            continue
        if s.status[j] != RUNNING:
            answer[j] = FAILED
            continue
        answer[j] = PENDING
        drain = state_mib = 0.0
        for v in range(t.n[k]):
            x = s.vertex[j, v]
            s.next_parallelism[j, v] = min(
                max(parallelism[j, v], t.min_parallelism[k, v]), t.max_parallelism[k, v]
            )
            s.next_level[j, v] = min(max(level[j, v], -1), t.levels[k] - 1)
            state_mib += x[X.state]
            # A savepoint waits until the queues before its barrier have drained, vertex after
            # vertex.
            drain += x[X.queue] / max(x[X.capacity], 1e-9)
        s.rescales[j] += 1
        outcome[j, OUTCOME.rescales] += 1.0
        # Four kinds of rescale: without cost (mechanism off); in place at once; in place with the
        # next checkpoint, uniformly far off; or with a savepoint of all state.
        if par.rescale == 0:
            s.outage_begun[j] = s.tick[j]
            restart(t, s, k, j, runs)
        elif t.in_place[k] and par.checkpoint_s == 0.0:
            begin_outage(t, s, k, j, par)
        elif t.in_place[k]:
            word, _ = rng.philox(s.seed[j], rng.OUTAGE, s.rescales[j], 1)
            s.status[j] = SAVEPOINTING
            s.phase_left_s[j] = par.checkpoint_s * rng.uniform(word)
        else:
            s.status[j] = SAVEPOINTING
            s.phase_left_s[j] = drain + state_mib / t.savepoint_mib_s[k]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def deploy(t: JobTables, s: SimulationState, k: int, j: int) -> None:
    """Stop job j, row k of the tables t, to restart as it was in another version of its code."""
    if s.status[j] >= RESTARTING:
        return  # the restart under way is that of the new version
    # A deploy during a savepoint loses the rescale.
    if s.status[j] == SAVEPOINTING:
        s.rescale_failed[j] = 1
    keep_configuration(t, s, k, j)
    word, _ = rng.philox(s.seed[j], rng.OUTAGE, s.tick[j], 3)
    s.phase_left_s[j] = outage_draw(t, k, rng.uniform(word)) + restore_s(t, s, k, j)
    s.status[j] = RESTARTING
    s.outage_begun[j] = s.tick[j]


@njit(cache=True, nogil=True, error_model="numpy", borrows=True)
def draw_faults(t: JobTables, s: SimulationState, k: int, j: int, par: Parameters) -> bool:
    """Draw the faults of the coming 5 s.

    Returns:
        True where job j, row k of the tables t, just failed.
    """
    # One word per kind of fault, so that changing one rate does not move the others' draws.
    first, second = rng.philox(s.seed[j], rng.FAULT, s.tick[j], 0)
    third, _ = rng.philox(s.seed[j], rng.FAULT, s.tick[j], 1)
    share = SAMPLE_S / 3600.0
    if rng.uniform(second) < par.slow_per_hour * share:
        s.slow_until[j] = s.tick[j] + int(par.slow_s)
    if rng.uniform(third) < par.gaps_per_hour * share:
        s.gap_until[j] = s.tick[j] + int(par.gap_s)
    if rng.uniform(first) < par.failures_per_hour * share and s.status[j] != RESTARTING:
        # A failure during a savepoint loses the rescale: the old configuration restarts.
        if s.status[j] == SAVEPOINTING:
            s.rescale_failed[j] = 1
        keep_configuration(t, s, k, j)
        if t.checkpoint_s[k] > 0.0:
            read_again(t, s, k, j)
        s.status[j] = RESTARTING
        s.outage_begun[j] = s.tick[j]
        s.phase_left_s[j] = par.recovery_s
        return True
    return False
