"""A2C of Stable-Baselines3 on a batch of 64 jobs."""

import sys

import gymnasium
from stable_baselines3 import A2C

from agents.sb3_vec import Sb3VecEnv

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
env = Sb3VecEnv(gymnasium.make_vec("dsp_gym:dsp_gym/Nexmark-Q11-v1", num_envs=64))
model = A2C("MlpPolicy", env, n_steps=32, gamma=0.97, device="cpu", seed=0)
model.learn(steps)
model.save("a2c.zip")  # dsp-gym policy import a2c.zip --job nexmark-q11
