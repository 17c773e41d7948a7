"""What the shell completes beside options and paths."""

from __future__ import annotations

from collections.abc import Callable


def shipped(kind: str) -> Callable[[str], list[str]]:
    """Complete the names of shipped configurations; paths are left to the shell.

    Use as ``typer.Argument(autocompletion=shipped("jobs"))``.

    Returns:
        A function from the text typed so far to the names that begin with it, sorted.
    """

    def complete(incomplete: str) -> list[str]:
        from dsp_gym.config.files import names

        return [name for name in names(kind) if name.startswith(incomplete)]

    return complete
