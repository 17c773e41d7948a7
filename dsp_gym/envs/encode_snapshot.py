"""An environment's view of the jobs: rates, targets of the moves, and observation."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats, Floats32, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs import action
from dsp_gym.envs.features import EncoderMemory, encode_rows
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.loop.rates import OFFERED, Ds2Rates, traverse
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct


def look(
    snapshot: MetricsSnapshot,
    encoder: ObservationEncoder,
    ds2_utilization: float,
    rows: Ints | None = None,
) -> Floats32:
    """Encode a snapshot; keep its DS2 rates and the targets of its moves with it.

    Does in one compiled pass the work of `ds2_rates`, `action.targets` and
    `ObservationEncoder.encode`.

    Args:
        snapshot: snapshot of all J jobs, later than the last one.
        encoder: the encoder; its memory advances.
        ds2_utilization: target utilization of DS2's move.
        rows: (n,) jobs to encode; the memory of the others stays. None: all.

    Returns:
        Observations (n, layout.size).
    """
    # One call in place of three: a step of a single job is dominated by calls into compiled code.
    seen = snapshot.arrays
    facts, rates, led = snapshot.topology.handle, Ds2Rates.room(snapshot), action.room(snapshot)
    some, memory, job_at, out = encoder.given(rows)
    _look(some, facts, seen, rates.block, led, ds2_utilization, memory, job_at, out)
    # Other readers of this snapshot find the same rates and targets.
    snapshot.keep(OFFERED, rates)
    snapshot.keep(action.kept_as(ds2_utilization), led)
    return out if rows is None else out[rows]


@direct
@njit(cache=True, nogil=True)
def _look(
    rows: Ints,
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    led: action.MoveTargets,
    ds2_utilization: float,
    memory: Handle[EncoderMemory],
    job_at: int,
    out: Floats32,
) -> None:
    """Fill in rates and targets of all jobs, and encode the given rows, as `encode_rows` does."""
    t = facts.arrays
    traverse(t, seen, True, rates, np.empty(seen.parallelism.shape[1]))
    action.lead(t, seen, rates, ds2_utilization, led)
    encode_rows(rows, t, seen, rates, memory.arrays, job_at, out)
