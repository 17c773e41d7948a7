"""How far the model is from the measured runs of `flink_runs/`: the figures, as JSON.

    python -m dsp_gym.studies.validation.flink_runs --data ../shared/data --json

Four jobs (read, update; through the page cache, direct I/O), each calibrated twice: on a third of
its runs, and on the runs with at most two state tasks, which predict those with four and eight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Agreement, Errors, agreement, errors_of, linear_model
from dsp_gym.calibration.recordings import calibrate
from dsp_gym.calibration.report import CalibrationReport
from dsp_gym.config.files import load_model
from dsp_gym.job.spec import JobSpec

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
    third = {name: _calibrated(name, data, "third") for name in JOBS}
    small = {name: _calibrated(name, data, "parallelism") for name in JOBS}
    any_spec = third[JOBS[0]].spec  # all four have the same graph
    repeat_cv = max(report.noise.repeat_cv or 0.0 for report in third.values())
    return Figures(
        sum(len(report.runs) for report in third.values()),
        sum(len({c.seen.run for c in report.compared}) for report in third.values()),
        _pooled(any_spec, third.values()),
        {name: report.held_out_errors for name, report in third.items()},
        _pooled(any_spec, small.values()),
        {name: report.held_out_errors for name, report in small.items()},
        agreement(
            [report.compared for report in third.values()],
            repeat_cv,
            [linear_model(report.compared) for report in third.values()],
        ),
        repeat_cv,
        {
            name: [p.name for p in report.fit.parameters if not p.identified]
            for name, report in third.items()
        },
    )


def _calibrated(name: str, data: Path, which: str) -> CalibrationReport:
    config = load_model(CalibrationConfig, "calibrations", f"flink-runs-{name}")
    update: dict[str, object] = {"recordings": (str(data / "flink_runs"),), "fit": which}
    if which == "parallelism":
        update["max_parallelism"] = SMALL
    return calibrate(config.model_copy(update=update), refit=False)


def _pooled(spec: JobSpec, reports: Iterable[CalibrationReport]) -> Errors:
    return errors_of(spec, [c for report in reports for c in report.compared if not c.in_fit])


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    import argparse
    import json

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds flink_runs/")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args(arguments)
    figures = asdict(flink_runs(options.data))
    if options.json:
        typer.echo(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        typer.echo(f"{name}: {value}")


if __name__ == "__main__":
    main()
