"""Runs what is missing of a validation, and compares it with the simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.errors import FlinkError
from dsp_gym.evaluation.validation import ComparedPolicy, Rescaling, ValidationConfig
from dsp_gym.studies.policies_on_flink.order import CaseFigures, PolicyFigures
from dsp_gym.studies.policies_on_flink.published import PublishedRun, PublishedRuns
from dsp_gym.studies.policies_on_flink.real import drive
from dsp_gym.studies.policies_on_flink.runs import (
    AROUND_S,
    KeptRuns,
    PlannedValidation,
    RealRun,
    ValidationCase,
    ValidationRun,
    outage_of,
)
from dsp_gym.studies.policies_on_flink.simulated import simulate

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
    with _Clusters(plan.config, home, up).ended() as clusters:
        for place, run in enumerate(missing):
            said = _Course(plan, missing[place:], run, tell)
            said()
            reason = _attempted(run, clusters, kept, driven, said)
            if reason is not None:
                failed[run.label] = reason
    return failed


def _attempted(
    run: ValidationRun, clusters: _Clusters, kept: KeptRuns, driven: Drive, said: _Course
) -> str | None:
    """Does a run, again if it fails; why it failed, or None."""
    reason = None
    for _ in range(ATTEMPTS):
        cluster = clusters.of(run.case.job.rescaling)
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


class _Course:
    """Tells of one run how much of everything is left."""

    def __init__(
        self, plan: PlannedValidation, missing: list[ValidationRun], run: ValidationRun, tell: Tell
    ) -> None:
        self._plan, self._missing, self._run, self._tell = plan, missing, run, tell
        self._began = time.monotonic()

    def __call__(
        self,
        seconds: float = 0.0,
        *,
        finished: RealRun | None = None,
        failure: str | None = None,
    ) -> None:
        plan, after = self._plan, self._missing[1:]
        is_over = finished is not None
        spent = time.monotonic() - self._began
        left_s = plan.seconds(after, self._run.case.job.rescaling)
        if not is_over:
            left_s += max(0.0, plan.config.seconds + AROUND_S - spent)
        total_s = plan.seconds(plan.runs)
        self._tell(
            ValidationProgress(
                run=self._run.label,
                done=len(plan.runs) - len(after) - (not is_over),
                runs=len(plan.runs),
                done_s=max(0.0, total_s - left_s),
                left_s=left_s,
                finished=finished,
                failure=failure,
            )
        )


class _Clusters:
    """One cluster at a time, of the scheduler that a run needs."""

    def __init__(
        self,
        config: ValidationConfig,
        home: Path,
        up: Callable[[ClusterSettings, Path], LocalCluster],
    ) -> None:
        self._config, self._home, self._up = config, home, up
        self._running: tuple[str, LocalCluster] | None = None

    def of(self, rescaling: Rescaling) -> LocalCluster:
        """Return the cluster for a way of rescaling; the other one is ended first."""
        if self._running is None or self._running[0] != rescaling:
            self._end()
            settings = self._config.cluster_of(rescaling)
            self._running = rescaling, self._up(settings, self._home / rescaling)
        return self._running[1]

    @contextmanager
    def ended(self) -> Iterator[_Clusters]:
        """No cluster runs when the block ends."""
        try:
            yield self
        finally:
            self._end()

    def _end(self) -> None:
        if self._running is not None:
            self._running[1].down()
            self._running = None


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
    found = []
    for case in plan.cases:
        tell(case.label)
        own = {one.name: tuple(_kept_of(plan, case, one, kept)) for one in plan.config.policies}
        outages_s = tuple(s for runs in own.values() for one in runs for s in one.outages_s)
        real: dict[str, tuple[RealRun | PublishedRun, ...]] = {**own}
        outage_s = outage_of(outages_s)
        if published is not None:
            earlier = published.of_case(case)
            real |= {name: earlier.get(name, ()) for name, runs in real.items() if not runs}
            outage_s = outage_s or published.outages_s.get(case.label)
        found.append(_compared(plan, case, real, outage_s))
    return found


def _kept_of(
    plan: PlannedValidation, case: ValidationCase, policy: ComparedPolicy, kept: KeptRuns
) -> Iterator[RealRun]:
    """Return the kept runs of a policy in a case."""
    for run in plan.runs:
        if run.case is case and run.policy is policy and (one := kept.read(run)) is not None:
            yield one


def _compared(
    plan: PlannedValidation,
    case: ValidationCase,
    real: Mapping[str, tuple[RealRun | PublishedRun, ...]],
    outage_s: tuple[float, float, float] | None,
) -> CaseFigures:
    """Return a case played by every policy, its outages drawn from those of its real runs."""
    config = plan.config
    price = config.late_price * case.reference_cost_per_s
    policies = []
    for policy in config.policies:
        simulated = tuple(
            simulate(config, case, policy, seed, outage_s) for seed in range(config.simulations)
        )
        policies.append(
            PolicyFigures(policy.name, policy.rule, real[policy.name], simulated, price)
        )
    return CaseFigures(case.with_outage(outage_s), tuple(policies))
