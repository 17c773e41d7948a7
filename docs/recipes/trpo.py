"""TRPO of sb3-contrib, with another load, reward and bound than the defaults."""

import sys

import gymnasium
from sb3_contrib import TRPO

from agents.sb3_vec import Sb3VecEnv

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
jobs = gymnasium.make_vec(
    "dsp_gym:dsp_gym/Nexmark-Q11-v1",
    num_envs=64,
    load="flash-crowd",
    reward={"slo": 8.0},
    slo_s=1.0,
)
model = TRPO("MlpPolicy", Sb3VecEnv(jobs), n_steps=32, gamma=0.97, device="cpu", seed=0)
model.learn(steps)
model.save("trpo.zip")  # dsp-gym policy import trpo.zip --job nexmark-q11
