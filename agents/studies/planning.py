"""Transitions of a benchmark's training loads, and figures of the policy that plans with them.

python -m agents.studies.planning table core-v1
python -m agents.studies.planning compare core-v1 --seeds 1 --late-price 1 2.5 5
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import stdev

from agents.planning.chain import TABLE, counted, write_counts
from dsp_gym.arrays import Floats
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.loads.sampler import LoadSampler

__all__ = ["compare", "training_minutes"]

SEEDS = 60
"""Of each training load; more change no figure by more than its spread."""


def training_minutes(config: BenchmarkConfig, seeds: int) -> Iterator[Floats]:
    """Draws the training loads of a benchmark.

    Args:
        config: The benchmark.
        seeds: Of each load, the first ones.

    Yields:
        (minutes,) means, as multiples of the reference rate.
    """
    sampler = LoadSampler(config.loads)
    for row in sampler.cells("train", seeds):
        for cell in row:
            yield sampler.rates(cell, config.episode_s).reshape(-1, 60).mean(axis=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command of the study."""
    parser = argparse.ArgumentParser(prog="python -m agents.studies.planning", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="count the transitions of the training loads")
    table.add_argument("benchmark")
    table.add_argument("--seeds", type=int, default=SEEDS, help="of each training load")
    table.add_argument("--out", type=Path, default=TABLE)
    played = commands.add_parser("compare", help="play a benchmark's test runs")
    played.add_argument("benchmark")
    played.add_argument("--seeds", type=int, default=1, help="of each test load")
    played.add_argument("--late-price", type=float, nargs="*", default=[2.5])
    played.add_argument("--prior", nargs="*", default=["job-file", "none"])
    played.add_argument("--policies", nargs="*", default=[], help="others, by name")
    played.add_argument("--guardrails", default="none")
    chosen = parser.parse_args(arguments)
    config = load_model(BenchmarkConfig, "benchmarks", chosen.benchmark)
    if chosen.command == "table":
        write_counts(chosen.out, counted(training_minutes(config, chosen.seeds)))
        return
    entrants = [
        {
            "name": f"mdp {prior} w={price:g}",
            "policy": {"policy": "mdp", "params": {"late_price": price, "prior": prior}},
        }
        for prior in chosen.prior
        for price in chosen.late_price
    ]
    entrants += [{"name": name, "policy": name} for name in chosen.policies]
    compare(config, [{**one, "guardrails": chosen.guardrails} for one in entrants], chosen.seeds)


def compare(config: BenchmarkConfig, entrants: Sequence[dict[str, object]], seeds: int) -> None:
    """Plays policies one after the other; prints cost per day, lateness and rescales.

    Args:
        config: The benchmark.
        entrants: What to play, as a benchmark lists it.
        seeds: Of each load, the first ones.
    """
    head = f"{'policy':32} {'cost':>7} {'+-':>5} {'late %':>7} {'+-':>5} {'rescales':>8}"
    sys.stdout.write(f"{head}\n")
    for entrant in entrants:
        policies = (Entrant.model_validate(entrant),)
        changes = {"policies": policies, "clairvoyant": False, "seeds": seeds}
        changes["reference"] = policies[0].name
        card = evaluate(config.model_copy(update=changes))
        sys.stdout.write(f"{_line(str(entrant['name']), card.cells)}\n")
        sys.stdout.flush()


def _line(name: str, cells: Sequence[ScorecardCell]) -> str:
    """Means over all runs, and the standard deviation of the mean of each seed."""
    text = f"{name:32}"
    for metric, factor, form in (("cost", 1.0, "7.2f"), ("slo_share", 100.0, "7.2f")):
        by_seed: dict[int, list[float]] = {}
        for cell in cells:
            by_seed.setdefault(cell.seed, []).append(cell.metrics[metric] * factor)
        means = [sum(values) / len(values) for values in by_seed.values()]
        spread = stdev(means) if len(means) > 1 else 0.0
        text += f" {sum(means) / len(means):{form}} {spread:5.2f}"
    return f"{text} {sum(cell.metrics['rescales'] for cell in cells) / len(cells):8.1f}"


if __name__ == "__main__":
    main()
