"""CleanRL: what its scripts ask of environments, with the Gymnasium that they pin.

`gym.make` of the id in a function, statistics around it, `SyncVectorEnv` of several, and after an
end `final_info` and `final_observation`; then updates of PPO and of DQN.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from told import tell
from torch import nn
from torch.distributions import Categorical

ID = "dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2"
ENVS = 2


def main() -> None:
    """Learn with both, over the ends of episodes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    did = {"PPO, SyncVectorEnv": ppo(vector(), updates=4), "DQN, SyncVectorEnv": dqn(vector())}
    tell([], did)


def vector():
    """Make environments as the scripts do."""

    def of_seed(seed: int):
        def thunk():
            env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(ID))
            env.action_space.seed(seed)
            return env

        return thunk

    envs = gymnasium.vector.SyncVectorEnv([of_seed(seed) for seed in range(ENVS)])
    assert isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
    return envs


def network(envs, outputs: int) -> nn.Sequential:
    """Make a small network of observations."""
    size = int(np.array(envs.single_observation_space.shape).prod())
    return nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, outputs))


def ended(infos: dict) -> list[float]:
    """Return the returns of episodes that ended in this step."""
    told = [info for info in infos.get("final_info", ()) if info and "episode" in info]
    return [float(info["episode"]["r"][0]) for info in told]


def ppo(envs, updates: int, steps: int = 64) -> int:
    """Learn on policy; say how many updates were made."""
    actor, critic = network(envs, int(envs.single_action_space.n)), network(envs, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    before, optimizer = [one.clone() for one in parameters], torch.optim.Adam(parameters, 1e-3)
    seen, returns = torch.Tensor(envs.reset(seed=1)[0]), []
    for _ in range(updates):
        rows = []
        for _ in range(steps):
            with torch.no_grad():
                action = Categorical(logits=actor(seen)).sample()
            following, reward, terminations, truncations, infos = envs.step(action.numpy())
            done = torch.Tensor(np.logical_or(terminations, truncations))
            rows.append((seen, action, torch.Tensor(reward), done))
            seen = torch.Tensor(following)
            returns += ended(infos)
        learn_on_policy(rows, seen, actor, critic, optimizer)
    refuse_the_same(before, parameters)
    if len(returns) != ENVS * (updates * steps // 120):
        raise SystemExit(f"{len(returns)} episodes have ended")
    return updates


def learn_on_policy(rows, last, actor, critic, optimizer) -> None:
    """Make one clipped update from a rollout."""
    seen, actions, rewards, dones = (torch.stack(part) for part in zip(*rows, strict=True))
    with torch.no_grad():
        target, targets = critic(last)[:, 0], []
        for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
            target = reward + 0.97 * (1 - done) * target
            targets.insert(0, target)
        old = Categorical(logits=actor(seen)).log_prob(actions)
    value = critic(seen)[..., 0]
    gained = (torch.stack(targets) - value).detach()
    ratio = (Categorical(logits=actor(seen)).log_prob(actions) - old).exp()
    clipped = torch.min(ratio * gained, ratio.clamp(0.8, 1.2) * gained)
    loss = (value - torch.stack(targets)).square().mean() - clipped.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def dqn(envs, steps: int = 250) -> int:
    """Learn off policy, from what follows an end too; say how many updates were made."""
    rng, values = np.random.default_rng(0), network(envs, int(envs.single_action_space.n))
    before, made, kept = [one.clone() for one in values.parameters()], 0, []
    optimizer = torch.optim.Adam(values.parameters(), 1e-3)
    seen, _ = envs.reset(seed=1)
    for step in range(steps):
        actions = values(torch.Tensor(seen)).argmax(1).numpy()
        if rng.random() < 0.5:
            actions = envs.action_space.sample()
        following, rewards, terminations, truncations, infos = envs.step(actions)
        real = following.copy()
        for i in np.flatnonzero(truncations):
            real[i] = infos["final_observation"][i]
            assert not np.array_equal(real[i], following[i])
        kept += zip(seen, actions, rewards, real, terminations, strict=True)
        seen = following
        if step > 32 and step % 8 == 0:
            drawn = [kept[i] for i in rng.integers(0, len(kept), 16)]
            learn_off_policy(drawn, values, optimizer)
            made += 1
    refuse_the_same(before, values.parameters())
    return made


def learn_off_policy(drawn, values, optimizer) -> None:
    """Make one update of values from transitions."""
    seen, actions, rewards, following, ends = (
        torch.as_tensor(np.array(part, np.float32)) for part in zip(*drawn, strict=True)
    )
    with torch.no_grad():
        target = rewards + 0.97 * (1 - ends) * values(following).amax(1)
    chosen = values(seen).gather(1, actions.long()[:, None])[:, 0]
    loss = (chosen - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def refuse_the_same(before, after) -> None:
    """End where no update changed a weight."""
    if all(torch.equal(a, b) for a, b in zip(before, after, strict=True)):
        raise SystemExit("no update changed a weight")


if __name__ == "__main__":
    main()
