"""How far the model is from the measured runs of `flink_runs/`: the figures, as JSON.

    python -m dsp_gym.studies.validation.flink_runs --data ../shared/data --json

Four jobs (read, update; through the page cache, direct I/O), each calibrated twice: on a third of
its runs, and on the runs with at most two state tasks, which predict those with four and eight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Agreement, Errors, agreement, errors_of, linear_model
from dsp_gym.calibration.recordings import calibrate
from dsp_gym.calibration.report import CalibrationReport
from dsp_gym.config.files import load_model
from dsp_gym.studies.runner import run, write_figures

JOBS = ("read", "update", "direct-read", "direct-update")
SMALL = 2
"""Most state tasks in the fit that is extrapolated."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Errors over the held-out runs of all jobs together, and of each."""

    fitted_runs: int
    all_runs: int
    held_out: Errors
    by_job: dict[str, Errors]
    extrapolated: Errors  # fitted to at most SMALL tasks, predicting more
    extrapolated_by_job: dict[str, Errors]
    agreement: Agreement | None
    repeat_cv: float
    not_identified: dict[str, list[str]]


def flink_runs(data: Path) -> Figures:
    """The figures over the measured runs in a data folder.

    Returns:
        Counts of runs, errors held out by job and pooled, and agreement of the ranks.
    """
    third, small = (
        {name: calibrate(calibration(name, data, **how), refit=False) for name in JOBS}
        for how in ({"fit": "third"}, {"fit": "parallelism", "max_parallelism": SMALL})
    )
    compared = [one.compared for one in third.values()]
    repeat_cv = max(one.noise.repeat_cv or 0.0 for one in third.values())
    return Figures(
        sum(len(one.runs) for one in third.values()),
        sum(len({c.seen.run for c in one}) for one in compared),
        _pooled(third.values()),
        {name: one.held_out_errors for name, one in third.items()},
        _pooled(small.values()),
        {name: one.held_out_errors for name, one in small.items()},
        agreement(compared, repeat_cv, [linear_model(one) for one in compared]),
        repeat_cv,
        {
            name: [p.name for p in one.fit.parameters if not p.identified]
            for name, one in third.items()
        },
    )


def calibration(name: str, data: Path, **changes: object) -> CalibrationConfig:
    """The calibration of one of the jobs on the runs in a data folder.

    Returns:
        The shipped configuration with these recordings and the changes.
    """
    shipped = load_model(CalibrationConfig, "calibrations", f"flink-runs-{name}")
    return shipped.model_copy(update={"recordings": (str(data / "flink_runs"),), **changes})


def _pooled(reports: Iterable[CalibrationReport]) -> Errors:
    """The errors of all jobs together, which have the same graph."""
    found = list(reports)
    return errors_of(found[0].spec, [c for one in found for c in one.compared if not c.in_fit])


def main(
    data: Annotated[Path, typer.Option(help="Folder that holds flink_runs/.")],
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Calibrate on a third of the runs and on small ones, and predict the others."""
    figures = asdict(flink_runs(data))
    if as_json:
        write_figures(figures, indent=1)
        return
    for name, value in figures.items():
        typer.echo(f"{name}: {value}")


if __name__ == "__main__":
    run(main)
