"""The batch of one job that a thread works on.

The project's functions loop over the jobs of a batch. A thread passes them a batch of one: the
arrays of the card have the job as an additional first axis, and `array[j]` is what the functions
know, with a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from numba import cuda

from dsp_gym.numba_handles import handle
from dsp_gym.simulation.cuda.card import is_simulated


class ThreadTable(NamedTuple):
    """A thread's own table in the place of a handle."""

    arrays: Any


hold: Callable[[Any], Any] = handle if is_simulated() else ThreadTable
"""Passes a thread's table to functions that take handles."""


def view_of_one(table: type, shared: Collection[str] = (), given: Collection[str] = ()) -> Any:
    """Compile a function that makes the table of a thread's job.

    Args:
        table: A class of `NamedTuple`s.
        shared: Fields that all jobs share.
        given: Fields that the thread passes, in their order, because it keeps them in its own
            memory.

    Returns:
        A function of the table of all jobs, the job, and the given fields.
    """
    fields: tuple[str, ...] = table._fields  # type: ignore[attr-defined]  # a NamedTuple
    parts = [
        name if name in given else f"t.{name}" if name in shared else f"t.{name}[j]"
        for name in fields
    ]
    lines = [f"def _one({', '.join(['t', 'j', *given])}):", f"    return Table({', '.join(parts)})"]
    scope: dict[str, Any] = {"Table": table}
    exec("\n".join(lines), scope)  # of field names alone, as in `dsp_gym.envs.features`
    return scope["_one"] if is_simulated() else cuda.jit(device=True)(scope["_one"])
