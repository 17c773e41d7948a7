"""`dsp-gym bench`: how fast it is here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table, refuse_unwritable

if TYPE_CHECKING:
    from dsp_gym.studies.bench.environment import MeasuredRate
    from dsp_gym.studies.bench.shadow import Figure

_EPILOG = """
Examples:

  dsp-gym bench env                 environment, + policy, + learning

  dsp-gym bench env --json --runs 5

  dsp-gym bench env --no-learning   without torch

  dsp-gym bench policies            every rule policy, in a batch and for one job

  dsp-gym bench start               importing the library, and --help

  dsp-gym bench shadow --json       shadow mode: time per decision, memory, threads, start

  dsp-gym bench serve               decisions over HTTP: answers per second, slow clients, memory

  dsp-gym bench growth --quick      time over jobs, vertices and days, with slopes

  dsp-gym bench backtest --jobs 30 --days 14      a fleet, once its metrics are fetched

  dsp-gym bench spark --json        the data pipeline, 20 million raw rows
"""


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    group = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)
    group.command("env", epilog=_EPILOG)(environment)
    group.command("policies", epilog=_EPILOG)(policies)
    group.command("start", epilog=_EPILOG)(start)
    group.command("shadow", epilog=_EPILOG)(shadow)
    group.command("serve", epilog=_EPILOG)(serve)
    group.command("growth", epilog=_EPILOG)(growth)
    group.command("backtest", epilog=_EPILOG)(backtest)
    group.command("spark", epilog=_EPILOG)(spark)
    app.add_typer(group, name="bench", epilog=_EPILOG)


def environment(
    runs: Annotated[int, typer.Option(help="Runs per figure.", min=1, max=100)] = 5,
    jobs: Annotated[int, typer.Option(help="Jobs in the batch.", min=1, max=65536)] = 1024,
    learning: Annotated[bool, typer.Option(help="Also measure policy inference and PPO.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions per second: environment, simulation alone, policy, and while learning."""
    from dsp_gym.studies.bench.environment import bench_environment
    from dsp_gym.studies.bench.machine import machine
    from dsp_gym.studies.bench.strides import bench_strides

    rates = bench_environment(jobs, runs) + bench_strides(runs=runs)
    if learning:
        # By name: the library stands below the agents, and works without them and without torch.
        agents: Any = importlib.import_module("agents.studies.bench")
        rates += agents.bench_learning(runs)
    _show(rates, machine(), as_json)


def backtest(
    jobs: Annotated[int, typer.Option(help="Jobs in the fleet.", min=1, max=10_000)] = 30,
    days: Annotated[float, typer.Option(help="Of each history.", min=0.1, max=366)] = 14.0,
    policies: Annotated[
        str, typer.Option(metavar="A,B,C", help="Policies to replay.")
    ] = "ds2,justin-paper,flink-autoscaler,learned",
    interval: Annotated[int, typer.Option(help="Seconds between decisions.", min=5, max=3600)] = 60,
    workers: Annotated[
        int | None, typer.Option(help="Processes. Default: one per core.", min=1)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a backtest of a fleet, from its histories to its document."""
    from dsp_gym.engine import LocalEngine, cores
    from dsp_gym.studies.bench.backtest import bench_backtest
    from dsp_gym.studies.bench.machine import machine

    chosen = tuple(filter(None, policies.split(",")))
    with LocalEngine(workers or cores()) as engine:
        found = bench_backtest(jobs, days, chosen, interval, engine)
    if as_json:
        print_json({"machine": machine(), **asdict(found)})
        return
    columns = ("jobs", "days", "policies", "decisions", "seconds")
    row = (found.jobs, found.days, found.policies, f"{found.decisions:,}", f"{found.seconds:.1f}")
    print_table(columns, [row], right=columns)


def policies(
    names: Annotated[list[str] | None, typer.Argument(help="Policies; default: all rules.")] = None,
    runs: Annotated[int, typer.Option(help="Runs per figure.", min=1, max=100)] = 3,
    jobs: Annotated[int, typer.Option(help="Jobs in the batch.", min=1, max=65536)] = 1024,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions per second of the rule policies, in a batch and for one job."""
    from dsp_gym.studies.bench.machine import machine
    from dsp_gym.studies.bench.policies import bench_policies

    _show(bench_policies(names or (), jobs, runs), machine(), as_json)


def start(
    runs: Annotated[int, typer.Option(help="Runs per figure.", min=1, max=100)] = 5,
    as_json: JsonOption = False,
) -> None:
    """Measure the processor time of importing the library and of the command line's help."""
    from dsp_gym.studies.bench.machine import machine
    from dsp_gym.studies.bench.start import bench_start

    _show(bench_start(runs), machine(), as_json)


def shadow(
    decisions: Annotated[int, typer.Option(help="Decisions to time.", min=10)] = 1440,
    starts: Annotated[int, typer.Option(help="Processes to start.", min=1, max=20)] = 3,
    replayed_h: Annotated[
        int,
        typer.Option("--replayed-hours", help="Length of the replayed recording, hours.", min=1),
    ] = 24,
    jobs: Annotated[
        list[int] | None,
        typer.Option(
            help="Jobs beside which a process is measured; repeat it. Default: 1, 20 and 100.",
            min=1,
            max=1000,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure time per decision, memory, threads and start of `dsp-gym shadow`, four policies."""
    from dsp_gym.studies.bench.machine import machine
    from dsp_gym.studies.bench.shadow import JOBS, bench_shadow

    _show_figures(bench_shadow(decisions, starts, replayed_h, jobs or JOBS), machine(), as_json)


def serve(
    answers: Annotated[int, typer.Option(help="Answers to time, per policy.", min=100)] = 10_000,
    leak: Annotated[
        int, typer.Option(help="Answers between two looks at memory; 0: none.", min=0)
    ] = 50_000,
    as_json: JsonOption = False,
) -> None:
    """Measure decisions over HTTP: answers per second, slow clients, growth of memory."""
    from dsp_gym.studies.bench.machine import machine
    from dsp_gym.studies.bench.serve import bench_serve

    _show_figures(bench_serve(answers, leak), machine(), as_json)


def _show_figures(figures: Sequence[Figure], machine: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        print_json({"machine": machine, "figures": [asdict(figure) for figure in figures]})
        return
    print_table(
        ["what", "value", "unit", "bar"],
        [
            [f.name, f"{f.value:,.3g}", f.unit, None if f.bar is None else f"{f.bar:g}"]
            for f in figures
        ],
        title=" · ".join(f"{name} {value}" for name, value in machine.items()),
        right=("value", "bar"),
    )


def growth(
    quick: Annotated[bool, typer.Option("--quick", help="Few and small sizes.")] = False,
    runs: Annotated[int, typer.Option(help="Runs per point.", min=1, max=100)] = 3,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the lines on logarithmic axes.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how time grows with jobs, with vertices and with days.

    A slope is an exponent: 1 where twice the size takes twice the processor time, 0 where it takes
    as much.
    """
    from dsp_gym.studies.bench import growth as study
    from dsp_gym.studies.bench.machine import machine

    if plot is not None:
        refuse_unwritable(plot, "--plot")

    def told(quantity: str, point: study.GrowthPoint) -> None:
        typer.echo(f"{point.size:>6,} {quantity}: {point.cpu_s:.4g} CPU s", err=True)

    lines = study.bench_growth(study.QUICK if quick else study.FULL, runs, told)
    if plot is not None:
        study.plot_growth(lines, plot)
    if as_json:
        print_json({"machine": machine(), "runs": runs, "lines": [asdict(line) for line in lines]})
        return
    for line in lines:
        print_table(
            [line.quantity, "CPU s", "CPU us each", "seconds"],
            [
                [
                    f"{point.size:,}",
                    f"{point.cpu_s:.4g}",
                    f"{1e6 * point.cpu_s / point.size:,.0f}",
                    f"{point.wall_s:.4g}",
                ]
                for point in line.points
            ],
            title=f"{line.what}: slope {line.slope_small:g} small, {line.slope_large:g} large",
            right=(line.quantity, "CPU s", "CPU us each", "seconds"),
        )
        typer.echo()
    typer.echo(" · ".join(f"{name} {value}" for name, value in machine().items()))


def spark(
    rows: Annotated[int, typer.Option(help="Raw rows to make and read.", min=10_000)] = 20_000_000,
    runs: Annotated[int, typer.Option(help="Runs per figure.", min=1, max=100)] = 3,
    skew: Annotated[
        bool, typer.Option(help="Also measure with 90 % of the rows in one job.")
    ] = True,
    warm_ups: Annotated[
        int, typer.Option(help="Unmeasured runs before each figure.", min=0, max=100)
    ] = 3,
    as_json: JsonOption = False,
) -> None:
    """Measure raw rows per second of the data pipeline: scan, decision windows, whole build."""
    from dsp_gym.errors import MissingExtraError
    from dsp_gym.studies.bench.machine import machine

    try:
        # By name: the library stands below the pipelines, and works without them and without Spark.
        pipelines: Any = importlib.import_module("spark_pipelines.studies.bench")
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "measuring the data pipeline") from None
    rates, told, notes = pipelines.bench_spark(rows, runs, skew=skew, warm_ups=warm_ups)
    if as_json:
        document = {"rates": [asdict(rate) for rate in rates], "told": told, "notes": notes}
        print_json({"machine": machine(), **document, "bars": pipelines.BARS})
        return
    _show(rates, machine(), as_json)
    print_table(
        ["what", "value", "bar"],
        [[name, f"{value:,.2f}", f"{pipelines.BARS[name]:,.2f}"] for name, value in told.items()],
        right=("value", "bar"),
    )
    for note in notes:
        typer.echo(note)


def _show(
    rates: Sequence[MeasuredRate], machine: Mapping[str, str | int | float], as_json: bool
) -> None:
    if as_json:
        print_json({"machine": machine, "rates": [asdict(rate) for rate in rates]})
        return
    print_table(
        ["what", "median", "slowest", "fastest", "unit", "runs", "threads", "bar"],
        [
            [
                r.name,
                _figure(r.median),
                _figure(r.low),
                _figure(r.high),
                r.unit,
                str(r.runs),
                str(r.threads),
                "–" if r.bar is None else _figure(r.bar),
            ]
            for r in rates
        ],
        title=" · ".join(f"{name} {value}" for name, value in machine.items()),
        right=("median", "slowest", "fastest", "bar"),
    )


def _figure(value: float) -> str:
    """A rate as a whole number, a ratio or a few seconds with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
