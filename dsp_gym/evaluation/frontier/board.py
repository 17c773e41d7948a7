"""The board of a frontier: what each policy costs at equal lateness, cell by cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from dsp_gym.config.files import load_model, names
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.estimate import PolicyFrontier, estimate_cell
from dsp_gym.evaluation.frontier.play import CellRuns, PlayedFrontier, entrants
from dsp_gym.evaluation.frontier.pricing import (
    PricedPolicy,
    ShiftedPolicy,
    cheapest_settings,
    compare_shifts,
    price_cell,
)
from dsp_gym.job.catalog import load_job
from dsp_gym.job.cost import one_currency
from dsp_gym.job.spec import CURRENCY

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
        return TITLES.get(self.runs.cell, self.runs.cell)


@dataclass(frozen=True, slots=True)
class FrontierBoard:
    """All cells that were played."""

    name: str
    config: FrontierConfig
    fingerprint: str
    cells: tuple[BoardCell, ...]
    shifts: tuple[ShiftedPolicy, ...]  # none where no shift was played
    left_out: dict[str, str]  # reason by cell
    versions: dict[str, str]
    currency: str = CURRENCY  # of all costs


def currency_of(config: FrontierConfig) -> str:
    """Return the currency that all costs of a frontier are in.

    Returns:
        An ISO 4217 code.

    Raises:
        ConfigError: Its jobs have prices in two currencies.
    """
    if config.prices is not None:
        return config.prices.currency
    groups = config.jobs.seen, config.jobs.unseen
    return one_currency(load_job(name) for group in groups for name in group.names())


def frontier_fingerprint(config: FrontierConfig) -> str:
    """Hash everything that the runs and comparisons depend on, policies left out.

    Returns:
        16 hexadecimal digits.
    """
    someone = entrants(config.policies[0])[:1]
    cells = {cell.name: fingerprint(config.benchmark(cell, someone)) for cell in config.cells()}
    document: dict[str, object] = {
        "cells": cells,
        "lateness": config.lateness,
        "late_weight": config.late_weight,
    }
    if config.loads.tuning_seeds is not None:
        document["tuning"] = fingerprint(config.tuning_benchmark())
    if config.shifts is not None:
        document["shifts"] = {
            shift.name: fingerprint(config.shift_benchmark(shift, someone))
            for shift in config.shifts.all()
        }
        document["shift_seeds"] = config.shifts.seeds
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def whole_fingerprint(board: FrontierBoard) -> str | None:
    """Return the fingerprint of the shipped frontier that a board is a part of.

    Args:
        board: The board.

    Returns:
        16 hexadecimal digits; None where the board has all seeds, or another frontier was played.
    """
    if board.name not in names("frontiers"):
        return None
    whole = load_model(FrontierConfig, "frontiers", board.name)
    same = frontier_fingerprint(whole)
    if same == board.fingerprint:
        return None
    part = frontier_fingerprint(whole.with_seeds(board.config.seeds_per_load()))
    return same if part == board.fingerprint else None


def board_of(
    name: str,
    config: FrontierConfig,
    played: PlayedFrontier,
    versions: Mapping[str, str],
) -> FrontierBoard:
    """Estimate every cell.

    Args:
        name: Of the frontier.
        config: The frontier.
        played: Its runs.
        versions: What the numbers depend on beside the config.

    Returns:
        The board, the cells in the order of the config.
    """
    seen = [runs for runs in played.cells if runs.cell == "seen-jobs-seen-loads"]
    chosen = cheapest_settings(seen[0], config.late_weight) if seen else None
    cells = []
    for runs in played.cells:
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
    shifted = compare_shifts(
        played.shifts, config.late_weight, resamples=config.bootstrap, confidence=config.confidence
    )
    return FrontierBoard(
        name,
        config,
        frontier_fingerprint(config),
        tuple(cells),
        shifted,
        played.left_out,
        dict(versions),
        currency_of(config),
    )


def figures_of(board: FrontierBoard) -> Iterator[tuple[str, float]]:
    """List the figures of a frontier's tables.

    Args:
        board: The frontier.

    Yields:
        Values by cell or shift, policy and figure; what a policy does not reach is left out.
    """
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


def render_json(board: FrontierBoard, command: str | None = None) -> str:
    """Return the board as one document, without the single runs.

    Args:
        board: The board.
        command: The line that made it; None: not told.

    Returns:
        JSON, keys sorted, a newline at its end.
    """
    document = {
        "schema": SCHEMA,
        "name": board.name,
        "fingerprint": board.fingerprint,
        "part_of": whole_fingerprint(board),
        "command": command,
        "config": board.config.model_dump(mode="json", by_alias=True),
        "currency": board.currency,
        "versions": board.versions,
        "left_out": board.left_out,
        "shifts": [plain(asdict(one)) for one in board.shifts],
        "cells": [
            {
                "cell": cell.runs.cell,
                "jobs": cell.runs.jobs,
                "loads": cell.runs.loads,
                "seeds": cell.runs.seeds,
                "policies": [plain(asdict(one)) for one in cell.frontiers],
                "by_price": [plain(asdict(one)) for one in cell.priced],
            }
            for cell in board.cells
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def plain(value: object) -> object:
    """Make JSON of estimates: named tuples as mappings, levels of lateness as text keys.

    Args:
        value: Estimates, in mappings and sequences.

    Returns:
        Dictionaries and lists.
    """
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain(part) for key, part in value._asdict().items()}
    if isinstance(value, dict):
        return {
            f"{key:g}" if isinstance(key, float) else key: plain(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value
