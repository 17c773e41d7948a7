"""`dsp-gym list`: the shipped jobs, policies, environments and loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table

_NAMESPACE = "dsp_gym"
_EXAMPLES = """
Examples:

  dsp-gym list jobs

  dsp-gym list policies

  dsp-gym list envs --json
"""

_Row = dict[str, object]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", epilog=_EXAMPLES)(list_)


def list_(
    kind: Annotated[
        Literal["jobs", "policies", "envs", "loads"],
        typer.Argument(help="The kind to list.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> None:
    """List the shipped jobs or loads, the installed policies, or the environments."""
    rows = _LISTED[kind]()
    if as_json:
        print_json(rows)
        return
    columns = list(rows[0])
    print_table(
        [column.replace("_", " ") for column in columns],
        [[_cell(row[column]) for column in columns] for row in rows],
        right=["rate per s", "slo latency s", "max episode steps"],
    )


def _jobs() -> list[_Row]:
    from dsp_gym.job.catalog import list_jobs

    return [
        {
            "name": job.job,
            "vertices": [vertex.name for vertex in job.topological_order()],
            "rate_per_s": job.source.rate_per_s,
            "slo_latency_s": job.slo.latency_s,
            "used_in_fit": job.used_in_fit,
            "about": job.description,
        }
        for job in list_jobs()
    ]


def _policies() -> list[_Row]:
    from dsp_gym.policies.registry import available

    return [{"name": name, "about": about} for name, about in available().items()]


def _envs() -> list[_Row]:
    """List the environments that gymnasium.make and make_vec know."""
    import gymnasium

    import dsp_gym  # noqa: F401  # registers the ids

    return [
        {
            "id": spec.id,
            "version": spec.version,
            "max_episode_steps": spec.max_episode_steps,
            "vectorized": spec.vector_entry_point is not None,
            "kwargs": dict(spec.kwargs),
        }
        for spec in gymnasium.registry.values()
        if spec.namespace == _NAMESPACE
    ]


def _loads() -> list[_Row]:
    from dsp_gym.config.files import load_model, names
    from dsp_gym.loads.spec import LoadConfig

    found = {name: load_model(LoadConfig, "loads", name) for name in names("loads")}
    return [
        {"name": name, "form": load.load.form, "about": load.description}
        for name, load in found.items()
    ]


_LISTED: Mapping[str, Callable[[], list[_Row]]] = {
    "jobs": _jobs,
    "policies": _policies,
    "envs": _envs,
    "loads": _loads,
}


def _cell(value: object) -> object:
    """Shorten a value for a table.

    >>> _cell(True), _cell(20000.0), _cell(["source", "sink"]), _cell({"job": "q1"})
    ('yes', '20,000', 'source sink', 'job=q1')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,g}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return value
