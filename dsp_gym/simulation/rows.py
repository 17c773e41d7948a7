"""Compiled work over the rows of a batch, split over threads without the interpreter lock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

FEWEST_ROWS, PARTS = 16, 8
"""Fewest rows of a part, and parts per thread: jobs differ in cost, so free threads take more."""


def over_rows(work: Callable[[int, int], None], rows: int, threads: int) -> None:
    """Call `work(low, high)` so that every row is covered once; rows must not touch each other.

    Args:
        work: Works on rows low..high-1, on several threads at once.
        rows: Number of rows.
        threads: Number of threads.
    """
    if threads <= 1:
        work(0, rows)
        return
    # More parts than threads balance the load; a part of few rows is not worth a call.
    count = max(threads, min(PARTS * threads, rows // FEWEST_ROWS))
    edges = [rows * i // count for i in range(count + 1)]
    parts = list(itertools.pairwise(edges))[::-1]

    def take() -> None:
        while True:
            try:
                low, high = parts.pop()  # atomic
            except IndexError:
                return
            work(low, high)

    # A handover costs as much as a hundred rows of a short loop, so each thread is handed the list
    # once, not every part.
    for taker in [_pool(threads).submit(take) for _ in range(threads)]:
        taker.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dsp-gym")
