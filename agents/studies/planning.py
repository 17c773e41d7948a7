"""Transitions of a benchmark's training loads, and figures of the policy that plans with them.

python -m agents.studies.planning table core-v1
python -m agents.studies.planning compare core-v1 --seeds 1 --late-price 1 2.5 5
python -m agents.studies.planning compare core-v1 --tables 5 --prior job-file --guardrails deployed
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory

from agents.planning.chain import TABLE, counted, write_counts
from agents.planning.draws import training_minutes
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import ScorecardCell

__all__ = ["compare", "main"]

SEEDS = 60
"""Seeds of each training load; more change no figure by more than its spread."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of the study."""
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
    played.add_argument("--policies", nargs="*", default=[], help="others, by name or folder")
    played.add_argument("--jobs", nargs="*", default=None, help="some of the benchmark's jobs")
    played.add_argument(
        "--tables", type=int, default=0, help="tables of other draws in place of the shipped one"
    )
    played.add_argument("--guardrails", default="none")
    chosen = parser.parse_args(arguments)
    config = load_model(BenchmarkConfig, "benchmarks", chosen.benchmark)
    if chosen.command == "table":
        drawn = training_minutes(config.loads, config.episode_s, chosen.seeds)
        write_counts(chosen.out, counted(drawn))
        return
    if chosen.jobs is not None:
        config = config.model_copy(update={"jobs": tuple(chosen.jobs)})
    _head()
    with TemporaryDirectory() as folder:
        tables = _tables(config, chosen.tables, Path(folder))
        for prior, price in product(chosen.prior, chosen.late_price):
            given = {"late_price": price, "prior": prior}
            label = f"mdp {prior} w={price:g}"
            # One entrant per table: their spread shows what the draw of training loads changes.
            entrants = [
                _entrant(
                    f"{label} {name}".strip(),
                    {"policy": "mdp", "params": given | own},
                    chosen.guardrails,
                )
                for name, own in tables.items()
            ]
            found = [_play(config, entrant, chosen.seeds) for entrant in entrants]
            if len(found) > 1:
                _write(f"{label} of {len(found)} tables", found)
        for name in chosen.policies:
            _play(config, _entrant(name, name, chosen.guardrails), chosen.seeds)


def compare(config: BenchmarkConfig, entrants: Sequence[Entrant], seeds: int) -> None:
    """Play policies one after the other; print cost per day, lateness and rescales.

    Args:
        config: The benchmark.
        entrants: Policies, as a benchmark lists them.
        seeds: Number of seeds of each load, from the first.
    """
    _head()
    for entrant in entrants:
        _play(config, entrant, seeds)


def _head() -> None:
    titles = " ".join(f"{title:>16}" for title in ("cost", "late %", "rescales"))
    sys.stdout.write(f"{'policy':32} {titles}\n")


def _entrant(name: str, policy: object, guardrails: str) -> Entrant:
    return Entrant.model_validate({"name": name, "policy": policy, "guardrails": guardrails})


def _tables(config: BenchmarkConfig, count: int, folder: Path) -> dict[str, dict[str, str]]:
    """Return parameters by label: the shipped table, or tables of other draws of training loads."""
    if not count:
        return {"": {}}
    made = {}
    for seed in range(count):
        file = folder / f"{seed}.safetensors"
        drawn = training_minutes(config.loads, config.episode_s, SEEDS, seed=seed)
        write_counts(file, counted(drawn))
        made[f"table {seed}"] = {"transitions": str(file)}
    return made


def _play(config: BenchmarkConfig, entrant: Entrant, seeds: int) -> list[float]:
    """Play a policy; print cost per day, lateness and rescales.

    Returns:
        The means that were printed.
    """
    changes = {"policies": (entrant,), "clairvoyant": False, "seeds": seeds}
    changes["reference"] = entrant.name
    cells = evaluate(config.model_copy(update=changes)).cells
    # Means per seed first: their spread is that between draws of loads.
    by_seed: dict[int, list[ScorecardCell]] = {}
    for cell in cells:
        by_seed.setdefault(cell.seed, []).append(cell)
    means = [
        [mean(factor * cell.metrics[metric] for cell in some) for metric, factor in _COLUMNS]
        for some in by_seed.values()
    ]
    return _write(entrant.name, means)


_COLUMNS = (("cost", 1.0), ("slo_share", 100.0), ("rescales", 1.0))
"""Printed metrics, with the factor to the unit of each column."""


def _write(name: str, means: Sequence[Sequence[float]]) -> list[float]:
    """Print means over some rows of `_COLUMNS`, and their standard deviations."""
    columns = list(zip(*means, strict=True))
    spread = [stdev(values) if len(values) > 1 else 0.0 for values in columns]
    found = [mean(values) for values in columns]
    cells = " ".join(
        f"{value:8.2f} +-{other:5.2f}" for value, other in zip(found, spread, strict=True)
    )
    sys.stdout.write(f"{name:32} {cells}\n")
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    main()
