"""What another kernel would give: the flow of records alone, in numba and in C, in two orders.

    python -m dsp_gym.studies.bench.kernels

Jobs are chains in which every vertex takes what it can carry, keeps the rest, and counts busy time
and waiting: the arithmetic of a second, and nothing else of the simulation. `one job at a time`
goes through a job's seconds, as the simulation does; `jobs side by side` does each operation for a
block of jobs, which compilers turn into vector instructions. A C compiler is needed for two of the
four lines.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.studies.bench.machine import machine

__all__ = ["bench_kernels", "kernels"]

JOBS, VERTICES, SECONDS = 1024, 8, 60
BLOCK = 64
"""Jobs side by side: their four columns of eight vertices fit into the first cache."""

SOURCE = """
#define ONE(v) { \\
    double waits = queue[v] + arriving, flow = waits < capacity[v] ? waits : capacity[v]; \\
    queue[v] = waits - flow; busy[v] += flow / capacity[v]; waiting[v] += queue[v] / capacity[v]; \\
    arriving = flow * 0.9; }

void one_by_one(const double *load, const double *capacities, double *queues, double *busies,
                double *waitings, long jobs, long vertices, long seconds) {
  for (long j = 0; j < jobs; j++) {
    const double *capacity = capacities + j * vertices;
    double *queue = queues + j * vertices, *busy = busies + j * vertices;
    double *waiting = waitings + j * vertices;
    for (long t = 0; t < seconds; t++) {
      double arriving = load[j * seconds + t];
      for (long v = 0; v < vertices; v++) ONE(v)
    }
  }
}

void side_by_side(const double *restrict load, const double *restrict capacities,
                  double *restrict queues, double *restrict busies, double *restrict waitings,
                  long jobs, long vertices, long seconds) {
  double arrivals[BLOCK];
  for (long first = 0; first < jobs; first += BLOCK)
    for (long t = 0; t < seconds; t++) {
      for (long j = 0; j < BLOCK; j++) arrivals[j] = load[t * jobs + first + j];
      for (long v = 0; v < vertices; v++) {
        const double *restrict capacity = capacities + v * jobs + first;
        double *restrict queue = queues + v * jobs + first;
        double *restrict busy = busies + v * jobs + first;
        double *restrict waiting = waitings + v * jobs + first;
        for (long j = 0; j < BLOCK; j++) {
          double arriving = arrivals[j];
          ONE(j)
          arrivals[j] = arriving;
        }
      }
    }
}
"""

Kernel = Callable[[Floats, Floats, Floats, Floats, Floats], object]
"""Load, capacities, and what is kept: queues, busy time, waiting."""


@njit(cache=True, nogil=True, error_model="numpy")
def one_by_one(
    load: Floats, capacities: Floats, queues: Floats, busies: Floats, waitings: Floats
) -> None:
    """Goes through one job after the other.

    Args:
        load: (jobs, seconds) records.
        capacities: (jobs, vertices) records per second.
        queues: (jobs, vertices) records, kept.
        busies: (jobs, vertices) seconds, added to.
        waitings: (jobs, vertices) seconds, added to.
    """
    for j in range(load.shape[0]):
        for t in range(load.shape[1]):
            arriving = load[j, t]
            for v in range(capacities.shape[1]):
                capacity = capacities[j, v]
                waits = queues[j, v] + arriving
                flow = min(waits, capacity)
                queues[j, v] = waits - flow
                busies[j, v] += flow / capacity
                waitings[j, v] += (waits - flow) / capacity
                arriving = flow * 0.9


@njit(cache=True, nogil=True, error_model="numpy")
def side_by_side(
    load: Floats, capacities: Floats, queues: Floats, busies: Floats, waitings: Floats
) -> None:
    """Does each operation for `BLOCK` jobs; arguments are those of `one_by_one`, transposed."""
    arrivals = np.empty(BLOCK)
    for first in range(0, load.shape[1], BLOCK):
        for t in range(load.shape[0]):
            arrivals[:] = load[t, first : first + BLOCK]
            for v in range(capacities.shape[0]):
                capacity = capacities[v, first : first + BLOCK]
                queue = queues[v, first : first + BLOCK]
                busy = busies[v, first : first + BLOCK]
                waiting = waitings[v, first : first + BLOCK]
                for j in range(BLOCK):
                    waits = queue[j] + arrivals[j]
                    flow = min(waits, capacity[j])
                    queue[j] = waits - flow
                    busy[j] += flow / capacity[j]
                    waiting[j] += (waits - flow) / capacity[j]
                    arrivals[j] = flow * 0.9


def kernels(folder: Path) -> Iterator[tuple[str, bool, Kernel]]:
    """Compiles the kernels; those in C are left out where no compiler is.

    Args:
        folder: where the C compiler writes.

    Yields:
        Name, whether jobs lie side by side, and the kernel.
    """
    yield "numba, one job at a time", False, one_by_one
    yield "numba, jobs side by side", True, side_by_side
    compiler = shutil.which("cc")
    if compiler is None:
        return
    source, library = folder / "kernels.c", folder / "kernels.so"
    source.write_text(SOURCE, encoding="utf-8")
    flags = ["-O3", "-march=native", "-shared", "-fPIC", f"-DBLOCK={BLOCK}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    for name, function in (
        ("one_by_one", "one job at a time"),
        ("side_by_side", "jobs side by side"),
    ):
        yield f"C, {function}", name == "side_by_side", _called(found, name)


def _called(library: ctypes.CDLL, name: str) -> Kernel:
    function = library[name]

    def kernel(load: Floats, *kept: Floats) -> None:
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in (load, *kept)]
        function(*addresses, *(ctypes.c_long(n) for n in (JOBS, VERTICES, SECONDS)))

    return kernel


def bench_kernels(runs: int = 5) -> dict[str, tuple[float, float, float]]:
    """Times each kernel on a minute of 1,024 jobs of eight vertices, one thread.

    Args:
        runs: that are timed, each of a hundred minutes, after one that is not.

    Returns:
        By name, ns per vertex and second: median, lowest and highest.
    """
    rng = np.random.default_rng(0)
    load = rng.uniform(0.5, 1.2, (JOBS, SECONDS))
    capacities = rng.uniform(0.6, 1.5, (JOBS, VERTICES))
    timed = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, transposed, kernel in kernels(Path(folder)):
            given = [load, capacities, *np.zeros((3, JOBS, VERTICES))]
            if transposed:
                given = [np.ascontiguousarray(array.T) for array in given]
            each = []
            for _ in range(1 + runs):
                begun = time.process_time()
                for _ in range(100):
                    kernel(*given)
                spent = time.process_time() - begun
                each.append(1e9 * spent / (100 * JOBS * VERTICES * SECONDS))
            timed[name] = (statistics.median(each[1:]), min(each[1:]), max(each[1:]))
    return timed


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m dsp_gym.studies.bench.kernels", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    for name, (median, low, high) in bench_kernels(chosen.runs).items():
        sys.stdout.write(f"{name}: {median:.2f} ns ({low:.2f} to {high:.2f})\n")
    sys.stdout.write(", ".join(f"{key} {value}" for key, value in machine().items()) + "\n")


if __name__ == "__main__":
    main()
