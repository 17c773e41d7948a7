"""How fast the simulation alone is, with quiet strides and second by second."""

from __future__ import annotations

import statistics
import time

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config import files
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.episodes import Draws, start_configuration
from dsp_gym.evaluation.batch_of_runs import benchmark_job
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.studies.bench.environment import MeasuredRate

__all__ = ["bench_strides"]

BENCHMARK = "core-v1"
HOUR_S, DAY_S, DECISION_S = 3600, 86400, 60
UNIT = "decisions/CPU-s"
WAYS = {"quiet strides": True, "each second": False}


def bench_strides(jobs: int = 256, runs: int = 5) -> list[MeasuredRate]:
    """Times an hour of the benchmark's jobs under its loads, both ways in turn.

    Each job has an hour of a day drawn at random and the configuration that the benchmark starts
    with. One thread, processor time: what else runs on the machine counts little.

    Returns:
        Decisions of 60 s per second of processor time, of both ways.
    """
    config = files.load_model(BenchmarkConfig, "benchmarks", BENCHMARK)
    specs = [benchmark_job(name, config) for name in config.jobs]
    topology = Topology.of(specs, [j % len(specs) for j in range(jobs)])
    rng = np.random.default_rng(0)
    rates = _hours(config, topology, rng)
    ones = np.ones(jobs)
    drawn = Draws(rng.integers(0, 2**62, jobs), rates, ones, ones, np.zeros(jobs, np.int64))
    start = EnvConfig(start="sized", start_headroom=config.start_headroom)
    parallelism, level = start_configuration(topology, start, drawn, np.arange(jobs))
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    simulated = {
        name: SimulatedJobs(topology, SimulationOptions(threads=1, quiet_strides=quiet))
        for name, quiet in WAYS.items()
    }
    for run in range(runs + 1):
        for name, batch in simulated.items():
            batch.reset(drawn.seeds, rates, parallelism=parallelism, memory_level=level)
            begun = time.process_time()
            for _ in range(HOUR_S // DECISION_S):
                batch.advance(DECISION_S)
            if run > 0:  # the first one warms up
                spent_s = time.process_time() - begun
                found[name].append(jobs * HOUR_S / DECISION_S / spent_s)
    return [
        MeasuredRate(
            f"simulation alone, {BENCHMARK}, {name}",
            UNIT,
            statistics.median(found[name]),
            min(found[name]),
            max(found[name]),
            runs,
            threads=1,
            bar=None,
        )
        for name in WAYS
    ]


def _hours(config: BenchmarkConfig, topology: Topology, rng: np.random.Generator) -> Floats:
    """An hour of load for each job, (J, HOUR_S) records/s."""
    sampler = LoadSampler(config.loads)
    days: dict[tuple[str, int], Floats] = {}
    rates = np.empty((len(topology), HOUR_S))
    reference = topology.tables.rate_per_s[topology.row]
    for j in range(len(topology)):
        cell = sampler.draw("test", int(rng.integers(2**31)))
        key = (cell.name, cell.seed)
        if key not in days:
            days[key] = sampler.rates(cell, DAY_S)
        first = int(rng.integers(DAY_S - HOUR_S))
        rates[j] = days[key][first : first + HOUR_S] * reference[j]
    return rates
