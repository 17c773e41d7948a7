"""Commands by the names that they had before 1.0."""

from __future__ import annotations

from collections.abc import Sequence

NOW = {
    "jobs": "list jobs",
    "policies": "list policies",
    "envs": "list envs",
    "leaderboard": "evaluate BENCHMARK, with --entry POLICY or --entries DIR,DIR",
    "leaderboard rank": "evaluate BENCHMARK --entries DIR,DIR",
    "leaderboard submit": "evaluate BENCHMARK --entry POLICY",
    "scorecard": "backtest SOURCE...",
    "twins": "backtest SOURCE... --follow",
    "run": "shadow CONFIG --apply",
    "mst": "plan, without --rate",
    "dataset inspect": "inspect PATH",
    "dataset validate": "inspect PATH",
    "journal": "inspect PATH",
    "journal check": "inspect PATH",
    "journal repair": "inspect PATH --repair",
    "dataset follow": "dataset build --follow",
    "dataset export-minari": "dataset export",
    "flink cancel": "flink down --job NAME",
}
"""The present command of each earlier name; the table of the changelog has the same."""


def earlier(words: Sequence[str]) -> str | None:
    """Say what an earlier command is called now.

    Args:
        words: The command line from the command on.

    Returns:
        A sentence; None where no earlier command begins the line.

    >>> earlier(["twins", "runs/journals/my-job"])
    "'twins' is now: dsp-gym backtest SOURCE... --follow"
    """
    for name in (" ".join(words[:2]), " ".join(words[:1])):
        if name in NOW:
            return f"'{name}' is now: dsp-gym {NOW[name]}"
    return None
