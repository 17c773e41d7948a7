"""RLlib: PPO in this process and with a worker, DQN of capacity actions; made by the id alone."""

from __future__ import annotations

import numpy as np
import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from told import tell

ID = "dsp_gym:dsp_gym/Nexmark-Q1-v1"
CAPACITY = "dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2"
SMALL = {"fcnet_hiddens": [8]}


def main() -> None:
    """Make a few updates with each."""
    torch.set_num_threads(1)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ppo = PPOConfig().environment(ID).rl_module(model_config=SMALL)
    ppo = ppo.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    dqn = DQNConfig().environment(CAPACITY).rl_module(model_config=SMALL)
    dqn = dqn.training(
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=16,
        replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 256},
    ).reporting(min_sample_timesteps_per_iteration=32)
    did = {
        "PPO, in this process": updates(ppo.env_runners(num_env_runners=0)),
        "PPO, a worker": updates(
            ppo.copy(copy_frozen=False).env_runners(num_env_runners=1, num_envs_per_env_runner=2)
        ),
        "DQN, capacity": updates(dqn.env_runners(num_env_runners=0)),
    }
    ray.shutdown()
    tell(["ray"], did)


def updates(config: AlgorithmConfig, count: int = 2) -> int:
    """Train for a few iterations; say how many."""
    algorithm = config.debugging(seed=0, log_level="ERROR").build_algo()
    before = weights(algorithm)
    for _ in range(count):
        algorithm.train()
    after = weights(algorithm)
    algorithm.stop()
    if all(np.array_equal(before[name], after[name]) for name in before):
        raise SystemExit("no update changed a weight")
    return count


def weights(algorithm) -> dict[str, np.ndarray]:
    """Copy the weights of the only module."""
    found = algorithm.learner_group.get_weights()
    flat = found.get("default_policy", found)
    return {name: np.array(value) for name, value in flat.items()}


if __name__ == "__main__":
    main()
