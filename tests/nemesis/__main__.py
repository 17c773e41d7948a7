"""python -m tests.nemesis [--seed N] [--minutes M] [--first N] [--rounds N] [--folder DIR]."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import typer

from tests.nemesis.run import PATIENCE_S, Outcome, nemesis
from tests.nemesis.schedule import round_of


def main() -> None:
    """Play it on the command line; exit code 1 where something did not hold."""
    given = _arguments()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="nemesis-"))
    if given.show:
        for number in range(given.first, given.first + (given.rounds or 20)):
            typer.echo(f"{number:3}  {'; '.join(map(str, round_of(seed, number).faults))}")
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    typer.echo(f"seed {seed}, {given.minutes:g} minutes, everything in {folder}")
    try:
        outcome = nemesis(
            seed, folder, seconds=60 * given.minutes, first=given.first, rounds=given.rounds,
            patience_s=given.patience, say=typer.echo,
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo(f"Interrupted; everything that was started has been ended. Logs: {folder}")
        sys.exit(130)
    for line in _summary(outcome):
        typer.echo(line)
    if outcome.trouble is not None:
        typer.echo(f"Logs and journals: {folder}")
        typer.echo(f"Again: python -m tests.nemesis --seed {seed} --first {given.first}")
        sys.exit(1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the schedule; default: a drawn one")
    parser.add_argument("--minutes", type=float, default=2.0, help="no round begins later")
    parser.add_argument("--first", type=int, default=1, help="number of the first round")
    parser.add_argument("--rounds", type=int, help="at most so many")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="for recovery, s")
    parser.add_argument("--folder", type=Path, help="for logs and journals; default: a new one")
    parser.add_argument("--show", action="store_true", help="print the schedule, and play nothing")
    return parser.parse_args()


def _summary(outcome: Outcome) -> list[str]:
    done = [played for played in outcome.rounds if played.trouble is None]
    slowest = max((played.recovered_s for played in done), default=0.0)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.kinds().items()))
    counts = ", ".join(f"{what}: {count}" for what, count in outcome.counts.items())
    return [
        f"{len(done)} rounds held, the slowest recovery took {slowest:.1f} s",
        f"faults: {kinds}",
        counts,
        f"FAILED: {outcome.trouble}" if outcome.trouble is not None else "nothing was violated",
    ]


if __name__ == "__main__":
    main()
