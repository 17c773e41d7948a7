"""What a scorecard says in one sentence, and the order of its policies.

Sentence, tables and ranks use one statistic: the mean over the runs of a job, and over several jobs
the geometric mean of the costs, so that a large job counts no more than a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.evaluation.config import BOUND, BenchmarkConfig
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.pages import percent

KNOWING = (BOUND, PLAN)
"""Labels of the bound and the plan, which know the load."""

ALIKE = 0.005
"""Costs this near are called the same."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy over some jobs."""

    policy: str
    cost: float  # of a run; over several jobs the geometric mean of their means
    late: float  # share of the time
    keeps: bool  # late no longer than the benchmark allows

    @property
    def place(self) -> tuple[int, float]:
        """Sort key: those that keep the bound by cost, the others by lateness, then the knowing."""
        if self.policy in KNOWING:
            return 2, self.cost
        return (0, self.cost) if self.keeps else (1, self.late)


def standings(scorecard: Scorecard, jobs: Sequence[str] = ()) -> tuple[Standing, ...]:
    """Rank the policies of a scorecard.

    Args:
        scorecard: The scorecard.
        jobs: Names of jobs; none: all.

    Returns:
        Those late no longer than allowed by their cost; then the others by their lateness; then
        those that know the load.
    """
    allowed, found = largest_late_share(scorecard), []
    for policy in scorecard.policies:
        rows = [scorecard.row(policy, job).metrics for job in jobs or scorecard.jobs]
        cost = float(np.exp(np.mean(np.log([row["cost"].value for row in rows]))))
        late = float(np.mean([row["slo_share"].value for row in rows]))
        found.append(Standing(policy, cost, late, late <= allowed))
    return tuple(sorted(found, key=lambda one: one.place))


def largest_late_share(scorecard: Scorecard) -> float:
    """Return the share of the time that the benchmark allows to be late.

    Returns:
        A share; the default where a scorecard of an earlier version does not say.
    """
    default: float = BenchmarkConfig.model_fields["max_slo_share"].default
    return float(scorecard.config.get("max_slo_share", default))


def own(scorecard: Scorecard) -> frozenset[str]:
    """Return the labels of the reader's own policies: those that came from a folder.

    Returns:
        The labels.
    """
    found = [
        (one.get("name", ""), one.get("policy")) for one in scorecard.config.get("policies", ())
    ]
    return frozenset(
        name for name, policy in found if isinstance(policy, str) and Path(policy).is_dir()
    )


def headline(scorecard: Scorecard) -> str:
    """Say in one sentence how the reader's own policy does, or the best one.

    Returns:
        A sentence; "" where no policy but such as know the load took part.
    """
    ranked = [one for one in standings(scorecard) if one.policy not in KNOWING]
    if not ranked:
        return ""
    mine, allowed = own(scorecard), percent(largest_late_share(scorecard))
    best = ranked[0]
    subject = next((one for one in ranked if one.policy in mine), best)
    reference = next((one for one in ranked if one.policy == scorecard.reference), subject)
    said = []
    if reference.policy != subject.policy:
        said.append(_against(subject, reference))
    if not subject.keeps:
        said.append(f"{subject.policy} is late more than the {allowed} % allowed")
    else:
        said.append(f"{best.policy} is the cheapest of those late at most {allowed} %")
    return "; ".join(said) + "."


def _against(subject: Standing, reference: Standing) -> str:
    """Return cost and lateness against the reference."""
    share = subject.cost / reference.cost - 1
    if abs(share) < ALIKE:
        cost = f"costs as much as {reference.policy}"
    else:
        cost = f"costs {percent(abs(share))} % {'less' if share < 0 else 'more'} than "
        cost += reference.policy
    late = f"is late {percent(subject.late)} % of the time against {percent(reference.late)} %"
    return f"{subject.policy} {cost} and {late}"
