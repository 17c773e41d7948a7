"""The machine of the figures, and the one way in which speed and memory are measured on it."""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK = bytes(1 << 20)
PROBE_S = 0.5
"""Long enough to outlast a time slice, short beside any measurement."""

MINIMUM_S = 2.0
"""A run lasts at least this long: an episode of the batch and its reset."""

BENCH_WARM_UP_S = 4.0
"""Before the first run: compiled code is loaded, and the loads of training are drawn and kept."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure."""

    name: str
    unit: str
    value: float
    bar: float | None = None
    method: str = ""  # where the name does not say how it was measured


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate per second, or a time: median, lowest and highest of the runs."""

    name: str
    unit: str
    median: float
    low: float
    high: float
    runs: int
    threads: int
    bar: float | None

    @classmethod
    def of(
        cls, name: str, unit: str, runs: Sequence[float], threads: int = 1, bar: float | None = None
    ) -> MeasuredRate:
        """Sum up what the runs have shown.

        Returns:
            Their median, lowest and highest value.
        """
        median = statistics.median(runs)
        return cls(name, unit, median, min(runs), max(runs), len(runs), threads, bar)


def measure(
    name: str,
    unit: str,
    once: Callable[[], int],
    *,
    runs: int,
    threads: int = 1,
    bar: float | None = None,
) -> MeasuredRate:
    """Time a piece of work that returns how many units it did, for a second or more.

    Returns:
        Units per second over the runs.
    """
    return measure_with_processor(name, unit, once, runs=runs, threads=threads, bar=bar)[0]


def measure_with_processor(
    name: str,
    unit: str,
    once: Callable[[], int],
    *,
    runs: int,
    threads: int = 1,
    bar: float | None = None,
) -> tuple[MeasuredRate, MeasuredRate]:
    """Time work as `measure` does, by the clock and by the processor time of all its threads.

    Other load on the machine takes time from the work, but hardly changes its processor time.

    Returns:
        Units per second, then units per CPU-second.
    """
    _rates(once, BENCH_WARM_UP_S)
    measured = [_rates(once, MINIMUM_S) for _ in range(runs)]
    per_s, per_cpu_s = zip(*measured, strict=True)
    unit_of_cpu = f"{unit.removesuffix('/s')}/CPU-s"
    return (
        MeasuredRate.of(name, unit, per_s, threads, bar),
        MeasuredRate.of(f"{name}, per CPU-second", unit_of_cpu, per_cpu_s, threads),
    )


def _rates(once: Callable[[], int], least_s: float) -> tuple[float, float]:
    """Return units per second and per second of processor time."""
    done, begun, used = 0, time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - begun) < least_s:
        done += once()
    return done / elapsed, done / (time.process_time() - used)


def timed(
    once: Callable[[], object],
    runs: int,
    warm_ups: int = 0,
    before: Callable[[], object] = lambda: None,
) -> list[float]:
    """Time runs of a piece of work.

    Args:
        once: Is timed.
        runs: How often.
        warm_ups: Runs ahead of these that are not kept.
        before: Called ahead of each run, and not timed.

    Returns:
        Seconds of each run.
    """
    seconds = []
    for _ in range(warm_ups + runs):
        before()
        begun = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - begun)
    return seconds[warm_ups:]


def process_status(key: str, pid: int | str = "self") -> int:
    """Read a number that Linux keeps of a process.

    Args:
        key: VmRSS, the resident memory in KiB; VmHWM, the most of it so far; Threads.
        pid: The process; this one unless given.

    Returns:
        The number.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def processor_s(pid: int) -> float:
    """Read the processor time that a process of Linux has used, all its threads together.

    Returns:
        Seconds, in user and kernel mode.
    """
    # The name, in brackets, may hold spaces; times are fields 14 and 15 of the line.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
