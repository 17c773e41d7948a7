"""The batch of one job that a thread works on.

The project's functions loop over the jobs of a batch. A thread passes them a batch of one: the
arrays of the card have the job as an additional first axis, and `array[j]` is what the functions
know, with a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from numba import cuda

from dsp_gym.numba_handles import handle
from dsp_gym.simulation.cuda.card import is_simulated


class ThreadTable(NamedTuple):
    """A thread's own table in the place of a handle."""

    arrays: Any


hold: Callable[[Any], Any] = handle if is_simulated() else ThreadTable
"""Passes a thread's table to functions that take handles."""


def view_of_one(
    table: type,
    shared: Collection[str] = (),
    given: Collection[str] = (),
    nested: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function that makes the table of a thread's job.

    Args:
        table: A class of `NamedTuple`s.
        shared: Fields that all jobs share.
        given: Fields that the thread passes, in their order, because it keeps them in its own
            memory.
        nested: Functions made likewise for fields that are tables.

    Returns:
        A function of the table of all jobs, the job, and the given fields.
    """
    fields: tuple[str, ...] = table._fields  # type: ignore[attr-defined]  # a NamedTuple
    inner = nested or {}
    parts = [
        name
        if name in given
        else f"t.{name}"
        if name in shared
        else f"of_{name}(t.{name}, j)"
        if name in inner
        else f"t.{name}[j]"
        for name in fields
    ]
    lines = [f"def _one({', '.join(['t', 'j', *given])}):", f"    return Table({', '.join(parts)})"]
    scope: dict[str, Any] = {"Table": table, **{f"of_{name}": one for name, one in inner.items()}}
    exec("\n".join(lines), scope)  # of field names alone, as in `dsp_gym.envs.features`
    return of_card(scope["_one"])


def copy_of_one(first: tuple[Any, ...]) -> Any:
    """Compile a function that copies the first values of a memory into that of a thread's job.

    Args:
        first: Arrays (1, ...); their values count for nothing here. An empty table: nothing is
            copied.

    Returns:
        A function of the memory of all jobs, the first values, and the job.
    """
    lines = ["def _copy(kept, values, j):", "    return"]
    if first:
        lines.pop()
    for name, one in zip(getattr(first, "_fields", ()), first, strict=True):
        axes = range(1, one.ndim)
        index = "".join(f", i{axis}" for axis in axes)
        lines += [f"{' ' * 4 * a}for i{a} in range(values.{name}.shape[{a}]):" for a in axes]
        lines.append(f"{' ' * 4 * one.ndim}kept.{name}[j, 0{index}] = values.{name}[0{index}]")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)  # of field names alone
    return of_card(scope["_copy"])


def of_card(function: Any) -> Any:
    """Return a function that others on the card call."""
    return function if is_simulated() else cuda.jit(device=True)(function)
