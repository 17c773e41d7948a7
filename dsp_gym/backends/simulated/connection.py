"""A simulated job as the backend of a run."""

from __future__ import annotations

import threading

import numpy as np

from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.generate import rates
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.simulation.options import Measurement, SimulationOptions


def connect(
    spec: JobSpec,
    load: str,
    window: WindowConfig,
    *,
    apply: bool,
    seed: int = 0,
    duration_s: int = 86_400,
    speed: float | None = None,
    stop: threading.Event | None = None,
) -> Paced:
    """A simulated job under a load, seen as a real one would be.

    Args:
        spec: the job.
        load: a shipped configs/loads name, or a YAML file.
        window: the metrics window, over which samples are averaged.
        apply: False: the backend has no actuator, so nothing can be asked of the job.
        seed: of load, noise and outages.
        duration_s: length of the load, s; then the backend is over.
        speed: seconds of the job that pass in one real second; None: as fast as possible.
        stop: set by anyone to end all waiting.

    Returns:
        The backend, at second 0 of the load.
    """
    described = load_model(LoadConfig, "loads", load)
    seen = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    jobs = SimulatedJobs(Topology.of([spec]), SimulationOptions(measurement=seen, threads=1))
    offered = rates(described.load, seed=seed, duration_s=float(duration_s))
    arriving = offered[None, :] * spec.source.rate_per_s
    jobs.reset(np.array([seed], np.int64), arriving)
    return Paced([PacedBackend(jobs, 0.0, float(duration_s))], apply=apply, speed=speed, stop=stop)
