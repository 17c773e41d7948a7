"""Records of comparisons and searches in MLflow, where it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dsp_gym.errors import MissingExtraError
from dsp_gym.trackers import NullTracker, Tracker, open_tracker

if TYPE_CHECKING:
    from dsp_gym.evaluation.results import Results
    from dsp_gym.experiments.experiment import TrackingConfig

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
    try:
        return open_tracker(store_of(track), experiment)
    except MissingExtraError:
        return NullTracker()


def with_track(tracking: TrackingConfig, track: str | None) -> TrackingConfig:
    """Return the configuration of records with `--track` in place of its store, if it is given."""
    if track is None:
        return tracking
    store = store_of(track)
    changed = {"enabled": store is not None, "uri": store or tracking.uri}
    return tracking.model_copy(update=changed)


def tracker_for(tracking: TrackingConfig, experiment: str) -> Tracker:
    """Open the tracker of a configuration.

    Args:
        tracking: The configuration.
        experiment: Name of MLflow's experiment where the configuration has none.

    Returns:
        The tracker; where it is off, or without MLflow, one that records nothing.
    """
    store = tracking.uri if tracking.enabled else NOWHERE
    return tracker_of(store, tracking.experiment or experiment)


@contextmanager
def recorded(tracker: Tracker, name: str, tags: Mapping[str, str], store: str) -> Iterator[Tracker]:
    """Record a block as one run, which ends as FINISHED, FAILED or KILLED, and say what is missing.

    Args:
        tracker: Where.
        name: Name of the run.
        tags: Its tags.
        store: The store, for the sentence on stderr.

    Yields:
        The tracker.
    """
    tracker.start(name, tags)
    status = "FAILED"
    try:
        yield tracker
        status = "FINISHED"
    except (KeyboardInterrupt, typer.Exit):
        status = "KILLED"
        raise
    finally:
        tracker.end(status)
        tell_missing(tracker, store)


def recorded_id(tracker: Tracker) -> str | None:
    """Return the id of a run that has ended; None where it is not recorded, or not whole."""
    return None if tracker.problem is not None else tracker.run_id


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
    tags = {"kind": results.kind, **results.tags}
    with recorded(tracker_of(track, f"{results.kind}s"), name, tags, track) as tracker:
        tracker.params(results.config)
        known = {re.sub(r"[^-\w. /]", "_", key): value for key, value in results.figures.items()}
        tracker.metrics(known, step=0)
        for path in written.values():
            tracker.artifact(path)
        for label, folder in results.policies.items():
            tracker.artifact(folder, f"policies/{label}")
    return recorded_id(tracker)


def tell_missing(tracker: Tracker, uri: str) -> None:
    """Say on stderr why a record is missing or incomplete; the results are written all the same.

    Args:
        tracker: Tracker of the run, ended.
        uri: The store.
    """
    if tracker.problem is not None:
        typer.echo(
            f"The run is not recorded in {uri}, or not whole: {tracker.problem}. "
            "Its results are written.",
            err=True,
        )
