"""Trackers of runs: the protocol, MLflow, and the tracker that records nothing."""

from __future__ import annotations

from dsp_gym.trackers.base import NullTracker, Tracker, flatten

__all__ = ["NullTracker", "Tracker", "flatten", "open_tracker"]


def open_tracker(uri: str | None, experiment: str) -> Tracker:
    """Opens the tracker of a store.

    Returns:
        The tracker; the one that records nothing if `uri` is None.

    Raises:
        MissingExtraError: MLflow is not installed.
        RegistryError: The store cannot be opened.
    """
    if uri is None:
        return NullTracker()
    from dsp_gym.trackers.mlflow import MlflowTracker

    return MlflowTracker(uri, experiment)
