"""Runs what is missing of a validation, and compares it with the simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.errors import FlinkError
from dsp_gym.studies.policies_on_flink.loop import simulate
from dsp_gym.studies.policies_on_flink.order import CaseFigures, PolicyFigures, PublishedRuns
from dsp_gym.studies.policies_on_flink.real import drive
from dsp_gym.studies.policies_on_flink.runs import (
    AROUND_S,
    KeptRuns,
    PlannedValidation,
    RealRun,
    ValidationRun,
    outage_of,
)

ATTEMPTS = 2
"""A run that fails is tried once more: slots of a predecessor may not have been free yet."""


@dataclass(frozen=True, slots=True)
class ValidationProgress:
    """How far the real runs are."""

    run: str
    done: int
    runs: int
    done_s: float
    left_s: float
    finished: RealRun | None = None  # the run, when it is over
    failure: str | None = None  # why it failed, when it did


Tell = Callable[[ValidationProgress], None]
Drive = Callable[[ValidationRun, LocalCluster, KeptRuns, Callable[[float], None]], RealRun]


def run_missing(
    plan: PlannedValidation,
    kept: KeptRuns,
    home: Path,
    tell: Tell = lambda progress: None,
    *,
    driven: Drive = drive,
    up: Callable[[ClusterSettings, Path], LocalCluster] = LocalCluster.up,
) -> dict[str, str]:
    """Do the real runs that are not kept, each kept as soon as it is over.

    Args:
        plan: All runs.
        kept: Those that are there.
        home: Folder of the clusters, which are started and ended.
        tell: Told how far it is.
        driven: Does one run.
        up: Starts a cluster in a folder.

    Returns:
        Reason by run for those that failed twice.

    Raises:
        FlinkError: A cluster cannot be started.
    """
    missing = [run for run in plan.runs if kept.read(run) is None]
    failed: dict[str, str] = {}
    for rescaling in ("savepoint", "in-place"):  # a program that was killed left its cluster
        if (left := LocalCluster.find(home / rescaling)) is not None:
            left.down()
    # One cluster at a time, of the scheduler that the runs need.
    for rescaling, runs in groupby(
        enumerate(missing, 1), key=lambda one: one[1].case.job.rescaling
    ):
        with ExitStack() as ends:
            cluster = up(plan.config.cluster_of(rescaling), home / rescaling)
            ends.callback(cluster.down)
            for place, run in runs:
                said = partial(_say, plan, run, missing[place:], time.monotonic(), tell)
                said()
                reason = _attempted(run, cluster, kept, driven, said)
                if reason is not None:
                    failed[run.label] = reason
    return failed


def _attempted(
    run: ValidationRun,
    cluster: LocalCluster,
    kept: KeptRuns,
    driven: Drive,
    said: Callable[..., None],
) -> str | None:
    """Do a run, again if it fails; why it failed, or None."""
    reason = None
    for _ in range(ATTEMPTS):
        try:
            result = driven(run, cluster, kept, said)
        except FlinkError as error:
            reason = str(error)
            said(failure=reason)
            continue
        kept.write(run, result)
        said(finished=result)
        return None
    return reason


def _say(
    plan: PlannedValidation,
    run: ValidationRun,
    after: Sequence[ValidationRun],
    began_s: float,
    tell: Tell,
    seconds: float = 0.0,
    *,
    finished: RealRun | None = None,
    failure: str | None = None,
) -> None:
    """Tell of one run how much of everything is left."""
    left_s, total_s = plan.seconds(after, run.case.job.rescaling), plan.seconds(plan.runs)
    if finished is None:
        left_s += max(0.0, plan.config.seconds + AROUND_S - (time.monotonic() - began_s))
    tell(
        ValidationProgress(
            run=run.label,
            done=len(plan.runs) - len(after) - (finished is None),
            runs=len(plan.runs),
            done_s=max(0.0, total_s - left_s),
            left_s=left_s,
            finished=finished,
            failure=failure,
        )
    )


def compared(
    plan: PlannedValidation,
    kept: KeptRuns,
    tell: Callable[[str], None] = lambda case: None,
    published: PublishedRuns | None = None,
) -> list[CaseFigures]:
    """Play every case in the simulation, with the outages that its real runs showed.

    Args:
        plan: The runs.
        kept: Those that are there.
        tell: Told of each case as it begins.
        published: Runs that stand for a policy's in a case where none is there.

    Returns:
        Real and simulated runs by case, in the order of the plan.
    """
    found, config = [], plan.config
    earlier = published or PublishedRuns({}, {})
    for case in plan.cases:
        tell(case.label)
        own: dict[str, list[RealRun]] = {policy.name: [] for policy in config.policies}
        for run in plan.runs:
            if run.case is case and (one := kept.read(run)) is not None:
                own[run.policy.name].append(one)
        outages_s = tuple(s for runs in own.values() for one in runs for s in one.outages_s)
        outage_s = outage_of(outages_s) or earlier.outages_s.get(case.label)
        others = earlier.cases.get(case.label, {})
        price = config.late_price * case.reference_cost_per_s
        policies = tuple(
            PolicyFigures(
                policy.name,
                policy.rule,
                tuple(own[policy.name]) or others.get(policy.name, ()),
                tuple(
                    simulate(config, case, policy, s, outage_s) for s in range(config.simulations)
                ),
                price,
            )
            for policy in config.policies
        )
        found.append(CaseFigures(case.with_outage(outage_s), policies))
    return found
