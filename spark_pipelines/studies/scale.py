"""How the pipeline's time grows with rows: two reports of `dsp-gym bench spark` held together.

    python -m spark_pipelines.studies.scale 20000000 small.json 200000000 large.json

Prints what a further row costs over what one costs in the small report, and ends with 1 where a bar
is missed: growth, and those of the reports themselves for one job with most rows and for memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

__all__ = ["GROWTH_BAR", "growth", "main", "missed"]

GROWTH_BAR = 1.2
"""A further row may cost a fifth more."""

TOLD_OF = {"skew_factor": "small", "peak_mib": "large"}
"""Which report tells a figure: all that Spark has held matters where there are most rows."""

Report = Mapping[str, Any]


def growth(small: Report, small_rows: int, large: Report, large_rows: int) -> dict[str, float]:
    """Marginal seconds per row between two sizes, over seconds per row of the small one, by rate.

    Returns:
        The factor by name of the rate.

    >>> reports = [{"rates": [{"name": "build", "median": m}]} for m in (1e6, 0.9e6)]
    >>> growth(reports[0], 10_000_000, reports[1], 100_000_000)
    {'build': 1.123}
    """
    found = {}
    rates = [{r["name"]: float(r["median"]) for r in report["rates"]} for report in (small, large)]
    for name in rates[0].keys() & rates[1].keys():
        seconds = [
            rows / of[name] for rows, of in zip((small_rows, large_rows), rates, strict=True)
        ]
        marginal = (seconds[1] - seconds[0]) / (large_rows - small_rows)
        found[name] = round(marginal * rates[0][name], 3)
    return dict(sorted(found.items()))


def missed(
    growths: Mapping[str, float], small: Report, large: Report
) -> Iterator[tuple[str, float, float]]:
    """Compares the growth and both reports with their bars.

    Returns:
        Name, value and bar of every figure above its bar.
    """
    for name, value in growths.items():
        if value > GROWTH_BAR:
            yield name, value, GROWTH_BAR
    for name, report in TOLD_OF.items():
        told = small if report == "small" else large
        if told["told"][name] > told["bars"][name]:
            yield name, told["told"][name], told["bars"][name]


def main(arguments: list[str]) -> int:
    """Prints the growth as JSON; 1 where a bar is missed.

    Returns:
        The exit code: 0 where every bar holds.
    """
    small_rows, small_file, large_rows, large_file = arguments
    small, large = (json.loads(Path(f).read_text("utf-8")) for f in (small_file, large_file))
    growths = growth(small, int(small_rows), large, int(large_rows))
    over = list(missed(growths, small, large))
    told = {name: (small if of == "small" else large)["told"][name] for name, of in TOLD_OF.items()}
    typer.echo(json.dumps({"growth": growths, "growth_bar": GROWTH_BAR, **told}, indent=1))
    for name, value, bar in over:
        typer.echo(f"{name} is {value:g}, above its bar {bar:g}", err=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
