"""Count the transitions of a benchmark's training loads: the table that `mdp` ships with.

python -m agents.studies.planning core-v1
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.planning.chain import TABLE, counted, write_counts
from agents.planning.draws import training_minutes
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.studies.study import Options, options_of

OPTIONS: Options = {
    "benchmark": {},
    # More seeds change no figure by more than its spread.
    "--seeds": {"type": int, "default": 60, "help": "of each training load"},
    "--out": {"type": Path, "default": TABLE},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    given = options_of(__doc__, OPTIONS, arguments)
    config = load_model(BenchmarkConfig, "benchmarks", given.benchmark)
    write_counts(given.out, counted(training_minutes(config.loads, config.episode_s, given.seeds)))


if __name__ == "__main__":
    main()
