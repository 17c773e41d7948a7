"""Trackers of runs: their base, MLflow, and the tracker that records nothing."""

from __future__ import annotations

from dsp_gym.trackers.base import BackgroundTracker, NullTracker, Tracker, flatten

__all__ = ["BackgroundTracker", "NullTracker", "Tracker", "flatten", "open_tracker"]


def open_tracker(uri: str | None, experiment: str) -> Tracker:
    """Open the tracker of a store.

    Returns:
        The tracker, which records beside the work and waits for the store no longer than a minute;
        the one that records nothing if `uri` is None.

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    if uri is None:
        return NullTracker()
    from dsp_gym.trackers.mlflow import MlflowTracker, quiet, require

    require()
    return BackgroundTracker(lambda: MlflowTracker(uri, experiment), around=quiet)
