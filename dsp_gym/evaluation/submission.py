"""Playing one policy alone on a frontier, as an entry that others can play again."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dsp_gym.config.files import parse, read_yaml
from dsp_gym.engine import Engine
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.evaluation.comparison import FrontierComparison
from dsp_gym.evaluation.frontier.board import FrontierBoard, frontier_fingerprint
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.entry import ENTRY_NAME, EntryDocument, files_of, refuse_chance
from dsp_gym.evaluation.frontier.entry_page import entry_report
from dsp_gym.evaluation.frontier.published import published_cells
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.labels import label_of
from dsp_gym.evaluation.results import Report, Results, render_html, render_table
from dsp_gym.evaluation.run import OnRuns
from dsp_gym.policies.local_module import LocalPolicy, offer_local, parse_local_policy
from dsp_gym.policies.registry import POLICY_FILE

ENTRIES = Path("runs/entries")


class _Submitted(NamedTuple):
    """A policy as it was named."""

    policy: str
    code: LocalPolicy | None  # none: a folder

    @property
    def source(self) -> Path | None:
        """What goes into the entry: a folder, or the one file of a module of no package."""
        if self.code is None:
            return Path(self.policy)
        file = Path(sys.modules[self.code.module].__file__ or "")
        return file if file.stem == self.code.module else None

    def card(self, name: str) -> str:
        """Return the card of a trained policy, or what its code says about itself."""
        if self.code is not None:
            made = getattr(sys.modules[self.code.module], self.code.attribute)
            return f"# {name}\n\n{inspect.getdoc(made) or 'No description.'}"
        own = Path(self.policy) / "card.md"
        return own.read_text(encoding="utf-8").rstrip() if own.is_file() else f"# {name}"


@dataclass(frozen=True, slots=True)
class EntryComparison:
    """One policy on a frontier, without the frontier's own policies."""

    whole: FrontierComparison
    mine: SweptPolicy
    submitted: _Submitted

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.mine.name

    @property
    def folder(self) -> Path:
        """Folder of the entry where no other one is named."""
        return ENTRIES / self.whole.name / self.mine.name

    @property
    def decisions(self) -> int:
        """Decisions of all runs."""
        return self._alone().decisions

    def _alone(self) -> FrontierComparison:
        # Shifts are the board's.
        config = self.whole.config.model_copy(update={"policies": (self.mine,), "shifts": None})
        return replace(self.whole, config=config)

    def play(self, engine: Engine, told: OnRuns | None, kept: KeptResults | None) -> Results:
        """Play a short run twice, which must give the same, and then all runs.

        Returns:
            The files of the entry, and its costs.
        """
        alone = self._alone()
        refuse_chance(alone.config, self.mine)
        board = alone.board(engine, told, kept)
        document = self._document(board)
        report = entry_report(
            board, published_cells(self.whole.name, self.whole.config), self.whole.command
        )
        left = [f"- {cell} is left out: {why}" for cell, why in board.left_out.items()]
        head = f"## On {document.frontier} ({document.fingerprint})"
        lines = [self.submitted.card(self.name), "", head, "", *_card(report), *left]
        card = "\n".join([*lines, ""])
        return Results(
            kind="entry",
            report=report,
            files={
                **files_of(
                    document, [one.runs for one in board.cells], self.submitted.source, card
                ),
                "report.html": render_html(report),
            },
            config=board.config.model_dump(mode="json", by_alias=True),
            tags={"fingerprint": document.fingerprint, **board.versions},
            warnings=tuple(f"{cell} is left out: {why}" for cell, why in board.left_out.items()),
        )

    def _document(self, board: FrontierBoard) -> EntryDocument:
        costs = {
            cell.runs.cell: {
                f"{level:g}": None if cost is None else cost.value
                for level, cost in cell.frontiers[0].cost.items()
            }
            for cell in board.cells
        }
        code = self.submitted.code
        return EntryDocument(
            name=self.mine.name,
            frontier=board.name,
            fingerprint=frontier_fingerprint(self.whole.config),
            code=None if code is None else str(code),
            guardrails=self.mine.guardrails if isinstance(self.mine.guardrails, str) else None,
            knob=self.mine.knob[0] if self.mine.knob else None,
            values=self.mine.values,
            costs=costs,
            currency=board.currency,
            left_out=board.left_out,
            versions=board.versions,
        )


@contextmanager
def entry_comparison(whole: FrontierComparison, given: str) -> Iterator[EntryComparison]:
    """Prepare one policy for a frontier.

    Args:
        whole: The frontier.
        given: The folder of a trained policy, of which nothing is executed; `module:Policy`, which
            is imported; or a YAML file that names one of them, and its knob and guardrails.

    Yields:
        The comparison; within the block the registry knows the policy in code.

    Raises:
        ConfigError: The file is wrong, or the name is.
        PolicyError: It is neither a folder nor code.
    """
    file = Path(given) if Path(given).suffix in {".yaml", ".yml"} else None
    document = {"policy": given} if file is None else read_yaml(file)
    named = document.get("policy") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(named, str):
        raise ConfigError(
            "names no policy", file=file, key="policy", remedy="Write policy: FOLDER there."
        )
    code = parse_local_policy(named)
    if code is None and not (Path(named) / POLICY_FILE).is_file():
        raise PolicyError(
            "is neither the folder of a trained policy nor module:Policy",
            value=named,
            remedy="dsp-gym train makes a folder. For code: docs/guides/enter-the-leaderboard.md.",
        )
    label = label_of(Path(named).absolute())
    if code is not None:
        label = code.attribute.replace("_", "-").lower()
    name = str(document.get("name") or label)
    if not re.fullmatch(ENTRY_NAME, name):
        raise ConfigError(
            "is no name of an entry",
            file=file,
            key="name",
            value=name,
            remedy="Write a YAML file with policy and name; small letters, digits, '-' and '.'.",
        )
    policy = named if code is None else name
    with offer_local({} if code is None else {name: code}, [] if code is None else [Path.cwd()]):
        place = file or "--entry"
        mine = parse(SweptPolicy, {**document, "policy": policy, "name": name}, place)
        yield EntryComparison(whole, mine, _Submitted(named, code))


def _card(report: Report) -> Iterator[str]:
    """List what a card says of the runs: costs, every setting with its rank, and plots."""
    if report.headline:
        yield from (report.headline, "")
    for part in report.parts:
        if part.sketch:
            yield from (f"### {part.table.title}", "")
        yield from (render_table(part.table), "", *part.notes)
        if part.sketch:
            yield from ("", "```text", part.sketch, "```", "")
