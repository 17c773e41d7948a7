"""Gymnasium's `NumpyToTorch`, which needs array-api-compat: learning in tensors.

It turns every key of `info` into a tensor, so `info` has numbers alone. In the same step it takes
no vector environment, since Gymnasium keeps last observations as objects.
"""

from __future__ import annotations

import gymnasium
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NumpyToTorch, RecordEpisodeStatistics
from told import tell
from torch import nn
from torch.distributions import Categorical

ID = "dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2"
ENVS, STEPS, UPDATES = 2, 64, 4


def main() -> None:
    """Learn in both modes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    modes = AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
    did = {f"policy gradient, NumpyToTorch, {mode.value}": updates(mode) for mode in modes}
    tell(["array-api-compat"], did)


def updates(mode: AutoresetMode) -> int:
    """Learn over the ends of episodes, all in tensors; say how many updates were made."""
    made = gymnasium.make_vec(ID, num_envs=ENVS, autoreset_mode=mode, info_keys=["action_mask"])
    env = NumpyToTorch(RecordEpisodeStatistics(made))
    actor = nn.Linear(env.single_observation_space.shape[0], int(env.single_action_space.n))
    before, optimizer = actor.weight.clone(), torch.optim.Adam(actor.parameters(), 1e-3)
    seen, _ = env.reset(seed=0)
    ends = 0
    for _ in range(UPDATES):
        said, earned = [], []
        for _ in range(STEPS):
            policy = Categorical(logits=actor(seen))
            actions = policy.sample()
            said.append(policy.log_prob(actions))
            seen, reward, terminated, truncated, _ = env.step(actions)
            earned.append(reward)
            done = terminated | truncated
            ends += int(done.sum())
            if mode == AutoresetMode.DISABLED and done.any():
                seen, _ = env.reset(options={"reset_mask": done.numpy()})
        gained = torch.stack(earned)
        loss = -((gained - gained.mean()) * torch.stack(said)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if ends != ENVS * (UPDATES * STEPS // 120) or torch.equal(before, actor.weight):
        raise SystemExit(f"{ends} episodes have ended, or no update changed a weight")
    return UPDATES


if __name__ == "__main__":
    main()
