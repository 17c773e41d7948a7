"""An environment over one live job, as on Flink and Kubernetes; the job itself is simulated."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.base import Episode
from dsp_gym.backends.flink.episodes import FlinkPlace
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.measured import MeasuredEnv, as_submitted
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.protocols import ActuatorStatus
from tests.living import Living


class LivingEpisodes:
    """One episode over a job that lives already."""

    def __init__(self) -> None:
        self.living = Living(rate_per_s=3000.0)
        self.topology = self.living.topology

    def begin(self, seed: int) -> Episode:
        return Episode(self.living.backend, "steady", max_slots=16)

    def close(self) -> None:
        self.living.close()


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_a_capacity_that_was_chosen_runs_on_the_real_job_within_its_slots(prior):
    config = EnvConfig(action="capacity", episode_s=3600, capacity={"prior": prior})
    episodes = LivingEpisodes()
    env = MeasuredEnv(episodes, config)
    env.seed(np.array([1]))
    env.reset()
    for _ in range(6):
        env.step(np.zeros((1, 1), np.int64))
    choice = int(np.flatnonzero(env.action_masks()[0])[-1])
    wanted = env.decode_actions(np.array([[choice]])).parallelism
    assert choice > 0
    env.step(np.array([[choice]]))
    env.step(np.zeros((1, 1), np.int64))
    np.testing.assert_array_equal(env.snapshot.parallelism, wanted)
    env.close()


def test_a_decision_that_the_job_refused_was_not_enacted(monkeypatch):
    episodes = LivingEpisodes()
    env = MeasuredEnv(episodes, EnvConfig(episode_s=3600))
    env.reset()
    hold = np.zeros((1, len(env.codec.choices)), np.int64)
    assert env.info(env.step(hold), 0)["enacted"]
    monkeypatch.setattr(episodes.living, "status", lambda: np.array([ActuatorStatus.FAILED]))
    assert not env.info(env.step(hold), 0)["enacted"]
    env.close()


def test_a_job_that_is_rescaled_in_place_has_one_memory_level_and_costs_all_of_it():
    spec = load_job("flink-q11")
    assert as_submitted(spec, FlinkPlace()) is spec
    found = as_submitted(spec, FlinkPlace(actuator="adaptive"))
    assert (found.memory.levels, found.memory.uniform, found.rescale.mode) == (1, True, "in_place")
    assert found.memory.base_mib == spec.memory.base_mib * 2 ** max(0, spec.memory.start_level)
    one = spec.model_copy(update={"memory": spec.memory.model_copy(update={"levels": 1})})
    described = as_submitted(one, FlinkPlace(actuator="adaptive"))
    assert (described.memory, described.rescale.mode) == (one.memory, "in_place")
