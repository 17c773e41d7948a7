"""The state of a batch of simulated jobs: plain arrays, saved and restored exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.tables import JobTables
from dsp_gym.simulation.options import SAMPLE_S, SimulationOptions

LATENCY_BINS = 64
LATENCY_MIN_S, LATENCY_MAX_S = 1e-3, 1e5

# columns of a 5 s sample, per vertex
(
    S_IN,
    S_OUT,
    S_BUSY,
    S_BUSY_MAX,
    S_BACK,
    S_HITS,
    S_MISSES,
    S_READ,
    S_WRITE,
    S_PENDING,
    S_RAW_BUSY,
    S_RAW_BACK,
) = range(12)
SAMPLE_COLUMNS = 12
SUMMED_COLUMNS = S_WRITE + 1
"""Columns summed since the restart; busy, busiest and backpressured are gauges of 60 s."""


# columns of a vertex: what changes
(
    X_QUEUE,  # records in input buffers
    X_OUTBOX,  # window results not yet taken downstream
    X_PANE,  # window results of the open pane
    X_CONTENT,  # records in state
    X_CACHED,  # MiB of block cache filled, per subtask
    X_PENDING,  # records in the log, sources
    X_CAPACITY,  # records/s the vertex can process now
    X_NOISE,  # of the service time until the next sample, standard normal
    X_SERVICE,  # seconds of one record on one subtask now
    X_HIT,  # share of reads that go to no SST file now
    X_COVERED,  # share of reads the MemTable serves now
    X_STATE,  # MiB, all subtasks
    X_IN,
    X_OUT,
    X_HITS,
    X_MISSES,  # counters since the last restart
    X_LAST_IN,
    X_LAST_OUT,  # the same at the last sample
    X_PAST_IN,
    X_PAST_OUT,  # counters of all earlier runs since reset: with X_IN, X_OUT conserved
    X_ARRIVED,  # records offered to a source since reset
    # what follows from the running configuration
    X_P,
    X_USEFUL,
    X_HOT,
    X_CACHE,
    X_WRITE_FACTOR,
    X_BUFFER,
    X_MEMTABLE,
    X_MISS,
    X_BUSY_PER,
    X_LOAD_PER,  # busy seconds, and share of capacity, per record and second
    X_S_BACK,  # backpressured seconds of the open 5 s sample
    X_G_BUSY,
    X_G_BACK,  # sums of the samples in the time gauges
    # scratch of one second
    X_ALLOWED,
    X_EMIT,
    X_NOW,
    X_WAIT,
) = range(38)
VERTEX_COLUMNS = 38

# columns of a vertex: what the job file fixes
(
    C_KIND,
    C_SHARE,
    C_SELECTIVITY,
    C_CPU,
    C_READS,
    C_WRITES,
    C_READ_HIT,
    C_WRITE,
    C_KEYS,
    C_ENTRY,
    C_UNSHARED,
    C_PANES,
    C_PREFILLED,
    C_STATEFUL,
    C_WINDOW,
    C_LENGTH,
    C_SLIDE,
    C_CHURN,
    C_INDEX,
    C_HAS_LOG,
    C_LEAST,
) = range(21)
FIXED = (
    "kind",
    "source_share",
    "selectivity",
    "cpu_s",
    "reads",
    "writes",
    "read_hit_s",
    "write_s",
    "keys",
    "entry_mib",
    "unshared_mib",
    "panes",
    "prefilled",
    "stateful",
    "window",
    "length_s",
    "slide_s",
    "churn",
    "index_hits",
)

# columns of an outcome, per job
(
    O_SECONDS,
    O_SLO,
    O_DOWN,
    O_LATENCY,
    O_LATENCY_MAX,
    O_ARRIVED,
    O_PROCESSED,
    O_PENDING,
    O_PENDING_S,
    O_CORE_S,
    O_MIB_S,
    O_TM_S,
    O_COST,
    O_COST_PROVISIONED,
    O_RESCALES,
    O_FAILURES,
) = range(16)
OUTCOME_COLUMNS = 16

# columns of a trace, per job and second
(T_RATE, T_PROCESSED, T_LATENCY, T_CORES, T_MIB, T_PENDING) = range(6)
TRACE_COLUMNS = 6


class SimulationState(NamedTuple):
    """Arrays of J jobs, V vertices, R ring samples. Records, seconds, MiB."""

    seed: Ints  # (J,)
    tick: Ints  # (J,) seconds since reset
    status: Ints  # (J,) loop.snapshot.Status
    phase_left_s: Floats  # (J,) of a savepoint or an outage
    running_since: Ints  # (J,) tick at which the job last became RUNNING
    outage_begun: Ints  # (J,)
    outage_s: Floats  # (J,) the last outage
    rescales: Ints  # (J,) asked for so far: the counter of outage draws
    rescale_failed: Ints  # (J,) the last rescale came back with the old configuration
    tm_count: Ints  # (J,)
    cores: Floats  # (J,) requested, of the running configuration
    mib: Floats  # (J,)
    speed: Floats  # (J,) left by contention on a full TaskManager
    slow_until: Ints  # (J,)
    gap_until: Ints  # (J,)
    latency_s: Floats  # (J,) of the last second
    samples_taken: Ints  # (J,) since the last restart
    service_factor: Floats  # (J,) scales every CPU time: what makes two jobs of one kind differ
    parallelism: Ints  # (J, V) running
    level: Ints  # (J, V)
    next_parallelism: Ints  # (J, V) after the rescale under way
    next_level: Ints  # (J, V)
    vertex: Floats  # (J, V, VERTEX_COLUMNS)
    samples: Floats  # (J, R, V, SAMPLE_COLUMNS) ring
    sample_known: Ints  # (J, R)
    latency_samples: Floats  # (J, R)
    histogram: Floats  # (J, LATENCY_BINS) seconds per latency bin since reset


def ring_length(options: SimulationOptions) -> int:
    """Samples kept: window, the gauges' own 60 s before it, and the delay."""
    measured = options.measurement
    return (measured.window_s + measured.delay_s) // SAMPLE_S + measured.gauge_s // SAMPLE_S + 2


def allocate(tables: JobTables, jobs: int, options: SimulationOptions) -> SimulationState:
    """A state of zeros; `reset` of the simulated jobs fills it."""
    size_v, ring = tables.kind.shape[1], ring_length(options)
    per_job = {
        "seed",
        "tick",
        "status",
        "phase_left_s",
        "running_since",
        "outage_begun",
        "outage_s",
        "rescales",
        "rescale_failed",
        "tm_count",
        "cores",
        "mib",
        "speed",
        "slow_until",
        "gap_until",
        "latency_s",
        "samples_taken",
        "service_factor",
    }
    shapes = {
        "vertex": (jobs, size_v, VERTEX_COLUMNS),
        "samples": (jobs, ring, size_v, SAMPLE_COLUMNS),
        "sample_known": (jobs, ring),
        "latency_samples": (jobs, ring),
        "histogram": (jobs, LATENCY_BINS),
    }
    arrays: dict[str, Any] = {
        name: np.zeros(
            shapes.get(name, (jobs,) if name in per_job else (jobs, size_v)),
            np.int64 if "Ints" in str(annotation) else np.float64,
        )
        for name, annotation in SimulationState.__annotations__.items()
    }
    return SimulationState(**arrays)


def fixed_columns(tables: JobTables) -> Floats:
    """(K, V, len(FIXED) + 2): what the kernel reads of a vertex, side by side in memory."""
    columns = [getattr(tables, name).astype(np.float64) for name in FIXED]
    columns.append(np.broadcast_to(tables.has_log[:, None], tables.kind.shape).astype(np.float64))
    # What waits is divided by what leaves; a vertex that is blocked for a second leaves nothing, so
    # at least this rate is taken: a hundredth of what the job is made for.
    columns.append(np.maximum(1e-9, 0.01 * tables.rate_per_s[:, None] * tables.ratio))
    return np.ascontiguousarray(np.stack(columns, axis=-1))
