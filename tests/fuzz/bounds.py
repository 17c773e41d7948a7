"""Bounds of the cost of reading an input of a megabyte."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Collection

from tests.fuzz.cases import large
from tests.fuzz.readers import Reader

__all__ = ["beyond", "problems"]

SIZE = 10**6
MOST_S, MOST_BYTES = 0.05, 50 * 10**6

TIMES_JSON = 5.0
"""Python's own parser alone takes more than `MOST_S` for some megabytes, two tenths of a second on
a slow machine. A reader may then take so many times as long as it does."""

TRIES = 3
"""The least of so many counts: others use the machine, too."""


def beyond(reader: Reader, data: bytes) -> str | None:
    """Say what an input costs beyond the bounds.

    Args:
        reader: the reader, called once before.
        data: the input.

    Returns:
        A sentence; None within them.
    """
    least_s, allowed_s = float("inf"), MOST_S * reader.reads
    for _ in range(TRIES):
        least_s = min(least_s, _cpu_s(lambda: reader.takes(data)))
        if least_s <= allowed_s:
            break
        parsed_s = _cpu_s(lambda: _parsed(data))
        allowed_s = max(allowed_s, TIMES_JSON * reader.reads * parsed_s)
        if least_s <= allowed_s:
            break
    else:
        return f"{least_s:.3f} s of CPU, {allowed_s:.3f} s are the most"
    gc.collect()
    tracemalloc.start()
    try:
        reader.takes(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MOST_BYTES:
        return f"{peak / 10**6:.0f} MB, {MOST_BYTES / 10**6:.0f} MB are the most"
    return None


def problems(reader: Reader, shapes: Collection[str] | None = None) -> list[str]:
    """Every shape of a large input that costs more than it may.

    Args:
        reader: the reader.
        shapes: those that are tried; None: all.

    Returns:
        A sentence for each.
    """
    if reader.dump is None or not reader.is_bounded:
        return []
    seeds, trees = reader.made
    reader.takes(seeds[0])  # what is imported and built once
    made = large(trees[0], reader.dump, SIZE)
    tried = [shape for shape in made if shapes is None or shape in shapes]
    found = [(shape, beyond(reader, made[shape])) for shape in tried]
    return [f"{reader}: a megabyte of {shape}: {said}" for shape, said in found if said]


def _cpu_s(call: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        began_s = time.process_time()
        call()
        return time.process_time() - began_s
    finally:
        gc.enable()


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
