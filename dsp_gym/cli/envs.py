"""`dsp-gym envs`."""

from __future__ import annotations

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table

__all__ = ["list_envs", "register"]

NAMESPACE = "dsp_gym"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Examples:\n\n  dsp-gym envs\n\n  dsp-gym envs --json")(envs)


def list_envs() -> list[dict[str, object]]:
    """Every registered environment of this project.

    Returns:
        One entry per environment: `id`, `version`, `max_episode_steps`, `vectorized` and `kwargs`.
    """
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
        if spec.namespace == NAMESPACE
    ]


def envs(as_json: JsonOption = False) -> None:
    """List the environments that gymnasium.make and make_vec know."""
    found = list_envs()
    if as_json:
        print_json(found)
        return
    print_table(
        ["id", "episode steps", "vectorized", "arguments"],
        [
            [
                row["id"],
                row["max_episode_steps"],
                "yes" if row["vectorized"] else "no",
                ", ".join(f"{key}={value}" for key, value in dict(row["kwargs"]).items()),  # type: ignore[call-overload]
            ]
            for row in found
        ],
        right=["episode steps"],
    )
