"""RecurrentPPO of sb3-contrib: an LSTM remembers what the observation does not say."""

import sys

import gymnasium
from sb3_contrib import RecurrentPPO

from agents.sb3_vec import Sb3VecEnv

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
env = Sb3VecEnv(gymnasium.make_vec("dsp_gym:dsp_gym/Nexmark-Q11-v1", num_envs=16))
model = RecurrentPPO(
    "MlpLstmPolicy",
    env,
    n_steps=32,
    batch_size=128,
    n_epochs=2,
    gamma=0.97,
    policy_kwargs={"lstm_hidden_size": 64},
    device="cpu",
    seed=0,
)
model.learn(steps)
model.save("recurrent.zip")  # dsp-gym policy import recurrent.zip --job nexmark-q11
