"""TorchRL: `GymEnv` of an id, `GymWrapper` of a vector environment, and updates of PPO."""

from __future__ import annotations

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from told import tell
from torch import nn
from torchrl.envs import GymEnv, GymWrapper, check_env_specs
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import dsp_gym  # noqa: F401 - registers the environments


def main() -> None:
    """Check the specs of environments, and make a few updates on each."""
    torch.set_num_threads(1)
    capacity = "dsp_gym/Nexmark-Q1-Capacity-v2"
    check_env_specs(GymEnv("dsp_gym/Nexmark-Q1-v1"))
    envs = {
        "GymEnv": GymEnv(f"dsp_gym:{capacity}"),
        "GymEnv of two": GymEnv(f"dsp_gym:{capacity}", num_envs=2, info_keys=["action_mask"]),
        "GymWrapper": GymWrapper(gymnasium.make(capacity)),
        # Without autoreset, as TorchRL prefers; in the same step it needs info of numbers alone.
        "GymWrapper of make_vec, Disabled": GymWrapper(
            gymnasium.make_vec(capacity, num_envs=2, autoreset_mode="Disabled")
        ),
        "GymWrapper of make_vec, SameStep": GymWrapper(
            gymnasium.make_vec(capacity, num_envs=2, info_keys=["action_mask"])
        ),
    }
    did = {}
    for name, env in envs.items():
        check_env_specs(env)
        did[f"PPO, {name}"] = updates(env)
    tell(["torchrl", "tensordict"], did)


def updates(env, count: int = 2) -> int:
    """Learn with PPO from short rollouts; say how many updates were made."""
    size, choices = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    actor = ProbabilisticActor(
        TensorDictModule(nn.Linear(size, choices), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Linear(size, 1), in_keys=["observation"])
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.97, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    before = [one.clone() for one in loss.parameters()]
    for _ in range(count):
        with torch.no_grad():
            seen = env.rollout(8, actor, break_when_any_done=False)
        advantage(seen)
        terms = loss(seen.reshape(-1))
        total = terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    changed = [not torch.equal(a, b) for a, b in zip(before, loss.parameters(), strict=True)]
    if not (all(changed) and torch.isfinite(total)):
        raise SystemExit("an update changed nothing, or its loss is not finite")
    return count


if __name__ == "__main__":
    main()
