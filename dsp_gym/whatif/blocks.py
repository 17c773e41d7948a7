"""What a replay of one history gives: sums by day, and curves thin enough to be drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.whatif.history import DAY_S, JobHistory

__all__ = [
    "BLOCK_FIELDS",
    "Block",
    "ReplayedRescale",
    "JobReplay",
    "blocks_of",
    "shown_slots",
    "thinned",
]

BLOCK_FIELDS = ("seconds", "cost", "slo_s", "rescales")

LEAST_DAYS = 3.0
"""A shorter history is cut into twelve blocks instead of days."""

BLOCKS = 12

SHOWN = 700
"""Points of a curve."""


class Block(ConfigModel):
    """Sums over one block of time, as a rule a day."""

    block: int = Field(description="days since 1970, or the number of the block")
    seconds: float = Field(description="of the history in it, s")
    cost: float = Field(description="price of the requested resources")
    slo_s: float = Field(description="late seconds")
    rescales: float = Field(description="rescales")


class ReplayedRescale(ConfigModel):
    """One rescale."""

    slot: int = Field(description="slot of the history")
    what: str = Field(description="the vertices that change, from and to")
    reason: str = Field(description="of the policy, or of the guardrail that changed its decision")


class JobReplay(ConfigModel):
    """One policy, or the deployed configurations, on one history."""

    policy: str = Field(description="label of the policy")
    job: str = Field(description="name of the job")
    blocks: tuple[Block, ...] = Field(description="sums by day")
    late_where_measured: float | None = Field(
        description="late share of the slots in which the job's lateness was measured; none: "
        "it was measured in no slot"
    )
    line: dict[str, tuple[float | None, ...]] = Field(
        description="subtasks, cost_per_h, latency_s and lag_s over time, thinned"
    )
    changes: tuple[ReplayedRescale, ...] = Field(description="rescales in the order of time")


def blocks_of(history: JobHistory, at: Ints, values: Mapping[str, Floats]) -> tuple[Block, ...]:
    """Sums the slots of each day; a history of less than three days is cut into twelve parts.

    Args:
        history: of the slots.
        at: (N,) slots that were replayed.
        values: (N,) each, by the names of `BLOCK_FIELDS`.

    Returns:
        One block for each day or part with a replayed slot.
    """
    length_s = DAY_S if history.days >= LEAST_DAYS else len(history) * history.interval_s / BLOCKS
    begin_s = 0.0 if history.days >= LEAST_DAYS else float(history.t_s[0])
    block = np.floor((history.t_s[at] - begin_s) / length_s + 1e-9).astype(int)
    found = []
    for one in np.unique(block).tolist():
        inside = block == one
        # Summed in the order of time.
        sums = {name: float(np.cumsum(part[inside])[-1]) for name, part in values.items()}
        found.append(Block(block=one, **sums))
    return tuple(found)


def shown_slots(history: JobHistory) -> Ints:
    """The first slot of each drawn point.

    Returns:
        Rising slots, at most `SHOWN` + 1.
    """
    return np.arange(0, len(history), max(1, -(-len(history) // SHOWN)))


def thinned(
    history: JobHistory, at: Ints, values: Mapping[str, Floats]
) -> dict[str, tuple[float | None, ...]]:
    """Curves over the drawn points: the highest latency and lag, the mean of the others.

    Args:
        history: of the slots.
        at: (N,) slots of the values.
        values: (N,) each.

    Returns:
        One number for each of `shown_slots`; None where nothing is known.
    """
    starts = shown_slots(history)
    found = {}
    for name, part in values.items():
        whole = np.full(len(history), np.nan)
        whole[at] = part
        merge = np.fmax.reduceat if name in ("latency_s", "lag_s") else _means
        drawn = merge(whole, starts)
        found[name] = tuple(
            None if not np.isfinite(v) else float(f"{v:.5g}") for v in drawn.tolist()
        )
    return found


def _means(values: Floats, starts: Ints) -> Floats:
    known = np.isfinite(values)
    count = np.add.reduceat(known.astype(float), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)
