"""PPO in one file, in the style of CleanRL: everything is here, nothing is hidden."""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES = 32, 32, 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, RATE = 0.97, 0.95, 0.2, 0.002, 1e-3


def layers(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Two hidden layers of 64, orthogonal weights."""
    found = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, one in zip(found, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, one)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(found[0], nn.Tanh(), found[1], nn.Tanh(), found[2])


class Agent(nn.Module):
    """An actor with one block of logits per part of the action, and a critic."""

    def __init__(self, size: int, choices: list[int]) -> None:
        super().__init__()
        self.choices = choices
        self.actor, self.critic = layers(size, sum(choices), 0.01), layers(size, 1, 1.0)

    def decide(self, seen, masks, action=None):
        """Actions, their log-probability, entropy and value; forbidden moves are masked."""
        logits = torch.where(masks, self.actor(seen), -1e8)
        parts = [Categorical(logits=part) for part in torch.split(logits, self.choices, dim=1)]
        if action is None:
            action = torch.stack([part.sample() for part in parts], dim=1)
        log_prob = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
        return action, log_prob, sum(part.entropy() for part in parts), self.critic(seen)[:, 0]


total = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
torch.manual_seed(0)
envs = gymnasium.make_vec("dsp_gym:dsp_gym/Nexmark-Q11-v1", num_envs=ENVS)
agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.nvec.tolist())
optimizer = optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
observation, info = envs.reset(seed=0)

for _ in range(max(1, total // (ENVS * STEPS))):
    rows = []
    for _ in range(STEPS):
        seen, masks = torch.from_numpy(observation), torch.from_numpy(info["action_mask"])
        with torch.no_grad():
            action, log_prob, _, value = agent.decide(seen, masks)
        observation, reward, terminated, truncated, info = envs.step(action.numpy())
        reward = torch.from_numpy(np.float32(reward))
        cut = truncated & ~terminated
        if cut.any():  # by the clock: it would have gone on like this
            last = torch.from_numpy(np.stack(info["final_obs"][cut]))
            with torch.no_grad():
                reward[cut] += GAMMA * agent.critic(last)[:, 0]
        done = torch.from_numpy(terminated | truncated)
        rows.append((seen, masks, action, log_prob, value, reward, done))
    with torch.no_grad():
        following = agent.critic(torch.from_numpy(observation))[:, 0]
    advantage, advantages = torch.zeros(ENVS), []
    for *_, value, reward, done in reversed(rows):
        goes_on = (~done).float()
        advantage = (
            reward + GAMMA * goes_on * following - value + (GAMMA * LAMBDA * goes_on * advantage)
        )
        advantages.insert(0, advantage)
        following = value
    seen, masks, action, log_prob, value, *_ = (torch.cat(part) for part in zip(*rows, strict=True))
    gained = torch.cat(advantages)
    target = gained + value
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(seen)).chunk(MINIBATCHES):
            _, new, entropy, judged = agent.decide(seen[batch], masks[batch], action[batch])
            ratio = (new - log_prob[batch]).exp()
            better = (gained[batch] - gained[batch].mean()) / (gained[batch].std() + 1e-8)
            clipped = torch.min(ratio * better, ratio.clamp(1 - CLIP, 1 + CLIP) * better)
            error = (judged - target[batch]).square().mean()
            loss = -clipped.mean() + 0.5 * error - ENTROPY * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()

torch.save(agent.state_dict(), "agent.pt")
# dsp-gym policy import agent.pt --job nexmark-q11 --masked
