"""Rest between rescales, and a longer rest before a move is reversed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, Working, working
from dsp_gym.loop.per_job_state import Per, RowMemory
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct


class CoolDownConfig(ConfigModel):
    """Periods of rest, s."""

    kind: Literal["cool_down"] = Field("cool_down", description="this guardrail")
    scale_up_s: float = Field(
        0.0, ge=0, description="rest after a (re)start before tasks are added, s (Flink: none)"
    )
    scale_down_s: float = Field(
        300.0, ge=0, description="rest after a (re)start before tasks or memory are taken, s"
    )
    reversal_s: float = Field(
        600.0, ge=0, description="rest before a vertex moves against its last move, s (flapping)"
    )


class RestPeriods(NamedTuple):
    """The configuration for compiled code, s."""

    up: float
    down: float
    reversal: float


class LastMoves(NamedTuple):
    """The memory for compiled code: the last observed configuration, and the move to it."""

    seen: Bools  # (J,) False: no configuration yet
    parallelism: Ints  # (J, V)
    level: Ints  # (J, V)
    moved: Ints  # (J, V) direction of the last move: -1, 0, 1
    moved_s: Floats  # (J, V) its time


MOVES: dict[str, tuple[Per, bool | int | float]] = {
    "seen": ("job", False),
    "parallelism": ("vertex", 0),
    "level": ("vertex", -1),
    "moved": ("vertex", 0),
    "moved_s": ("vertex", -1e18),
}
"""Fields of `LastMoves`, and their first values."""


class CoolDown(Restriction):
    """Hold back moves that come too soon after a rescale, or against the last move.

    The last move follows from the running configurations, so a move of another client counts, too.
    """

    name = "cool_down"

    def __init__(self, config: CoolDownConfig | None = None) -> None:
        super().__init__(RowMemory(MOVES))
        self.config = c = config or CoolDownConfig()
        self.rules = RestPeriods(c.scale_up_s, c.scale_down_s, c.reversal_s)

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        work = working(parallelism, level)
        _rest(snapshot.topology.facts, snapshot.arrays, self.rules, self.table(), work)
        return work.trips

    def table(self) -> LastMoves:
        """Return the memory for compiled code, the same until `reset` or `restore`.

        Returns:
            The last moves.
        """
        return self._memory.arrays(LastMoves)

    def set_forward(self, seconds: float) -> None:
        """Count the rest after a move from as long ago as before."""
        self._memory["moved_s"][...] += seconds

    def watch(self, snapshot: MetricsSnapshot) -> None:
        _remember(snapshot.topology.handle, snapshot.arrays, self._memory.handle(LastMoves))

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        age = snapshot.t_s[job] - snapshot.running_since_s[job]
        return (
            f"running for {age:.0f} s since the last rescale; the cool-down is "
            f"{self.config.scale_up_s:g} s before scaling up, {self.config.scale_down_s:g} s "
            f"before scaling down, {self.config.reversal_s:g} s before a reversal"
        )


@njit(cache=True, nogil=True)
def _direction(p: int, level: int, p_before: int, level_before: int) -> int:
    """Return 1 for more tasks or memory, -1 for less, 0 for neither or a trade between them."""
    tasks = (p > p_before) - (p < p_before)
    memory = (level > level_before) - (level < level_before)
    # More of one and less of the other, as Justin trades tasks for memory: no direction.
    if tasks * memory < 0:
        return 0
    return int(tasks + memory if tasks == 0 or memory == 0 else tasks)


@njit(cache=True, nogil=True, borrows=True)
def rest(
    t: JobFacts,
    seen: SnapshotArrays,
    rests: RestPeriods,
    moves: LastMoves,
    work: Working,
) -> None:
    """Hold back moves of vertices v of jobs j that come too soon; `last` is -1, 0 or 1."""
    p, level = work.parallelism, work.memory_level
    t_s, since = seen.job[JOB.t_s], seen.job[JOB.running_since_s]
    for j in range(p.shape[0]):
        # NaN before the first start: comparisons with it are false, and nothing is held back.
        age = t_s[j] - since[j]
        for v in range(t.n[t.row[j]]):
            now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
            last, last_s = moves.moved[j, v], moves.moved_s[j, v]
            p_seen, level_seen = moves.parallelism[j, v], moves.level[j, v]
            # The running configuration differs from the last one seen: a move has just been
            # enacted, and `watch` has not recorded it yet.
            if moves.seen[j] and (now != p_seen or now_level != level_seen):
                last = _direction(now, now_level, p_seen, level_seen)
                last_s = since[j]
            fresh = t_s[j] - last_s < rests.reversal
            to_p, to_level = p[j, v], level[j, v]
            # Clamp against the running configuration: upwards within the rest, or against a move
            # down; downwards likewise.
            if age < rests.up or (fresh and last < 0):
                to_p, to_level = min(to_p, now), min(to_level, now_level)
            if age < rests.down or (fresh and last > 0):
                to_p, to_level = max(to_p, now), max(to_level, now_level)
            if to_p != p[j, v] or to_level != level[j, v]:
                p[j, v], level[j, v] = to_p, to_level
                work.trips[j] = True


@direct
@njit(cache=True, nogil=True)
def _remember(facts: Handle[JobFacts], seen: SnapshotArrays, memory: Handle[LastMoves]) -> None:
    """Keep configuration and last move of every vertex v of every running job j."""
    t, moves = facts.arrays, memory.arrays
    since = seen.job[JOB.running_since_s]
    for j in range(since.shape[0]):
        if seen.status[j] != RUNNING:
            continue
        for v in range(t.n[t.row[j]]):
            now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
            p_seen, level_seen = moves.parallelism[j, v], moves.level[j, v]
            if moves.seen[j] and (now != p_seen or now_level != level_seen):
                # The move took effect when the job came up with it, not when it was decided.
                moves.moved[j, v] = _direction(now, now_level, p_seen, level_seen)
                moves.moved_s[j, v] = since[j]
            moves.parallelism[j, v], moves.level[j, v] = now, now_level
        moves.seen[j] = True


_rest = direct(rest)
