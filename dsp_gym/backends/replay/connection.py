"""A recording as the backend of a run."""

from __future__ import annotations

import threading
from pathlib import Path

from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.recording import Recording, Run

__all__ = ["complete_runs", "connect"]


def complete_runs(folder: str | Path) -> tuple[Run, ...]:
    """Open a recording.

    Returns:
        Its complete runs, in order.

    Raises:
        ConfigError: The recording has no complete run.
    """
    runs = Recording.open(folder).complete_runs()
    if not runs:
        raise ConfigError(
            "holds no complete run to replay",
            file=folder,
            remedy="Go on with it: dsp-gym record CONFIG",
        )
    return tuple(runs)


def connect(
    folder: str | Path,
    spec: JobSpec,
    window: WindowConfig,
    *,
    speed: float | None = None,
    stop: threading.Event | None = None,
) -> Paced:
    """The complete runs of a recording, one after the other.

    Args:
        folder: the recording.
        spec: the job file of the configuration; the recording must be of that graph.
        window: the metrics window, over which samples are averaged.
        speed: seconds of the recording that pass in one real second; None: as fast as possible.
        stop: set by anyone to end all waiting.

    Returns:
        The backend, at the beginning of the first run; it has no actuator.

    Raises:
        ConfigError: The recording has no complete run, or is one of another job.
    """
    recording = Recording.open(folder)
    ours, theirs = ({v.name for v in s.vertices} for s in (spec, recording.spec))
    if ours != theirs:
        raise ConfigError(
            f"is a recording of {', '.join(sorted(theirs))}; the job file "
            f"'{spec.job}' has {', '.join(sorted(ours))}",
            file=folder,
            remedy="Name the job file of the recording.",
        )
    parts = [ReplayJobs(one, window) for one in complete_runs(folder)]
    return Paced([PacedBackend(p, p.t_s) for p in parts], apply=False, speed=speed, stop=stop)
