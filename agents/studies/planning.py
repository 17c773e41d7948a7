"""Count the transitions of a benchmark's training loads: the table that `mdp` ships with.

python -m agents.studies.planning core-v1
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agents.planning.chain import TABLE, counted, write_counts
from agents.planning.draws import training_minutes
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig


def main(
    benchmark: str,
    # More seeds change no figure by more than its spread.
    seeds: Annotated[int, typer.Option(help="Of each training load.")] = 60,
    out: Annotated[Path, typer.Option(help="Where the table is written.")] = TABLE,
) -> None:
    """Write the table."""
    config = load_model(BenchmarkConfig, "benchmarks", benchmark)
    write_counts(out, counted(training_minutes(config.loads, config.episode_s, seeds)))


if __name__ == "__main__":
    typer.run(main)
