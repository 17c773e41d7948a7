"""Records of evaluations and leaderboards in MLflow, where it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsp_gym.evaluation.frontier.board import FrontierBoard
    from dsp_gym.evaluation.scorecard import Scorecard
    from dsp_gym.trackers import Tracker

__all__ = [
    "frontier_figures",
    "is_policy_folder",
    "record_frontier",
    "record_scorecard",
    "tell_missing",
]


def record_scorecard(
    name: str, scorecard: Scorecard, written: Mapping[str, Path], uri: str
) -> str | None:
    """Keeps a scorecard.

    Args:
        name: Of the run.
        scorecard: Its configuration and figures are kept.
        written: Files to keep with it.
        uri: The MLflow store.

    Returns:
        The run's id; None where MLflow is not installed or does not answer.
    """
    figures = {
        f"{row.job}/{row.policy}/{metric}": estimate.value
        for row in scorecard.rows
        for metric, estimate in row.metrics.items()
    }
    played = ((str(entry["name"]), entry["policy"]) for entry in scorecard.config["policies"])
    folders = {
        label: Path(policy)
        for label, policy in played
        if isinstance(policy, str) and is_policy_folder(policy)
    }
    tags = {"kind": "evaluation", **scorecard.versions}
    return _record("evaluations", name, tags, scorecard.config, figures, (written, folders), uri)


def record_frontier(board: FrontierBoard, written: Mapping[str, Path], uri: str) -> str | None:
    """Keeps a frontier: its configuration, figures and pages, and the trained policies in it.

    Args:
        board: The frontier.
        written: Its pages.
        uri: The MLflow store.

    Returns:
        The run's id; None where MLflow is not installed or does not answer.
    """
    folders = {}
    for entry in board.config.policies:
        for number, one in enumerate((entry.policy, *entry.trainings), start=1):
            if isinstance(one, str) and is_policy_folder(one):
                folders[f"{entry.name}-{number}"] = Path(one)
    tags = {"kind": "frontier", "fingerprint": board.fingerprint, **board.versions}
    tags |= {f"left_out.{cell}": reason for cell, reason in board.left_out.items()}
    document = board.config.model_dump(mode="json", by_alias=True)
    figures = frontier_figures(board)
    return _record("frontiers", board.name, tags, document, figures, (written, folders), uri)


def tell_missing(tracker: Tracker | None, uri: str | None) -> None:
    """Says on stderr why a record is missing or incomplete; the results are written all the same.

    Args:
        tracker: Of the run, ended; None: nothing was to be recorded.
        uri: The store.
    """
    if tracker is not None and tracker.problem is not None:
        typer.echo(
            f"The run is not recorded in {uri}, or not whole: {tracker.problem}. "
            "Its results are written.",
            err=True,
        )


def frontier_figures(board: FrontierBoard) -> dict[str, float]:
    """Lists the figures of a frontier's tables.

    Args:
        board: The frontier.

    Returns:
        Values by cell or shift, policy and figure; what a policy does not reach is left out.
    """
    return dict(_figures(board))


def is_policy_folder(path: str) -> bool:
    """Whether a trained policy stands in a folder.

    Returns:
        True where the folder has a policy's document.
    """
    return (Path(path) / "policy.json").is_file()


def _figures(board: FrontierBoard) -> Iterator[tuple[str, float]]:
    for cell in board.cells:
        for one in cell.frontiers:
            place = f"{cell.runs.cell}/{one.policy}"
            for what in ("cost", "ratio", "closed", "regret"):
                for level, estimate in getattr(one, what).items():
                    if estimate is not None:
                        yield f"{place}/{what}_at_{100 * level:g}_percent_late", estimate.value
        for priced in cell.priced:
            yield f"{cell.runs.cell}/{priced.policy}/price", priced.price.value
    for shifted in board.shifts:
        yield f"shifts/{shifted.shift}/{shifted.policy}/ratio", shifted.ratio.value
        yield f"shifts/{shifted.shift}/{shifted.policy}/late", shifted.late


def _record(
    experiment: str,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, object],
    figures: Mapping[str, float],
    kept: tuple[Mapping[str, Path], Mapping[str, Path]],
    uri: str,
) -> str | None:
    """Writes one run: files of the first mapping of `kept`, policy folders of the second."""
    from dsp_gym.errors import MissingExtraError
    from dsp_gym.trackers import open_tracker

    try:
        tracker = open_tracker(uri, experiment)
    except MissingExtraError:
        return None
    tracker.start(name, tags)
    status = "FAILED"
    try:
        tracker.params(params)
        known = {re.sub(r"[^-\w. /]", "_", key): value for key, value in figures.items()}
        tracker.metrics(known, step=0)
        written, folders = kept
        for path in written.values():
            tracker.artifact(path)
        for label, folder in folders.items():
            tracker.artifact(folder, f"policies/{label}")
        status = "FINISHED"
    finally:
        tracker.end(status)
    tell_missing(tracker, uri)
    return None if tracker.problem is not None else tracker.run_id
