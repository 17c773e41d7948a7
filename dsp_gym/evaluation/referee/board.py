"""The board of a referee: costs at equal lateness on the same triples, as a whole and by family."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.evaluation.fingerprint import ABOUT_A_JOB
from dsp_gym.evaluation.frontier.board import BoardCell, plain
from dsp_gym.evaluation.frontier.config import UNSHIFTED
from dsp_gym.evaluation.frontier.estimate import PolicyFrontier, estimate_cell, points_of
from dsp_gym.evaluation.frontier.pricing import prices_of
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.ledger import RefereeEvaluation
from dsp_gym.evaluation.referee.play import WHOLE, PlayedReferee, PlayedTriples, joined
from dsp_gym.evaluation.referee.triples import DrawnSet
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.statistics import BootstrapEstimate, Resampling, estimate_of
from dsp_gym.job.catalog import load_job
from dsp_gym.job.cost import one_currency
from dsp_gym.job.spec import CURRENCY

SCHEMA = "dsp-gym/referee/1"

GROUPS = {
    "known": "Families of load that policies were trained on",
    "generated": "Generated families of load that no policy was trained on",
    "recorded": "Recorded loads",
}
"""Headings of the groups of families, by what is known of them."""


class FamilyResult(NamedTuple):
    """A policy against the best tuned rule of one family, at the middle level of lateness."""

    family: str  # of loads, or a kind of jobs
    policy: str
    # Of the cost; the interval is as wide as the number of families asks for. None: one of the two
    # is later than the level at each of its settings.
    ratio: BootstrapEstimate | None
    later: bool  # the policy is, and a rule is not
    # Whether a kind has two jobs or more. With one job of each kind all resamples are alike, and
    # the interval has no width however much the ratio varies between jobs.
    has_spread: bool = True

    @property
    def loses(self) -> bool:
        """Whether the rule is cheaper beyond doubt, or the only one that is in time."""
        return self.later or (self.has_spread and self.ratio is not None and self.ratio.low > 1.0)

    @property
    def wins(self) -> bool:
        """Whether the policy is cheaper beyond doubt."""
        return self.has_spread and self.ratio is not None and self.ratio.high < 1.0


class BelowPlan(NamedTuple):
    """The jobs on which a policy costs less than the one that knows the load, at equal lateness."""

    policy: str
    jobs: tuple[str, ...]
    compared: int  # jobs on which both reach the lateness


@dataclass(frozen=True, slots=True)
class ShiftedResult:
    """A policy at its one setting under one shift, on the same triples as all others."""

    shift: str
    policy: str
    rule: bool
    cost: float  # per day, geometric mean
    late: float  # share of the time
    rescales: float  # per day
    ratio: BootstrapEstimate  # price over that of the best tuned rule under the shift
    dearer: BootstrapEstimate | None  # price over its own without a shift; None: it is that


@dataclass(frozen=True, slots=True)
class RefereeBoard:
    """Everything that a referee found."""

    name: str
    config: RefereeConfig
    drawn: DrawnSet
    fingerprint: str
    cells: tuple[BoardCell, ...]  # all triples, then the groups of families
    families: tuple[FamilyResult, ...]
    below: tuple[BelowPlan, ...]
    shifts: tuple[ShiftedResult, ...]
    triples: tuple[tuple[str, str, str, int], ...]  # job, its kind, family of load, seed
    left_out: Mapping[str, str]  # reason by family
    versions: Mapping[str, str]
    evaluations: tuple[RefereeEvaluation, ...]  # of the test set, by anybody
    currency: str = CURRENCY


def referee_currency(config: RefereeConfig) -> str:
    """Return the currency that all costs of a referee are in.

    Returns:
        An ISO 4217 code.

    Raises:
        ConfigError: Its jobs have prices in two currencies.
    """
    if config.prices is not None:
        return config.prices.currency
    return one_currency(load_job(name) for kind in config.jobs for name in kind.named)


def referee_fingerprint(config: RefereeConfig) -> str:
    """Hash everything that the runs and comparisons depend on, policies and seeds left out.

    Returns:
        16 hexadecimal digits.
    """
    document = config.model_dump(
        mode="json",
        by_alias=True,
        exclude={
            **dict.fromkeys(("description", "policies", "ledger", "bootstrap", "confidence"), True),
            "simulation": {"threads", "trace", "quiet_strides"},
            "shifts": {"policies"},
        },
    )
    document["named"] = [
        load_job(name).model_dump(mode="json", by_alias=True, exclude=ABOUT_A_JOB)
        for kind in config.jobs
        for name in kind.named
    ]
    text = json.dumps(document, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def board_of_referee(
    name: str,
    config: RefereeConfig,
    drawn: DrawnSet,
    played: PlayedReferee,
    versions: Mapping[str, str],
    evaluations: Sequence[RefereeEvaluation] = (),
) -> RefereeBoard:
    """Estimate what was played.

    Args:
        name: Of the referee.
        config: The referee.
        drawn: The set of triples.
        played: The runs.
        versions: What the numbers depend on beside the config.
        evaluations: Earlier ones of the test set, and this one.

    Returns:
        The board.
    """
    cells: list[BoardCell] = []
    families: tuple[FamilyResult, ...] = ()
    below: tuple[BelowPlan, ...] = ()
    triples: tuple[tuple[str, str, str, int], ...] = ()
    if played.families:
        whole = joined(WHOLE, list(played.families.values()))
        triples = tuple((one.job, one.kind, one.family, one.seed) for one in whole.triples)
        cells = [_cell(part, config) for part in (whole, *_groups(whole, config))]
        families = _family_results(whole, config)
        below = _below_plan(cells[0].frontiers, _level(config))
    return RefereeBoard(
        name=name,
        config=config,
        drawn=drawn,
        fingerprint=referee_fingerprint(config),
        cells=tuple(cells),
        families=families,
        below=below,
        shifts=_shifted(played.shifts, config),
        triples=triples,
        left_out=played.left_out,
        versions=dict(versions),
        evaluations=tuple(evaluations),
        currency=referee_currency(config),
    )


def _level(config: RefereeConfig) -> float:
    levels = sorted(config.lateness)
    return levels[len(levels) // 2]


def _draws(part: PlayedTriples, config: RefereeConfig) -> Resampling:
    """Resample jobs, each with all its triples, within their kinds."""
    return Resampling.of_clusters(
        [triple.job for triple in part.triples],
        [triple.kind for triple in part.triples],
        config.bootstrap,
    )


def _estimated(
    part: PlayedTriples, config: RefereeConfig, confidence: float
) -> tuple[PolicyFrontier, ...]:
    return estimate_cell(
        part.runs,
        config.lateness,
        resamples=config.bootstrap,
        confidence=confidence,
        draws=_draws(part, config),
        of_jobs=[triple.job for triple in part.triples],
    )


def _cell(part: PlayedTriples, config: RefereeConfig) -> BoardCell:
    return BoardCell(part.runs, _estimated(part, config, config.confidence), ())


def _part(whole: PlayedTriples, name: str, places: Iterable[int]) -> PlayedTriples | None:
    chosen = list(places)
    return whole.take(name, chosen) if chosen else None


def _groups(whole: PlayedTriples, config: RefereeConfig) -> list[PlayedTriples]:
    """Return the groups of families that were played, where there is more than one."""
    of = {family.name: family.group for family in config.loads}
    found = [
        _part(whole, title, (k for k, one in enumerate(whole.triples) if of[one.family] == group))
        for group, title in GROUPS.items()
    ]
    parts = [one for one in found if one is not None]
    return parts if len(parts) > 1 else []


def _family_results(whole: PlayedTriples, config: RefereeConfig) -> tuple[FamilyResult, ...]:
    """Compare with the best rule of each family of load and of each kind of jobs, singly."""
    names = [family.name for family in config.loads] + [kind.name for kind in config.jobs]
    parts = [
        part for name in names if (part := _part(whole, name, _places(whole, name))) is not None
    ]
    # Bonferroni: with so many families one interval in twenty would be above 1 by chance.
    confidence = 1 - (1 - config.confidence) / max(1, len(parts))
    level, found = _level(config), []
    for part in parts:
        frontiers = _estimated(part, config, confidence)
        reached = any(one.rule and one.cost[level] is not None for one in frontiers)
        for one in frontiers:
            if not one.rule:
                later = reached and one.cost[level] is None
                ratio, has_spread = one.ratio[level], _has_spread(part)
                found.append(FamilyResult(part.runs.cell, one.policy, ratio, later, has_spread))
    return tuple(found)


def _has_spread(part: PlayedTriples) -> bool:
    """Return whether some kind has two jobs or more, which a resample can exchange."""
    jobs = {(triple.kind, triple.job) for triple in part.triples}
    return len(jobs) > len({kind for kind, _ in jobs})


def _places(whole: PlayedTriples, name: str) -> Iterator[int]:
    return (k for k, one in enumerate(whole.triples) if name in (one.family, one.kind))


def _below_plan(frontiers: Sequence[PolicyFrontier], level: float) -> tuple[BelowPlan, ...]:
    plan = next((one.by_job for one in frontiers if one.policy == PLAN), None)
    if plan is None:
        return ()
    found = []
    for one in frontiers:
        if one.policy == PLAN:
            continue
        pairs = {
            job: (cost, least)
            for job, costs in one.by_job.items()
            if (cost := costs[level]) is not None and (least := plan[job][level]) is not None
        }
        cheaper = tuple(job for job, (cost, least) in pairs.items() if cost < least)
        found.append(BelowPlan(one.policy, cheaper, len(pairs)))
    return tuple(found)


def _shifted(
    played: Mapping[str, PlayedTriples], config: RefereeConfig
) -> tuple[ShiftedResult, ...]:
    """Compare policies under shifts by price, on the same triples."""
    found: list[ShiftedResult] = []
    before: dict[str, Floats] = {}
    for shift, part in played.items():
        weights = _draws(part, config).jobs
        logs = {
            one.policy: weights
            @ np.log(prices_of(one, part.runs, config.late_weight)[0].mean(axis=(1, 2, 3)))
            for one in part.runs.policies
        }
        best = min(
            (one.policy for one in part.runs.policies if one.rule),
            key=lambda name: float(logs[name][0]),
        )
        if shift == UNSHIFTED:
            before = logs
        for one in part.runs.policies:
            ratio = estimate_of(np.exp(logs[one.policy] - logs[best]), config.confidence)
            assert ratio is not None  # prices are finite
            point = points_of(one)[0]
            own = before.get(one.policy) if shift != UNSHIFTED else None
            found.append(
                ShiftedResult(
                    shift=shift,
                    policy=one.policy,
                    rule=one.rule,
                    cost=point.cost,
                    late=point.late,
                    rescales=point.rescales,
                    ratio=ratio,
                    dearer=None
                    if own is None
                    else estimate_of(np.exp(logs[one.policy] - own), config.confidence),
                )
            )
    return tuple(found)


def figures_of_referee(board: RefereeBoard) -> Iterator[tuple[str, float]]:
    """List the figures of a referee's tables.

    Args:
        board: The board.

    Yields:
        Values by group, policy and figure; what a policy does not reach is left out.
    """
    for cell in board.cells:
        for one in cell.frontiers:
            for what in ("cost", "ratio", "closed"):
                for level, estimate in getattr(one, what).items():
                    if estimate is not None:
                        name = f"{cell.runs.cell}/{one.policy}/{what}_at_{100 * level:g}_percent"
                        yield f"{name}_late", estimate.value
    for shifted in board.shifts:
        yield f"shifts/{shifted.shift}/{shifted.policy}/ratio", shifted.ratio.value
        yield f"shifts/{shifted.shift}/{shifted.policy}/late", shifted.late


def summary_of(board: RefereeBoard) -> dict[str, float]:
    """Return the figures that the ledger keeps: of all triples, at the middle level of lateness.

    Args:
        board: The board.

    Returns:
        Ratios to the best tuned rule and shares of the gap that is closed, by policy.
    """
    level = _level(board.config)
    found: dict[str, float] = {}
    for one in board.cells[0].frontiers if board.cells else ():
        for what in ("ratio", "closed"):
            estimate = getattr(one, what)[level]
            if estimate is not None:
                found[f"{one.policy}/{what}"] = round(estimate.value, 4)
    return found


def render_referee_json(board: RefereeBoard, command: str | None = None) -> str:
    """Return the board as one document, without the single runs.

    Args:
        board: The board.
        command: The line that made it; None: not told.

    Returns:
        JSON, keys sorted, a newline at its end.
    """
    triples = [
        dict(zip(("job", "kind", "family", "seed"), one, strict=True)) for one in board.triples
    ]
    document = {
        "schema": SCHEMA,
        "name": board.name,
        "fingerprint": board.fingerprint,
        "set": board.drawn.name,
        "commit": board.drawn.commit,
        "key_sha256": board.drawn.key_hash,
        "command": command,
        "config": board.config.model_dump(mode="json", by_alias=True),
        "currency": board.currency,
        "versions": board.versions,
        "left_out": board.left_out,
        "triples": triples,
        "cells": [
            {"cell": cell.runs.cell, "policies": [plain(asdict(one)) for one in cell.frontiers]}
            for cell in board.cells
        ],
        "families": [plain(one) for one in board.families],
        "below_clairvoyant": [plain(one) for one in board.below],
        "shifts": [plain(asdict(one)) for one in board.shifts],
        "evaluations": [one.model_dump(mode="json", by_alias=True) for one in board.evaluations],
    }
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
