"""DQN of Stable-Baselines3 on a flat action: one move of one vertex per decision."""

import sys

import gymnasium
from stable_baselines3 import DQN

from agents.sb3_vec import Sb3VecEnv

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
# Of one job: dsp_gym.envs.wrappers.SingleMove(gymnasium.make("dsp_gym:dsp_gym/Nexmark-Q11-v1")).
env = Sb3VecEnv(gymnasium.make_vec("dsp_gym:dsp_gym/Nexmark-Q11-v1", num_envs=16), flat=True)
model = DQN(
    "MlpPolicy", env, buffer_size=50_000, learning_starts=64, gamma=0.97, device="cpu", seed=0
)
model.learn(steps)
model.save("dqn.zip")  # dsp-gym policy import dqn.zip --job nexmark-q11
