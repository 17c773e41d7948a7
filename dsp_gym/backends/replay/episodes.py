"""Episodes of an environment over a recording: each is one of its complete runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from dsp_gym.backends.base import Episode
from dsp_gym.backends.replay.connection import complete_runs
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig

__all__ = ["ReplayEpisodes", "ReplayPlace", "replay_place"]


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
        """Begin a run anew.

        Returns:
            The run as a backend.
        """
        run = self._runs[seed % len(self._runs)]
        return Episode(ReplayJobs(run, self._window), run.name)

    def close(self) -> None:
        """Nothing is held outside this process."""
