"""The board of a frontier: what each policy costs at equal lateness, cell by cell."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from dsp_gym.errors import MissingExtraError
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.estimate import (
    BootstrapEstimate,
    PolicyFrontier,
    PricedPolicy,
    cheapest_settings,
    estimate_cell,
    price_cell,
)
from dsp_gym.evaluation.frontier.play import CellRuns, entrants
from dsp_gym.evaluation.report import number, percent
from dsp_gym.evaluation.run import PLAN
from dsp_gym.pages import COLOURS, INK, Html, details, figure, page, section, svg, table

__all__ = [
    "FrontierBoard",
    "board_of",
    "frontier_fingerprint",
    "headline",
    "render_html",
    "render_json",
    "render_markdown",
    "terminal_rows",
]

SCHEMA = "dsp-gym/frontier/1"

TITLES = {
    "unseen-jobs-unseen-loads": "Unseen jobs, unseen generated loads",
    "unseen-jobs-recorded-loads": "Unseen jobs, recorded loads",
    "unseen-jobs-seen-loads": "Unseen jobs, seen families of load",
    "seen-jobs-unseen-loads": "Seen jobs, unseen generated loads",
    "seen-jobs-recorded-loads": "Seen jobs, recorded loads",
    "seen-jobs-seen-loads": "Seen jobs, seen families of load",
}
"""Headings of the cells."""


@dataclass(frozen=True, slots=True)
class BoardCell:
    """The policies in one cell."""

    runs: CellRuns
    frontiers: tuple[PolicyFrontier, ...]
    priced: tuple[PricedPolicy, ...]  # none where no seen runs chose a setting

    @property
    def title(self) -> str:
        """The heading of the cell."""
        return TITLES[self.runs.cell]


@dataclass(frozen=True, slots=True)
class FrontierBoard:
    """All cells that were played."""

    name: str
    config: FrontierConfig
    fingerprint: str
    cells: tuple[BoardCell, ...]
    left_out: dict[str, str]  # reason by cell
    versions: dict[str, str]


class _Level(NamedTuple):
    """The lateness of the columns with intervals."""

    share: float

    @property
    def text(self) -> str:
        return f"{percent(self.share)} %"


def frontier_fingerprint(config: FrontierConfig) -> str:
    """Hashes everything that the runs and comparisons depend on, policies left out.

    Returns:
        16 hexadecimal digits.
    """
    someone = entrants(config.policies[0])[:1]
    cells = {cell.name: fingerprint(config.benchmark(cell, someone)) for cell in config.cells()}
    document = {"cells": cells, "lateness": config.lateness, "late_weight": config.late_weight}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def board_of(
    name: str,
    config: FrontierConfig,
    played: Sequence[CellRuns],
    left_out: Mapping[str, str],
    versions: Mapping[str, str],
) -> FrontierBoard:
    """Estimates every cell.

    Args:
        name: Of the frontier.
        config: The frontier.
        played: The cells that were played.
        left_out: Reason for each cell that was not, by its name.
        versions: What the numbers depend on beside the config.

    Returns:
        The board, the cells in the order of the config.
    """
    seen = [runs for runs in played if runs.cell == "seen-jobs-seen-loads"]
    chosen = cheapest_settings(seen[0], config.late_weight) if seen else None
    cells = []
    for runs in played:
        frontiers = estimate_cell(
            runs, config.lateness, resamples=config.bootstrap, confidence=config.confidence
        )
        priced: tuple[PricedPolicy, ...] = ()
        if chosen is not None:
            priced = price_cell(
                runs,
                chosen,
                config.late_weight,
                resamples=config.bootstrap,
                confidence=config.confidence,
            )
        cells.append(BoardCell(runs, frontiers, priced))
    return FrontierBoard(
        name, config, frontier_fingerprint(config), tuple(cells), dict(left_out), dict(versions)
    )


def _level(config: FrontierConfig) -> _Level:
    """The middle one of the levels: its columns have intervals."""
    levels = sorted(config.lateness)
    return _Level(levels[len(levels) // 2])


def headline(board: FrontierBoard) -> str:
    """The result in one sentence: the cheapest policy of the first cell that no load told.

    Returns:
        A sentence; it says so where no policy reaches the lateness.
    """
    level, cell = _level(board.config), board.cells[0]
    able = [(one, one.cost[level.share]) for one in cell.frontiers if one.policy != PLAN]
    known = [(one, cost) for one, cost in able if cost is not None]
    where = cell.title[0].lower() + cell.title[1:]
    if not known:
        return f"No policy is late at most {level.text} of the time on {where}."
    best, cost = min(known, key=lambda pair: pair[1].value)
    text = f"On {where}, {best.policy} is the cheapest at {level.text} late: {number(cost.value)}"
    ratio = best.ratio[level.share]
    if best.rule or ratio is None:
        return f"{text} per day."
    return f"{text} per day, {percent(1 - ratio.value)} % less than the best tuned rule."


def _head(config: FrontierConfig) -> tuple[str, ...]:
    level = _level(config)
    costs = tuple(f"{percent(share)} % late" for share in config.lateness)
    return (
        "policy",
        *costs,
        f"of the best rule, {level.text}",
        f"gap closed, {level.text}",
        f"above {PLAN}, {level.text}",
        f"worst 5 % late, {level.text}",
    )


def _rows(cell: BoardCell, config: FrontierConfig) -> list[tuple[str, ...]]:
    level = _level(config).share
    ordered = sorted(
        cell.frontiers,
        key=lambda one: (
            one.policy != PLAN,
            cost.value if (cost := one.cost[level]) is not None else float("inf"),
        ),
    )
    rows = []
    for one in ordered:
        worst = one.worst[level]
        rows.append(
            (
                f"{one.policy} (tuned rule)" if one.rule else one.policy,
                *(_shown(one.cost[share], interval=share == level) for share in config.lateness),
                _shown(one.ratio[level], interval=True),
                _shown(one.closed[level], 100.0, " %", interval=True),
                _shown(one.regret[level], 100.0, " %"),
                "–" if worst is None else f"{percent(worst)} %",
            )
        )
    return rows


def _shown(
    estimate: BootstrapEstimate | None, factor: float = 1.0, unit: str = "", interval: bool = False
) -> str:
    if estimate is None:
        return "–"
    value, low, high = (number(factor * part) for part in estimate)
    return f"{value}{unit} [{low}, {high}]" if interval and low != high else f"{value}{unit}"


PRICE_HEAD = ("", "policy", "setting", "price", "runs cheaper than the best rule's")


def _price_rows(cell: BoardCell) -> list[tuple[str, ...]]:
    ranked = [one for one in cell.priced if one.policy != PLAN]
    places = {one.policy: str(place) for place, one in enumerate(ranked, 1)}
    return [
        (
            places.get(one.policy, "–"),
            one.policy,
            "–" if one.value is None else f"{one.value:g}",
            _shown(one.price, interval=True),
            "–" if one.better is None else f"{100 * one.better:.0f} %",
        )
        for one in cell.priced
    ]


def terminal_rows(
    cell: BoardCell, config: FrontierConfig
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table of one cell as a terminal has room for it.

    Returns:
        Columns, and rows of text.
    """
    head, rows = _head(config), _rows(cell, config)
    keep = len(config.lateness) + 3  # the policy, its costs, and both comparisons
    return head[:keep], [row[:keep] for row in rows]


def _explained(board: FrontierBoard) -> list[str]:
    config = board.config
    rules = ", ".join(policy.name for policy in config.policies if policy.rule)
    level = _level(config)
    return [
        f"Benchmark {board.name}, fingerprint {board.fingerprint}, dsp-gym "
        f"{board.versions.get('dsp-gym', '?')}. Every policy ran with each value of its own risk "
        "knob. A cost is read off its frontier where the mean late share is that of the column: "
        "money per job and day, the geometric mean over jobs. A dash: the policy is later at each "
        "of its settings.",
        f"The best rule is the cheapest at that lateness of {rules}. The gap closed is 0 % at the "
        f"best rule and 100 % at {PLAN}, which knows the load. The worst 5 % are the latest runs "
        f"at {level.text} mean lateness. In brackets {100 * config.confidence:g} % bootstrap "
        "intervals over jobs and loads.",
        f"The price is money plus {config.late_weight:g} times the late share, in costs of the "
        "job's reference configuration; each policy runs at the setting that was cheapest on seen "
        "jobs and loads.",
    ]


def _played(cell: BoardCell) -> str:
    runs = cell.runs
    count = len(runs.jobs) * len(runs.loads) * len(runs.seeds)
    return (
        f"{len(runs.jobs)} jobs under {', '.join(runs.loads)}, {len(runs.seeds)} seed"
        f"{'s' if len(runs.seeds) > 1 else ''}: {count} runs for each setting."
    )


def render_json(board: FrontierBoard) -> str:
    """The board as one document, without the single runs.

    Returns:
        JSON, keys sorted, a newline at its end.
    """
    document = {
        "schema": SCHEMA,
        "name": board.name,
        "fingerprint": board.fingerprint,
        "config": board.config.model_dump(mode="json", by_alias=True),
        "versions": board.versions,
        "left_out": board.left_out,
        "cells": [
            {
                "cell": cell.runs.cell,
                "jobs": cell.runs.jobs,
                "loads": cell.runs.loads,
                "seeds": cell.runs.seeds,
                "policies": [_named(asdict(one)) for one in cell.frontiers],
                "by_price": [_named(asdict(one)) for one in cell.priced],
            }
            for cell in board.cells
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _named(value: object) -> object:
    """Named tuples as mappings, and levels of lateness as text keys."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _named(part) for key, part in value._asdict().items()}
    if isinstance(value, dict):
        return {
            f"{key:g}" if isinstance(key, float) else key: _named(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_named(part) for part in value]
    return value


def render_markdown(board: FrontierBoard) -> str:
    """The page of the documentation.

    Returns:
        Markdown text.
    """
    parts = [
        f"# Costs at equal lateness: {board.name}",
        f"<!-- Written by `dsp-gym leaderboard {board.name}`; do not edit. -->",
        headline(board),
    ]
    for cell in board.cells:
        parts += [
            f"## {cell.title}",
            _markdown(_head(board.config), _rows(cell, board.config)),
            _played(cell),
        ]
        if cell.priced:
            parts += ["By price, late time priced in:", _markdown(PRICE_HEAD, _price_rows(cell))]
    parts += [f"## Left out\n\n{TITLES[name]}: {reason}" for name, reason in board.left_out.items()]
    parts += ["## How to read this", *_explained(board)]
    return "\n\n".join(parts) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render_html(board: FrontierBoard) -> str:
    """The same page with a figure for each cell.

    Returns:
        HTML without outside references; without figures where Matplotlib is not installed.
    """
    parts: list[str] = [headline(board)]
    for cell in board.cells:
        inside: list[str] = []
        with contextlib.suppress(MissingExtraError):
            inside.append(_drawn(cell, board.config))
        inside += [table(_head(board.config), _rows(cell, board.config)), _played(cell)]
        if cell.priced:
            inside.append(details("By price", table(PRICE_HEAD, _price_rows(cell))))
        parts.append(section(cell.title, *inside))
    if board.left_out:
        reasons = [(TITLES[name], reason) for name, reason in board.left_out.items()]
        parts.append(section("Left out", table(("cell", "reason"), reasons, prose=True)))
    parts.append(section("How to read this", *_explained(board)))
    return page(f"Costs at equal lateness: {board.name}", *parts)


def _drawn(cell: BoardCell, config: FrontierConfig) -> Html:
    """Cost against lateness, a line for each policy."""
    with figure(
        8.0, 4.6, salt=f"frontier {cell.runs.cell}", extra="train", purpose="drawing the frontiers"
    ) as drawn:
        axis = drawn.subplots()
        for place, one in enumerate(cell.frontiers):
            points = sorted(one.points, key=lambda point: point.late)
            knows = one.policy == PLAN
            axis.plot(
                [100 * point.late for point in points],
                [point.cost for point in points],
                color=INK if knows else COLOURS[place % len(COLOURS)],
                ls=":" if knows else "-" if not one.rule else "--",
                marker="o",
                ms=3,
                lw=1.2,
                label=one.policy,
            )
        for level in config.lateness:
            axis.axvline(100 * level, color="#e6e8ec", lw=0.8, zorder=0)
        axis.set_xscale("log")
        axis.set_xlabel("late, % of the time")
        axis.set_ylabel("cost per day, geometric mean over jobs")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        return svg(drawn, f"cost against lateness of every policy: {cell.title}")
