"""Playing a benchmark, a frontier or a referee; all give results of the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

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
from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
from dsp_gym.evaluation.frontier.entry import SubmittedEntry, unlike
from dsp_gym.evaluation.frontier.page import report_of as report_of_board
from dsp_gym.evaluation.frontier.play import SHIFTS, decisions_in, play_frontier
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.referee.board import (
    board_of_referee,
    figures_of_referee,
    referee_currency,
    referee_fingerprint,
    render_referee_json,
    summary_of,
)
from dsp_gym.evaluation.referee.commit import commit_under_evaluation
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.ledger import Ledger, RefereeEvaluation
from dsp_gym.evaluation.referee.page import report_of_referee
from dsp_gym.evaluation.referee.play import RefereeRuns, play_referee
from dsp_gym.evaluation.referee.triples import DrawnSet
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
            policies=_trainings(board.config.policies),
            warnings=(
                *(f"{cell} is left out: {why}" for cell, why in board.left_out.items()),
                *unlike(self.entries, board),
            ),
        )


@dataclass(frozen=True, slots=True)
class RefereeComparison:
    """Every policy at every setting of its knob on triples drawn from a key."""

    name: str
    config: RefereeConfig
    command: str
    drawn: DrawnSet
    asked: RefereeRuns
    ledger: Ledger | None = None  # of test sets; None: of another set

    @classmethod
    def of(cls, name: str, config: RefereeConfig, command: str, part: RefereePart) -> Self:
        """Draw the triples of a part of a referee.

        Args:
            name: Of the referee.
            config: The referee.
            command: The line that asks for it.
            part: What to play.

        Returns:
            A comparison that can be played.

        Raises:
            ConfigError: A test set of a changed tree, or a family that does not exist.
        """
        drawn, ledger = DrawnSet.development(config.development), None
        if part.key is not None:
            drawn = DrawnSet.own(part.key)
        elif part.test:
            commit = commit_under_evaluation(config.ledger)
            drawn = DrawnSet.test(referee_fingerprint(config), commit.hash)
            ledger = Ledger(commit.root / config.ledger)
        asked = RefereeRuns.of(config, drawn, part.families, part.each)
        return cls(name, config, command, drawn, asked, ledger)

    @property
    def folder(self) -> Path:
        """Folder of the results where no other one is named."""
        return RUNS / "referees" / self.name / self.drawn.name

    @property
    def decisions(self) -> int:
        """Decisions of all runs."""
        return self.asked.decisions(self.config)

    def play(self, engine: Engine, told: OnRuns | None, kept: KeptResults | None) -> Results:
        """Play all runs; an evaluation of a test set gets its lines in the ledger.

        Returns:
            The results, with the board as `results.json` and the runs of each family in `runs/`.
        """
        referee_currency(self.config)  # refuses two currencies before anything is played
        if self.ledger is not None:
            self.ledger.begin(self._line("begun", {}))
        played = play_referee(self.config, self.asked, engine=engine, told=told, kept=kept)
        board = board_of_referee(self.name, self.config, self.drawn, played, versions(()))
        if self.ledger is not None:
            self.ledger.append(self._line("finished", summary_of(board)))
            board = replace(board, evaluations=self.ledger.read())
        report = report_of_referee(board, self.command)
        parts = {**played.families, **{f"shift-{k}": one for k, one in played.shifts.items()}}
        runs = {
            f"runs/{name}.json": one.runs.model_dump_json(by_alias=True)
            for name, one in parts.items()
        }
        return Results(
            kind="referee",
            report=report,
            files={
                **runs,
                "results.json": render_referee_json(board, self.command),
                **_pages(report),
            },
            config=self.config.model_dump(mode="json", by_alias=True),
            figures=dict(figures_of_referee(board)),
            tags={"fingerprint": board.fingerprint, "set": self.drawn.name, **board.versions},
            policies=_trainings(self.config.policies),
            warnings=tuple(f"{name} is left out: {why}" for name, why in board.left_out.items()),
        )

    def _line(
        self, status: Literal["begun", "finished"], results: Mapping[str, float]
    ) -> RefereeEvaluation:
        families = (*self.asked.families, *([SHIFTS] if self.asked.shifted else []))
        return RefereeEvaluation(
            status=status,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=str(self.drawn.commit),
            fingerprint=referee_fingerprint(self.config),
            key_sha256=self.drawn.key_hash,
            policies=tuple(one.name for one in self.config.policies),
            families=families,
            triples=sum(map(len, self.asked.families.values())),
            results=dict(results),
        )


@dataclass(frozen=True, slots=True)
class RefereePart:
    """The part of a referee that a command line asks for."""

    test: bool = False  # the test set of the present commit; else the development set
    key: Path | None = None  # a file whose content is the key; None: the set above
    families: tuple[str, ...] = ()  # families of load, and `shifts`; none: everything
    each: int | None = None  # most triples of each kind of jobs in each family; None: all


def _trainings(policies: Iterable[SweptPolicy]) -> dict[str, Path]:
    """Return the folders of trained policies, by label and number of the training."""
    return _folders(
        (f"{entry.name}-{number}", one)
        for entry in policies
        for number, one in enumerate((entry.policy, *entry.trainings), start=1)
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
