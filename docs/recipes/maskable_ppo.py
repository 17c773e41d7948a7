"""MaskablePPO of sb3-contrib: moves that bounds forbid are never tried."""

import sys

import gymnasium
from sb3_contrib import MaskablePPO

from agents.sb3_vec import Sb3VecEnv

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
env = Sb3VecEnv(gymnasium.make_vec("dsp_gym:dsp_gym/Nexmark-Q11-v1", num_envs=64))
model = MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=512, gamma=0.97, device="cpu", seed=0)
model.learn(steps)
model.save("maskable.zip")  # dsp-gym policy import maskable.zip --job nexmark-q11
