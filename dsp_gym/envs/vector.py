"""Many jobs as one Gymnasium vector environment, advanced together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.core import BatchStep, interventions
from dsp_gym.envs.keywords import ScenarioChanges
from dsp_gym.envs.scenarios import ONE_JOB, ActionName, Job, changed, scenario
from dsp_gym.envs.single import Observation, observation_space, space_of
from dsp_gym.envs.watch.watcher import BatchWatcher, Pixels
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.loads.splits import SplitName

DEVICES = ("cpu", "cuda")
"""Devices that environments run on."""


def vector_env(num_envs: int = 1, device: str = "cpu", **keywords: Any) -> VectorEnv[Any, Any, Any]:
    """Make many environments on the CPU or on a graphics card.

    Args:
        num_envs: how many.
        device: "cpu" or "cuda".
        **keywords: as `AutoscaleVectorEnv`, or `dsp_gym.envs.cuda.vector.DeviceVectorEnv`, takes
            them.

    Returns:
        The environments.

    Raises:
        ConfigError: There is no such device.
        MissingExtraError: The extra of the device is not installed.
        DeviceError: There is no GPU that can be used, or it has too little memory.
    """
    if device == "cpu":
        return AutoscaleVectorEnv(num_envs, **keywords)
    if device != "cuda":
        raise ConfigError(
            f"there is no device '{device}'", key="device", remedy=did_you_mean(device, DEVICES)
        )
    from dsp_gym.simulation.cuda.card import find_card

    find_card()
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    return DeviceVectorEnv(num_envs, **keywords)


class AutoscaleVectorEnv(VectorEnv[Observation, Ints, Floats]):
    """`num_envs` jobs; with several jobs in the config, environment i is job i modulo their number.

    Environment i seeded with `seed` is the single environment seeded with `seed + i`. An episode
    that ends is reset in the same step; its last observation is in `info["final_obs"]`.

    `info` holds what that of the single environment holds, as arrays with a row per environment:
    `info["interventions"][i]` are the records of environment i.

    Args:
        num_envs: how many environments.
        job: a job, as in `AutoscaleEnv`.
        config: an experiment's name, path or content; its env, loads and guardrails are used.
        load: the load of the episodes, in place of the config's, as in `AutoscaleEnv`.
        reward: weights of the reward's terms that differ, as in `AutoscaleEnv`.
        slo_s: bound on the p95 latency in seconds, in place of the job file's.
        backend: "simulated".
        split: part of the loads episodes are drawn from.
        guardrails: name or path of a guardrails config.
        explain: whether a record of an intervention has its `reason` in words, which takes time;
            None: only where there is one environment.
        action: "vertex", "capacity", or None: as in `AutoscaleEnv`.
        render_mode: "rgb_array": `render()` gives a picture of every job; needs the extra `video`.
    """

    metadata = {  # noqa: RUF012 - Gymnasium's own attribute
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        num_envs: int = 1,
        job: Job | None = None,
        config: str | Path | dict[str, object] | None = None,
        backend: str = "simulated",
        split: SplitName = "train",
        guardrails: str | None = None,
        explain: bool | None = None,
        action: ActionName | None = None,
        render_mode: str | None = None,
        **changes: Unpack[ScenarioChanges],
    ) -> None:
        self.render_mode = render_mode
        self._watchers = None if render_mode is None else BatchWatcher(num_envs, render_mode)
        if backend in ONE_JOB:
            raise ConfigError(
                f"the backend '{backend}' is one job, not a batch of them",
                key="backend",
                remedy="Make it with gymnasium.make.",
            )
        # Sentences for thousands of jobs take time; one job can afford them.
        explain = num_envs == 1 if explain is None else explain
        made = scenario(job, config, backend, guardrails, explain=explain, action=action)
        made = changed(made, changes, split)
        row = [i % len(made.specs) for i in range(num_envs)]
        self.num_envs = num_envs
        # An object array of empty tuples: NumPy would make a 2-D array from a list of them.
        self._unchanged = np.fromiter(((),) * num_envs, dtype=object, count=num_envs)
        self.batch = AutoscaleBatch(
            made.specs, row, made.loads, split, made.env, made.guardrails, base_dir=made.base_dir
        )
        self.single_observation_space = observation_space(self.batch.codec.observation_size)
        self.single_action_space = space_of(self.batch.codec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.batch.seed(self.np_random.integers(0, 2**31) + np.arange(num_envs))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[Observation, dict[str, object]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` is True.

        Returns:
            Observations (num_envs, size), and info: `action_mask`.
        """
        mask = cast(Bools | None, None if options is None else options.get("reset_mask"))
        if seed is not None:
            seeds = seed + np.arange(self.num_envs) if isinstance(seed, int | np.integer) else seed
            given = np.array([one is not None for one in seeds])
            numbers = np.array([0 if one is None else one for one in seeds])
            self.batch.seed(numbers, given if mask is None else given & mask)
        observation = self.batch.reset(mask)
        if self._watchers is not None:
            self._watchers.begin(self.batch, mask)
        return observation.copy(), {"action_mask": self.batch.action_masks()}

    def step(  # type: ignore[override]  # Gymnasium types done flags by the rewards' array type
        self, actions: Ints
    ) -> tuple[Observation, Floats, Bools, Bools, dict[str, object]]:
        """Take one decision for every job.

        Returns:
            Observations, rewards, terminated and truncated with a row per environment, and info.
        """
        step = self.batch.step(np.asarray(actions, dtype=np.int64).reshape(self.num_envs, -1))
        if self._watchers is not None:
            self._watchers.add(self.batch, step)
        info = self._info(step)
        observation, done = step.observation, step.terminated | step.truncated
        # Same-step autoreset: the last observation is handed out before the reset replaces it.
        if done.any():
            info |= {"final_obs": observation.copy(), "_final_obs": done}
            observation = self.batch.reset(done)
            if self._watchers is not None:
                self._watchers.begin(self.batch, done)
        info["action_mask"] = self.batch.action_masks()
        return observation.copy(), step.reward, step.terminated, step.truncated, info

    def action_masks(self) -> Bools:
        """Mark the valid actions.

        Returns:
            (num_envs, V * 10) flags, or (num_envs, 11) of capacity actions, a row per environment;
            True: the choice is valid.
        """
        return self.batch.action_masks()

    def render(self) -> tuple[Pixels, ...] | None:
        """Render every job's episode so far.

        Returns:
            A picture (720, 1280, 3) of uint8 for each; None without a render mode.
        """
        return None if self._watchers is None else self._watchers.pictures()

    def _info(self, step: BatchStep) -> dict[str, object]:
        changed = np.empty(self.num_envs, dtype=object)
        changed[:] = self._unchanged
        for job, records in interventions(step.guarded).items():
            changed[job] = records
        return {
            "reward_terms": dict(step.terms),
            "reward_source": np.full(self.num_envs, "outcome"),
            "enacted": np.ones(self.num_envs, dtype=bool),
            "interventions": changed,
            "trips": step.guarded.trips,
            "slo_s": step.outcome.slo_s,
            "cost": step.outcome.cost,
            "down_s": step.outcome.down_s,
            "pending_s": step.outcome.pending_s,
        }
