"""How decisions were encoded as transitions, and whether that fits who wants to learn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.config import CapacityConfig, EnvConfig
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import job_hash
from dsp_gym.job.spec import JobSpec


class EncodingConfig(ConfigModel):
    """The environment that transitions are encoded for."""

    env: EnvConfig = Field(
        default_factory=EnvConfig,
        description="of it count the action, what its choices mean (ds2_utilization, capacity), "
        "the reward's weights and the simulation's mechanisms; with capacity actions reward.slo "
        "is the price of a late minute that observations show",
    )
    gamma: float = Field(0.97, gt=0, lt=1, description="discount per decision of return_to_go")
    vertices: int | None = Field(
        None,
        ge=1,
        description="room in observation and action; none: the largest job's vertices. Capacity "
        "actions have no use for it",
    )

    @model_validator(mode="after")
    def _room_for_vertices_alone(self) -> EncodingConfig:
        if self.env.action == "capacity" and self.vertices is not None:
            raise ValueError("capacity actions see the job as a whole; leave vertices out")
        return self

    def columns(self, specs: Mapping[str, JobSpec]) -> int:
        """Vertices that observations and actions have room for.

        Returns:
            V, at least the vertices of the largest job; 0 with capacity actions.

        Raises:
            DatasetError: A job has more.
        """
        if self.env.action == "capacity":
            return 0
        largest = max(specs.values(), key=lambda spec: len(spec.vertices))
        if self.vertices is None:
            return len(largest.vertices)
        if len(largest.vertices) > self.vertices:
            raise DatasetError(
                f"the job '{largest.job}' has {len(largest.vertices)} vertices",
                key="vertices",
                value=self.vertices,
                remedy="Leave vertices out, or give room for the largest job.",
            )
        return self.vertices


class Encoding(ConfigModel):
    """What a manifest says about its transitions."""

    action: Literal["vertex", "capacity"] = Field("vertex", description="what is decided")
    vertex_features: tuple[str, ...] = Field(description="per vertex, in order")
    job_features: tuple[str, ...] = Field(description="per job, in order")
    moves: tuple[str, ...] = Field(description="of parallelism, in order")
    memory_moves: tuple[str, ...] = Field(description="of memory, in order")
    kappas: tuple[float, ...] = Field(
        (), description="capacity: multiples of the present load, in order, after holding"
    )
    sizing: CapacityConfig | None = Field(
        None, description="capacity: the service model behind the actions"
    )
    vertices: int = Field(ge=0, description="room in observation and action; 0 of capacity actions")
    ds2_utilization: float = Field(description="target utilization of the move 'what DS2 says'")
    reward: RewardWeights = Field(description="weights of the terms")
    gamma: float = Field(description="discount per decision of return_to_go")
    jobs: dict[str, str] = Field(description="jobs by name, with a hash of what their files say")

    @classmethod
    def of(cls, config: EncodingConfig, specs: Mapping[str, JobSpec]) -> Encoding:
        """Say how this release encodes decisions of some jobs.

        Returns:
            The encoding, as a manifest keeps it.
        """
        return cls(
            **_spaces(config.env),
            vertices=config.columns(specs),
            ds2_utilization=config.env.ds2_utilization,
            reward=config.env.reward,
            gamma=config.gamma,
            jobs={name: job_hash(spec) for name, spec in sorted(specs.items())},
        )

    def refuse_other(self, env: EnvConfig, specs: Sequence[JobSpec], folder: str | Path) -> None:
        """Refuse what an agent of some environment and jobs cannot learn from.

        The reward's weights may differ: its terms are kept, unweighted.

        Raises:
            DatasetError: Names what differs.
        """
        if self.action != env.action:
            raise DatasetError(
                f"{_HOLDS[self.action]}, the experiment's agent decides on {_DECIDES[env.action]}",
                file=folder,
                key="env.action",
                value=env.action,
                remedy=f"Build it with transitions.env.action: {env.action}, or train with "
                f"env.action: {self.action}.",
            )
        for key, expected in _spaces(env).items():
            if (found := getattr(self, key)) != expected and isinstance(expected, tuple):
                raise DatasetError(
                    f"it was encoded by another release: {_difference(found, expected)}",
                    file=folder,
                    key=f"encoding.{key}",
                    remedy="Build the dataset again with this release.",
                )
        if env.action == "vertex":
            self._refuse_other_vertices(env, specs, folder)
        elif self.sizing != env.capacity:
            raise DatasetError(
                "the service model behind its actions learned otherwise",
                file=folder,
                key="encoding.sizing",
                value=None if self.sizing is None else self.sizing.model_dump(mode="json"),
                remedy="Set transitions.env.capacity to the experiment's env.capacity.",
            )
        self._refuse_other_jobs(specs, folder)

    def _refuse_other_vertices(
        self, env: EnvConfig, specs: Sequence[JobSpec], folder: str | Path
    ) -> None:
        vertices = max(len(spec.vertices) for spec in specs)
        if self.vertices != vertices:
            raise DatasetError(
                f"its observations have room for {self.vertices} vertices, the experiment's for "
                f"{vertices}",
                file=folder,
                key="encoding.vertices",
                remedy=f"Build it with transitions.vertices: {vertices}, or train on its jobs: "
                f"{', '.join(self.jobs)}.",
            )
        if self.ds2_utilization != env.ds2_utilization:
            raise DatasetError(
                "the move 'what DS2 says' has another utilisation in the dataset",
                file=folder,
                key="encoding.ds2_utilization",
                value=self.ds2_utilization,
                remedy=f"Set env.ds2_utilization of one to that of the other "
                f"({env.ds2_utilization:g} in the experiment).",
            )

    def _refuse_other_jobs(self, specs: Sequence[JobSpec], folder: str | Path) -> None:
        for spec in specs:
            if spec.job not in self.jobs:
                raise DatasetError(
                    f"it has no decision of the job '{spec.job}'",
                    file=folder,
                    key="encoding.jobs",
                    value=list(self.jobs),
                    remedy="Train on the jobs it has, or build it with that job.",
                )
            if self.jobs[spec.job] != job_hash(spec):
                raise DatasetError(
                    f"its job '{spec.job}' is not the one trained on: their files differ",
                    file=folder,
                    key=f"encoding.jobs.{spec.job}",
                    remedy="Rebuild the dataset with the current job file.",
                )


_HOLDS = {"vertex": "it holds moves of vertices", "capacity": "it holds capacity actions"}
_DECIDES = {"vertex": "vertices", "capacity": "the capacity of the job"}


class _Spaces(TypedDict):
    """The fields of an `Encoding` that say what its columns mean."""

    action: Literal["vertex", "capacity"]
    vertex_features: tuple[str, ...]
    job_features: tuple[str, ...]
    moves: tuple[str, ...]
    memory_moves: tuple[str, ...]
    kappas: tuple[float, ...]
    sizing: CapacityConfig | None


def _spaces(env: EnvConfig) -> _Spaces:
    """What this release's observations and actions are made of."""
    if env.action == "capacity":
        from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS

        return _Spaces(
            action="capacity",
            vertex_features=(),
            job_features=tuple(CAPACITY_FEATURES),
            moves=(),
            memory_moves=(),
            kappas=KAPPAS,
            sizing=env.capacity,
        )
    return _Spaces(
        action="vertex",
        vertex_features=tuple(VERTEX_FEATURES),
        job_features=tuple(JOB_FEATURES),
        moves=MOVE_NAMES,
        memory_moves=MEMORY_NAMES,
        kappas=(),
        sizing=None,
    )


def _difference(found: Sequence[object], expected: Sequence[object]) -> str:
    lacks, alone = set(expected) - set(found), set(found) - set(expected)
    parts = [
        f"{what} {', '.join(sorted(map(str, names)))}"
        for what, names in (("it lacks", lacks), ("it alone has", alone))
        if names
    ]
    return "; ".join(parts) or "another order"
