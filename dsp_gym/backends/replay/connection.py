"""A recording as the backend of a run, and of an environment: an episode is a complete run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from dsp_gym.backends.base import Episode
from dsp_gym.backends.paced import Paced, PacedBackend
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.recording import Recording, Run


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


class ReplayPlace(ConfigModel):
    """Which recording, and where the decisions on it are written."""

    recording: Path = Field(description="folder of the recording, or a shipped one's name")
    journal: Path | None = Field(
        None, description="folder of a journal of snapshots and decisions; none: no journal"
    )


def replay_place(where: str | Path | Mapping[str, object] | None) -> ReplayPlace:
    """The recording meant by the keyword `where`: its folder, or settings.

    Returns:
        The checked settings.

    Raises:
        ConfigError: `where` is None.
    """
    if where is None:
        raise ConfigError(
            "the backend 'replay' needs a recording",
            key="where",
            remedy="Name its folder, or a shipped one: where='flink-q11-day'.",
        )
    if isinstance(where, Mapping):
        return files.parse(ReplayPlace, dict(where), "where")
    return ReplayPlace(recording=Path(where))


class ReplayEpisodes:
    """Replays one complete run of a recording per episode; the seed draws it.

    Args:
        recording: folder of the recording.
        window: the metrics window, over which samples are averaged.
    """

    def __init__(self, recording: Path, window: WindowConfig) -> None:
        self._runs, self._window = complete_runs(recording), window
        self.topology = Topology.of([self._runs[0].spec])

    def begin(self, seed: int) -> Episode:
        """Start a run over.

        Returns:
            The run as a backend.
        """
        run = self._runs[seed % len(self._runs)]
        return Episode(ReplayJobs(run, self._window), run.name)

    def close(self) -> None:
        """Nothing is held outside this process."""
