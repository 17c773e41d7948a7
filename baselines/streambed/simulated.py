"""A simulated job as a testbed."""

from __future__ import annotations

import numpy as np

from baselines.streambed.estimator import Observation, observation_of
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import Measurement, MechanismSwitches, SimulationOptions

__all__ = ["SimulatedTestbed"]

SOURCE_US = 1e-4
"""CPU time per record of a source that is never the limit, microseconds."""


class SimulatedTestbed:
    """Runs the job of a file on the simulator, under rates set while it runs.

    Its sources are rate-limited generators on machines of their own: they are never the limit
    (section 8.1), and what backpressure kept them from emitting is lost.

    Args:
        spec: the job.
        seed: of service times and measurement noise; each deployment draws anew.
    """

    def __init__(self, spec: JobSpec, seed: int = 42) -> None:
        self.spec = spec
        self._seed = seed
        self._deployed = 0
        self._topology = Topology.of([_with_unlimited_sources(spec)])
        self._jobs: dict[int, SimulatedJobs] = {}
        self._configuration = Configuration.of_spec(spec)
        self._current: SimulatedJobs | None = None

    def deploy(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._current = None
        self._deployed += 1

    def probe(self, phases: list[tuple[float, int]], observation_s: int) -> Observation:
        jobs = self._current or self._started(observation_s)
        for rate_per_s, seconds in phases:
            if seconds > 0:
                jobs.rates = np.array([[rate_per_s]])
                jobs.advance(seconds)
        return observation_of(jobs.snapshot())

    def _started(self, observation_s: int) -> SimulatedJobs:
        """The job, just started in the deployed configuration."""
        window_s = max(5, observation_s // 5 * 5)
        if window_s not in self._jobs:
            self._jobs[window_s] = SimulatedJobs(self._topology, _options(window_s))
        jobs, names = self._jobs[window_s], self._topology.names(0)
        jobs.reset(
            np.array([self._seed * 1_000_003 + self._deployed]),
            np.zeros((1, 1)),
            parallelism=np.array([[self._configuration.parallelism[n] for n in names]]),
            memory_level=np.array([[self._configuration.memory_level[n] for n in names]]),
        )
        self._current = jobs
        return jobs


def _options(window_s: int) -> SimulationOptions:
    return SimulationOptions(
        # Busy time counts for the observation alone: a 5 s gauge (Flink 1.14), or counted (2.1).
        measurement=Measurement(window_s=window_s, stabilization_s=0, delay_s=0, gauge_s=5),
        mechanisms=MechanismSwitches(backlog=False),
        threads=1,
    )


def _with_unlimited_sources(spec: JobSpec) -> JobSpec:
    vertices = tuple(
        v.model_copy(update={"cpu_us_per_record": SOURCE_US}) if v.kind == "source" else v
        for v in spec.vertices
    )
    return spec.model_copy(update={"vertices": vertices})
