"""A simulated job as a testbed."""

from __future__ import annotations

import math

import numpy as np

from baselines.streambed.estimator import ObservedRates, observation_of
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import X

MOST_OFFERED = 2.0
"""Largest offered rate, over the load that the configuration carries."""

SOURCE_US = 1e-4
"""CPU time per record of a source that is never the limit, microseconds."""


class SimulatedTestbed:
    """A job on the simulator, under rates set while it runs.

    Its sources are rate-limited generators on separate machines: they are never the limit (section
    8.1). Records that backpressure holds back are emitted later in the same probe, so that a window
    that waits for room has its true cost over a period; the rest is lost at the end. No more is
    offered than twice the load that the configuration carries: windows follow the records, and far
    above capacity none would fire.

    Args:
        spec: the job.
        seed: seed of service times and measurement noise; each deployment has other draws.
    """

    def __init__(self, spec: JobSpec, seed: int = 42) -> None:
        self.spec = spec
        self._seed = seed
        self._deployed = 0
        self._topology = Topology.of([with_unlimited_sources(spec)])
        self._jobs: dict[int, SimulatedJobs] = {}
        self._configuration = Configuration.of_spec(spec)
        self._current: SimulatedJobs | None = None
        self._most_per_s = math.inf

    def deploy(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._current = None
        self._deployed += 1

    def probe(self, phases: list[tuple[float, int]], observation_s: int) -> ObservedRates:
        jobs = self._current or self._started(observation_s)
        forget_backlog(jobs)
        for rate_per_s, seconds in phases:
            if seconds > 0:
                jobs.rates = np.array([[min(rate_per_s, self._most_per_s)]])
                jobs.advance(seconds)
        return observation_of(jobs.snapshot())

    def _started(self, observation_s: int) -> SimulatedJobs:
        """Start the job in the deployed configuration."""
        window_s = max(5, observation_s // 5 * 5)
        if window_s not in self._jobs:
            self._jobs[window_s] = SimulatedJobs(self._topology, _options(window_s))
        jobs, names = self._jobs[window_s], self._topology.names(0)
        parallelism = np.array([[self._configuration.parallelism[n] for n in names]])
        level = np.array([[self._configuration.memory_level[n] for n in names]])
        carried = mst_per_s(jobs.topology.tables, 0, parallelism[0], level[0])
        self._most_per_s = MOST_OFFERED * carried
        jobs.reset(
            np.array([self._seed * 1_000_003 + self._deployed]),
            np.zeros((1, 1)),
            parallelism=parallelism,
            memory_level=level,
        )
        self._current = jobs
        return jobs


def _options(window_s: int) -> SimulationOptions:
    return SimulationOptions(
        # Busy time counts for the observation alone: a 5 s gauge (Flink 1.14), or counted (2.1).
        measurement=Measurement(window_s=window_s, stabilization_s=0, delay_s=0, gauge_s=5),
        threads=1,
    )


def forget_backlog(jobs: SimulatedJobs) -> None:
    """Drop the sources' backlog, and the records that windows wait for because of it."""
    tables, row = jobs.topology.tables, jobs.topology.row
    for j, x in enumerate(jobs.state.vertex):
        k = row[j]
        dropped = np.zeros(tables.n[k])
        for v in range(tables.n[k]):
            if tables.kind[k, v] == SOURCE:
                dropped[v], x[v, X.pending] = x[v, X.pending], 0.0
                continue
            inputs = [u for u in tables.upstream[k, v].tolist() if u >= 0]
            dropped[v] = sum(dropped[u] * tables.selectivity[k, u] for u in inputs)
            x[v, X.behind] = max(0.0, x[v, X.behind] - dropped[v])
            x[v, X.missing] = min(x[v, X.missing], x[v, X.behind])


def with_unlimited_sources(spec: JobSpec) -> JobSpec:
    """Give a job sources that are never the limit and read a log.

    Returns:
        A copy of the job file.
    """
    vertices = tuple(
        v.model_copy(update={"cpu_us_per_record": SOURCE_US}) if v.kind == "source" else v
        for v in spec.vertices
    )
    source = spec.source.model_copy(update={"log": True})
    return spec.model_copy(update={"vertices": vertices, "source": source})
