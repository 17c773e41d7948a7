"""`dsp-gym bench`: measure speed on this machine."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from dsp_gym.cli.options import JsonOption, refuse_given
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import MissingExtraError
from dsp_gym.shared_names import import_ours

EXAMPLES = """
Examples:

  dsp-gym bench env                     environment, simulation, policy inference and PPO

  dsp-gym bench env --quick --json      without torch

  dsp-gym bench policies                every rule policy, in a batch and for one job

  dsp-gym bench policies --policies ds2,keda

  dsp-gym bench start                   importing the library, and --help

  dsp-gym bench shadow --json           time per decision, memory, threads, start

  dsp-gym bench serve                   decisions over HTTP: rate, slow clients, memory

  dsp-gym bench backtest --jobs 30      a fleet, once its metrics are fetched

  dsp-gym bench spark --json            the data pipeline, 20 million raw rows
"""

_Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of one measurement; None where the option was not given."""

    runs: int | None
    jobs: int | None
    policies: tuple[str, ...] | None
    rows: int | None
    quick: bool


def bench(
    what: Annotated[
        Literal["env", "policies", "start", "shadow", "serve", "backtest", "spark"],
        typer.Argument(help="The part to measure.", show_default=False),
    ],
    runs: Annotated[
        int | None, typer.Option(min=1, max=100, help="Runs per figure. Default: 3 or 5.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_536,
            help="env, policies: jobs in the batch, default 1024. backtest: in the fleet, default "
            "30. shadow: beside one process, default 1, then 30, 100 and 300.",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="policies: default all rules. backtest: policies to replay."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=10_000, help="spark: raw rows, default 20,000,000.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what takes longest: torch, warm-ups, days.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure speed: decisions, learning, start, shadow mode, serving, backtests, Spark."""
    from dsp_gym.studies.bench.machine import machine

    measure, takes = _PARTS[what]
    given = {"--runs": runs, "--jobs": jobs, "--policies": policies, "--rows": rows}
    given |= {"--quick": quick}
    foreign = {option: value for option, value in given.items() if option not in takes}
    refuse_given(foreign, f"does not apply to 'bench {what}'", f"It takes {', '.join(takes)}.")
    names = None if policies is None else tuple(filter(None, policies.split(",")))
    document = {"machine": machine(), **measure(_Asked(runs, jobs, names, rows, quick))}
    if as_json:
        print_json(document)
    else:
        _show(document)


def _env(asked: _Asked) -> _Document:
    from dsp_gym.studies.bench.environment import bench_environment

    rates = bench_environment(asked.jobs or 1024, asked.runs or 5)
    if not asked.quick:
        # By name: the library stands below the agents, and works without them and without torch.
        agents: Any = import_ours("agents.studies.bench")
        rates += agents.bench_learning(asked.runs or 5)
    return {"rates": rates}


def _policies(asked: _Asked) -> _Document:
    from dsp_gym.studies.bench.policies import bench_policies

    return {"rates": bench_policies(asked.policies or (), asked.jobs or 1024, asked.runs or 3)}


def _start(asked: _Asked) -> _Document:
    from dsp_gym.studies.bench.environment import bench_start

    return {"rates": bench_start(asked.runs or 5)}


def _shadow(asked: _Asked) -> _Document:
    from dsp_gym.studies.bench.shadow import JOBS, bench_shadow

    decisions, starts, hours = (100, 1, 1) if asked.quick else (1440, 3, 24)
    jobs = JOBS if asked.jobs is None else (asked.jobs,)
    return {"figures": bench_shadow(decisions, starts, hours, jobs)}


def _serve(asked: _Asked) -> _Document:
    from dsp_gym.studies.bench.serve import bench_serve

    answers, leak = (1_000, 0) if asked.quick else (10_000, 50_000)
    return {"figures": bench_serve(answers, leak)}


def _backtest(asked: _Asked) -> _Document:
    from dsp_gym.engine import LocalEngine, cores
    from dsp_gym.studies.bench.backtest import POLICIES, bench_backtest

    days = 0.2 if asked.quick else 14.0
    with LocalEngine(cores()) as engine:
        found = bench_backtest(asked.jobs or 30, days, asked.policies or POLICIES, 60, engine)
    return {"figures": found}


def _spark(asked: _Asked) -> _Document:
    try:
        # By name: the library stands below the pipelines, and works without them and without Spark.
        pipelines: Any = importlib.import_module("spark_pipelines.studies.bench")
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "measuring the data pipeline") from None
    rates, told = pipelines.bench_spark(
        asked.rows or 20_000_000,
        asked.runs or 3,
        skew=not asked.quick,
        warm_ups=0 if asked.quick else pipelines.WARM_UPS,
    )
    return {"rates": rates, "told": told, "bars": pipelines.BARS}


_PARTS: Mapping[str, tuple[Callable[[_Asked], _Document], tuple[str, ...]]] = {
    "env": (_env, ("--runs", "--jobs", "--quick")),
    "policies": (_policies, ("--runs", "--jobs", "--policies")),
    "start": (_start, ("--runs",)),
    "shadow": (_shadow, ("--jobs", "--quick")),
    "serve": (_serve, ("--quick",)),
    "backtest": (_backtest, ("--jobs", "--policies", "--quick")),
    "spark": (_spark, ("--runs", "--rows", "--quick")),
}
"""The measurement of each part, and the options that apply to it."""


def _show(document: _Document) -> None:
    title = " · ".join(f"{name} {value}" for name, value in document["machine"].items())
    if rates := document.get("rates"):
        print_table(
            ["what", "median", "slowest", "fastest", "unit", "runs", "threads", "bar"],
            [
                [
                    one.name,
                    *(_figure(getattr(one, name)) for name in ("median", "low", "high")),
                    one.unit,
                    one.runs,
                    one.threads,
                    _figure(one.bar),
                ]
                for one in rates
            ],
            title=title,
            right=("median", "slowest", "fastest", "bar"),
        )
    if figures := document.get("figures"):
        print_table(
            ["what", "value", "unit", "bar"],
            [[f.name, _figure(f.value), f.unit, _figure(f.bar)] for f in figures],
            title=title,
            right=("value", "bar"),
        )
    if told := document.get("told"):
        bars = document["bars"]
        print_table(
            ["what", "value", "bar"],
            [[name, _figure(value), _figure(bars.get(name))] for name, value in told.items()],
            right=("value", "bar"),
        )


def _figure(value: float | None) -> str | None:
    """Write a large number as a whole one, a small one with three digits.

    >>> _figure(1234.5), _figure(0.12345), _figure(None)
    ('1,234', '0.123', None)
    """
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
