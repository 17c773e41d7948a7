"""The machine of the figures: what it is, and how fast it is at the moment of measuring."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

BLOCK = bytes(1 << 20)
PROBE_S = 0.5
"""Long enough to outlast a time slice, short beside any measurement."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure."""

    name: str
    unit: str
    value: float
    bar: float | None = None
    method: str = ""  # where the name does not say how it was measured


def machine() -> dict[str, str | int | float]:
    """Describe the machine of the figures.

    Virtual cores may share a physical one and a host may serve others. Both show in the two rates:
    MiB of BLAKE2b per second by one thread, and by one thread per core together, as a multiple.

    Returns:
        Processor, cores, versions of Python and NumPy, and the two rates, by name.
    """
    cores = len(os.sched_getaffinity(0))
    alone, together = hashed_mib_per_s(1), hashed_mib_per_s(cores)
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": cores,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "hash_mib_per_s": round(alone),
        "all_cores_over_one": round(together / alone, 2),
    }


def hashed_mib_per_s(threads: int) -> float:
    """Hash blocks of 1 MiB for half a second, without the interpreter's lock.

    Args:
        threads: that hash at the same time.

    Returns:
        MiB per second of all of them.
    """
    until = time.perf_counter() + PROBE_S
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(_hashed, [until] * threads)) / PROBE_S


def _hashed(until: float) -> int:
    done = 0
    while time.perf_counter() < until:
        hashlib.blake2b(BLOCK).digest()
        done += 1
    return done
