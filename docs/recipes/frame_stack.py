"""PPO on four stacked frames, by Gymnasium's own wrappers."""

import sys

import gymnasium
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from stable_baselines3 import PPO

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
env = FlattenObservation(
    FrameStackObservation(gymnasium.make("dsp_gym:dsp_gym/Nexmark-Q11-v1"), stack_size=4)
)
# Of a batch: stable_baselines3.common.vec_env.VecFrameStack(Sb3VecEnv(...), n_stack=4).
model = PPO("MlpPolicy", env, n_steps=256, gamma=0.97, device="cpu", seed=0)
model.learn(steps)
model.save("stacked.zip")  # a policy folder sees one frame, so this stays a model
