"""`dsp-gym jobs`."""

from __future__ import annotations

from typing import Annotated

import typer

from dsp_gym.cli.output import JSON_OPTION, print_json, print_table

__all__ = ["list_jobs", "register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Examples:\n\n  dsp-gym jobs\n\n  dsp-gym jobs --json")(jobs)


def list_jobs() -> list[dict[str, object]]:
    """Every shipped job: its name, graph, reference rate and what its numbers were fitted to."""
    from dsp_gym.config.files import load_model, names
    from dsp_gym.job.spec import JobSpec

    found = []
    for name in names("jobs"):
        job = load_model(JobSpec, "jobs", name)
        found.append(
            {
                "name": name,
                "about": job.description,
                "vertices": [vertex.name for vertex in job.topological_order()],
                "rate_per_s": job.source.rate_per_s,
                "slo_latency_s": job.slo.latency_s,
                "used_in_fit": list(job.used_in_fit),
            }
        )
    return found


def jobs(as_json: Annotated[bool, JSON_OPTION] = False) -> None:
    """List the shipped jobs."""
    found = list_jobs()
    if as_json:
        print_json(found)
        return
    print_table(
        ["name", "vertices", "records/s", "latency bound s", "about"],
        [
            [
                row["name"],
                " ".join(str(vertex) for vertex in row["vertices"]),  # type: ignore[attr-defined]
                f"{row['rate_per_s']:,.0f}",
                f"{row['slo_latency_s']:g}",
                row["about"],
            ]
            for row in found
        ],
        right=["records/s", "latency bound s"],
    )
