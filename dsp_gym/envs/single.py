"""One job as a Gymnasium environment: a batch of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.envs import action
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.codec import Codec
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import EnvCore
from dsp_gym.envs.info import INFO_KEYS, LISTED_KEYS, LazyInfo, checked_keys
from dsp_gym.envs.keywords import EnvKeywords, refuse_changes, rewarded
from dsp_gym.envs.observation import LIMIT
from dsp_gym.envs.reward_function import reward_function_of
from dsp_gym.envs.scenarios import ActionName, Job, Scenario, changed, decided_by, scenario
from dsp_gym.envs.watch.watcher import Pixels, watcher_of
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ActionError, ConfigError
from dsp_gym.loads.splits import SplitName
from dsp_gym.loop.decision import ScalingDecision

Observation = Floats32


def observation_space(size: int) -> spaces.Space[Observation]:
    """Build the space of the flat observation.

    Returns:
        A `Box` of shape (size,), float32, from `-LIMIT` to `LIMIT`.
    """
    box: spaces.Space[Any] = spaces.Box(-LIMIT, LIMIT, (size,), np.float32)
    return box


def action_space(vertices: int) -> spaces.MultiDiscrete:
    """Build the space of a move and a memory move per vertex.

    Returns:
        A `MultiDiscrete` of length 2 V: move and memory move of the first vertex, then of the next.
    """
    return spaces.MultiDiscrete([action.MOVES, action.MEMORY_MOVES] * vertices)


def space_of(codec: Codec) -> spaces.Space[Any]:
    """Build the space of an environment's actions.

    Returns:
        `Discrete` where an action has one part, else `MultiDiscrete`.
    """
    parts = list(codec.choices)
    space: spaces.Space[Any]
    space = spaces.Discrete(parts[0]) if len(parts) == 1 else spaces.MultiDiscrete(parts)
    return space


class AutoscaleEnv(gymnasium.Env[Observation, Ints]):
    """A Flink job that is scaled once per decision interval.

    Args:
        job: a job: shipped name, path or content of a job file, or a `JobSpec`.
        config: an experiment's name, path or content; its env, loads and guardrails are used.
        load: the load of the episodes, in place of the config's: shipped name, path or content of a
            load file, an object of `dsp_gym.loads.spec`, or a list of these to draw from.
        reward: weights of the reward's terms that differ, such as {"slo": 8.0}, or all of them as
            `RewardWeights`; or a function of the terms, itself, as "module:function", or by the
            name of an entry point.
        slo_s: bound on the p95 latency in seconds, in place of the job file's.
        backend: "simulated"; "flink": a real job, submitted to a cluster for every episode;
            "kubernetes": a job of the Flink Kubernetes Operator, as it runs under its own load;
            "replay": a recording, which decisions do not change.
        split: part of the loads episodes are drawn from.
        guardrails: name or path of a guardrails config.
        where: flink: home folder of a local cluster, or settings as in `FlinkPlace`; default: the
            cluster of `dsp-gym flink up`. kubernetes: the resource, as in `KubernetesEnvPlace`.
            replay: folder of the recording.
        render_mode: "ansi": the running configuration, the last metrics and curves as text;
            "rgb_array": a picture of them, 1280 x 720, which needs the extra `video`. With
            `gymnasium.make`, "human" shows that picture in a window.
        action: "vertex": moves of every vertex; "capacity": one multiple of the load for the whole
            job; default: as the config says, else "vertex".
        info_keys: keys that `info` lists, or "all"; it has no others. Default: of a simulated job
            `action_mask`, `cost`, `slo_s`, `load` and with guardrails `interventions`, the others
            being found by name; else all. Gymnasium's vector environments copy what is listed.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own attribute

    def __init__(
        self,
        job: Job | None = None,
        config: str | Path | Mapping[str, object] | None = None,
        backend: str = "simulated",
        split: SplitName = "train",
        guardrails: str | None = None,
        where: str | Path | Mapping[str, object] | None = None,
        render_mode: str | None = None,
        action: ActionName | None = None,
        **changes: Unpack[EnvKeywords],
    ) -> None:
        self.backend = backend
        asked = checked_keys(changes.pop("info_keys", None))
        self._has_ended = False
        own_reward = reward_function_of(changes.get("reward"))
        if backend == "replay":
            refuse_changes(backend, changes, "load", "slo_s")
            decided = decided_by(config, guardrails, action)
            self.batch = _replayed(rewarded(decided[0], changes), decided[1], where)
        else:
            made = scenario(job, config, backend, guardrails, action=action)
            if backend == "kubernetes":
                refuse_changes(backend, changes, "load")
            self.batch = _made(changed(made, changes, split), backend, split, where)
        self.batch.reward_function = own_reward
        self._listed, self._unlisted = self._info_keys(asked)
        self.render_mode = render_mode
        self._watcher = watcher_of(render_mode)
        self.observation_space = observation_space(self.batch.codec.observation_size)
        self.action_space = space_of(self.batch.codec)
        # Until `reset(seed=...)` the stream is drawn from Gymnasium's generator.
        self.batch.seed(self.np_random.integers(0, 2**31, 1))
        self._spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The registered spec, with the length of an episode; nondeterministic on a real job."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy(spec)
        if self._spec is None:
            return
        if self.backend in ("flink", "kubernetes"):
            self._spec.nondeterministic = True
        if self.backend != "replay":  # a recording is as long as it is
            self._spec.max_episode_steps = self.batch.config.max_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Observation, dict[str, object]]:
        """Begin an episode; with a seed, the first of the stream of that seed.

        Returns:
            Observation (size,), and info: `load`, its name, and `action_mask`.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.batch.seed(np.array([seed]))
        observation = self.batch.reset()[0]
        self._has_ended = False
        if self._watcher is not None:
            self._watcher.begin(self.batch, 0)
        info: dict[str, object] = {}
        if "load" in self._listed:
            info["load"] = self.batch.load_labels[0]
        if "action_mask" in self._listed:
            info["action_mask"] = self.action_masks()
        return observation, info

    def step(
        self, action: Ints | ScalingDecision
    ) -> tuple[Observation, float, bool, bool, dict[str, object]]:
        """Take one decision; the job then runs for one interval.

        Args:
            action: An element of the action space; or a decision as policies of this project make
                it, (1, V), which need not be one of the moves.

        Returns:
            Observation, reward, terminated, truncated, and info: `reward_terms` by name,
            unweighted; `reward_source`; `enacted`; `interventions`, a record (guardrail, kind, by,
            reason) for each guardrail that changed the decision; `trips`, a flag per guardrail in
            chain order; `slo_s`, `down_s` and `cost` of the interval; `pending_s` at its end;
            `action_mask`. Some are not listed unless `info_keys` asks for them, but found by name.

        Raises:
            ResetNeeded: The episode has ended.
            ActionError: The action has a wrong shape, or is no whole number.
        """
        if self._has_ended:
            raise ResetNeeded("the episode has ended; call reset() before the next step()")
        batch = self.batch
        if isinstance(action, ScalingDecision):
            step = batch.enact(_of_this_job(action, batch))
        else:
            step = batch.step(whole_actions(action, 1, len(batch.codec.choices)))
        seen = batch.snapshot
        terminated, truncated = bool(step.ends[0, 0]), bool(step.ends[1, 0])
        self._has_ended = terminated or truncated
        if self._watcher is not None:
            self._watcher.add(batch, 0, step)

        def tell(keys: Collection[str]) -> dict[str, object]:
            told = batch.info(step, 0, keys)
            if "action_mask" in keys:
                told["action_mask"] = batch.masks_of(seen)[0]
            return told

        # Made when looked at: most callers of `step` read no info.
        info = LazyInfo(tell, self._listed, self._unlisted) if self._listed else {}
        return step.observation[0], float(step.scores[-1, 0]), terminated, truncated, info

    def action_masks(self) -> Bools:
        """Mark the valid actions, as sb3-contrib's MaskablePPO expects.

        Returns:
            (V * 10,) flags, or (11,) of a capacity action, in the order of the action's parts;
            True: the choice is valid.
        """
        return np.asarray(self.batch.action_masks()[0])

    def get_state(self) -> dict[str, object]:
        """Copy everything the future depends on, for what-if questions; of a simulated job only.

        Returns:
            Copies by name, for `set_state` of an environment with the same arguments.
        """
        return self._simulated().save() | {"has_ended": self._has_ended}

    def set_state(self, state: dict[str, object]) -> None:
        """Continue from `get_state()`."""
        self._simulated().load(state)
        self._has_ended = bool(state.get("has_ended", False))
        if self._watcher is not None:
            self._watcher.begin(self.batch, 0)

    def close(self) -> None:
        """Release resources outside this process; a job on a real Flink is cancelled."""
        self.batch.close()
        super().close()

    def render(self) -> str | Pixels | None:
        """Render the episode so far, as `render_mode` says.

        Returns:
            "ansi": one line on the job, one per vertex, and curves of text; "rgb_array":
            (720, 1280, 3) of uint8; None without a render mode.

        Raises:
            MissingExtraError: Pillow is not installed, and a picture is asked for.
        """
        if self._watcher is None:
            return None
        if not self._watcher:
            raise RuntimeError("reset() comes first")
        return self._watcher.text() if self.render_mode == "ansi" else self._watcher.picture()

    def _info_keys(self, asked: frozenset[str] | None) -> tuple[frozenset[str], frozenset[str]]:
        """Return the keys that `info` lists, and those that are found by name alone."""
        every = frozenset(INFO_KEYS)
        if asked is not None:
            return asked, frozenset()
        if self.backend != "simulated":  # a step takes longer than any copy of its info
            return every, frozenset()
        silent = {"interventions"} if self.batch.guardrails is None else set[str]()
        listed = every.intersection(LISTED_KEYS) - silent
        return listed, every - listed

    def _simulated(self) -> AutoscaleBatch:
        if not isinstance(self.batch, AutoscaleBatch):
            raise ConfigError(
                "the state of a real job cannot be saved and restored",
                key="backend",
                remedy="Use backend='simulated' to branch from a state.",
            )
        return self.batch


def _of_this_job(decision: ScalingDecision, batch: EnvCore) -> ScalingDecision:
    expected = (1, batch.topology.max_vertices)
    if decision.parallelism.shape != expected or decision.memory_level.shape != expected:
        raise ActionError(
            f"the decision has shape {decision.parallelism.shape}, expected {expected}",
            remedy="Send the decision on a snapshot of this environment's job.",
        )
    return decision


def _replayed(
    env: EnvConfig, guardrails: str | None, where: str | Path | Mapping[str, object] | None
) -> EnvCore:
    """Build the environment over a recording."""
    from dsp_gym.envs.measured import on_recording

    return on_recording(env, guardrails, where)


def _made(
    made: Scenario,
    backend: str,
    split: SplitName,
    where: str | Path | Mapping[str, object] | None,
) -> EnvCore:
    """Build the environment of a scenario over its backend."""
    if backend == "flink":
        from dsp_gym.envs.measured import on_flink

        return on_flink(made, split, where)
    if backend == "kubernetes":
        from dsp_gym.envs.measured import on_kubernetes

        return on_kubernetes(made, where)
    if where is not None:
        raise ConfigError(
            "says where a cluster or a recording is, but the backend is 'simulated'",
            key="where",
            value=str(where),
            remedy="Leave it out, or take backend='flink', 'kubernetes' or 'replay'.",
        )
    return AutoscaleBatch(
        made.specs[:1], [0], made.loads, split, made.env, made.guardrails, base_dir=made.base_dir
    )
