"""`dsp-gym jobs`."""

from __future__ import annotations

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Examples:\n\n  dsp-gym jobs\n\n  dsp-gym jobs --json")(jobs)


def jobs(as_json: JsonOption = False) -> None:
    """List the shipped jobs."""
    from dsp_gym.job.catalog import list_jobs

    found = list_jobs()
    if as_json:
        print_json(
            [
                {
                    "name": job.job,
                    "about": job.description,
                    "vertices": [vertex.name for vertex in job.topological_order()],
                    "rate_per_s": job.source.rate_per_s,
                    "slo_latency_s": job.slo.latency_s,
                    "used_in_fit": job.used_in_fit,
                }
                for job in found
            ]
        )
        return
    print_table(
        ["name", "vertices", "records/s", "latency bound s", "about"],
        [
            [
                job.job,
                " ".join(vertex.name for vertex in job.topological_order()),
                f"{job.source.rate_per_s:,.0f}",
                f"{job.slo.latency_s:g}",
                job.description,
            ]
            for job in found
        ],
        right=["records/s", "latency bound s"],
    )
