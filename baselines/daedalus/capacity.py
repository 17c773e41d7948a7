"""Capacity of a job by its number of workers: a line from CPU to throughput, and what was seen.

The line of a worker is evaluated at full CPU, or at less where the skew of the data keeps the
worker below the busiest one; the capacity of the job is the sum over the workers.
"""

from __future__ import annotations

import numpy as np

from baselines.daedalus.memory import DaedalusMemory
from dsp_gym.compiling import njit


@njit(cache=True, nogil=True, borrows=True)
def add_sample(m: DaedalusMemory, j: int, cpu: float, rate: float) -> None:
    """Add CPU share and throughput of one worker, records/s, to the line of row j (Welford)."""
    m.samples[j] += 1
    n = m.samples[j]
    off_cpu, off_rate = cpu - m.mean_cpu[j], rate - m.mean_rate[j]
    m.mean_cpu[j] += off_cpu / n
    m.mean_rate[j] += off_rate / n
    m.cpu_cpu[j] += off_cpu * (cpu - m.mean_cpu[j])
    m.cpu_rate[j] += off_cpu * (rate - m.mean_rate[j])


@njit(cache=True, nogil=True, borrows=True)
def rate_at(m: DaedalusMemory, j: int, cpu: float, least_spread: float) -> float:
    """Predict the throughput of one worker of row j at a CPU share.

    Args:
        m: Memory.
        j: Row of the job.
        cpu: CPU share, 0..1.
        least_spread: Standard deviation of the CPU share below which the samples do not tell a
            slope: then, and where the line falls, it runs through the origin.

    Returns:
        Records/s; NaN without a sample, and where no CPU was used.
    """
    n = m.samples[j]
    if n == 0:
        return np.nan
    spread = np.sqrt(m.cpu_cpu[j] / n)
    if spread >= least_spread and spread > 0.0 and m.cpu_rate[j] > 0.0:
        slope = m.cpu_rate[j] / m.cpu_cpu[j]
        return float(m.mean_rate[j] + slope * (cpu - m.mean_cpu[j]))
    if m.mean_cpu[j] > 0.0:
        return float(m.mean_rate[j] / m.mean_cpu[j] * cpu)
    return np.nan


@njit(cache=True, nogil=True, borrows=True)
def keep_capacity(m: DaedalusMemory, j: int, now: float, workers: int, capacity: float) -> None:
    """Remember the capacity of the running number of workers; of several the mean of old and new.

    Args:
        m: Memory, changed in place.
        j: Row of the job.
        now: Time, s.
        workers: Running workers.
        capacity: Measured capacity, records/s.
    """
    place, oldest = -1, 0
    for i in range(m.workers.shape[1]):
        if m.workers[j, i] == workers:
            place = i
        if m.at_s[j, i] < m.at_s[j, oldest]:
            oldest = i
    if place >= 0:
        m.capacity[j, place] = (m.capacity[j, place] + capacity) / 2.0
    else:
        place = oldest
        m.workers[j, place], m.capacity[j, place] = workers, capacity
    m.at_s[j, place] = now
    m.last_workers[j], m.last_capacity[j] = workers, capacity


@njit(cache=True, nogil=True, borrows=True)
def capacity_of(m: DaedalusMemory, j: int, workers: int) -> float:
    """Return the capacity of a number of workers: as seen, else linear from the last measurement.

    Returns:
        Records/s; NaN before the first measurement.
    """
    for i in range(m.workers.shape[1]):
        if m.workers[j, i] == workers:
            return float(m.capacity[j, i])
    if m.last_workers[j] == 0:
        return np.nan
    return float(m.last_capacity[j] / m.last_workers[j] * workers)
