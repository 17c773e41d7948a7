"""`dsp-gym validate`: policies on a real Flink, and the same comparison in the simulation."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import JsonOption, names_of, shipped
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dsp_gym.studies.policies_on_flink.command import ValidationProgress
    from dsp_gym.studies.policies_on_flink.order import CaseFigures
    from dsp_gym.studies.policies_on_flink.runs import KeptRuns, PlannedValidation, RunFigures

EXAMPLES = """
Examples:

  dsp-gym validate policies --plan                 the runs, and how long they take

  dsp-gym validate policies --simulate             the simulated half, in a minute or two

  dsp-gym validate policies --simulate --published docs/figures/validation/policies.json

  dsp-gym validate policies                        both; nothing else should run beside it

  dsp-gym validate policies --jobs flink-q11       the runs of one job

  dsp-gym validate my-validation.yaml --runs runs/validations/mine --json

After an interruption the same command continues with the missing runs.
"""


_ConfigArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A shipped configs/validations name, or a YAML file.",
        autocompletion=shipped("validations"),
    ),
]


_CalibrationsOption = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Reports of `dsp-gym calibrate --json`, named calibrate-JOB.json.",
    ),
]

_JobsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Real runs of these jobs alone, by label. Several commands with different jobs "
        "may run side by side, each with its own clusters beside the runs.",
    ),
]


_PublishedOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Figures that --out wrote: they stand for a policy's real runs on a job and load "
        "where --runs has none. With --simulate alone.",
    ),
]


def validate(
    config: _ConfigArgument,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Finished real runs. Default: runs/validations/NAME."),
    ] = None,
    calibrations: _CalibrationsOption = Path("docs/figures/validation"),
    jobs: _JobsOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the runs and start nothing.")] = False,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Start no Flink; compare the existing runs."),
    ] = False,
    published: _PublishedOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare policies on a real Flink with the same comparison in simulation.

    Exit code 1 when a run failed twice; the figures are of the others.
    """
    from dsp_gym.config.files import load_model
    from dsp_gym.evaluation.validation import ValidationConfig
    from dsp_gym.studies.policies_on_flink.command import compared, run_missing
    from dsp_gym.studies.policies_on_flink.order import PublishedRuns, figures_of
    from dsp_gym.studies.policies_on_flink.runs import KeptRuns, planned

    if published is not None and not simulate:
        raise ConfigError(
            "stands for real runs that are not done",
            key="--published",
            value=str(published),
            remedy="Add --simulate.",
        )
    chosen = load_model(ValidationConfig, "validations", config)
    folder = runs or Path("runs/validations") / Path(config).stem
    names = () if jobs is None else names_of(jobs, "--jobs")
    whole = planned(chosen, calibrations).of_jobs(names)
    kept = KeptRuns(folder, chosen)
    for what, why in whole.left_out.items():
        typer.echo(f"{what} is left out: {why}", err=True)
    if plan:
        _show_plan(whole, kept, as_json)
        return
    failed: dict[str, str] = {}
    if not simulate:
        with _told() as tell:
            clusters = folder / "clusters" / "+".join(sorted(names))
            failed = run_missing(whole, kept, clusters, tell)
    earlier = None if published is None else PublishedRuns.of(published)
    found = compared(whole, kept, lambda case: typer.echo(f"simulating {case}", err=True), earlier)
    _report(figures_of(whole, found), found, failed, out, as_json)


def _report(
    figures: Mapping[str, object],
    found: list[CaseFigures],
    failed: Mapping[str, str],
    out: Path | None,
    as_json: bool,
) -> None:
    """Write and print the figures; exit with 1 where runs failed."""
    import json

    from dsp_gym.config.files import write_atomic

    if out is not None:
        write_atomic(out, json.dumps(figures, indent=1) + "\n")
    if as_json:
        print_json({**figures, "failed": failed})
    else:
        _show(found)
    for run, why in failed.items():
        typer.echo(f"{run} failed: {why}", err=True)
    if failed:
        raise typer.Exit(1)


def _show_plan(plan: PlannedValidation, kept: KeptRuns, as_json: bool) -> None:
    missing = [run for run in plan.runs if kept.read(run) is None]
    seconds = plan.seconds(missing)
    if as_json:
        print_json(
            {
                "runs": [run.label for run in plan.runs],
                "missing": [run.label for run in missing],
                "seconds": seconds,
                "left_out": plan.left_out,
            }
        )
        return
    columns = ("job", "load", "peak/s", "start", "runs", "missing")
    print_table(
        columns,
        [
            [
                case.job.label,
                case.load,
                f"{case.rates.max():,.0f}",
                str(case.start),
                sum(run.case is case for run in plan.runs),
                sum(run.case is case for run in missing),
            ]
            for case in plan.cases
        ],
        right=("peak/s", "runs", "missing"),
    )
    typer.echo(
        f"\n{counted(len(plan.runs), 'run')} of {plan.config.seconds} s, {len(missing)} missing: "
        f"about {_hours(seconds)}."
    )


@contextmanager
def _told() -> Iterator[Callable[[ValidationProgress], None]]:
    from dsp_gym.cli.progress import long_bar

    with long_bar() as bar:
        task = bar.add_task("", total=1.0, figures="")

        def say(text: str) -> None:
            bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

        def tell(now: ValidationProgress) -> None:
            total_s = now.done_s + now.left_s
            bar.update(
                task,
                completed=now.done_s,
                total=total_s,
                description=f"{now.done}/{now.runs}",
                figures=f"{now.run}, {_hours(now.left_s)} left",
            )
            if now.finished is not None:
                one = now.finished
                said = f"cost {one.cost:.4f}, late {one.late_s:.0f} s, {one.rescales} rescales"
                say(f"{now.run}: {said}; {_hours(now.left_s)} left")
            elif now.failure is not None:
                say(f"{now.run} failed: {now.failure}")

        try:
            yield tell
        except KeyboardInterrupt:
            say("Stopped; finished runs are kept. Continue with the same command.")
            raise


def _show(found: list[CaseFigures]) -> None:
    for one in found:
        rows = [
            [
                f"{policy.policy} (rule)" if policy.rule else policy.policy,
                len(policy.real),
                *_shown(policy.real, policy.real_price),
                *_shown(policy.simulated, policy.simulated_price),
            ]
            for policy in sorted(one.policies, key=lambda policy: policy.simulated_price)
        ]
        figures = ("cost", "late s", "rescales", "price")
        columns = (
            "policy",
            "runs",
            *figures,
            *(f"sim. {name}" for name in figures),
        )
        print_table(
            columns,
            rows,
            title=f"{one.case.label}, costs in {one.case.spec.prices.currency}",
            right=columns[1:],
        )
        typer.echo()


def _shown(runs: Sequence[RunFigures], price: float) -> list[str | None]:
    """Write means over runs; None without any."""
    if not runs:
        return [None] * 4
    count = len(runs)
    return [
        f"{sum(run.cost for run in runs) / count:.4f}",
        f"{sum(run.late_s for run in runs) / count:.0f}",
        f"{sum(run.rescales for run in runs) / count:.1f}",
        f"{price:.4f}",
    ]


def _hours(seconds: float) -> str:
    """Write hours and minutes.

    >>> _hours(5400), _hours(90)
    ('1 h 30 min', '2 min')
    """
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
