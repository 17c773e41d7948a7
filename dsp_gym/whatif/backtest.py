"""A backtest: histories with their models, replayed with every policy, and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.gate import GateConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.engine import HERE, Engine, Tell
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.shipped_work import ShippedWork, ship
from dsp_gym.job.cost import one_currency, refuse_free
from dsp_gym.whatif.blocks import JobReplay, job_replay, shown_slots, thinned
from dsp_gym.whatif.claims import fleet_saving, model_errors, replayed_incumbent
from dsp_gym.whatif.history import JobHistory, distinct
from dsp_gym.whatif.kept import KeptReplays
from dsp_gym.whatif.model import fitted
from dsp_gym.whatif.policies import ReplayedPolicy, entrants_of_run
from dsp_gym.whatif.replay import SEEDS, HistoryReplay, JobWork
from dsp_gym.whatif.result import Backtest, FleetClaim, JobResult, Trust
from dsp_gym.whatif.verdict import VerdictTerms, judged

AT_ONCE = 200
"""Intervals between two words about progress."""

OnReplays = Callable[[str, float, int], None]
"""Told of progress: what is done, replays done (a part of one counts), replays in all."""


def work_of(
    history: JobHistory,
    named: Sequence[ReplayedPolicy] | None,
    seeds: int = SEEDS,
    incumbent: ReplayedPolicy | None = None,
) -> tuple[JobWork, dict[str, str]]:
    """Choose the policies of a history: those that are named, else those watched beside the job.

    The incumbent, if a policy takes the place of the deployed configurations, comes first.

    Returns:
        The work, and by name why a watched policy cannot be made here.

    Raises:
        ConfigError: No policy is named and none was watched; or one is the incumbent, too.
    """
    failures: dict[str, str] = {}
    if named is not None:
        entrants = tuple(named)
    elif history.watched is None:
        raise ConfigError(
            f"job '{history.name}': no policy was watched beside it",
            remedy="Name the policies: --policies ds2,planner",
        )
    else:
        entrants, failures = entrants_of_run(history.watched.config)
    if incumbent is not None:
        if incumbent.label in (one.label for one in entrants):
            raise ConfigError(
                "is one of the policies, which cannot replace itself",
                key="incumbent",
                value=incumbent.label,
                remedy="Name the other policies alone: --policies ds2,planner",
            )
        entrants = (incumbent, *entrants)
    return JobWork(history, entrants, seeds), failures


def terms_of(history: JobHistory, incumbent: str = INCUMBENT) -> VerdictTerms:
    """The bounds under which a job's policies are judged: those of its run, else the defaults.

    Returns:
        Bounds of the evidence and of the model's error.
    """
    watched = history.watched
    gate = GateConfig() if watched is None else watched.config.gate
    return VerdictTerms(gate, Trust(), incumbent)


def decisions_of(work: Sequence[JobWork]) -> int:
    """Count the decisions of all replays, the deployed one among them.

    Returns:
        The number.
    """
    return sum(len(one.history) * (len(one.entrants) + 1) for one in work)


def backtest(
    histories: Sequence[JobHistory],
    source: str,
    *,
    entrants: Sequence[ReplayedPolicy] | None = None,
    incumbent: ReplayedPolicy | None = None,
    seeds: int = SEEDS,
    engine: Engine = HERE,
    told: OnReplays = lambda label, done, total: None,
    kept: KeptReplays | None = None,
    left_out: Sequence[str] = (),
) -> Backtest:
    """Replay histories with every policy and judge the policies.

    Args:
        histories: one for each job.
        source: where the histories come from, for readers.
        entrants: the policies; None: those that were watched beside each job.
        incumbent: the policy that they would replace; None: the deployed configurations.
        seeds: predictions of each policy.
        engine: where models are fitted and histories replayed; the result does not depend on it.
        told: hears how many replays are done.
        kept: keeps replays as they come, and gives those of an earlier call.
        left_out: jobs without a usable history, and why.

    Returns:
        The document; the same histories give the same one.

    Raises:
        ConfigError: A policy does not exist, or there is no job.
        MetricsError: Two jobs have the same name.
    """
    currency = one_currency(history.spec for history in histories)
    base = INCUMBENT if incumbent is None else incumbent.label
    jobs_by_name = sorted(distinct(histories), key=_name)
    chosen = [work_of(one, entrants, seeds, incumbent) for one in jobs_by_name]
    found = _played([work for work, _ in chosen], engine, told, kept)
    missing, jobs, replays = list(left_out), [], []
    for (work, failures), outcome in zip(chosen, found, strict=True):
        if isinstance(outcome, str):
            missing.append(f"{work.history.name}: {outcome}")
            continue
        history, replay = outcome
        if base in replay.failures:
            missing.append(f"{history.name}: {base} is not replayed: {replay.failures[base]}")
            continue
        replay = replay.model_copy(update={"failures": failures | replay.failures})
        replays.append(replay)
        jobs.append(job_result(history, replay, terms_of(history, base)))
    if not jobs:
        raise ConfigError(
            "no job has a usable history" + "".join(f"\n  {one}" for one in missing),
            remedy="Give a longer history, or one with fewer gaps.",
        )
    labels = dict.fromkeys(claim.policy for job in jobs for claim in job.claims)
    return Backtest(
        source=source,
        currency=currency,
        trust=Trust(),
        incumbent=None if incumbent is None else base,
        fleet=tuple(_fleet(label, jobs, replays, base) for label in labels),
        jobs=tuple(jobs),
        left_out=tuple(missing),
        versions=versions(()),
    )


def _name(history: JobHistory) -> str:
    return history.name


Outcome = tuple[JobHistory, JobReplay] | str
"""A history with its fitted model and its replay; or why it cannot be used."""


def _played(
    work: Sequence[JobWork], engine: Engine, told: OnReplays, kept: KeptReplays | None
) -> list[Outcome]:
    """The replay of every job; what was kept is not played again."""
    found: dict[int, Outcome] = {}
    for place, one in enumerate(work):
        known = None if kept is None else kept.read(one)
        if known is not None:
            found[place] = fitted(one.history), known
    places = [place for place in range(len(work)) if place not in found]
    shown, before = dict.fromkeys(places, 0.0), len(found)

    def heard(at: int, part: float) -> None:
        shown[places[at]] = part
        told(work[places[at]].history.name, before + sum(shown.values()), len(work))

    told("", float(before), len(work))
    cells = [_shipped(work[place], engine) for place in places]
    for at, outcome in engine.map(played, cells, heard):
        found[places[at]] = outcome
        if kept is not None and not isinstance(outcome, str):
            kept.write(work[places[at]], outcome[1])
        heard(at, 1.0)
    return [found[place] for place in range(len(work))]


@dataclass(frozen=True, slots=True)
class _Cell:
    """Work that can be done on another machine."""

    work: JobWork
    policies: tuple[ShippedWork[ReplayedPolicy], ...]


def _shipped(work: JobWork, engine: Engine) -> _Cell:
    disk = engine.shares_disk
    return _Cell(work, tuple(ship(e, e.policy, shares_disk=disk) for e in work.entrants))


def played(cell: _Cell, tell: Tell[float] = lambda _: False) -> Outcome:
    """Fit the model of one history and replay it.

    Returns:
        The history with its model and the replay; why it cannot be used, so that one job does not
        end the others.
    """
    with ExitStack() as stack:
        entrants = [
            replace(one.work, policy=stack.enter_context(one.unpacked())) for one in cell.policies
        ]
        try:
            refuse_free((cell.work.history.spec,))
            cell.work.history.usable()
            history = fitted(cell.work.history)
            replay = HistoryReplay(entrants, cell.work.seeds)
            while replay.follow(history, final=True, most=AT_ONCE):
                tell(len(replay) / len(history))
            return history, job_replay(history, replay)
        except DspGymError as problem:
            return str(problem)


def job_result(history: JobHistory, replay: JobReplay, terms: VerdictTerms) -> JobResult:
    """Judge every policy of a job.

    Args:
        history: with its fitted model.
        replay: of all policies.
        terms: the bounds of the verdicts.

    Returns:
        The job's part of the document.
    """
    kinds = np.array([v.kind != "source" for v in history.spec.topological_order()])
    starts, base = shown_slots(history), terms.incumbent
    seen: dict[str, Floats] = {
        "load_per_s": history.load_per_s,
        "subtasks": history.parallelism[:, kinds].sum(axis=1).astype(float),
        "cost_per_h": history.cost_per_h,
        "latency_s": history.latency_s,
        "lag_s": history.lag_s,
    }
    beyond = [f"{name}: {text}" for name, one in replay.policies.items() for text in one.beyond]
    failed = [f"{name} is not replayed: {why}" for name, why in replay.failures.items()]
    return JobResult(
        name=history.name,
        vertices=len(history.spec.vertices),
        begin_s=float(history.t_s[0]),
        is_dated=history.is_dated,
        interval_s=history.interval_s,
        intervals=replay.intervals,
        seeds=replay.seeds,
        currency=history.spec.prices.currency,
        slo_latency_s=float(history.spec.slo.latency_s),
        observed=replay.observed,
        late_since_s=late_since(history),
        distrust=model_errors(replay.observed, terms.trust),
        incumbent=None if base == INCUMBENT else replayed_incumbent(replay, base),
        claims=tuple(
            judged(history, replay, name, terms)
            for name in replay.policies
            if name not in (INCUMBENT, base)
        ),
        failures=replay.failures,
        notes=(*history.notes, *beyond, *failed),
        t_s=tuple((history.t_s[starts] - history.t_s[0]).tolist()),
        seen=thinned(history, np.arange(len(history)), seen),
        lines={name: one.line for name, one in replay.policies.items()},
        changes={name: one.changes for name, one in replay.policies.items()},
    )


def late_since(history: JobHistory) -> float | None:
    """Look whether a job was late at the end of its history.

    Args:
        history: of the job.

    Returns:
        Begin of the last run of slots that were late for more than half of their time, s since the
        begin of the history; slots of unknown lateness do not end it. None: the job was in time.
    """
    known = np.flatnonzero(np.isfinite(history.late))
    in_time = known[history.late[known] <= 0.5]
    late = known[known > in_time[-1]] if len(in_time) else known
    return float(history.t_s[late[0]] - history.t_s[0]) if len(late) else None


def _fleet(
    label: str,
    jobs: Sequence[JobResult],
    replays: Sequence[JobReplay],
    incumbent: str = INCUMBENT,
) -> FleetClaim:
    own = [one for one in replays if label in one.policies]
    claims = [claim for job in jobs for claim in job.claims if claim.policy == label]
    return FleetClaim(
        policy=label,
        jobs=len(claims),
        saving_per_month=fleet_saving(own, label, incumbent),
        claimed_per_month=sum(one.claimed_per_month for one in claims),
        jobs_claimed=sum(one.claimed_per_month > 0 for one in claims),
        jobs_late=sum(one.is_late for one in claims),
    )
