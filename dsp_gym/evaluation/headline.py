"""What a scorecard says in one sentence, and the order of its policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.evaluation.config import BOUND, BenchmarkConfig
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.scorecard import Scorecard, ScorecardCell, ScorecardRow

__all__ = ["KNOWING", "first_shown", "headline", "largest_late_share", "own", "ranked"]

KNOWING = (BOUND, PLAN)
"""Labels of the bound and the plan, which know the load."""

ALIKE = 0.005
"""Costs this near are called the same."""


@dataclass(frozen=True, slots=True)
class _Overall:
    """One policy over all jobs."""

    policy: str
    cost: float  # geometric mean over jobs, on a scale that all policies share
    late: float  # share of the time


def largest_late_share(scorecard: Scorecard) -> float:
    """The share of the time that the benchmark allows to be late.

    Returns:
        A share; the default where a scorecard of an earlier version does not say.
    """
    default: float = BenchmarkConfig.model_fields["max_slo_share"].default
    return float(scorecard.config.get("max_slo_share", default))


def own(scorecard: Scorecard) -> frozenset[str]:
    """Labels of the reader's own policies: those that came from a folder.

    Returns:
        The labels.
    """
    found = [
        (one.get("name", ""), one.get("policy")) for one in scorecard.config.get("policies", ())
    ]
    return frozenset(
        name for name, policy in found if isinstance(policy, str) and Path(policy).is_dir()
    )


def ranked(scorecard: Scorecard, job: str) -> tuple[ScorecardRow, ...]:
    """The policies of one job, best first.

    Returns:
        Those late no longer than allowed by their cost; then the others by their lateness; then
        those that know the load.
    """
    allowed = largest_late_share(scorecard)

    def place(row: ScorecardRow) -> tuple[int, float]:
        late, cost = row.metrics["slo_share"].value, row.metrics["cost"].value
        if row.policy in KNOWING:
            return 2, cost
        return (0, cost) if late <= allowed else (1, late)

    return tuple(sorted((scorecard.row(policy, job) for policy in scorecard.policies), key=place))


def first_shown(scorecard: Scorecard, job: str) -> frozenset[str]:
    """The policies that a reader compares first: the best, the reference and the reader's own.

    Returns:
        Their labels.
    """
    best = next(row.policy for row in ranked(scorecard, job))
    return own(scorecard) | {best, scorecard.reference or best}


def headline(scorecard: Scorecard) -> str:
    """The sentence for a reader in a hurry: the reader's own policy, or the best, and how it does.

    Returns:
        A sentence; "" where no policy but such as know the load took part.
    """
    overall = _overall(scorecard.cells)
    if not overall:
        return ""
    mine, allowed = own(scorecard), largest_late_share(scorecard)
    subject = next((one for one in _order(overall, allowed) if one.policy in mine), None)
    subject = subject or _order(overall, allowed)[0]
    reference = next((one for one in overall if one.policy == scorecard.reference), None)
    said = [_standing(subject, overall, allowed)]
    if reference is not None and reference.policy != subject.policy:
        said.insert(0, _against(subject, reference))
    return "; ".join(said) + "."


def _overall(cells: Sequence[ScorecardCell]) -> list[_Overall]:
    jobs = list(dict.fromkeys(cell.job for cell in cells))
    found = []
    for policy in dict.fromkeys(cell.policy for cell in cells if cell.policy not in KNOWING):
        of = [[c for c in cells if c.policy == policy and c.job == job] for job in jobs]
        costs = [np.mean([cell.metrics["cost"] for cell in one]) for one in of]
        late = [np.mean([cell.metrics["slo_share"] for cell in one]) for one in of]
        found.append(_Overall(policy, float(np.exp(np.mean(np.log(costs)))), float(np.mean(late))))
    return found


def _order(overall: Sequence[_Overall], allowed: float) -> list[_Overall]:
    return sorted(overall, key=lambda one: (0, one.cost) if one.late <= allowed else (1, one.late))


def _against(subject: _Overall, reference: _Overall) -> str:
    """Cost and lateness against the reference."""
    share = subject.cost / reference.cost - 1
    if abs(share) < ALIKE:
        cost = f"costs as much as {reference.policy}"
    else:
        cost = f"costs {_percent(abs(share))} {'less' if share < 0 else 'more'} than "
        cost += reference.policy
    late = f"is late {_percent(subject.late)} of the time against {_percent(reference.late)}"
    return f"{subject.policy} {cost} and {late}"


def _standing(subject: _Overall, overall: Sequence[_Overall], allowed: float) -> str:
    """Where the policy stands among all."""
    most = f"late at most {_percent(allowed)}"
    name = f"{subject.policy} is "
    if subject.late > allowed:
        return f"{name}late more than the {_percent(allowed)} allowed"
    best = _order(overall, allowed)[0]
    if best.policy == subject.policy:
        return f"{name}the cheapest of those {most}"
    return f"{best.policy} is the cheapest of those {most}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 0.1 else f"{100 * share:.0f} %"
