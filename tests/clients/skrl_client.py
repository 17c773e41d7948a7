"""skrl: DQN on a single environment and on the vector environment in each autoreset mode."""

from __future__ import annotations

import gymnasium
import torch
from skrl.agents.torch.dqn import DQN, DQN_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from told import tell
from torch import nn

import dsp_gym  # noqa: F401 - registers the environments

ID = "dsp_gym/Nexmark-Q1-Capacity-v2"
STEPS = 32


class Values(DeterministicMixin, Model):
    """The value of each choice."""

    def __init__(self, env) -> None:
        Model.__init__(
            self,
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=env.device,
        )
        DeterministicMixin.__init__(self)
        self.net = nn.Linear(self.num_observations, self.num_actions)

    def compute(self, inputs, role=""):
        """Values of the choices."""
        return self.net(inputs["observations"]), {}


def main() -> None:
    """Learn for a few steps on each."""
    torch.set_num_threads(1)
    made = {"gymnasium.make": gymnasium.make(ID)}
    for mode in ("SameStep", "NextStep"):
        made[f"make_vec, {mode}"] = gymnasium.make_vec(ID, num_envs=2, autoreset_mode=mode)
    tell(["skrl"], {f"DQN, {name}": updates(env) for name, env in made.items()})


def updates(env) -> int:
    """Learn with DQN; say how many updates were made."""
    env = wrap_env(env)
    models = {"q_network": Values(env), "target_q_network": Values(env)}
    cfg = DQN_CFG(batch_size=8, learning_starts=8, random_timesteps=8)
    cfg.experiment.write_interval = cfg.experiment.checkpoint_interval = 0
    agent = DQN(
        models=models,
        memory=RandomMemory(memory_size=64, num_envs=env.num_envs, device=env.device),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device=env.device,
        cfg=cfg,
    )
    before = models["q_network"].net.weight.clone()
    trainer = {"timesteps": STEPS, "headless": True, "disable_progressbar": True}
    SequentialTrainer(env=env, agents=agent, cfg=trainer).train()
    if torch.equal(before, models["q_network"].net.weight):
        raise SystemExit("no update changed a weight")
    return STEPS - 8


if __name__ == "__main__":
    main()
