"""Jobs whose time passes when somebody asks: simulated ones, and recordings of real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.generate import rates
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import PENDING
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.recording import Recording
from dsp_gym.simulation.options import Measurement, SimulationOptions

__all__ = ["PacedJobs", "replayed", "simulated"]


class Stepped(Protocol):
    """Collector and actuator of one job whose time is stepped."""

    topology: Topology

    def snapshot(self) -> MetricsSnapshot: ...

    def apply(self, guarded: GuardedDecision) -> None: ...

    def status(self) -> Ints: ...

    def advance(self, seconds: int) -> Outcome: ...


class PacedJobs:
    """One stepped job, or several one after the other, as the ends of a live loop.

    Args:
        parts: the jobs; the next one begins when `is_over` says that one has ended.
        is_over: whether a part has no more to show.
        starts_s: what the clock shows when a part begins.
        speed: seconds of the job that pass in one real second; None: as many as can be.
        stop: set by whoever wants no further waiting.
    """

    def __init__(
        self,
        parts: Sequence[Stepped],
        is_over: Callable[[Stepped, float], bool],
        starts_s: Sequence[float],
        speed: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._parts, self._is_over, self._starts_s = list(parts), is_over, list(starts_s)
        self.topology: Topology = parts[0].topology
        self.spec: JobSpec = self.topology.spec(0)
        self.held: str | None = None
        self.now_s = self._starts_s[0]
        self._speed, self._stop = speed, stop or threading.Event()

    @property
    def done(self) -> bool:
        """Whether there is no more to show."""
        return len(self._parts) == 1 and self._is_over(self._parts[0], self.now_s)

    def clock(self) -> float:
        """Seconds on the job's clock."""
        return self.now_s

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now."""
        seen = self._parts[0].snapshot()
        status = Status(int(seen.status[0]))
        self.held = None
        if status == Status.FAILED:
            self.held = "the job has failed, or is gone"
        elif status != Status.RUNNING and self._parts[0].status()[0] != PENDING:
            self.held = f"the job is {status.name}"
        return seen

    @property
    def data_age_s(self) -> float:
        """Samples are as old as the model says, or as they were: nobody waits for any."""
        return 0.0

    def hold(self, reason: str) -> None:
        """Ask nothing of the job until the next snapshot."""
        self.held = reason

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration, unless something speaks against it."""
        if self.held is None:
            self._parts[0].apply(guarded)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Ask for the configuration from before a change."""
        self._parts[0].apply(before)

    def status(self) -> Ints:
        """Of the last request."""
        return self._parts[0].status()

    def advance(self, seconds: int) -> Outcome:
        """Step the job on."""
        if self._is_over(self._parts[0], self.now_s) and len(self._parts) > 1:
            del self._parts[0], self._starts_s[0]
            self.now_s = self._starts_s[0]
        outcome = self._parts[0].advance(seconds)
        self.now_s += float(outcome.seconds[0])
        if self._speed is not None:
            self._stop.wait(seconds / self._speed)
        return outcome

    def close(self) -> None:
        """Nothing is ever under way."""


def simulated(
    spec: JobSpec,
    load: str,
    window: WindowConfig,
    *,
    seed: int = 0,
    duration_s: int = 86_400,
    speed: float | None = None,
    stop: threading.Event | None = None,
) -> PacedJobs:
    """A simulated job under a load, seen as a real one would be; after `duration_s` it is over.

    Args:
        spec: the job.
        load: a shipped configs/loads name, or a YAML file.
        window: over which samples metrics are averaged.
        seed: of load, noise and outages.
        duration_s: length of the load, s.
        speed: seconds of the job that pass in one real second; None: as many as can be.
        stop: set by whoever wants no further waiting.
    """
    described = load_model(LoadConfig, "loads", load)
    seen = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    jobs = SimulatedJobs(Topology.of([spec]), SimulationOptions(measurement=seen, threads=1))
    offered = rates(described.load, seed=seed, duration_s=float(duration_s))
    jobs.reset(np.array([seed], np.int64), offered[None, :] * spec.source.rate_per_s)
    return PacedJobs([jobs], lambda _, now_s: now_s >= duration_s, [0.0], speed, stop)


def replayed(
    folder: str | Path,
    spec: JobSpec,
    window: WindowConfig,
    *,
    run: str | None = None,
    speed: float | None = None,
    stop: threading.Event | None = None,
) -> PacedJobs:
    """The complete runs of a recording, one after the other.

    Args:
        folder: the recording.
        spec: the job file of the configuration; the recording must be of that graph.
        window: over which samples metrics are averaged.
        run: only the run of that name.
        speed: seconds of the recording that pass in one real second; None: as many as can be.
        stop: set by whoever wants no further waiting.
    """
    recording = Recording.open(folder)
    runs = (recording.run(run),) if run is not None else recording.complete_runs()
    if not runs:
        raise ConfigError(
            "holds no complete run to replay",
            file=folder,
            remedy="Go on with it: dsp-gym record CONFIG",
        )
    ours, theirs = ({v.name for v in s.vertices} for s in (spec, recording.spec))
    if ours != theirs:
        raise ConfigError(
            f"is a recording of {', '.join(sorted(theirs))}; the job file "
            f"'{spec.job}' has {', '.join(sorted(ours))}",
            file=folder,
            remedy="Name the job file of the recording.",
        )
    parts = [ReplayJobs(one, window) for one in runs]
    return PacedJobs(
        parts,
        lambda part, _: bool(getattr(part, "done", False)),
        [p.t_s for p in parts],
        speed,
        stop,
    )
