"""A job as a PettingZoo parallel environment: an agent for each operator that can be scaled.

All agents act at once, see their own operator and its neighbours, and earn the reward of the whole
job: the cost is shared. The episodes are those of `AutoscaleEnv` with the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import gymnasium
import numpy as np
from gymnasium import spaces

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.envs import action
from dsp_gym.envs.info import INFO_KEYS
from dsp_gym.envs.observation import FJ, FV, ObservationLayout
from dsp_gym.envs.registration import FROM_CONFIG
from dsp_gym.envs.single import AutoscaleEnv, observation_space
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ActionError, ConfigError, MissingExtraError, did_you_mean

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise MissingExtraError("multi-agent", "an agent for each operator") from None

OBSERVATION_SIZE = 3 * FV + FJ
"""Numbers that an agent sees, whatever its job."""


class OperatorsEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo ships no types
    """The operators of one job as agents that scale together.

    An agent is named as its vertex. It observes `OBSERVATION_SIZE` numbers: the features of its own
    vertex, their means over the vertices that it reads from, the means over those that read from
    it, and the features of the job. Its action is a move of parallelism and one of memory. Sources
    and vertices of fixed parallelism are no agents.

    Args:
        env: A single environment with moves of every vertex.

    Raises:
        ConfigError: Its action is one for the whole job, or no vertex can be scaled.
    """

    def __init__(self, env: AutoscaleEnv) -> None:
        spec = env.batch.topology.spec(0)
        if not isinstance(env.action_space, spaces.MultiDiscrete):
            raise ConfigError(
                "expected moves of every vertex, not one choice for the whole job",
                key="action",
                remedy="Leave it out, or take action='vertex'.",
            )
        self.env = env
        self.metadata = {**env.metadata, "name": "dsp_gym_operators_v1", "is_parallelizable": True}
        self.render_mode = env.render_mode
        self._place = {
            vertex.name: v
            for v, vertex in enumerate(spec.vertices)
            if vertex.kind != "source" and vertex.scalable
        }
        if not self._place:
            raise ConfigError(f"no vertex of the job '{spec.job}' can be scaled", key="job")
        self.possible_agents = list(self._place)
        self.agents: list[str] = []
        self._layout = ObservationLayout(env.batch.vertices)
        seen = observation_space(OBSERVATION_SIZE)
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        # A space for each: every agent samples from a stream of its own.
        self.action_spaces = {
            agent: spaces.MultiDiscrete([action.MOVES, action.MEMORY_MOVES])
            for agent in self.possible_agents
        }
        self.state_space = env.observation_space
        self._seen: Floats32 = np.zeros(self._layout.size, np.float32)

    def observation_space(self, agent: str) -> spaces.Space[Floats32]:
        """Return the space of an agent's observation, the same for all.

        Returns:
            A `Box` of shape (OBSERVATION_SIZE,).
        """
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.MultiDiscrete:
        """Return the space of an agent's action.

        Returns:
            A `MultiDiscrete` of a move of parallelism and one of memory.
        """
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[dict[str, Floats32], dict[str, dict[str, object]]]:
        """Begin an episode; with a seed, the first of the stream of that seed.

        Returns:
            Observations (OBSERVATION_SIZE,) and infos by agent; an info holds `action_mask`, which
            `action_space(agent).sample` takes: a pair of int8, 1 where a move of parallelism (7,)
            or of memory (3,) is valid.
        """
        self._seen, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos({})

    def step(
        self, actions: dict[str, Ints]
    ) -> tuple[
        dict[str, Floats32],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, object]],
    ]:
        """Take one decision of all agents; the job then runs for one interval.

        Args:
            actions: Move of parallelism and move of memory by agent; an agent without one holds.

        Returns:
            Observations, rewards, terminated, truncated and infos by agent. The reward is the
            job's, the same for all; an info has the mask and what that of `AutoscaleEnv` has.

        Raises:
            ActionError: There is no such agent, or an action has a wrong shape or is no whole
                number.
        """
        whole = np.zeros((self._layout.vertices, 2), np.int64)
        for agent, chosen in actions.items():
            if agent not in self._place:
                raise ActionError(
                    f"there is no agent '{agent}'", remedy=did_you_mean(agent, self._place)
                )
            whole[self._place[agent]] = whole_actions(chosen, 1, 2)[0]
        self._seen, reward, terminated, truncated, told = self.env.step(whole.reshape(-1))
        agents = self.agents
        results = (
            self._observations(),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            self._infos(told),
        )
        if terminated or truncated:
            self.agents = []
        return results

    def state(self) -> Floats32:
        """Return what all agents see together: the flat observation of `AutoscaleEnv`.

        Returns:
            (size,), an element of `state_space`.
        """
        return self._seen.copy()

    def action_masks(self) -> dict[str, Bools]:
        """Mark the valid moves.

        Returns:
            (10,) flags by agent: 7 moves of parallelism, then 3 of memory.
        """
        masks = self.env.action_masks().reshape(-1, action.LOGITS)
        return {agent: masks[self._place[agent]].copy() for agent in self.agents}

    def render(self) -> object:
        """Render the job, as `AutoscaleEnv` does.

        Returns:
            Text or a picture; None without a render mode.
        """
        return self.env.render()

    def close(self) -> None:
        """Release resources outside this process."""
        self.env.close()

    def _observations(self) -> dict[str, Floats32]:
        """Return each agent's view: own, upstream's mean, downstream's mean, the job's."""
        layout, seen = self._layout, self._seen
        vertices = layout.vertices
        own = seen[layout.vertex].reshape(vertices, FV)
        reads = seen[layout.adjacency].reshape(vertices, vertices)  # row reads from column
        found = {}
        for agent in self.agents:
            v = self._place[agent]
            parts = [own[v], _mean(own, reads[v]), _mean(own, reads[:, v]), seen[layout.job]]
            found[agent] = np.concatenate(parts).astype(np.float32)
        return found

    def _infos(self, told: dict[str, object]) -> dict[str, dict[str, object]]:
        # The masks are of the next decision; the whole job's is of no use to an agent.
        rest = {key: told[key] for key in INFO_KEYS if key != "action_mask" and key in told}
        masks = {agent: flags.astype(np.int8) for agent, flags in self.action_masks().items()}
        # As Gymnasium's space of this form samples with it, and so PettingZoo's own tests.
        pairs = {agent: (one[: action.MOVES], one[action.MOVES :]) for agent, one in masks.items()}
        return {agent: {**rest, "action_mask": pairs[agent]} for agent in self.agents}


def parallel_env(id: str = FROM_CONFIG, **keywords: object) -> OperatorsEnv:
    """Make a PettingZoo parallel environment of a job.

    Args:
        id: Of a registered environment without capacity actions, such as "dsp_gym/Nexmark-Q3-v1".
        **keywords: As `AutoscaleEnv` takes them.

    Returns:
        The environment, an agent for each operator that can be scaled.

    Raises:
        ConfigError: A keyword is wrong, or the environment's action is one for the whole job.
        MissingExtraError: PettingZoo is not installed.
    """
    make: Callable[..., object] = gymnasium.make  # it types some keywords, and takes all
    made = make(id, disable_env_checker=True, **keywords)
    inner = made.unwrapped if isinstance(made, gymnasium.Env) else None
    if not isinstance(inner, AutoscaleEnv):
        raise ConfigError("expected an environment of dsp-gym", key="id", value=id)
    return OperatorsEnv(inner)


def _mean(features: Floats32, weights: Floats32) -> Floats32:
    """Average rows (V, FV) over those with weight 1; zeros where there is none."""
    return cast(Floats32, weights @ features / max(float(weights.sum()), 1.0))
