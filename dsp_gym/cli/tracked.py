"""Records of comparisons and searches in MLflow, where it is installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsp_gym.evaluation.results import Results
    from dsp_gym.trackers import Tracker

DEFAULT_STORE = "sqlite:///mlflow.db"

NOWHERE = "none"
"""Value of `--track` for no record."""


def store_of(track: str) -> str | None:
    """Return the MLflow store that `--track` names; None: record nothing."""
    return None if track == NOWHERE else track


def tracker_of(track: str, experiment: str) -> Tracker:
    """Open the tracker of `--track`.

    Args:
        track: URI of an MLflow store, or `none`.
        experiment: Name of MLflow's experiment.

    Returns:
        The tracker; without MLflow one that records nothing.
    """
    from dsp_gym.errors import MissingExtraError
    from dsp_gym.trackers import NullTracker, open_tracker

    try:
        return open_tracker(store_of(track), experiment)
    except MissingExtraError:
        return NullTracker()


def record_results(
    name: str, results: Results, written: Mapping[str, Path], track: str
) -> str | None:
    """Record what a comparison found, with its files and the trained policies that took part.

    Args:
        name: Name of the run.
        results: The results.
        written: Files to keep with it.
        track: Value of `--track`.

    Returns:
        The run's id; None where nothing is recorded.
    """
    tracker = tracker_of(track, f"{results.kind}s")
    tracker.start(name, {"kind": results.kind, **results.tags})
    status = "FAILED"
    try:
        tracker.params(results.config)
        known = {re.sub(r"[^-\w. /]", "_", key): value for key, value in results.figures.items()}
        tracker.metrics(known, step=0)
        for path in written.values():
            tracker.artifact(path)
        for label, folder in results.policies.items():
            tracker.artifact(folder, f"policies/{label}")
        status = "FINISHED"
    finally:
        tracker.end(status)
    tell_missing(tracker, track)
    return None if tracker.problem is not None else tracker.run_id


def tell_missing(tracker: Tracker | None, uri: str | None) -> None:
    """Say on stderr why a record is missing or incomplete; the results are written all the same.

    Args:
        tracker: Tracker of the run, ended; None: nothing was to be recorded.
        uri: The store.
    """
    if tracker is not None and tracker.problem is not None:
        typer.echo(
            f"The run is not recorded in {uri}, or not whole: {tracker.problem}. "
            "Its results are written.",
            err=True,
        )
