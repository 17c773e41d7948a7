"""Service time of a record: the scalar formulas the simulation and the analytic capacity share.

Compiled with numba so that the simulation kernel calls the very same code as `dsp-gym mst`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["compiled", "entries", "hit_rate", "service_s", "working_set_mib"]

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """Compiles on first call and keeps the machine code on disk."""
    return cast(_F, numba.njit(cache=True, nogil=True)(function))


@compiled
def entries(keys: float, content: float, panes: float, prefilled: bool) -> float:
    """State entries over all subtasks.

    Args:
        keys: distinct keys.
        content: records that are in the window (or have arrived, without a window); infinity
            where the state has had time to see every key.
        panes: windows each record belongs to.
        prefilled: every key has a value whatever has arrived.
    """
    if prefilled:
        return keys * panes
    # Uniform balls into bins: keys touched by `content` records.
    return keys * -math.expm1(-content / keys) * panes


@compiled
def hit_rate(hit_curve_row: NDArray[np.float64], cache_mib: float, working_set_mib: float) -> float:
    """Share of reads served from the block cache, linear between the points of the hit curve."""
    if working_set_mib <= cache_mib:
        return 1.0
    if cache_mib <= 0.0:
        return 0.0
    last = hit_curve_row.shape[0] - 1
    position = cache_mib / working_set_mib * last
    left = min(int(position), last - 1)
    right_share = position - left
    return float(hit_curve_row[left] * (1.0 - right_share) + hit_curve_row[left + 1] * right_share)


@compiled
def working_set_mib(
    entry_count: float, entry_mib: float, unshared_mib: float, parallelism: float
) -> float:
    """Working set of one subtask: its part of the entries and what every subtask has."""
    return unshared_mib + entry_count * entry_mib / parallelism


@compiled
def service_s(
    cpu_s: float,
    reads: float,
    read_hit_s: float,
    read_miss_s: float,
    writes: float,
    write_s: float,
    write_factor: float,
    hit: float,
) -> float:
    """Seconds one subtask needs for one record; a miss costs `read_miss_s` on top of a hit."""
    return (
        cpu_s + reads * (read_hit_s + (1.0 - hit) * read_miss_s) + writes * write_s * write_factor
    )
