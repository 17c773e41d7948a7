"""An environment's view of the jobs: rates, targets of the moves, and observation."""

from __future__ import annotations

from typing import NamedTuple

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs import action
from dsp_gym.envs.features import EncoderMemory, EncoderRoom, encode_rows, room_of_thread
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.loop.rates import OFFERED, Ds2Rates, traverse
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.simulation.rows import over_rows


class LookArrays(NamedTuple):
    """The arrays that a look at a snapshot fills in."""

    rates: Floats  # (len(RATES), J, V)
    targets: action.MoveTargets
    observation: Floats32  # (J, size)


def look(
    snapshot: MetricsSnapshot,
    encoder: ObservationEncoder,
    ds2_utilization: float,
    rows: Ints | None = None,
    threads: int = 1,
) -> Floats32:
    """Encode a snapshot; keep its DS2 rates and the targets of its moves with it.

    Does in one compiled pass the work of `ds2_rates`, `action.targets` and
    `ObservationEncoder.encode`.

    Args:
        snapshot: snapshot of all J jobs, later than the last one.
        encoder: the encoder; its memory advances.
        ds2_utilization: target utilization of DS2's move.
        rows: (n,) jobs to encode; the memory of the others stays. None: all.
        threads: number of threads the jobs are split over.

    Returns:
        Observations (n, layout.size).
    """
    # One call in place of three: a step of a single job is dominated by calls into compiled code.
    seen, facts = snapshot.arrays, snapshot.topology.handle
    jobs, vertices = seen.parallelism.shape
    rates, led = Ds2Rates.room(snapshot), action.room(snapshot)
    chosen, memory, out = encoder.given(rows)
    made = LookArrays(rates.block, led, out)

    def work(low: int, high: int) -> None:
        room = room_of_thread(vertices)
        _look(chosen, facts, seen, ds2_utilization, low, high, memory, room, made)

    over_rows(work, jobs, threads)
    # Other readers of this snapshot find the same rates and targets.
    snapshot.keep(OFFERED, rates)
    snapshot.keep(action.kept_as(ds2_utilization), led)
    return out if rows is None else out[rows]


@direct
@njit(cache=True, nogil=True)
def _look(
    chosen: Bools,
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    ds2_utilization: float,
    low: int,
    high: int,
    memory: Handle[EncoderMemory],
    room: Handle[EncoderRoom],
    made: LookArrays,
) -> None:
    """Fill in rates and targets of jobs low..high-1, and encode the chosen ones of them."""
    t, own = facts.arrays, room.arrays
    traverse(t, seen, True, low, high, made.rates, own.emitted)
    action.lead(t, seen, made.rates, ds2_utilization, low, high, made.targets)
    encode_rows(chosen, t, seen, made.rates, low, high, memory.arrays, own, made.observation)
