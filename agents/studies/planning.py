"""Count the transitions of a benchmark's training loads: the table that `mdp` ships with.

python -m agents.studies.planning core-v1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agents.planning.chain import TABLE, counted, write_counts
from agents.planning.draws import training_minutes
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig

SEEDS = 60
"""Seeds of each training load; more change no figure by more than its spread."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m agents.studies.planning", description=__doc__)
    parser.add_argument("benchmark")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each training load")
    parser.add_argument("--out", type=Path, default=TABLE)
    chosen = parser.parse_args(arguments)
    config = load_model(BenchmarkConfig, "benchmarks", chosen.benchmark)
    drawn = training_minutes(config.loads, config.episode_s, chosen.seeds)
    write_counts(chosen.out, counted(drawn))


if __name__ == "__main__":
    main()
