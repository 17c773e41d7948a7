"""Playing a benchmark or a frontier; both give results of the same form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.engine import Engine
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.frontier.board import (
    FrontierBoard,
    board_of,
    currency_of,
    figures_of,
    render_json,
)
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.entry import SubmittedEntry, unlike
from dsp_gym.evaluation.frontier.page import report_of as report_of_board
from dsp_gym.evaluation.frontier.play import decisions_in, play_frontier
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.report import report_of
from dsp_gym.evaluation.results import Report, Results, render_html, render_markdown
from dsp_gym.evaluation.run import OnRuns, decisions_of, evaluate
from dsp_gym.policies.registry import POLICY_FILE

RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class BenchmarkComparison:
    """Every policy once on every run of a benchmark."""

    name: str
    config: BenchmarkConfig
    command: str

    @property
    def folder(self) -> Path:
        """Folder of the results where no other one is named."""
        """Folder of the results where no other one is named."""
        return RUNS / "evaluations" / self.name

    @property
    def decisions(self) -> int:
        """Decisions of all runs, by which an engine is sized."""
        """Decisions of all runs."""
        return decisions_of(self.config)

    def play(self, engine: Engine, told: OnRuns | None, kept: KeptResults | None) -> Results:
        """Play all runs.

        Args:
            engine: Where; results do not depend on it.
            told: Hears how many runs are done.
            kept: Keeps finished runs, and gives those of an interrupted call.

        Returns:
            The results.
        """
        """Play all runs.

        Returns:
            The results, with the scorecard as `results.json` and every run in `cells.csv`.
        """
        card = evaluate(self.config, engine=engine, told=told, kept=kept)
        mark = fingerprint(self.config)
        origin = f"Made by `{self.command}`; benchmark {self.name}, fingerprint {mark}."
        report = report_of(card, origin)
        return Results(
            kind="evaluation",
            report=report,
            files={
                "results.json": card.to_json(),
                "cells.csv": card.to_csv(),
                **_pages(report),
            },
            config=card.config,
            figures={
                f"{row.job}/{row.policy}/{metric}": estimate.value
                for row in card.rows
                for metric, estimate in row.metrics.items()
            },
            tags={"fingerprint": mark, **card.versions},
            policies=_folders((one.name, one.policy) for one in self.config.policies),
        )


@dataclass(frozen=True, slots=True)
class FrontierComparison:
    """Every policy at every setting of its knob, compared at equal lateness."""

    name: str
    config: FrontierConfig
    command: str
    cells: tuple[str, ...] = ()  # none: all of them, and the shifts
    entries: tuple[SubmittedEntry, ...] = ()  # those whose policies are among the config's

    @property
    def folder(self) -> Path:
        """Folder of the results where no other one is named."""
        return RUNS / "frontiers" / self.name

    @property
    def decisions(self) -> int:
        """Decisions of all runs."""
        return decisions_in(self.config)

    def board(self, engine: Engine, told: OnRuns | None, kept: KeptResults | None) -> FrontierBoard:
        """Play all runs and estimate the frontiers.

        Returns:
            The board; cells whose recorded loads are not here are left out with the reason.
        """
        currency_of(self.config)  # refuses two currencies before anything is played
        played = play_frontier(self.config, self.cells, engine=engine, told=told, kept=kept)
        return board_of(self.name, self.config, played, versions(()))

    def play(self, engine: Engine, told: OnRuns | None, kept: KeptResults | None) -> Results:
        """Play all runs.

        Returns:
            The results, with the board as `results.json` and the runs of each cell in `runs/`.
        """
        board = self.board(engine, told, kept)
        report = report_of_board(board, self.command)
        runs = {
            f"runs/{cell.runs.cell}.json": cell.runs.model_dump_json(by_alias=True)
            for cell in board.cells
        }
        left = {f"left_out.{cell}": reason for cell, reason in board.left_out.items()}
        return Results(
            kind="frontier",
            report=report,
            files={
                **runs,
                "results.json": render_json(board, self.command),
                **_pages(report),
            },
            config=board.config.model_dump(mode="json", by_alias=True),
            figures=dict(figures_of(board)),
            tags={"fingerprint": board.fingerprint, **board.versions, **left},
            policies=_folders(
                (f"{entry.name}-{number}", one)
                for entry in board.config.policies
                for number, one in enumerate((entry.policy, *entry.trainings), start=1)
            ),
            warnings=(
                *(f"{cell} is left out: {why}" for cell, why in board.left_out.items()),
                *unlike(self.entries, board),
            ),
        )


def _pages(report: Report) -> dict[str, str]:
    return {"report.md": render_markdown(report), "report.html": render_html(report)}


def _folders(played: Iterable[tuple[str, object]]) -> dict[str, Path]:
    """Return those that are folders of trained policies, by label."""
    return {
        label: Path(policy)
        for label, policy in played
        if isinstance(policy, str) and (Path(policy) / POLICY_FILE).is_file()
    }
