"""Environments over one job that is not simulated: a real one, or a recording of one.

The backend begins the episodes; seconds of a real job are real seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.backends.base import Backend, Episodes, reason_to_hold
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.config import files
from dsp_gym.control.journal_writer import JournalWriter, outcome_to_json
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import BatchStep, EnvCore
from dsp_gym.envs.episodes import EpisodeSource, episode_seed, start_configuration
from dsp_gym.envs.scenarios import Scenario
from dsp_gym.guardrails.chain import Chain, build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.guardrails.slots import bounded
from dsp_gym.job.deployment import deployed, rescaled_in_place
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import SplitName
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.journal import Journal


class MeasuredEnv(EnvCore):
    """One environment whose reward comes from metrics, which are incomplete.

    Args:
        episodes: begins episodes on a backend.
        config: clock, reward; of the simulation only the averaging of metrics.
        guardrails: name, path or content of the guardrails inside the environment; None: none but
            the slots of the place.
        journal: takes every decision; None: no journal.
    """

    reward_source = "metrics"

    def __init__(
        self,
        episodes: Episodes,
        config: EnvConfig,
        guardrails: str | GuardrailsConfig | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._rules, self._spec = guardrails, episodes.topology.spec(0)
        super().__init__(episodes.topology, config, self._chain(None))
        self._episodes, self._journal = episodes, journal
        self._backend: Backend | None = None
        self._base_seed, self._episode = 0, 0
        self._pending_s: Floats = np.zeros(1)

    @property
    def backend(self) -> Backend:
        """The job of this episode."""
        if self._backend is None:
            raise RuntimeError("reset() comes first")
        return self._backend

    @property
    def enacted(self) -> bool:
        """Whether the last decision reached the job; a refused one did not."""
        actuator = self.backend.actuator
        return actuator is not None and int(actuator.status()[0]) != ActuatorStatus.FAILED

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        self._base_seed, self._episode = int(seeds[0]), 0

    def reset(self, mask: Bools | None = None) -> Floats32:
        self._backend = None  # the old episode ends now, whether or not the next one begins
        # Each episode has a seed of the stream, as in the simulated environments.
        seed = episode_seed(self._base_seed, self._episode)
        self._episode += 1
        begun = self._episodes.begin(seed)
        self._backend, self.load_labels = begun.backend, [begun.load]
        self._pending_s = np.zeros(1)
        if begun.max_slots is not None:
            self.guardrails = self._chain(begun.max_slots)
        return self._begin(np.arange(1), np.array([seed], np.int64), None)

    def enact(self, decision: ScalingDecision) -> BatchStep:
        """Take a decision, and append it to the journal if there is one.

        Returns:
            Observation, reward and outcome of the decision, each (1,) or (1, ...).
        """
        seen = self.snapshot.job(0)
        step = super().enact(decision)
        if self._journal is not None:
            # The journal's clock is the job's, so that a replay gets the same times.
            t_s, key = float(seen.batch.t_s[0]), self._spec.job
            notes = JournalWriter(self._journal, key, "environment", lambda: t_s)
            with self._journal.decision():
                notes("snapshot", snapshot_to_json(seen))
                notes("decision", decision_to_json(decision, seen))
                notes("guard", decision_to_json(step.guarded, seen))
                notes.step("decided", {"asked": False, "applied": False, "held": None})
                notes("outcome", outcome_to_json(step.outcome))
        return step

    def close(self) -> None:
        """Release the resources of the episodes; jobs of others stay untouched."""
        self._episodes.close()
        if self._journal is not None:
            self._journal.close()

    def _ask(self, guarded: GuardedDecision) -> None:
        """Ask the job for a configuration, unless it is down or its metrics are unknown."""
        if reason_to_hold(self.backend, self.snapshot) is None:
            super()._ask(guarded)

    def _rewarded(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the last known backlog: none is counted while a job is down."""
        if np.isfinite(outcome.pending_s[0]):
            self._pending_s = outcome.pending_s
        return replace(outcome, pending_s=self._pending_s)

    def _end(self, ends: Bools) -> None:
        terminated, truncated = ends
        terminated |= self.backend.is_lost
        truncated |= self.backend.is_over
        truncated &= ~terminated

    def _chain(self, max_slots: int | None) -> Chain | None:
        """Build the guardrails, with the slots as their quota where those are known."""
        rules = self._rules
        if max_slots is not None:
            rules = bounded(rules, self._spec, max_slots)
        elif isinstance(rules, str):
            rules = files.load_model(GuardrailsConfig, "guardrails", rules)
        chain = None if rules is None else build(rules)
        return chain if chain is not None and chain.names else None


def on_flink(
    made: Scenario, split: SplitName, where: str | Path | Mapping[str, object] | None
) -> MeasuredEnv:
    """Build an environment that submits its job to a Flink cluster for every episode.

    Returns:
        The environment, not yet reset.
    """
    # Imported where needed, as are the other backends: their clients are optional.
    from dsp_gym.backends.flink.episodes import FlinkEpisodes, Start, place_of

    place, config = place_of(where), made.env
    spec = as_submitted(made.specs[0], place)
    topology = Topology.of([spec])
    source = EpisodeSource(topology, made.loads, split, config, made.base_dir, place.compression)
    row = np.arange(1)

    def start(seed: int) -> Start:
        drawn = source.drawn(np.array([seed], np.int64), row)
        parallelism, level = start_configuration(topology, config, drawn, row)
        return Start(source.labels[0], drawn.rates[0], parallelism, level)

    episodes = FlinkEpisodes(spec, place, _window(config), start)
    return MeasuredEnv(episodes, config, made.guardrails_config)


def as_submitted(spec: JobSpec, place: PlaceConfig) -> JobSpec:
    """Return a job in the form in which its episodes run in a place.

    Args:
        spec: The job, as its file describes it.
        place: The place, which names the kind of rescale.

    Returns:
        The job itself, or for rescales in place a job with the one memory level it starts at.
    """
    if place.actuator != "adaptive":
        return spec
    if spec.memory.levels == 1:
        return rescaled_in_place(spec)
    return deployed(spec, "adaptive", max(0, spec.memory.start_level))


def on_kubernetes(made: Scenario, where: str | Path | Mapping[str, object] | None) -> MeasuredEnv:
    """Build an environment beside a job of the Flink Kubernetes Operator, under its own load.

    Returns:
        The environment, not yet reset.
    """
    from dsp_gym.backends.kubernetes.episodes import KubernetesEpisodes, kubernetes_place

    episodes = KubernetesEpisodes(made.specs[0], kubernetes_place(where), _window(made.env))
    return MeasuredEnv(episodes, made.env, made.guardrails_config)


def on_recording(
    config: EnvConfig, guardrails: str | None, where: str | Path | Mapping[str, object] | None
) -> MeasuredEnv:
    """Build an environment over a recording, which decisions do not change.

    Returns:
        The environment, not yet reset.
    """
    from dsp_gym.backends.replay.connection import ReplayEpisodes, replay_place

    place = replay_place(where)
    episodes = ReplayEpisodes(place.recording, _window(config))
    journal = None if place.journal is None else Journal(place.journal)
    return MeasuredEnv(episodes, config, guardrails, journal)


def _window(config: EnvConfig) -> WindowConfig:
    """Return the averaging of metrics."""
    seen = config.simulation.measurement
    return WindowConfig(window_s=seen.window_s, stabilization_s=seen.stabilization_s)
