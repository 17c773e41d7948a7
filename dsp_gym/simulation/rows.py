"""Compiled work over the rows of a batch, split over threads without the interpreter lock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

FEWEST_ROWS, PARTS = 16, 8
"""Fewest rows of a part, and parts per thread: jobs differ in cost, so free threads take more."""


def over_rows(work: Callable[[int, int], None], rows: int, threads: int) -> None:
    """Call `work(low, high)` so that every row is covered once; rows must not touch each other."""
    if threads <= 1:
        work(0, rows)
        return
    # More parts than threads balance the load; a part of few rows is not worth a submit.
    count = max(threads, min(PARTS * threads, rows // FEWEST_ROWS))
    edges = np.linspace(0, rows, count + 1).astype(int).tolist()
    parts = [_pool(threads).submit(work, a, b) for a, b in itertools.pairwise(edges)]
    for part in parts:
        part.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dsp-gym")
