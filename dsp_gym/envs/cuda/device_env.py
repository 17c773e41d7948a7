"""Tens of thousands of environments on one graphics card, advanced together."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from dsp_gym.arrays import Bools, Ints
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.cuda.codec import DeviceCodec, DeviceVertexCodec
from dsp_gym.envs.cuda.guards import DeviceGuards
from dsp_gym.envs.cuda.pool import EPISODES, MOST_ROWS, EpisodePool
from dsp_gym.envs.cuda.tables import ChosenEnvs, EnvCourse, EnvSight, Moves, Pool
from dsp_gym.envs.cuda.threads import Sizes, env_kernels
from dsp_gym.envs.reward import TERMS, weights_of
from dsp_gym.envs.scenarios import Scenario
from dsp_gym.envs.whole import whole_actions
from dsp_gym.errors import ActionError, ConfigError, DeviceError
from dsp_gym.guardrails.chain import Chain
from dsp_gym.job import sizing
from dsp_gym.job.cost import refuse_free
from dsp_gym.loads.splits import SplitName
from dsp_gym.loop.rates import RATES
from dsp_gym.loop.snapshot import JOB_FLOATS, VERTEX_FLOATS
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.simulation.cuda.card import find_card
from dsp_gym.simulation.cuda.device_arrays import (
    DeviceArray,
    DeviceHandle,
    DeviceView,
    OnCard,
    bytes_of,
    on_card,
    shared,
    with_job_axis,
)
from dsp_gym.simulation.cuda.kernels import Kernel
from dsp_gym.simulation.cuda.threads import NO_TRACE, NOT_SEEN, Loads, WantedConfigurations, threads
from dsp_gym.simulation.measure import View
from dsp_gym.simulation.options import Parameters, simulated_topology
from dsp_gym.simulation.state import OUTCOME, Model, SimulationState, allocate, fixed_columns

RESERVED = 0.15
"""Share of the free memory that is left to networks, and to the threads' own memory."""


class DeviceStep(NamedTuple):
    """The results of one step, on the card; the next step writes over them."""

    observation: DeviceArray  # (J, size)
    reward: DeviceArray  # (J,)
    terminated: DeviceArray  # (J,)
    truncated: DeviceArray  # (J,)
    final_observation: DeviceArray  # (J, size), of those that have ended
    mask: DeviceArray  # (J, sum of choices)


class DeviceEnv:
    """J environments on the card, begun again where an episode ends.

    Environments of one job stand together: environment i runs job i * jobs // J.

    Args:
        made: Jobs, loads, environment; guardrails that cannot go there are refused.
        num_envs: J.
        split: Part of the loads.
        rows: Most rows of the pool of episodes.
        episodes: Episodes of each row.

    Raises:
        ConfigError: Part of the scenario cannot go to the card.
        DeviceError: There is no card, or it has too little memory; nothing is allocated then.
    """

    def __init__(
        self,
        made: Scenario,
        num_envs: int,
        split: SplitName = "train",
        rows: int = MOST_ROWS,
        episodes: int = EPISODES,
    ) -> None:
        _refuse(made)
        refuse_free(made.specs)
        self.num_envs, self.config = num_envs, made.env
        jobs = np.arange(num_envs) * len(made.specs) // num_envs
        self.topology = simulated_topology(
            Topology.of(made.specs, jobs.tolist()), made.env.simulation.mechanisms
        )
        self.vertices, self._every = self.topology.max_vertices, np.arange(num_envs)
        self.codec = _codec_of(self.topology, _first_of(jobs), made.env)
        self.observation_size, self.choices = self.codec.observation_size, self.codec.choices
        self.pool = EpisodePool(
            made.specs, jobs, made.loads, split, made.env, made.base_dir, rows, episodes
        )
        self._pool: DeviceHandle | None = None
        self.seeds: Ints = np.arange(num_envs)
        self._describe_jobs()
        self._describe_course()
        self._describe_sight()
        self._guards: DeviceGuards | None = None
        self._guarded = isinstance(made.guardrails, Chain) and len(made.guardrails.active) > 0
        if isinstance(made.guardrails, Chain) and self._guarded:
            known = self._known
            self._guards = DeviceGuards(made.guardrails, self.topology, num_envs, known)

    def _own(self, *shape: int, dtype: DTypeLike = np.float64) -> OnCard:
        """Describe an array of which every environment has a part."""
        return on_card((self.num_envs, *shape), dtype, 0)

    def _describe_jobs(self) -> None:
        """Describe the arrays of the simulation; none is allocated."""
        vertices, tables, own = self.vertices, self.topology.tables, self._own
        options, i8 = self.config.simulation, np.int64

        state = allocate(tables, 1, options)
        fixed = DeviceArray.of(fixed_columns(tables))
        row = with_job_axis(self.topology.row, self._every)
        self._row = row
        self._model = _handle(Model(shared(tables), row, fixed, Parameters.of(options)))
        self._state = _handle(SimulationState(*(own(*one.shape, dtype=one.dtype) for one in state)))
        entries = len(self.pool.members) * self.pool.episodes
        self._loads = _handle(
            Loads(
                on_card((entries, 1, self.config.episode_s), np.float64),
                own(dtype=i8),
                own(1, len(OUTCOME)),
                DeviceArray.of(NO_TRACE),
                DeviceArray.of(NOT_SEEN),
            )
        )
        self._wanted = _handle(
            WantedConfigurations(
                own(1, vertices, dtype=i8), own(1, vertices, dtype=i8), own(1, dtype=i8)
            )
        )

    def _describe_course(self) -> None:
        """Describe the arrays of episodes; none is allocated."""
        jobs, tables, own, size = (
            self.num_envs,
            self.topology.tables,
            self._own,
            self.observation_size,
        )
        i8, b1 = np.int64, np.bool_
        unit = sizing.reference_cost_per_s(tables, self.topology.row, self.config.start_headroom)
        weights = weights_of(self.config.reward, 1)[:, 0]
        self._course = _handle(
            EnvCourse(
                own(dtype=i8),
                own(dtype=i8),
                DeviceArray.of(self.pool.row * self.pool.episodes),
                own(dtype=i8),
                own(1, dtype=i8),
                with_job_axis(unit, self._every),
                DeviceArray.of(np.broadcast_to(weights[:, None], (jobs, len(TERMS), 1)), 0),
                own(len(TERMS) + 1, 1),
                own(2, 1, dtype=b1),
                own(1, len(OUTCOME)),
                own(1, size, dtype=np.float32),
            )
        )
        alone = DeviceArray.of(np.zeros(1, i8))
        self._asked, self._begun, self._all = (
            _handle(ChosenEnvs(one, alone))
            for one in (
                own(1, dtype=b1),
                own(1, dtype=b1),
                DeviceArray.of(np.ones((jobs, 1), b1), 0),
            )
        )
        self._moves = _handle(Moves(on_card((jobs, len(self.choices)), i8, 0)))

    def _describe_sight(self) -> None:
        """Describe the arrays of what is seen; none is allocated."""
        vertices, tables, own = self.vertices, self.topology.tables, self._own
        i8, b1 = np.int64, np.bool_
        self._seen = _handle(
            EnvSight(
                own(1, dtype=i8),
                own(1, vertices, dtype=i8),
                own(1, vertices, dtype=i8),
                own(len(JOB_FLOATS), 1),
                own(len(VERTEX_FLOATS), 1, vertices),
                own(len(RATES), 1, vertices),
                own(1, sum(self.choices), dtype=b1),
                self.codec.first,
            )
        )
        facts = {name: getattr(tables, name) for name in JobFacts._fields[1:]}
        self._facts = _handle(
            JobFacts(self._row, **{n: DeviceArray.of(a) for n, a in facts.items()})
        )

    @property
    def bytes_per_env(self) -> int:
        """Bytes that an environment takes on the card, beside what all share."""
        return self._own_bytes // self.num_envs

    @cached_property
    def _own_bytes(self) -> int:
        tables = (
            self._state,
            self._wanted,
            self._course,
            self._seen,
            self._moves,
            self._asked,
            self._begun,
            self._all,
        )
        loads = Loads(*self._loads.arrays)
        guards = 0 if self._guards is None else self._guards.bytes
        return (
            guards
            + self.codec.bytes
            + bytes_of(*(one.arrays for one in tables))
            + bytes_of((loads.load, loads.outcome))
        )

    def check_memory(self) -> None:
        """Compare with the free memory of the card, before anything is allocated.

        Raises:
            DeviceError: It is too little; the error says how many environments fit.
        """
        card = find_card()
        free = int(card.free_bytes * (1 - RESERVED)) - self.pool.bytes
        if self._own_bytes > free:
            fit = max(0, free // self.bytes_per_env)
            raise DeviceError(
                f"{self.num_envs:,} environments need {self._own_bytes / 2**30:.1f} GiB, "
                f"{self.bytes_per_env / 1024:.1f} KiB each, and {card.name} has "
                f"{max(0, free) / 2**30:.1f} GiB for them",
                key="num_envs",
                value=self.num_envs,
                remedy=f"Take at most {fit:,}." if fit else "Take a card with more memory.",
            )

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of a step by name, in their order; `guard` and `forget` with guardrails."""
        sizes, view, _ = known = self._known
        of_codec = self.codec.threads(rated=self._guarded)
        made = env_kernels(self.config, view, sizes, threads(self.vertices), of_codec)
        found = {"pick": Kernel(made.pick, self._of_pick(self._moves), known)}
        if self._guards is not None:
            found["guard"] = self._guards.guarding(self._facts, self._seen, self._wanted)
            found["forget"] = self._guards.forgetting(self._begun)
        return found | {
            "act": Kernel(made.act, self._of_act, known),
            "begin": Kernel(made.begin, self._of_begin(self._handles_of_pool()), known),
            "look": Kernel(made.look, self._of_look(self._all), known),
        }

    @cached_property
    def _known(self) -> tuple[Sizes, View, object]:
        """What the machine code follows from, beside its source."""
        size, parts, choices = self.observation_size, len(self.choices), self.choices
        sizes = Sizes(
            self.vertices, size, parts, (choices[0], choices[1 % parts]), self.pool.episodes
        )
        view = View.of(self.config.simulation.measurement)
        return sizes, view, (self.config.model_dump_json(), self.codec.constants, self._guarded)

    def reset(self, seeds: Ints | None = None) -> DeviceStep:
        """Draw the episodes, and begin the first one everywhere.

        Args:
            seeds: (J,) seeds of the environments; None: as before.

        Returns:
            Observations and masks; the other results count for nothing.
        """
        if self._pool is None:  # later, the arrays are there already
            self.check_memory()
        if seeds is not None:
            self.seeds = np.asarray(seeds, np.int64)
        pool, rates = self.pool.draw(self.seeds)
        loads: OnCard = Loads(*self._loads.arrays)
        loads.rates.fill_from(rates)
        self._pool = _handle(shared(pool))
        course: OnCard = EnvCourse(*self._course.arrays)
        course.base_seed.fill_from(self.seeds)
        course.episode.fill_from(np.full(self.num_envs, -1))
        return self.begin(np.ones(self.num_envs, np.bool_))

    def begin(self, mask: Bools) -> DeviceStep:
        """Begin the next episode of some environments; `reset` comes first, once.

        Args:
            mask: (J,) True: it begins.

        Returns:
            Observations and masks of all; the other results count for nothing.

        Raises:
            RuntimeError: `reset` has not been called yet.
        """
        self._refuse_early()
        course: OnCard = EnvCourse(*self._course.arrays)
        course.ends.fill_from(np.zeros((self.num_envs, 2, 1), np.bool_))
        asked: OnCard = self._asked.arrays[0]
        asked.fill_from(np.asarray(mask, np.bool_)[:, None])
        self._begin()
        asked.fill_from(np.zeros(asked.shape, np.bool_))
        return self._result()

    def step(self, actions: OnCard) -> DeviceStep:
        """Take a decision for every job; those whose episode ends begin the next one at once.

        Args:
            actions: (J, parts) int64: an array of NumPy, whose values are checked, or one on the
                card, of torch or any other that has `__cuda_array_interface__`, which is read in
                place. There a value outside the space holds, and is counted: `refused`.

        Returns:
            The results.

        Raises:
            ActionError: The actions have a wrong shape, or NumPy's are no whole numbers.
            ValueError: One of NumPy's is outside the space.
            RuntimeError: `reset` has not been called yet.
        """
        self._refuse_early()
        self.launch(self._given(actions))
        return self._result()

    def launch(self, moves: DeviceHandle) -> None:
        """Have the card take a step; it may still be at work when this returns."""
        kernels, jobs = self.kernels, self.num_envs
        kernels["pick"].launch(jobs, *self._of_pick(moves))
        if self._guards is not None:
            kernels["guard"].launch(jobs, *self._of_guard)
        kernels["act"].launch(jobs, *self._of_act)
        kernels["look"].launch(jobs, *self._of_look(self._all))
        self._begin()

    @property
    def refused(self) -> int:
        """Number of parts of actions outside the space, taken as holding."""
        course: OnCard = EnvCourse(*self._course.arrays)
        return int(course.refused.to_host().sum())

    @property
    def outcome(self) -> DeviceArray:
        """True outcome of the last step, (J, quantities), as `dsp_gym.loop.outcome` names them."""
        return _without_axis(EnvCourse(*self._course.arrays).last, 1)

    def _begin(self) -> None:
        """Begin an episode where one has ended or is asked for, and look at those."""
        kernels, jobs = self.kernels, self.num_envs
        kernels["begin"].launch(jobs, *self._of_begin(self._handles_of_pool()))
        if (guards := self._guards) is not None:
            forget = self._begun, guards.tables, guards.history, guards.first
            kernels["forget"].launch(jobs, *forget)
        kernels["look"].launch(jobs, *self._of_look(self._begun))

    def _of_pick(self, moves: DeviceHandle) -> tuple[DeviceHandle, ...]:
        return self._wanted, self._course, self._seen, self.codec.handle, moves

    @property
    def _of_guard(self) -> tuple[DeviceHandle, ...]:
        guards = self._guards
        assert guards is not None
        own = guards.tables, guards.model, guards.history
        return self._facts, self._seen, self._wanted, *own

    @property
    def _of_act(self) -> tuple[DeviceHandle, ...]:
        return self._model, self._state, self._loads, self._wanted, self._course

    def _of_look(self, chosen: DeviceHandle) -> tuple[DeviceHandle, ...]:
        return (
            self._model,
            self._state,
            self._seen,
            self.codec.handle,
            self._course,
            chosen,
        )

    def _of_begin(self, pool: DeviceHandle) -> tuple[DeviceHandle, ...]:
        return (
            self._model,
            self._state,
            self._loads,
            self._course,
            self._seen,
            self.codec.handle,
            pool,
            self._asked,
            self._begun,
        )

    def _handles_of_pool(self) -> DeviceHandle:
        """Return the pool's handle; one of its types before anything is drawn."""
        if self._pool is not None:
            return self._pool
        none, vertices = np.zeros(1), np.zeros((1, self.vertices), np.int64)
        whole = np.zeros(1, np.int64)
        return _handle(shared(Pool(vertices, vertices, none, whole, none, whole, whole, none)))

    def _refuse_early(self) -> None:
        """Refuse to work before anything is drawn."""
        if self._pool is None:
            raise RuntimeError("reset() comes first")

    def _given(self, actions: OnCard) -> DeviceHandle:
        """Return the handle of the actions."""
        jobs, parts = shape = self.num_envs, len(self.choices)
        if getattr(actions, "__cuda_array_interface__", None) is not None:
            flat = parts == 1 and tuple(actions.shape) == (jobs,)  # of `Discrete`
            if tuple(actions.shape) != shape and not flat:
                raise ActionError(
                    f"actions have shape {tuple(actions.shape)}, expected {shape}",
                    remedy="Send a row of `single_action_space` for each environment.",
                )
            return _handle(Moves(DeviceView.of_interface(actions, shape)))
        checked = whole_actions(actions, jobs, parts)
        if np.any(checked < 0) or np.any(checked >= np.array(self.choices)):
            raise ValueError(self.codec.outside)
        kept: OnCard = self._moves.arrays[0]
        kept.fill_from(checked)
        return self._moves

    def _result(self) -> DeviceStep:
        course, seen = EnvCourse(*self._course.arrays), EnvSight(*self._seen.arrays)
        return DeviceStep(
            _without_axis(seen.observation, 1),
            _item(course.scores, len(TERMS)),
            _item(course.ends, 0),
            _item(course.ends, 1),
            _without_axis(course.final, 1),
            _without_axis(seen.valid, 1),
        )


def _handle(table: OnCard) -> DeviceHandle:
    return DeviceHandle(table)


def _without_axis(array: OnCard, axis: int) -> OnCard:
    """Return the same memory without an axis of length 1."""
    return DeviceView.of_part(array, axis, 0)


def _item(array: OnCard, place: int) -> OnCard:
    """Return one of the rows of an array (J, rows, 1), (J,)."""
    return DeviceView.of_part(DeviceView.of_part(array, 2, 0), 1, place)


def _first_of(jobs: Ints) -> Ints:
    """Return the first environment of each job."""
    return np.unique(jobs, return_index=True)[1]


def _codec_of(topology: Topology, every: Ints, config: EnvConfig) -> DeviceCodec:
    """Build moves of vertices, or capacity actions; `every` (n,) is the first row of each job."""
    if config.action == "vertex":
        return DeviceVertexCodec(topology, every, config)
    # Imported where needed: the service model compiles more code than vertex moves need.
    from dsp_gym.envs.cuda.capacity import DeviceCapacityCodec

    return DeviceCapacityCodec(topology, config)


def _refuse(made: Scenario) -> None:
    """Refuse what cannot go to the card, by name."""
    if made.env.simulation.trace:
        raise ConfigError(
            "a trace of every second is not kept on a GPU",
            key="env.simulation.trace",
            value=True,
            remedy="Leave it out, or take device='cpu'.",
        )
