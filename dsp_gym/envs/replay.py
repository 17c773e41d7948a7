"""A recording as an environment: what was seen and what came of it, whatever is decided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.backends.replay.jobs import ReplayJobs
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.run import Notes, outcome_to_json
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import BatchStep, MeasuredEnv, SteppedJobs
from dsp_gym.envs.episodes import episode_seed
from dsp_gym.errors import ConfigError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.journal import Journal
from dsp_gym.records.recording import Recording

__all__ = ["ReplayEnv", "ReplayPlace", "replay_place"]


class ReplayPlace(ConfigModel):
    """Which recording, and where the decisions on it are written."""

    recording: Path = Field(description="folder of the recording")
    journal: Path | None = Field(
        None, description="folder of a journal of what was seen and decided; none: it is not kept"
    )


def replay_place(where: str | Path | Mapping[str, Any] | None) -> ReplayPlace:
    """The recording meant by the keyword `where`: its folder, or settings."""
    if where is None:
        raise ConfigError(
            "the backend 'replay' needs a recording",
            key="where",
            remedy="Name its folder: where='recordings/q11'.",
        )
    if isinstance(where, Mapping):
        return files.parse(ReplayPlace, dict(where), "where")
    return ReplayPlace(recording=Path(where))


class ReplayEnv(MeasuredEnv):
    """One environment over the complete runs of a recording; an episode is one run.

    The seed draws the run. Decisions pass the guardrails and are journaled, never enacted.

    Args:
        place: the recording, and the journal.
        config: clock and reward; of the simulation only how metrics are averaged.
        guardrails: a guardrail (or chain) inside the environment; None: none.
    """

    enacted = False

    def __init__(
        self, place: ReplayPlace, config: EnvConfig, guardrails: Guardrail | None = None
    ) -> None:
        recording = Recording.open(place.recording)
        self.runs = recording.complete_runs()
        if not self.runs:
            raise ConfigError(
                "holds no complete run to replay",
                file=place.recording,
                remedy="Go on with it: dsp-gym record CONFIG",
            )
        super().__init__(Topology.of([recording.spec]), config, guardrails)
        seen = config.simulation.measurement
        self._window = WindowConfig(window_s=seen.window_s, stabilization_s=seen.stabilization_s)
        self._jobs: ReplayJobs | None = None
        self._base_seed, self._episode = 0, 0
        self._journal = None if place.journal is None else Journal(place.journal)

    @property
    def stepped(self) -> SteppedJobs:
        if self._jobs is None:
            raise RuntimeError("reset() comes first")
        return self._jobs

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        self._base_seed, self._episode = int(seeds[0]), 0

    def reset(self, mask: Bools | None = None) -> Floats32:
        seed = episode_seed(self._base_seed, self._episode)
        self._episode += 1
        run = self.runs[seed % len(self.runs)]
        self.load_labels = [run.name]
        self._jobs = ReplayJobs(run, self._window)
        return self._begin(np.arange(1), np.array([seed], np.int64), None)

    def enact(self, decision: ScalingDecision) -> BatchStep:
        """Note what was decided, and go on as the recording did."""
        seen = self.snapshot.job(0)
        step = super().enact(decision)
        if self._journal is not None:
            t_s, key = float(seen.batch.t_s[0]), self.topology.spec(0).job
            notes = Notes(self._journal, key, "environment", lambda: t_s)
            with self._journal.decision():
                notes("snapshot", snapshot_to_json(seen))
                notes("decision", decision_to_json(decision, seen))
                notes("guard", decision_to_json(step.guarded, seen))
                notes.step("decided", {"asked": False, "applied": False, "held": None})
                notes("outcome", outcome_to_json(step.outcome))
        return step

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()

    def _ended(self, outcome: Outcome) -> tuple[Bools, Bools]:
        assert self._jobs is not None
        terminated, truncated = super()._ended(outcome)
        return terminated, truncated | self._jobs.done
