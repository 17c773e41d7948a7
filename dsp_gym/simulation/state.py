"""The state of a batch of simulated jobs: plain arrays, saved and restored exactly.

Every array of numbers has a table here: one row per column with its name, unit and meaning. The
order of the rows is the order in memory; compiled code writes `x[v, X.queue]`, where `X.queue` is a
constant.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from dsp_gym.arrays import Column, Floats, Ints, Row, filled, indices, numbered
from dsp_gym.job.tables import JobTables
from dsp_gym.loop.outcome import OUTCOME_FIELDS
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import FRESH_S
from dsp_gym.simulation.options import Parameters, SimulationOptions

LATENCY_BINS = 64
LATENCY_MIN_S, LATENCY_MAX_S = 1e-3, 1e5


class _Vertex(NamedTuple):
    """The changing state of a vertex."""

    queue: Annotated[int, Row("records", "in input buffers")]
    outbox: Annotated[int, Row("records", "window results not yet taken downstream")]
    pane: Annotated[int, Row("records", "window results of the open pane")]
    since: Annotated[int, Row("records", "a window took in since it last fired")]
    periods: Annotated[int, Row("", "of a window that have ended and not fired")]
    missing: Annotated[int, Row("records", "to take in before all of these have fired")]
    behind: Annotated[int, Row("records", "offered to the job that have not come in yet")]
    content: Annotated[int, Row("records", "in state")]
    cached: Annotated[int, Row("MiB", "block cache filled, per subtask")]
    pending: Annotated[int, Row("records", "in the log, sources")]
    capacity: Annotated[int, Row("records/s", "the vertex can process now")]
    noise: Annotated[int, Row("", "of the service time until the next sample, standard normal")]
    service_s: Annotated[int, Row("s", "of one record on one subtask now")]
    hit: Annotated[int, Row("0..1", "share of reads that go to no SST file now")]
    covered: Annotated[int, Row("0..1", "share of reads the MemTable serves now")]
    state: Annotated[int, Row("MiB", "live state of all subtasks")]
    records_in: Annotated[int, Row("records", "received since the last restart")]
    records_out: Annotated[int, Row("records", "sent since the last restart")]
    hits: Annotated[int, Row("lookups", "block cache hits since the last restart")]
    misses: Annotated[int, Row("lookups", "block cache misses since the last restart")]
    last_in: Annotated[int, Row("records", "received, as of the last sample")]
    past_in: Annotated[int, Row("records", "received in all earlier runs since reset")]
    past_out: Annotated[int, Row("records", "sent in all earlier runs since reset")]
    arrived: Annotated[int, Row("records", "offered to a source since reset")]
    tasks: Annotated[int, Row("subtasks", "of the running configuration, as the following nine")]
    useful: Annotated[int, Row("subtasks", "linear-equivalent")]
    hot: Annotated[int, Row(">= 1", "load of the hottest subtask over the mean")]
    cache: Annotated[int, Row("MiB", "block cache per subtask")]
    write_factor: Annotated[int, Row("", "write cost of a small MemTable")]
    buffer: Annotated[int, Row("records", "room in input buffers")]
    memtable: Annotated[int, Row("MiB", "state whose reads a MemTable serves")]
    miss_s: Annotated[int, Row("s", "of one block that misses the cache")]
    busy_per: Annotated[int, Row("s", "busy time of the vertex per record")]
    load_per: Annotated[int, Row("s", "share of capacity per record/s")]
    sample_back: Annotated[int, Row("s", "backpressured in the open 5 s sample")]
    gauge_busy: Annotated[int, Row("", "sum of busy shares of the samples in the time gauge")]
    gauge_back: Annotated[int, Row("", "the same of backpressured shares")]
    allowed: Annotated[int, Row("records", "it may process in this second; scratch, as the rest")]
    offer: Annotated[int, Row("records", "that follow for it from what the job is offered")]
    emit: Annotated[int, Row("records", "window results it puts out")]
    blocked: Annotated[int, Row("0..1", "of this second a window waits to be rid of its results")]
    now: Annotated[int, Row("records", "it puts out")]
    wait_s: Annotated[int, Row("s", "p95 latency up to here")]
    lookups: Annotated[int, Row("blocks", "a read looks up that no MemTable serves")]
    compacted: Annotated[int, Row("blocks", "that compactions read per write")]
    compaction_s: Annotated[int, Row("s", "of the running configuration, per such block")]
    flush: Annotated[int, Row("MiB", "the same: a MemTable when it is flushed")]
    memory: Annotated[int, Row("", "the same: memory level + 1")]
    cold: Annotated[int, Row("0..1", "share of a source's log that waits for tasks just added")]
    cold_s: Annotated[int, Row("s", "until these begin")]
    held: Annotated[int, Row("records", "in that share")]


X = numbered(_Vertex)
"""Columns of a vertex's state, `SimulationState.vertex`; x stands for the rows of one job."""


class _Fixed(NamedTuple):
    """The constants of a vertex, from its job file; columns of `JobTables` but the last two."""

    kind: Annotated[int, Row("", "SOURCE, OPERATOR, SINK")]
    source_share: Annotated[int, Row("0..1", "of the job's load a source reads")]
    selectivity: Annotated[int, Row("", "records out per record in")]
    cpu_s: Annotated[int, Row("s", "of one record")]
    reads: Annotated[int, Row("", "state reads per record")]
    writes: Annotated[int, Row("", "state writes per record")]
    read_hit_s: Annotated[int, Row("s", "of a read that hits the cache")]
    write_s: Annotated[int, Row("s", "of a write")]
    keys: Annotated[int, Row("", "distinct keys")]
    entry_mib: Annotated[int, Row("MiB", "per state entry")]
    unshared_mib: Annotated[int, Row("MiB", "working set every subtask has for itself")]
    panes: Annotated[int, Row("", "a record belongs to")]
    prefilled: Annotated[int, Row("0, 1", "state is full from the start")]
    stateful: Annotated[int, Row("0, 1", "keeps keyed state")]
    window: Annotated[int, Row("", "NO_WINDOW, TUMBLING, SLIDING, SESSION")]
    length_s: Annotated[int, Row("s", "of the window")]
    slide_s: Annotated[int, Row("s", "of the window")]
    level0_files: Annotated[int, Row("files", "that start a compaction, 0: none")]
    blocks_per_entry: Annotated[int, Row("blocks", "a state entry takes")]
    churn: Annotated[int, Row("0..1", "share of cached blocks replaced since")]
    index_hits: Annotated[int, Row("", "cached lookups beside each data block")]
    has_log: Annotated[int, Row("0, 1", "what is not read waits in a log")]
    least_per_s: Annotated[int, Row("records/s", "least rate a waiting time is counted with")]


C = numbered(_Fixed)
"""Columns of `fixed_columns`; c stands for the rows of one job."""


class _Sample(NamedTuple):
    """A 5 s sample of a vertex."""

    records_in: Annotated[int, Row("records", "received since the last restart")]
    records_out: Annotated[int, Row("records", "sent since the last restart")]
    busy: Annotated[int, Row("0..1", "gauge of 60 s; a sum")]
    busy_max: Annotated[int, Row("0..1", "the same of the hottest subtask; a sum")]
    back: Annotated[int, Row("0..1", "backpressured, gauge of 60 s; a sum")]
    hits: Annotated[int, Row("lookups", "block cache hits since the last restart")]
    misses: Annotated[int, Row("lookups", "block cache misses since the last restart")]
    read_s: Annotated[int, Row("s", "of one state read; a sum")]
    write_s: Annotated[int, Row("s", "of one state write; a sum")]
    pending: Annotated[int, Row("records", "in the log at the end of the sample")]
    raw_busy: Annotated[int, Row("0..1", "in this sample alone")]
    raw_back: Annotated[int, Row("0..1", "backpressured, in this sample alone")]
    state: Annotated[int, Row("MiB", "live state of all subtasks")]
    cached: Annotated[int, Row("MiB", "block cache filled, per subtask")]


S = numbered(_Sample)
"""Columns of a sample, `SimulationState.samples`.

Sums are over the known samples since the restart; counters count on through lost ones.
"""


class _Trace(NamedTuple):
    """A second of a job, kept for plots."""

    rate: Annotated[int, Row("records/s", "offered")]
    processed: Annotated[int, Row("records", "taken from the log")]
    latency: Annotated[int, Row("s", "p95")]
    cores: Annotated[int, Row("cores", "requested")]
    mib: Annotated[int, Row("MiB", "requested")]
    pending: Annotated[int, Row("records", "in the log")]


TRACE = numbered(_Trace)
"""Columns of a trace, (J, seconds, len(TRACE))."""


class _Seen(NamedTuple):
    """A second of a job, as its sinks and its log show it."""

    pending: Annotated[int, Row("records", "in the log")]
    within_s: Annotated[int, Row("s", "from the sources to the sinks")]
    left_s: Annotated[int, Row("s", "of the outage, after it; NaN: the job is up")]


SEEN = numbered(_Seen)
"""Columns of what is seen of seconds, (J, seconds, len(SEEN))."""

OUTCOME = indices("OUTCOME", OUTCOME_FIELDS)
"""Columns of an outcome, (J, len(OUTCOME)): the fields of `loop.outcome.Outcome`."""


class Model(NamedTuple):
    """The constants of a simulated batch of jobs."""

    t: JobTables
    row: Ints  # (J,) row of the tables of each job
    fixed: Floats  # (K, V, len(C)) columns C of each vertex
    par: Parameters


class SimulationState(NamedTuple):
    """Arrays of J jobs, V vertices, R ring samples. Records, seconds, MiB."""

    seed: Annotated[Ints, Column("J", "", "of every random stream of the job")]
    tick: Annotated[Ints, Column("J", "s", "since reset")]
    status: Annotated[Ints, Column("J", "Status", "job status")]
    phase_left_s: Annotated[Floats, Column("J", "s", "of a savepoint or an outage")]
    running_since: Annotated[Ints, Column("J", "s", "tick at which the job last became RUNNING")]
    outage_begun: Annotated[Ints, Column("J", "s", "tick at which the last outage began")]
    outage_s: Annotated[Floats, Column("J", "s", "the last outage")]
    rescales: Annotated[Ints, Column("J", "", "asked for so far: the counter of outage draws")]
    rescale_failed: Annotated[
        Ints, Column("J", "0, 1", "the last rescale kept the old configuration")
    ]
    tm_count: Annotated[Ints, Column("J", "TaskManagers", "of the running configuration")]
    cores: Annotated[Floats, Column("J", "cores", "requested, of the running configuration")]
    mib: Annotated[Floats, Column("J", "MiB", "requested, of the running configuration")]
    speed: Annotated[Floats, Column("J", "0..1", "left by contention on a full TaskManager")]
    slow_until: Annotated[Ints, Column("J", "s", "tick at which a slow TaskManager recovers")]
    gap_until: Annotated[Ints, Column("J", "s", "tick at which metrics come back")]
    latency_s: Annotated[Floats, Column("J", "s", "of the last second")]
    samples_taken: Annotated[Ints, Column("J", "samples", "since the last restart")]
    service_factor: Annotated[
        Floats, Column("J", "", "scales CPU times: two jobs of one kind differ")
    ]
    delay_s: Annotated[Ints, Column("J", "s", "age of the newest sample that has arrived")]
    parallelism: Annotated[Ints, Column("J V", "subtasks", "running")]
    level: Annotated[Ints, Column("J V", "level", "memory level running")]
    next_parallelism: Annotated[Ints, Column("J V", "subtasks", "after the rescale under way")]
    next_level: Annotated[Ints, Column("J V", "level", "after the rescale under way")]
    vertex: Annotated[Floats, Column("J V X", "", "columns X")]
    samples: Annotated[Floats, Column("J R V S", "", "ring of samples, columns S")]
    sample_known: Annotated[Ints, Column("J R", "0, 1", "the sample was not lost")]
    latency_samples: Annotated[Floats, Column("J R", "s", "latency of each sample")]
    load_samples: Annotated[
        Floats, Column("J R", "0..1", "load of each sample, where the job has signals")
    ]
    histogram: Annotated[Floats, Column("J bins", "s", "seconds per latency bin since reset")]


def ring_length(options: SimulationOptions, checkpoint_s: float) -> int:
    """Count the samples to keep: the window or the gauges, and the delay.

    Args:
        options: Window, gauges and delay.
        checkpoint_s: Longest interval of checkpoints, after whose samples a failure looks.

    Returns:
        Number of 5 s samples.
    """
    measured = options.measurement
    # The gauges are means of 60 s, which end with a sample that is still fresh.
    seen = max(measured.window_s, FRESH_S + measured.gauge_s) + measured.longest_delay_s
    # Two more: the row before the window, from which sums are differenced, and the open one.
    kept = max(seen // SAMPLE_S + 2, int(checkpoint_s) // SAMPLE_S + 1)
    # Failures look no further back than they did when the gauges had samples of their own.
    most = measured.window_s + measured.longest_delay_s
    return min(kept, most // SAMPLE_S + measured.gauge_s // SAMPLE_S + 2)


def allocate(tables: JobTables, jobs: int, options: SimulationOptions) -> SimulationState:
    """Allocate the arrays of a batch of simulated jobs before their reset.

    Args:
        tables: The compiled jobs.
        jobs: J, rows of the batch.
        options: They give the number of samples kept.

    Returns:
        A state of zeros.
    """
    sizes = {
        "J": jobs,
        "V": tables.kind.shape[1],
        "R": ring_length(options, float(tables.checkpoint_s.max())),
        "X": len(X),
        "S": len(S),
        "bins": LATENCY_BINS,
    }
    # `filled` reads the annotations of the fields: dimensions and dtype stand there only.
    return filled(SimulationState, sizes)


def fixed_columns(tables: JobTables) -> Floats:
    """Gather the columns that the kernel reads of a vertex, side by side in memory.

    Returns:
        Columns `C` of K jobs of V vertices, (K, V, len(C)).
    """
    shape = tables.kind.shape
    # A queue's delay is its length over the vertex's throughput. A vertex blocked for a whole
    # second has none, so a hundredth of the rate the job is made for is the least one used.
    made = {
        "has_log": np.broadcast_to(tables.has_log[:, None], shape),
        "least_per_s": np.maximum(1e-9, 0.01 * tables.rate_per_s[:, None] * tables.ratio),
    }
    # C-contiguous with the columns last: a vertex is three cache lines, read once per second.
    columns = [made[n] if n in made else getattr(tables, n) for n in C._fields]
    return np.ascontiguousarray(np.stack([c.astype(np.float64) for c in columns], axis=-1))
