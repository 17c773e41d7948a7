"""One PPO for all operators of a job: agents of a parallel environment that share a network."""

import sys

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

import dsp_gym

JOB = "dsp_gym/Nexmark-Q3-v1"


class Operators(VecEnv):
    """The agents of some jobs as rows: those of a job stand together, and share its reward."""

    def __init__(self, jobs):
        self.jobs = [dsp_gym.parallel_env(JOB) for _ in range(jobs)]
        self.names = self.jobs[0].possible_agents
        of_one, rows = self.jobs[0], jobs * len(self.names)
        name = self.names[0]
        super().__init__(rows, of_one.observation_space(name), of_one.action_space(name))

    def reset(self):
        begun = [job.reset(seed=seed)[0] for seed, job in enumerate(self.jobs)]
        return np.concatenate([self.rows_of(seen) for seen in begun])

    def step_async(self, actions):
        self.actions = actions.reshape(len(self.jobs), len(self.names), -1)

    def step_wait(self):
        seen, rewards, dones, infos = [], [], [], []
        for job, actions in zip(self.jobs, self.actions, strict=True):
            done = job.step(dict(zip(self.names, actions, strict=True)))
            observed, reward, terminated, truncated, _ = (list(one.values()) for one in done)
            for row in range(len(self.names)):
                cut = {"TimeLimit.truncated": truncated[row] and not terminated[row]}
                infos.append(cut | {"terminal_observation": observed[row]})
            rewards += reward
            dones += np.logical_or(terminated, truncated).tolist()
            seen.append(self.rows_of(done[0] if job.agents else job.reset()[0]))
        return np.concatenate(seen), np.array(rewards), np.array(dones), infos

    def rows_of(self, by_agent):
        return np.stack([by_agent[name] for name in self.names])

    def close(self):
        for job in self.jobs:
            job.close()

    def get_attr(self, attr_name, indices=None):
        return [getattr(job, attr_name, None) for job in self.jobs for _ in self.names]

    def set_attr(self, attr_name, value, indices=None):
        for job in self.jobs:
            setattr(job, attr_name, value)

    def env_method(self, method_name, *arguments, indices=None, **keywords):
        call = [getattr(job, method_name) for job in self.jobs for _ in self.names]
        return [one(*arguments, **keywords) for one in call]

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


def play(model, episodes=10):
    """Return the mean return on test loads."""
    env, total = dsp_gym.parallel_env(JOB, split="test"), 0.0
    for seed in range(episodes):
        seen, _ = env.reset(seed=seed)
        while env.agents:
            chosen, _ = model.predict(np.stack([*seen.values()]), deterministic=True)
            seen, rewards, *_ = env.step(dict(zip(env.agents, chosen, strict=True)))
            total += next(iter(rewards.values()))
    return total / episodes


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
model = PPO(
    "MlpPolicy", Operators(16), n_steps=32, batch_size=384, gamma=0.97, device="cpu", seed=0
)
returns = {"untrained": play(model)}
model.learn(steps)
returns[f"after {steps:,} decisions of operators"] = play(model)
for rule in ("ds2", "justin-artifact"):
    env = dsp_gym.parallel_env(JOB, split="test").env
    returns[rule] = dsp_gym.evaluate_policy(rule, env, episodes=10).mean
for name, value in returns.items():
    sys.stdout.write(f"{name}: {value:.1f}\n")
