"""How far a fit to a few runs of a job predicts its other runs: the figures by job.

    python -m dsp_gym.studies.validation.few_runs --data ../shared/data [--runs 3] [--seeds 8]
    python -m dsp_gym.studies.validation.few_runs --calibration flink-micro-update --json

For each seed, some of the job's saturated runs are drawn at random, the job is fitted to them and
predicts all others. Errors are pooled over the seeds of one job, never over jobs. The noise beside
them is the job's own: the spread of repeats, or of the halves of runs where none was repeated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Compared, Errors, compare, errors_of
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.noise import noise
from dsp_gym.calibration.observations import SteadyPart, observe_all
from dsp_gym.calibration.recordings import measured_runs
from dsp_gym.config.files import load_model
from dsp_gym.config.strict_json import plain
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.runner import run, write_figures
from dsp_gym.studies.validation import flink_runs
from dsp_gym.studies.validation.flink_runs import JOBS

BARS = {"rate_median": 0.08, "rate_p90": 0.20, "busy_mean": 0.05, "hit_mean": 0.05}
NOISE_FACTOR = 1.5
"""A rate's bar is this multiple of the job's own repeat noise where that is larger."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The errors on the runs that were not fitted, over all draws of one job."""

    job: str
    runs: int  # fitted in each draw
    draws: tuple[tuple[str, ...], ...]
    errors: Errors  # pooled over the draws
    worst_median: float | None  # largest median error of the rate in one draw
    repeat_cv: float | None  # the job's own noise

    @property
    def bars(self) -> dict[str, float]:
        """The bounds of this job: larger ones where repeats of a run differ by more."""
        loose = NOISE_FACTOR * (self.repeat_cv or 0.0)
        return {
            name: max(bar, loose) if name.startswith("rate") else bar for name, bar in BARS.items()
        }

    @property
    def holds(self) -> dict[str, bool]:
        """A flag per bar whose quantity was measured: whether the error is within it."""
        values = {name: getattr(self.errors, name) for name in BARS}
        return {
            name: values[name] <= bar for name, bar in self.bars.items() if values[name] is not None
        }


def few_runs(spec: JobSpec, seen: Sequence[SteadyPart], runs: int = 3, seeds: int = 8) -> Drawn:
    """Draw runs, fit the job to them and predict the others, once per seed.

    Args:
        spec: the job, with its priors.
        seen: the steady parts of all its runs.
        runs: how many saturated runs are fitted.
        seeds: how many draws; each is another set of runs.

    Returns:
        The errors over all draws.
    """
    names = sorted({o.run for o in seen if o.saturated})
    draws = _draws(names, min(runs, len(names) - 1), seeds)
    compared: list[Compared] = []
    medians = []
    for chosen in draws:
        model = fit(spec, [o for o in seen if o.run in chosen]).model()
        one = compare(model, [o for o in seen if o.run not in chosen], frozenset())
        medians.append(errors_of(spec, one).rate_median)
        compared += one
    return Drawn(
        spec.job,
        runs,
        draws,
        errors_of(spec, compared),
        max((value for value in medians if value is not None), default=None),
        noise(seen).repeat_cv,
    )


def _draws(names: Sequence[str], runs: int, seeds: int) -> tuple[tuple[str, ...], ...]:
    """Different sets of runs, one per seed; fewer where there are fewer."""
    drawn = (tuple(sorted(random.Random(s).sample(names, runs))) for s in range(50 * seeds))
    return tuple(dict.fromkeys(drawn))[:seeds]


def table(found: Sequence[Drawn]) -> str:
    """The figures as a table.

    Returns:
        Markdown.
    """
    lines = [
        "| job | draws | rates | rate, median | rate, p90 | busyness | hit rate | own noise | "
        "misses |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        e, missed = one.errors, [name for name, held in one.holds.items() if not held]
        texts = (
            _text(value, factor, form)
            for value, factor, form in (
                (e.rate_median, 100, "{:.1f} %"),
                (e.rate_p90, 100, "{:.1f} %"),
                (e.busy_mean, 1, "{:.3f}"),
                (e.hit_mean, 1, "{:.3f}"),
                (one.repeat_cv, 100, "{:.1f} %"),
            )
        )
        misses = ", ".join(missed).replace("_", " ") or "none"
        cells = (f"`{one.job}`", len(one.draws), e.rate_count, *texts, misses)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _text(value: float | None, factor: float, form: str) -> str:
    return "–" if value is None else form.format(factor * value)


def main(
    data: Annotated[Path | None, typer.Option(help="Folder that holds flink_runs/.")] = None,
    calibration: Annotated[
        list[str] | None, typer.Option(help="Calibrations, by name or path, in place of --data.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs fitted in each draw.")] = 3,
    seeds: Annotated[int, typer.Option(min=1, help="Draws per job.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Fit each job to a few of its runs, drawn at random, and predict the rest."""
    configs = [load_model(CalibrationConfig, "calibrations", name) for name in calibration or ()]
    configs += [] if data is None else [flink_runs.calibration(name, data) for name in JOBS]
    found = []
    for config in configs:
        spec = load_job(config.job)
        found.append(few_runs(spec, observe_all(measured_runs(spec, config)), runs, seeds))
    if as_json:
        documents = [asdict(one) | {"bars": one.bars, "holds": one.holds} for one in found]
        write_figures(plain(documents), indent=1)
    else:
        typer.echo(table(found))


if __name__ == "__main__":
    run(main)
