"""Tianshou: DQN on environments in one process and in workers."""

from __future__ import annotations

import gymnasium
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.utils.net.common import Net
from told import tell

ID = "dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2"


def make():
    """Make an environment, in a worker too."""
    return gymnasium.make(ID)


def main() -> None:
    """Collect and update a few times with each."""
    torch.set_num_threads(1)
    did = {}
    for kind in (DummyVectorEnv, SubprocVectorEnv):
        envs = kind([make, make])
        did[f"DQN, {kind.__name__}"] = updates(envs)
        envs.close()
    tell(["tianshou"], did)


def updates(envs, count: int = 3) -> int:
    """Learn with DQN; say how many updates were made."""
    one = make()
    net = Net(
        state_shape=one.observation_space.shape, action_shape=one.action_space.n, hidden_sizes=[8]
    )
    policy = DiscreteQLearningPolicy(model=net, action_space=one.action_space, eps_training=0.2)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=10)
    buffer = VectorReplayBuffer(256, 2)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    before = [one.clone() for one in net.parameters()]
    for _ in range(count):
        collector.collect(n_step=16)
        with policy_within_training_step(policy):
            algorithm.update(buffer=buffer, sample_size=8)
    if all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)):
        raise SystemExit("no update changed a weight")
    return count


if __name__ == "__main__":
    main()
