"""What 50,000 decisions teach an agent with every default, beside rules on the same episodes.

    python -m agents.studies.short_training --write

Learns on Nexmark Q11, with nothing set but the number of decisions, and plays the test split of
`dsp_gym/Nexmark-Q11-v1`. With --write the environment's page gets the returns.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated

import gymnasium
import numpy as np
import typer

from agents.learner import Learner
from agents.training import SeedProgress, train
from dsp_gym.cli.output import print_table
from dsp_gym.config.files import write_atomic
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.evaluation.returns import Agent, evaluate_policy
from dsp_gym.experiments.experiment import ExperimentConfig

JOB, ENVIRONMENT = "nexmark-q11", "dsp_gym/Nexmark-Q11-v1"
DECISIONS = 50_000
RULES = ("ds2", "justin-artifact")
FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures" / "q11-short.json"


class _Told(SeedProgress):
    def begin(self, seed: int, index: int, seeds: int) -> None:
        typer.echo(f"agent {index + 1} of {seeds}", err=True)


def experiment(seeds: int, decisions: int = DECISIONS) -> ExperimentConfig:
    """Return an experiment that sets the number of decisions alone.

    Args:
        seeds: Number of agents.
        decisions: That each learns from.

    Returns:
        The experiment.
    """
    agent = {"total_steps": decisions, "seeds": list(range(seeds))}
    document = {"name": "short-training", "jobs": [JOB], "loads": DEFAULT_LOADS, "agent": agent}
    return ExperimentConfig.model_validate(document)


def compare(config: ExperimentConfig, folder: Path, episodes: int) -> dict[str, float]:
    """Train, and play the test split with agents, untrained networks and rules.

    Args:
        config: The experiment.
        folder: Of its checkpoints and policies.
        episodes: Played by each.

    Returns:
        Mean returns by policy: "hold", the rules, "untrained K" and "trained K" of seed K.
    """
    train(config, folder, progress=_Told())
    env = gymnasium.make(ENVIRONMENT, split="test")
    hold = np.zeros(env.action_space.shape or (), np.int64)
    players: dict[str, Agent] = {"hold": lambda observation, info: hold}
    players |= {rule: rule for rule in RULES}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in config.agent.seeds:
            untrained = Learner(config, seed, Path(scratch, str(seed))).model.policy
            players[f"untrained {seed}"] = untrained
            players[f"trained {seed}"] = folder / f"seed-{seed}" / "policy"
        return {
            name: evaluate_policy(player, env, episodes).mean for name, player in players.items()
        }


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Agents, each with another seed.")] = 10,
    episodes: Annotated[int, typer.Option(min=1, help="Played by each.")] = 20,
    decisions: Annotated[int, typer.Option(min=1, help="Learned from.")] = DECISIONS,
    *,
    write: Annotated[bool, typer.Option("--write", help=f"Write {FIGURES.name}.")] = False,
) -> None:
    """Compare agents of a short training with rules on the same episodes."""
    with tempfile.TemporaryDirectory() as folder:
        found = compare(experiment(seeds, decisions), Path(folder, "training"), episodes)
    bar = max(found["hold"], found["ds2"])
    better = sum(
        found[f"trained {seed}"] > max(bar, found[f"untrained {seed}"]) for seed in range(seeds)
    )
    rows = [(name, f"{value:.1f}") for name, value in found.items()]
    print_table(("policy", "return"), rows, right=("return",))
    typer.echo(f"{better} of {seeds} agents beat their untrained network, holding and DS2.")
    if write:
        kept = {
            "decisions": decisions,
            "episodes": episodes,
            "agents": seeds,
            "better": better,
            "cores": os.cpu_count(),
            "returns": {name: round(value, 2) for name, value in found.items()},
        }
        write_atomic(FIGURES, (json.dumps(kept, indent=1) + "\n").encode())


if __name__ == "__main__":
    typer.run(main)
