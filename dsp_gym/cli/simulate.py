"""`dsp-gym simulate`: one policy on one job under one load, decision by decision."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.output import JSON_OPTION, print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.control.loop import LoopStep
    from dsp_gym.evaluation.scorecard import Scorecard

__all__ = ["register", "seconds"]

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


class _Row(TypedDict):
    """One decision, and the results of the interval after it."""

    t_s: float
    status: str
    target_per_s: float
    rate_per_s: float
    latency_p95_s: float
    pending_records: float
    slo_s: float
    down_s: float
    cost: float
    rescaled: bool
    configuration: dict[str, dict[str, int]]
    reason: str
    interventions: list[dict[str, str]]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym simulate nexmark-q11 --policy ds2 --load diurnal-bursts\n\n"
        "  dsp-gym simulate nexmark-q5 --policy justin-paper --duration 2h --plot q5.html"
    )(simulate)


def simulate(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job (dsp-gym jobs), or a job file.", autocompletion=shipped("jobs")
        ),
    ],
    load: Annotated[str, typer.Option(help="A shipped load, or a load file.")] = "constant",
    policy: Annotated[str, typer.Option(help="A policy's name, YAML file, or folder.")] = "static",
    guardrails: Annotated[
        str | None, typer.Option(help="Guardrails: a shipped name, or a YAML file.")
    ] = None,
    duration: Annotated[str, typer.Option(help="Simulated time, such as 90s, 30m or 1h.")] = "1h",
    interval: Annotated[str, typer.Option(help="Time between decisions.")] = "60s",
    seed: Annotated[int, typer.Option(min=0, help="Seed of load, outages and noise.")] = 0,
    start: Annotated[
        str, typer.Option(help="job: as its file says; sized: carries the first rate.")
    ] = "job",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write the run as an HTML page.")
    ] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print decisions as CSV.")] = False,
) -> None:
    """Run one policy on one simulated job and print each decision."""
    from dsp_gym.config.files import parse, write_atomic
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.report import render_html
    from dsp_gym.evaluation.run import evaluate

    config = parse(
        BenchmarkConfig,
        {
            "description": f"{policy} on {job} under {load}",
            "policies": [{"policy": policy, "guardrails": guardrails}],
            "reference": None,
            "clairvoyant": False,
            "jobs": [job],
            "loads": {"test": {"loads": [load], "seeds": {"from": seed, "to": seed + 1}}},
            "episode_s": seconds(duration),
            "interval_s": seconds(interval),
            "start": start,
        },
        "dsp-gym simulate",
    )
    rows: list[_Row] = []
    scorecard = evaluate(config, observer=lambda _l, _k, _n, step: rows.append(_row(step)))
    if plot is not None:
        write_atomic(plot, render_html(scorecard))
    if as_json:
        validity = scorecard.validity[0] if scorecard.validity else None
        print_json(
            {
                "decisions": rows,
                "summary": scorecard.cells[0].metrics,
                "validity": validity,
                "plot": plot,
            }
        )
    elif as_csv:
        typer.echo(_csv(rows), nl=False)
    else:
        _print(rows, scorecard)
        if plot is not None:
            typer.echo(f"Plot: {plot}")


def seconds(text: str) -> int:
    """Seconds of a duration.

    Returns:
        Whole seconds, rounded.

    >>> seconds("90"), seconds("90s"), seconds("1.5h")
    (90, 90, 5400)
    """
    from dsp_gym.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise ConfigError(
            "is no duration", value=text, remedy="Write a number with s, m, h or d, such as 90s."
        )
    return round(float(match[1]) * _UNITS[match[2]])


def _row(step: LoopStep) -> _Row:
    """One decision and the results of the interval after it."""
    from dsp_gym.loop.snapshot import Status

    snapshot, outcome = step.snapshot, step.outcome
    names = snapshot.topology.names(0)
    parallelism, level = step.guarded.parallelism[0], step.guarded.memory_level[0]
    past: dict[str, float] = {
        name: float(getattr(outcome, name)[0])
        for name in (
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
    }
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
    """`name=parallelism@level`; without a level where there is no managed memory."""
    return " ".join(
        f"{name}={vertex['parallelism']}"
        + (f"@{vertex['memory_level']}" if vertex["memory_level"] >= 0 else "")
        for name, vertex in row["configuration"].items()
    )


def _print(rows: list[_Row], scorecard: Scorecard) -> None:
    from dsp_gym.evaluation.report import METRIC_LABELS, number, validity_notes

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
        [[METRIC_LABELS[name], number(metrics[name])] for name in metrics],
        right=["value"],
    )
    for text in validity_notes(scorecard, scorecard.jobs[0]):
        typer.echo(f"note: {text}")


def _csv(rows: list[_Row]) -> str:
    stream = io.StringIO()
    flat = [
        {**row, "configuration": _configuration(row), "interventions": len(row["interventions"])}
        for row in rows
    ]
    writer = csv.DictWriter(stream, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()
