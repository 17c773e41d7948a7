"""From a configuration to cells, and to batches of cells that any machine can play."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel, refuse_repeated
from dsp_gym.datasets.rollouts.format import cell_file
from dsp_gym.envs.config import EnvConfig
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.batch_of_runs import simulation_seed
from dsp_gym.evaluation.config import Entrant
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.sampler import LoadCell, LoadSampler
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import folder_of, make, resolve


class RolloutConfig(ConfigModel):
    """Every policy on every job under every load of a split with every seed: one cell each."""

    description: str = Field("", description="purpose, for lists")
    policies: tuple[Entrant, ...] = Field(
        min_length=1, description="policies; a name alone runs without guardrails"
    )
    jobs: tuple[str, ...] = Field(min_length=1, description="shipped jobs, or paths of job files")
    loads: LoadSet = Field(description="loads by split; rollouts use one split")
    split: Literal["train", "validation", "test"] = Field(
        "train", description="the split to run; train, because agents learn from rollouts"
    )
    seeds: int | None = Field(
        None, ge=1, description="how many of the split's seeds are run, the first ones; none: all"
    )
    env: EnvConfig = Field(
        default_factory=EnvConfig,
        description="clock, start, differences between episodes, simulation; the reward's terms "
        "are kept unweighted",
    )
    epsilon: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the decisions in which one vertex, drawn at random, takes a valid "
        "move drawn at random instead of the policy's, or with env.action: capacity the job a "
        "valid choice drawn at random; the propensity of each action is kept",
    )

    @model_validator(mode="after")
    def _check(self) -> RolloutConfig:
        labels = [entrant.name for entrant in self.policies]
        refuse_repeated(labels, "two policies are named '{}'; give each its own name")
        refuse_repeated(self.jobs, "the job '{}' is listed twice")
        known = [name for name, _ in self.loads.splits()]
        if self.split not in known:
            raise ValueError(f"there is no {self.split} split. {did_you_mean(self.split, known)}")
        return self


@dataclass(frozen=True, slots=True)
class Player:
    """One policy with its guardrails, resolved: no name is left to look up."""

    label: str
    policy: PolicyConfig
    guardrails: GuardrailsConfig | None
    guardrails_label: str | None

    def described(self) -> dict[str, object]:
        """Say what the policy's decisions depend on.

        Returns:
            A JSON object for the manifest.
        """
        told: dict[str, object] = {"policy": self.policy.policy, "params": self.policy.params}
        if self.guardrails is not None:
            told["guardrails"] = self.guardrails.model_dump(mode="json")
        folder = self.folder
        if folder is not None:
            told["sha256"] = _content(folder)
        return told

    @property
    def folder(self) -> Path | None:
        """Where a trained policy stands; None for one that is not trained, or is shipped."""
        return folder_of(self.policy)


@dataclass(frozen=True, slots=True)
class Cell:
    """One episode to play."""

    spec: JobSpec
    load: LoadCell
    player: Player

    @property
    def run(self) -> str:
        """Its name."""
        return f"{self.spec.job}/{self.load.name}/{self.load.seed}/{self.player.label}"

    @property
    def seed(self) -> int:
        """Of everything random in it but the load."""
        return simulation_seed(self.load)


@dataclass(frozen=True, slots=True)
class Batch:
    """Cells of one policy that are played together, and all that playing them takes."""

    player: Player
    cells: tuple[Cell, ...]
    env: EnvConfig
    epsilon: float
    loads: LoadSet
    split: SplitName
    base_dir: str | None  # where relative trace paths start

    def __len__(self) -> int:
        return len(self.cells)


def players_of(config: RolloutConfig) -> tuple[Player, ...]:
    """Build each policy once, so that a wrong one is found before any episode is played.

    Returns:
        The policies with their guardrails, in the configuration's order.
    """
    found = tuple(_player(entrant) for entrant in config.policies)
    for player in found:
        build_for(make(player.policy), player.guardrails)
    return found


def cells_of(
    config: RolloutConfig, players: Sequence[Player], base_dir: str | Path | None = None
) -> tuple[Cell, ...]:
    """List every cell.

    Returns:
        Cells policy by policy, in each job by job, load by load, seed by seed.
    """
    specs = [load_job(name) for name in config.jobs]
    sampler = LoadSampler(config.loads, base_dir)
    loads = [cell for row in sampler.cells(config.split, config.seeds) for cell in row]
    cells = tuple(
        Cell(spec, load, player) for player in players for spec in specs for load in loads
    )
    seen: dict[str, str] = {}
    for cell in cells:
        other = seen.setdefault(cell_file(cell.run), cell.run)
        if other != cell.run or len({spec.job for spec in specs}) < len(specs):
            raise ConfigError(
                f"'{cell.run}' and another cell have one name",
                key="jobs",
                remedy="Give jobs, loads and policies names that differ in letters and digits.",
            )
    return cells


def decisions_of(config: RolloutConfig) -> int:
    """Count the decisions of all cells, as if no episode ended early.

    Returns:
        The number, without looking at any load.
    """
    rows = LoadSampler(config.loads).cells(config.split, config.seeds)
    cells = len(config.policies) * len(config.jobs) * sum(map(len, rows))
    return cells * int(config.env.episode_s // config.env.interval_s)


def batches(
    config: RolloutConfig,
    cells: Sequence[Cell],
    size: int,
    base_dir: str | Path | None = None,
    without: Collection[str] = (),
) -> Iterator[Batch]:
    """Group cells into batches of one policy each; cells whose run is done are left out.

    Returns:
        The batches, one at a time.
    """
    base = None if base_dir is None else str(Path(base_dir).absolute())
    by_policy: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.run not in without:
            by_policy.setdefault(cell.player.label, []).append(cell)
    for group in by_policy.values():
        for first in range(0, len(group), size):
            part = tuple(group[first : first + size])
            yield Batch(
                part[0].player, part, config.env, config.epsilon, config.loads, config.split, base
            )


def _player(entrant: Entrant) -> Player:
    _, policy, _ = resolve(entrant.policy)
    folder = folder_of(policy)
    if folder is not None:
        params = {**policy.params, "path": str(folder.absolute())}
        policy = policy.model_copy(update={"params": params})
    guardrails, label = entrant.guardrails, None
    if isinstance(guardrails, str):
        label = guardrails
        guardrails = files.load_model(GuardrailsConfig, "guardrails", guardrails)
    elif guardrails is not None:
        label = ", ".join(part.kind for part in guardrails.guardrails) or None
    return Player(entrant.name, policy, guardrails, label)


def _content(folder: Path) -> str:
    """Hash of the files of a folder."""
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{file.relative_to(folder)}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
