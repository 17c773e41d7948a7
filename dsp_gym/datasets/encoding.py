"""How decisions were encoded as transitions, and whether that fits who wants to learn from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.envs.reward import RewardWeights
from dsp_gym.errors import DatasetError
from dsp_gym.job.identity import job_hash
from dsp_gym.job.spec import JobSpec

__all__ = ["Encoding", "EncodingConfig"]


class EncodingConfig(ConfigModel):
    """The environment that transitions are encoded for."""

    env: EnvConfig = Field(
        default_factory=EnvConfig,
        description="of it count ds2_utilization (what the move 'what DS2 says' means), the "
        "reward's weights and the simulation's mechanisms",
    )
    gamma: float = Field(0.97, gt=0, lt=1, description="discount per decision of return_to_go")
    vertices: int | None = Field(
        None, ge=1, description="room in observation and action; none: the largest job's vertices"
    )

    @model_validator(mode="after")
    def _moves_of_vertices(self) -> EncodingConfig:
        if self.env.action != "vertex":
            raise ValueError("transitions hold moves of vertices; leave env.action out")
        return self

    def columns(self, specs: Mapping[str, JobSpec]) -> int:
        """Vertices that observations and actions have room for.

        Returns:
            V, at least the vertices of the largest job.

        Raises:
            DatasetError: A job has more.
        """
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

    vertex_features: tuple[str, ...] = Field(description="per vertex, in order")
    job_features: tuple[str, ...] = Field(description="per job, in order")
    moves: tuple[str, ...] = Field(description="of parallelism, in order")
    memory_moves: tuple[str, ...] = Field(description="of memory, in order")
    vertices: int = Field(ge=1, description="room in observation and action")
    ds2_utilization: float = Field(description="target utilization of the move 'what DS2 says'")
    reward: RewardWeights = Field(description="weights of the terms")
    gamma: float = Field(description="discount per decision of return_to_go")
    jobs: dict[str, str] = Field(description="jobs by name, with a hash of what their files say")

    @classmethod
    def of(cls, config: EncodingConfig, specs: Mapping[str, JobSpec]) -> Encoding:
        """Says how this release encodes decisions of some jobs.

        Returns:
            The encoding, as a manifest keeps it.
        """
        return cls(
            vertex_features=tuple(VERTEX_FEATURES),
            job_features=tuple(JOB_FEATURES),
            moves=MOVE_NAMES,
            memory_moves=MEMORY_NAMES,
            vertices=config.columns(specs),
            ds2_utilization=config.env.ds2_utilization,
            reward=config.env.reward,
            gamma=config.gamma,
            jobs={name: job_hash(spec) for name, spec in sorted(specs.items())},
        )

    def refuse_other(self, env: EnvConfig, specs: Sequence[JobSpec], folder: Path) -> None:
        """Refuses what an agent of some environment and jobs cannot learn from.

        The reward's weights may differ: its terms are kept, unweighted.

        Raises:
            DatasetError: Names what differs.
        """
        for key, found, expected in (
            ("encoding.vertex_features", self.vertex_features, tuple(VERTEX_FEATURES)),
            ("encoding.job_features", self.job_features, tuple(JOB_FEATURES)),
            ("encoding.moves", self.moves, MOVE_NAMES),
            ("encoding.memory_moves", self.memory_moves, MEMORY_NAMES),
        ):
            if found != expected:
                raise DatasetError(
                    f"it was encoded by another release: {_difference(found, expected)}",
                    file=folder,
                    key=key,
                    remedy="Build the dataset again with this release.",
                )
        if env.action != "vertex":
            raise DatasetError(
                "it holds moves of vertices, and the experiment's agent decides on capacities",
                file=folder,
                key="env.action",
                value=env.action,
                remedy="Imitate a teacher (warm_start.teacher), or train with env.action: vertex.",
            )
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
                "the move 'what DS2 says' means something else in it",
                file=folder,
                key="encoding.ds2_utilization",
                value=self.ds2_utilization,
                remedy=f"Set env.ds2_utilization of one to that of the other "
                f"({env.ds2_utilization:g} in the experiment).",
            )
        self._refuse_other_jobs(specs, folder)

    def _refuse_other_jobs(self, specs: Sequence[JobSpec], folder: Path) -> None:
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


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    lacks, alone = set(expected) - set(found), set(found) - set(expected)
    parts = [
        f"{what} {', '.join(sorted(names))}"
        for what, names in (("it lacks", lacks), ("it alone has", alone))
        if names
    ]
    return "; ".join(parts) or "another order"
