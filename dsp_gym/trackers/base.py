"""The tracker protocol, and the tracker that records nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

__all__ = ["CHALLENGER", "NullTracker", "Tracker", "flatten"]

CHALLENGER = "challenger"
"""Alias of the newest version of a model where an older one holds the alias asked for."""


@runtime_checkable
class Tracker(Protocol):
    """One run: parameters, metrics over steps, files, and the policy it made."""

    run_id: str | None
    problem: str | None  # why the record is missing or incomplete

    def start(self, name: str, tags: Mapping[str, str]) -> None:
        """Begins the run."""

    def params(self, values: Mapping[str, object]) -> None:
        """Records a nested document as dotted parameters."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Records numbers at a step; written in batches, numbers that are not finite left out."""

    def artifact(self, path: Path, folder: str = "") -> None:
        """Keeps a copy of a file, or of a folder's content, under a folder of the record."""

    def register(self, folder: Path, model: str, alias: str | None) -> str | None:
        """Puts a policy folder into the model registry.

        An alias that a version holds stays with it; the new version becomes the challenger, until
        `dsp_gym.trackers.mlflow.promote` moves the alias.

        Returns:
            The address it can be pulled from; None if nothing is recorded.
        """

    def end(self, status: str = "FINISHED") -> None:
        """Ends the run: FINISHED, FAILED or KILLED."""


class NullTracker:
    """Records nothing."""

    run_id: str | None = None
    problem: str | None = None

    def start(self, name: str, tags: Mapping[str, str]) -> None:
        pass

    def params(self, values: Mapping[str, object]) -> None:
        pass

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        pass

    def artifact(self, path: Path, folder: str = "") -> None:
        pass

    def register(self, folder: Path, model: str, alias: str | None) -> str | None:
        return None

    def end(self, status: str = "FINISHED") -> None:
        pass


def flatten(document: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Values by dotted key.

    Returns:
        Leaves by dotted key; lists stay whole.

    >>> flatten({"agent": {"gamma": 0.97, "seeds": [0, 1]}})
    {'agent.gamma': 0.97, 'agent.seeds': [0, 1]}
    """
    flat: dict[str, object] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat
