"""`dsp-gym simulate`: one policy on one job under one load, decision by decision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dsp_gym.cli.options import (
    JsonOption,
    RateOption,
    constant_rate,
    names_of,
    seconds,
    shipped,
)
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.control.loop import LoopStep
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.scorecard import Scorecard

EXAMPLES = """
Examples:

  dsp-gym simulate nexmark-q11 --policies ds2 --load diurnal-bursts

  dsp-gym simulate nexmark-q11 --policies ds2 --rate 20000

  dsp-gym simulate nexmark-q5 --policies justin-paper --duration 2h --plot q5.html

  dsp-gym simulate nexmark-q11 --policies ds2,planner --load day-with-bursts --duration 12h \\
      --plot q11.gif
"""

_FIGURES = (
    "seconds",
    "arrived",
    "processed",
    "latency_p95_s",
    "pending",
    "cost",
    "slo_s",
    "down_s",
    "rescales",
)
"""Figures of an interval that a row is made of."""


_LoadOption = Annotated[
    str | None,
    typer.Option(
        help="A shipped load, or a load file. Default: the job's rate, constant.",
        autocompletion=shipped("loads"),
        show_default=False,
    ),
]

_PlotOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=".html: a page of the run. .gif, .mp4: a film of 10 s, policies side by side. "
        ".png: its last frame.",
    ),
]

_Row = dict[str, Any]
"""A decision, and the results of the interval after it, as its JSON has them."""


def simulate(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job (dsp-gym list jobs), or a job file.", autocompletion=shipped("jobs")
        ),
    ],
    load: _LoadOption = None,
    rate: RateOption = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B,C", help="Policies: names, YAML files or folders.")
    ] = "static",
    guardrails: Annotated[
        str | None, typer.Option(help="Guardrails: a shipped name, or a YAML file.")
    ] = None,
    duration: Annotated[str, typer.Option(help="Simulated time, such as 90s, 30m or 1h.")] = "1h",
    interval: Annotated[str, typer.Option(help="Time between decisions.")] = "60s",
    seed: Annotated[int, typer.Option(min=0, help="Seed of load, outages and noise.")] = 0,
    start: Annotated[
        str,
        typer.Option(
            help="job: the job file's configuration; sized: one that carries the first rate."
        ),
    ] = "job",
    plot: _PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one policy on a simulated job and print each decision, or compare several policies."""
    from dsp_gym.cli.picture import PICTURES, Filming, check_plot
    from dsp_gym.config.files import write_atomic
    from dsp_gym.evaluation.report import render_html
    from dsp_gym.evaluation.run import evaluate

    names = names_of(policies, "--policies")
    if plot is not None:
        check_plot(plot, len(names))
    under = _load(job, load, rate)
    config = _config(job, under, names, guardrails, _times(duration, interval), seed, start)
    rows: list[_Row] = []
    filming = Filming(under.called, config.episode_s)

    def observe(label: str, taken: int, steps: int, step: LoopStep) -> None:
        if len(names) == 1:
            rows.append(_row(step))
        if plot is not None and plot.suffix.lower() in PICTURES:
            filming.take(label, taken, steps, step)

    scorecard = evaluate(config, observer=observe)
    if filming.stories and plot is not None:
        filming.draw(plot)
    elif plot is not None:
        write_atomic(plot, render_html(scorecard))
    _show(rows, scorecard, plot, as_json)


def _times(duration: str, interval: str) -> tuple[int, int]:
    """Read the length of the episode and the time between decisions, in seconds."""
    episode_s, interval_s = seconds(duration), seconds(interval, "--interval")
    if interval_s and episode_s % interval_s:
        raise ConfigError(
            f"is not a multiple of --interval {interval}",
            key="--duration",
            value=duration,
            remedy=f"Take --duration {-(-episode_s // interval_s) * interval_s}s.",
        )
    return episode_s, interval_s


class _Load(NamedTuple):
    """The load of a run."""

    called: str
    entry: object  # as a benchmark has it


def _load(job: str, load: str | None, rate: float | None) -> _Load:
    """Read `--load`, or `--rate`."""
    constant = constant_rate(rate, load)
    if constant is None:
        return _Load(load or "constant", load or "constant")
    from dsp_gym.job.catalog import load_job

    called = f"{constant:,.10g} records/s"
    of_job = constant / load_job(job).source.rate_per_s
    # The name is a part of every draw: at two rates outages and noise are the same.
    return _Load(called, {"name": "constant", "load": {"form": "constant", "rate": of_job}})


def _config(
    job: str,
    load: _Load,
    names: Sequence[str],
    guardrails: str | None,
    times: tuple[int, int],
    seed: int,
    start: str,
) -> BenchmarkConfig:
    """Build the benchmark that the options stand for."""
    from dsp_gym.config.files import parse
    from dsp_gym.evaluation.config import BenchmarkConfig

    return parse(
        BenchmarkConfig,
        {
            "description": f"{', '.join(names)} on {job} under {load.called}",
            "policies": [{"policy": name, "guardrails": guardrails} for name in names],
            "reference": None,
            "clairvoyant": False,
            "jobs": [job],
            "loads": {"test": {"loads": [load.entry], "seeds": {"from": seed, "to": seed + 1}}},
            "episode_s": times[0],
            "interval_s": times[1],
            "start": start,
        },
        "dsp-gym simulate",
    )


def _show(rows: list[_Row], scorecard: Scorecard, plot: Path | None, as_json: bool) -> None:
    from dsp_gym.evaluation.report import validity_notes

    if as_json:
        print_json(_document(rows, scorecard) | {"plot": plot})
        return
    if rows:
        _print(rows, scorecard)
    else:
        _print_policies(scorecard)
    for text in validity_notes(scorecard, scorecard.jobs[0]):
        typer.echo(f"note: {text}")
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _document(rows: list[_Row], scorecard: Scorecard) -> dict[str, object]:
    """Build the JSON: decisions of one policy, or the results of each of several."""
    found: dict[str, object] = {"policies": {c.policy: c.metrics for c in scorecard.cells}}
    if rows:
        found = {"decisions": rows, "summary": scorecard.cells[0].metrics}
    validity = scorecard.validity[0] if scorecard.validity else None
    return found | {"currency": scorecard.currency, "validity": validity}


def _print_policies(scorecard: Scorecard) -> None:
    """Print the results of several policies, a row for each."""
    from dsp_gym.evaluation.report import metric_label, number

    told = ("cost", "slo_share", "rescales")
    labels = [metric_label(name, scorecard.currency) for name in told]
    print_table(
        ["policy", *labels],
        [[cell.policy, *(number(cell.metrics[name]) for name in told)] for cell in scorecard.cells],
        right=labels,
    )


def _row(step: LoopStep) -> _Row:
    """Make the row of a decision and of the interval after it."""
    from dsp_gym.loop.snapshot import Status

    snapshot, outcome = step.snapshot, step.outcome
    names = snapshot.topology.names(0)
    parallelism, level = step.guarded.parallelism[0], step.guarded.memory_level[0]
    past = {name: float(getattr(outcome, name)[0]) for name in _FIGURES}
    return {
        "t_s": float(snapshot.t_s[0]),
        "status": Status(int(snapshot.status[0])).name,
        "target_per_s": past["arrived"] / past["seconds"],
        "rate_per_s": past["processed"] / past["seconds"],
        "latency_p95_s": past["latency_p95_s"],
        "pending_records": past["pending"],
        "slo_s": past["slo_s"],
        "down_s": past["down_s"],
        "cost": past["cost"],
        "currency": snapshot.topology.spec(0).prices.currency,
        "rescaled": past["rescales"] > 0,
        "configuration": {
            name: {"parallelism": int(parallelism[v]), "memory_level": int(level[v])}
            for v, name in enumerate(names)
        },
        "reason": step.decision.reasons[0],
        "interventions": [
            {"guardrail": found.guardrail, "reason": found.reason}
            for found in step.guarded.interventions
        ],
    }


def _configuration(row: _Row) -> str:
    """Write `name=parallelism@level`, without a level where there is no managed memory."""
    return " ".join(
        f"{name}={vertex['parallelism']}"
        + (f"@{vertex['memory_level']}" if vertex["memory_level"] >= 0 else "")
        for name, vertex in row["configuration"].items()
    )


def _print(rows: list[_Row], scorecard: Scorecard) -> None:
    from dsp_gym.evaluation.report import metric_label, number

    print_table(
        ["t, s", "status", "target/s", "rate/s", "p95, s", "pending", "configuration", "reason"],
        [
            [
                f"{row['t_s']:g}",
                row["status"] + (" *" if row["rescaled"] else ""),
                f"{row['target_per_s']:,.0f}",
                f"{row['rate_per_s']:,.0f}",
                number(row["latency_p95_s"]),
                f"{row['pending_records']:,.0f}",
                _configuration(row),
                "; ".join(
                    [row["reason"]]
                    + [f"{i['guardrail']}: {i['reason']}" for i in row["interventions"]]
                ),
            ]
            for row in rows
        ],
        right=["t, s", "target/s", "rate/s", "p95, s", "pending"],
    )
    typer.echo(
        "configuration: vertex=tasks@memory level, no level without managed memory; * rescaled\n"
    )
    metrics = scorecard.cells[0].metrics
    print_table(
        ["", "value"],
        [[metric_label(name, scorecard.currency), number(metrics[name])] for name in metrics],
        right=["value"],
    )
