"""Many jobs as one Gymnasium vector environment, advanced together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Unpack, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.core import OUTCOME_KEYS, BatchStep, interventions
from dsp_gym.envs.env_row import EnvRow
from dsp_gym.envs.info import INFO_KEYS, checked_keys
from dsp_gym.envs.keywords import VECTOR_OTHERS, VectorKeywords, refuse_unknown
from dsp_gym.envs.registration import no_batches
from dsp_gym.envs.resets import checked_mask, checked_seeds
from dsp_gym.envs.reward_function import reward_function_of
from dsp_gym.envs.scenarios import ONE_JOB, ActionName, Job, changed, scenario
from dsp_gym.envs.single import Observation, observation_space, space_of
from dsp_gym.envs.watch.watcher import BatchWatcher, Pixels
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.loads.splits import SplitName

try:
    from gymnasium.vector import AutoresetMode
except ImportError:
    raise no_batches(gymnasium.__version__) from None

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
        KeywordError: A keyword is unknown.
    """
    if device == "cpu":
        return AutoscaleVectorEnv(num_envs, **keywords)
    if device != "cuda":
        raise ConfigError(
            f"there is no device '{device}'", key="device", remedy=did_you_mean(device, DEVICES)
        )
    if autoreset_mode_of(keywords.pop("autoreset_mode", None)) != AutoresetMode.SAME_STEP:
        raise ConfigError(
            "on a GPU an episode that ends is reset within the step",
            key="autoreset_mode",
            remedy="Leave it out, or take device='cpu'.",
        )
    if reward_function_of(keywords.get("reward")) is not None:
        raise ConfigError(
            "on a GPU the reward is the weighted sum of its terms",
            key="reward",
            remedy="Pass weights, or take device='cpu'.",
        )
    from dsp_gym.simulation.cuda.card import find_card

    find_card()
    from dsp_gym.envs.cuda.vector import DeviceVectorEnv

    return DeviceVectorEnv(num_envs, **keywords)


def autoreset_mode_of(mode: AutoresetMode | str | None) -> AutoresetMode:
    """Read an autoreset mode.

    Args:
        mode: Of Gymnasium, by its name ("SAME_STEP") or value ("SameStep"); None: same step.

    Returns:
        The mode.

    Raises:
        ConfigError: There is none of that name.
    """
    if mode is None:
        return AutoresetMode.SAME_STEP
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    raise ConfigError(
        f"there is no autoreset mode '{mode}'",
        key="autoreset_mode",
        remedy=did_you_mean(str(mode), [known.value for known in AutoresetMode]),
    )


class AutoscaleVectorEnv(VectorEnv[Observation, Ints, Floats]):
    """`num_envs` jobs; with several jobs in the config, environment i is job i modulo their number.

    Environment i seeded with `seed` is the single environment seeded with `seed + i`. `info` holds
    what that of the single environment holds, as arrays with a row per environment:
    `info["interventions"][i]` are the records of environment i.

    An episode that ends is reset as Gymnasium's autoreset mode says. Same step: at once;
    `info["final_obs"][i]` and `info["final_info"]` are of the old episode, where
    `info["_final_obs"]` is True. Next step: by the next step, which ignores the action of that
    environment, and whose reward is 0. Disabled: by `reset(options={"reset_mask": ended})`, before
    the next step.

    Args:
        num_envs: how many environments.
        job: a job, as in `AutoscaleEnv`.
        config: an experiment's name, path or content; its env, loads and guardrails are used.
        load: the load of the episodes, in place of the config's, as in `AutoscaleEnv`.
        reward: weights of the reward's terms that differ, or a function of the terms, as in
            `AutoscaleEnv`; it is called once for all environments.
        slo_s: bound on the p95 latency in seconds, in place of the job file's.
        backend: "simulated".
        split: part of the loads episodes are drawn from.
        guardrails: name or path of a guardrails config.
        explain: whether a record of an intervention has its `reason` in words, which takes time;
            None: only where there is one environment.
        action: "vertex", "capacity", or None: as in `AutoscaleEnv`.
        info_keys: keys that `info` has, beside those of the autoreset mode; default: all.
        autoreset_mode: an `AutoresetMode` of Gymnasium, or "SameStep", "NextStep" or "Disabled".
        max_episode_steps: steps after which an episode is truncated, if not before.
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
        **changes: Unpack[VectorKeywords],
    ) -> None:
        steps = changes.pop("max_episode_steps", None)
        num_envs = _checked_count(num_envs)
        self.autoreset_mode = autoreset_mode_of(changes.pop("autoreset_mode", None))
        # The mode belongs to this instance: others of the class have theirs.
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        asked = checked_keys(changes.pop("info_keys", None))
        self._info_keys = frozenset(INFO_KEYS) if asked is None else asked
        refuse_unknown(changes, VECTOR_OTHERS)
        own_reward = reward_function_of(changes.get("reward"))
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
        self._max_steps = _checked_steps(steps, made.env.max_steps)
        self._has_ended: Bools = np.zeros(num_envs, np.bool_)
        self._spec: EnvSpec | None = None
        # An object array of empty tuples: NumPy would make a 2-D array from a list of them.
        self._unchanged = np.fromiter(((),) * num_envs, dtype=object, count=num_envs)
        self.batch = AutoscaleBatch(
            made.specs, row, made.loads, split, made.env, made.guardrails, base_dir=made.base_dir
        )
        self.batch.reward_function = own_reward
        self.single_observation_space = observation_space(self.batch.codec.observation_size)
        self.single_action_space = space_of(self.batch.codec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.batch.seed(self.np_random.integers(0, 2**31) + np.arange(num_envs))
        self._rows = [EnvRow(self, self.batch, i) for i in range(num_envs)]

    @property
    def spec(self) -> EnvSpec | None:
        """The registered spec, with the length of an episode."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy(spec)
        if self._spec is not None:
            self._spec.max_episode_steps = self._max_steps

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[Observation, dict[str, object]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` is True.

        Returns:
            Observations (num_envs, size), and info: `action_mask`.

        Raises:
            ConfigError: `reset_mask` is no array of a flag for each environment, or `seed` no
                number from 0 on, or one for each environment.
        """
        given_mask = None if options is None else options.get("reset_mask")
        mask = None if given_mask is None else checked_mask(given_mask, self.num_envs)
        if seed is not None:
            seeds = checked_seeds(seed, self.num_envs)
            given = np.array([one is not None for one in seeds])
            numbers = np.array([0 if one is None else one for one in seeds])
            self.batch.seed(numbers, given if mask is None else given & mask)
        observation = self.batch.reset(mask)
        self._has_ended[slice(None) if mask is None else mask] = False
        if self._watchers is not None:
            self._watchers.begin(self.batch, mask)
        return observation.copy(), self._with_masks({})

    def step(  # type: ignore[override]  # Gymnasium types done flags by the rewards' array type
        self, actions: Ints
    ) -> tuple[Observation, Floats, Bools, Bools, dict[str, object]]:
        """Take one decision for every job.

        Returns:
            Observations, rewards, terminated and truncated with a row per environment, and info.

        Raises:
            ResetNeeded: An episode has ended, and the autoreset mode is "Disabled".
            ActionError: The actions have a wrong shape, or are no whole numbers.
        """
        begins = self._has_ended
        chosen = whole_actions(actions, self.num_envs, len(self.batch.codec.choices))
        if begins.any():
            self._refuse_ended()
            chosen[begins] = 0  # holds: the step of a row that begins anew does not count
        step = self.batch.step(chosen)
        if self._watchers is not None:
            self._watchers.add(self.batch, step)
        reward, terminated, truncated = step.reward, step.terminated, step.truncated
        if self._max_steps < self.batch.config.max_steps:
            truncated = (truncated | (self.batch.steps >= self._max_steps)) & ~terminated
        info, observation = self._info(step), step.observation
        if begins.any():
            observation = self._begin(begins)
            reward = np.where(begins, 0.0, reward)
            terminated, truncated = terminated & ~begins, truncated & ~begins
            info = _without(info, begins)
        ended = terminated | truncated
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self._has_ended = ended
        elif ended.any():
            info |= self._final(info, observation, ended)
            observation = self._begin(ended)
        return observation.copy(), reward, terminated, truncated, self._with_masks(info)

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute.

        Args:
            name: Its name, such as "action_masks", "render", "load" or "job".
            *args: Arguments of the method.
            **kwargs: Arguments of the method.

        Returns:
            What each environment returns.
        """
        found = [getattr(row, name) for row in self._rows]
        return tuple(one(*args, **kwargs) if callable(one) else one for one in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment.

        Returns:
            One value for each.
        """
        return self.call(name)

    def set_attr(self, name: str, values: object) -> None:
        """Set an attribute of every environment; the jobs do not read it.

        Args:
            name: Its name.
            values: A list or tuple of one value for each, or one value for all.

        Raises:
            ConfigError: The number of values is not that of environments.
            AttributeError: The attribute belongs to the batch.
        """
        each = values if isinstance(values, list | tuple) else (values,) * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(
                f"there are {len(each)} values for {self.num_envs} environments",
                key=name,
                remedy="Pass one value for each environment, or one that is no list.",
            )
        for row, value in zip(self._rows, each, strict=True):
            setattr(row, name, value)

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

    def _begin(self, rows: Bools) -> Observation:
        """Begin the next episodes of some rows."""
        observation = self.batch.reset(rows)
        if self._watchers is not None:
            self._watchers.begin(self.batch, rows)
        return observation

    def _final(
        self, info: dict[str, object], observation: Observation, ended: Bools
    ) -> dict[str, object]:
        """Keep the last observation and info of episodes that have ended, before the reset."""
        # Objects, as Gymnasium has them: a wrapper may give an observation another shape.
        last = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            last[i] = observation[i].copy()
        return {
            "final_obs": last,
            "_final_obs": ended,
            "final_info": self._with_masks(dict(info)),
            "_final_info": ended.copy(),
        }

    def _with_masks(self, info: dict[str, object]) -> dict[str, object]:
        if "action_mask" in self._info_keys:
            info["action_mask"] = self.batch.action_masks()
        return info

    def _refuse_ended(self) -> None:
        if self.autoreset_mode == AutoresetMode.DISABLED:
            rows = ", ".join(str(i) for i in np.flatnonzero(self._has_ended)[:8])
            raise ResetNeeded(
                f"episodes have ended in environments {rows}; autoreset is disabled, so call "
                'reset(options={"reset_mask": terminated | truncated}) before the next step()'
            )

    def _info(self, step: BatchStep) -> dict[str, object]:
        keys, told = self._info_keys, dict[str, object]()
        if not keys:
            return told
        changed = np.empty(self.num_envs, dtype=object)
        changed[:] = self._unchanged
        for job, records in interventions(step.guarded).items():
            changed[job] = records
        told = {
            "reward_terms": dict(step.terms),
            "reward_source": np.full(self.num_envs, "outcome"),
            "enacted": np.ones(self.num_envs, dtype=bool),
            "interventions": changed,
            "trips": step.guarded.trips,
        }
        told |= {key: getattr(step.outcome, key) for key in OUTCOME_KEYS}
        return {key: value for key, value in told.items() if key in keys}


def _without(info: Mapping[str, object], rows: Bools) -> dict[str, object]:
    """Blank the info of rows, whose step does not count, and mark the others, as Gymnasium does."""
    kept: dict[str, object] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            kept[key] = _without(value, rows)
        else:
            kept[key] = _blanked(cast(NDArray[Any], value), rows)
        kept[f"_{key}"] = ~rows
    return kept


def _blanked(values: NDArray[Any], rows: Bools) -> NDArray[Any]:
    blanked = values.copy()
    if blanked.dtype.kind != "O":
        blanked[rows] = "" if blanked.dtype.kind == "U" else 0
        return blanked
    for i in np.flatnonzero(rows):  # NumPy would spread a tuple over the rows
        blanked[i] = ()
    return blanked


def _checked_count(given: int) -> int:
    """Return how many environments there are to be."""
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise ConfigError("expected a whole number above 0", key="num_envs", value=given)
    return int(given)


def _checked_steps(given: int | None, whole: int) -> int:
    """Return the steps of an episode: what was asked for, and no more than there are."""
    if given is None:
        return whole
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ConfigError(
            "expected a whole number of steps above 0", key="max_episode_steps", value=given
        )
    return min(given, whole)
