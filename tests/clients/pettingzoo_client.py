"""PettingZoo: its own test of parallel environments, and operators that learn with one network."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from pettingzoo.utils import parallel_to_aec
from told import tell
from torch import nn
from torch.distributions import Categorical

import dsp_gym

with warnings.catch_warnings():
    # PettingZoo's tests import its games, and these warn.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test

ID = "dsp_gym/Nexmark-Q3-v1"
STEPS, GAMMA = 32, 0.97


def main() -> None:
    """Try the interface, then make a few updates with each form of environment."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parallel_api_test(dsp_gym.parallel_env(ID), num_cycles=STEPS)
    env = dsp_gym.parallel_env(ID)
    did = {
        "policy gradient, parallel": updates(env, parallel),
        "policy gradient, one after the other": updates(parallel_to_aec(env), in_turns),
    }
    tell(["pettingzoo"], did)


def parallel(env, decide) -> list[float]:
    """Play some steps in which all operators act at once; return the job's rewards."""
    seen, infos = env.reset(seed=0)
    earned = []
    for _ in range(STEPS):
        actions = {agent: decide(seen[agent], infos[agent]) for agent in env.agents}
        seen, rewards, _, _, infos = env.step(actions)
        (reward,) = set(rewards.values())  # shared
        earned.append(reward)
    return earned


def in_turns(env, decide) -> list[float]:
    """Play the same, an operator at a time."""
    env.reset(seed=0)
    earned = []
    while len(earned) < STEPS:
        for _ in env.possible_agents:
            seen, _, _, _, info = env.last()
            env.step(decide(seen, info))
        earned.append(env.rewards[env.possible_agents[0]])
    return earned


def updates(env, play, count: int = 3) -> int:
    """Learn with a network that all operators share; say how many updates were made."""
    agent = env.possible_agents[0]
    choices = env.action_space(agent).nvec.tolist()
    actor = nn.Linear(env.observation_space(agent).shape[0], sum(choices))
    before, optimizer = actor.weight.clone(), torch.optim.Adam(actor.parameters(), 1e-3)
    for _ in range(count):
        said: list[torch.Tensor] = []

        def decide(seen, info, said=said) -> np.ndarray:
            mask = torch.as_tensor(np.concatenate(info["action_mask"])).bool()
            logits = torch.where(mask, actor(torch.as_tensor(seen)), -1e8)
            parts = [Categorical(logits=part) for part in logits.split(choices)]
            drawn = [part.sample() for part in parts]
            said.append(sum(part.log_prob(one) for part, one in zip(parts, drawn, strict=True)))
            return np.array([int(one) for one in drawn])

        learn(play(env, decide), said, optimizer)
    if torch.equal(before, actor.weight):
        raise SystemExit("no update changed a weight")
    return count


def learn(earned: list[float], said: list[torch.Tensor], optimizer) -> None:
    """Make one update from what a job earned and what its operators did."""
    gained, total = [], 0.0
    for reward in reversed(earned):
        total = reward + GAMMA * total
        gained.insert(0, total)
    advantage = torch.tensor(gained) - np.mean(gained)
    each = torch.stack(said).reshape(len(earned), -1).sum(1)  # a row per decision of the job
    loss = -(advantage * each).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    main()
