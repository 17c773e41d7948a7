"""Stable-Baselines3 and sb3-contrib: in one process and in workers, of an id with its module."""

from __future__ import annotations

import torch
from sb3_contrib import TRPO, MaskablePPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from told import tell

ID = "dsp_gym:dsp_gym/Nexmark-Q1-v1"


def main() -> None:
    """Make a few updates with each."""
    torch.set_num_threads(1)
    did = {}
    small = {"n_steps": 32, "device": "cpu", "seed": 0}
    tried = [(one, kind) for one in (PPO, MaskablePPO) for kind in (DummyVecEnv, SubprocVecEnv)]
    for algorithm, kind in (*tried, (TRPO, DummyVecEnv)):
        env = make_vec_env(
            ID,
            2,
            seed=0,
            vec_env_cls=kind,
            vec_env_kwargs={"start_method": "spawn"} if kind is SubprocVecEnv else {},
        )
        model = algorithm("MlpPolicy", env, batch_size=32, **small).learn(128)
        did[f"{algorithm.__name__}, {kind.__name__}"] = model.num_timesteps // 64
        env.close()
    env = make_vec_env("dsp_gym:dsp_gym/Nexmark-Q1-Capacity-v2", 2, seed=0)
    model = A2C("MlpPolicy", env, **small).learn(128)
    did["A2C, capacity"] = model.num_timesteps // 64
    tell(["stable-baselines3", "sb3-contrib"], did)


if __name__ == "__main__":
    main()
