"""A backtest: models fitted to histories, replayed with every policy, and what may be claimed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.files import load_model
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.engine import HERE, Engine, Tell
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.evaluation.backtest.claims import (
    BacktestTrust,
    claim_of,
    deployed_costs,
    fleet_saving,
    observed_of,
)
from dsp_gym.evaluation.backtest.document import Backtest, FleetClaim, JobBacktest
from dsp_gym.evaluation.backtest.history import JobHistory, distinct
from dsp_gym.evaluation.backtest.kept import KeptReplays
from dsp_gym.evaluation.backtest.model import fitted
from dsp_gym.evaluation.backtest.replay import ReplayShare, play
from dsp_gym.evaluation.backtest.result import JobReplay, shown_slots, thinned
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.shipped_work import ship
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.cost import one_currency
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.clairvoyance import Foreseeing
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve

__all__ = ["BacktestConfig", "backtest", "decisions_of", "shares_of"]

TOGETHER = 8
"""Jobs in one batch: enough for the compiled simulation, few enough to lose when killed."""

OnReplays = Callable[[str, float, int], None]
"""Told of progress: what is done, replays done (a part of one counts), replays in all."""


class BacktestConfig(ConfigModel):
    """Which policies, inside which guardrails, and under which bounds a saving is claimed."""

    policies: tuple[str, ...] = Field(
        ("ds2", "justin-paper", "learned"),
        min_length=1,
        description="policies: names, files or folders",
    )
    guardrails: str | None = Field(
        "default", description="guardrails of each: a shipped name or a file; null: none"
    )
    trust: BacktestTrust = Field(default_factory=BacktestTrust, description="bounds of a claim")
    seed: int = Field(0, ge=0, description="of service times and outages")


@dataclass(frozen=True, slots=True)
class _Fit:
    """A history with its fitted model, or why there is none."""

    history: JobHistory
    problem: str | None


def backtest(
    histories: Sequence[JobHistory],
    config: BacktestConfig,
    source: str,
    *,
    engine: Engine = HERE,
    told: OnReplays = lambda label, done, total: None,
    kept: KeptReplays | None = None,
    left_out: Sequence[str] = (),
) -> Backtest:
    """Replays histories with every policy.

    Args:
        histories: one for each job.
        config: what to replay.
        source: where the histories come from, for readers.
        engine: where models are fitted and histories replayed; the result does not depend on it.
        told: hears how many replays are done.
        kept: keeps replays as they come, and gives those of an earlier call.
        left_out: jobs without a usable history, and why.

    Returns:
        The document; the same histories give the same one.

    Raises:
        ConfigError: A policy or guardrail does not exist, or there is no job.
        MetricsError: Two jobs have the same name.
    """
    shares = shares_of(config)
    currency = one_currency(history.spec for history in histories)
    fits = _fitted(distinct(histories), engine, told, len(shares))
    sound = sorted((one.history for one in fits if one.problem is None), key=lambda h: h.name)
    missing = [*left_out, *(f"{f.history.name}: {f.problem}" for f in fits if f.problem)]
    if not sound:
        raise ConfigError(
            "no job has a usable history" + "".join(f"\n  {one}" for one in missing),
            remedy="Give a longer history, or one with fewer gaps.",
        )
    results = _replayed(shares, sound, engine, told, kept)
    every = [share.label for share in shares]
    jobs = tuple(_job(history, every, results, config) for history in sound)
    labels = tuple(every[1:])
    return Backtest(
        source=source,
        currency=currency,
        trust=config.trust,
        policies=labels,
        fleet=tuple(_fleet(label, jobs, results) for label in labels),
        jobs=jobs,
        left_out=tuple(missing),
        versions=versions(()),
    )


def decisions_of(histories: Iterable[JobHistory], config: BacktestConfig) -> int:
    """Counts the decisions of all replays, the deployed one among them.

    Returns:
        The number.
    """
    return sum(map(len, histories)) * (len(config.policies) + 1)


def shares_of(config: BacktestConfig) -> list[ReplayShare]:
    """The deployed configurations, then each policy; without histories.

    Returns:
        One share for each, in the configured order.

    Raises:
        ConfigError: A policy or its guardrails do not exist, or it cannot be replayed.
    """
    chain = None
    if config.guardrails is not None:
        chain = load_model(GuardrailsConfig, "guardrails", config.guardrails)
    shares = [ReplayShare(INCUMBENT, None, None, (), config.seed)]
    for named in config.policies:
        label, policy, _ = resolve(named)
        made = make(named)
        build_for(made, chain)  # errors are found before anything is replayed
        if isinstance(made, Foreseeing):
            raise ConfigError(
                "needs the future load, which no deployed policy has",
                key="--policies",
                value=named,
                remedy="Name a policy that could have run.",
            )
        if label in [share.label for share in shares]:
            raise ConfigError(
                "is used twice, or is reserved for the deployed configurations",
                key="--policies",
                value=label,
                remedy="Give each policy once, under a name of its own.",
            )
        shares.append(ReplayShare(label, policy, chain, (), config.seed))
    return shares


def _fitted(
    histories: Sequence[JobHistory], engine: Engine, told: OnReplays, policies: int
) -> list[_Fit]:
    found: dict[int, _Fit] = {}
    total = len(histories) * policies
    told("fitting models", 0.0, total)
    for place, result in engine.map(_fit, histories):
        found[place] = result
    return [found[place] for place in range(len(histories))]


def _fit(history: JobHistory, tell: Tell[float]) -> _Fit:
    """On an engine: one history that cannot be used must not end the others."""
    try:
        history.stretches()
        return _Fit(fitted(history), None)
    except DspGymError as problem:
        return _Fit(history, str(problem))


def _replayed(
    shares: Sequence[ReplayShare],
    histories: Sequence[JobHistory],
    engine: Engine,
    told: OnReplays,
    kept: KeptReplays | None,
) -> dict[tuple[str, str], JobReplay]:
    """Every replay by policy and job; what was kept is not played again."""
    found: dict[tuple[str, str], JobReplay] = {}
    work: list[ReplayShare] = []
    for share in shares:
        missing = []
        for history in histories:
            known = None if kept is None else kept.read(share, history)
            if known is None:
                missing.append(history)
            else:
                found[share.label, history.name] = known
        work += [replace(share, histories=group) for group in _grouped(missing, engine.slots)]
    total = len(shares) * len(histories)
    done, shown = float(len(found)), [0.0] * len(work)

    def heard(place: int, part: float) -> None:
        nonlocal done
        done += len(work[place].histories) * (part - shown[place])
        shown[place] = part
        told(work[place].label, done, total)

    carry = [
        ship(share, share.policy or PolicyConfig(policy="static"), shares_disk=engine.shares_disk)
        for share in work
    ]
    for place, results in engine.map(play, carry, heard):
        share = work[place]
        for history, result in zip(share.histories, results, strict=True):
            found[share.label, history.name] = result
            if kept is not None:
                kept.write(share, history, result)
        heard(place, 1.0)
    return found


def _grouped(histories: Sequence[JobHistory], slots: int) -> Iterator[tuple[JobHistory, ...]]:
    """Batches of histories of equal slots and of about the same length."""
    size = max(1, min(TOGETHER, math.ceil(len(histories) / max(slots, 1))))
    alike: dict[tuple[int, WindowConfig], list[JobHistory]] = {}
    for one in histories:
        alike.setdefault((one.interval_s, one.window), []).append(one)
    for same in alike.values():
        same.sort(key=lambda one: (len(one), one.name))
        for first in range(0, len(same), size):
            yield tuple(same[first : first + size])


def _job(
    history: JobHistory,
    labels: Sequence[str],
    results: dict[tuple[str, str], JobReplay],
    config: BacktestConfig,
) -> JobBacktest:
    own = {label: results[label, history.name] for label in labels}
    deployed = own[INCUMBENT]
    found = observed_of(history, deployed)
    starts = shown_slots(history)
    at = np.arange(len(history))
    kinds = np.array([v.kind != "source" for v in history.spec.topological_order()])
    seen: dict[str, Floats] = {
        "load_per_s": history.load_per_s,
        "subtasks": history.parallelism[:, kinds].sum(axis=1).astype(float),
        "cost_per_h": deployed_costs(history),
        "latency_s": history.latency_s,
        "lag_s": history.lag_s,
    }
    return JobBacktest(
        name=history.name,
        vertices=len(history.spec.vertices),
        begin_s=float(history.t_s[0]),
        is_dated=history.is_dated,
        interval_s=history.interval_s,
        slo_latency_s=float(history.spec.slo.latency_s),
        observed=found,
        claims=tuple(
            claim_of(deployed, one, found, config.trust)
            for label, one in own.items()
            if label != INCUMBENT
        ),
        notes=history.notes,
        t_s=tuple((history.t_s[starts] - history.t_s[0]).tolist()),
        seen=thinned(history, at, seen),
        lines={label: one.line for label, one in own.items()},
        changes={label: one.changes for label, one in own.items()},
    )


def _fleet(
    label: str, jobs: Sequence[JobBacktest], results: dict[tuple[str, str], JobReplay]
) -> FleetClaim:
    pairs = [(results[INCUMBENT, job.name], results[label, job.name]) for job in jobs]
    claims = [next(one for one in job.claims if one.policy == label) for job in jobs]
    return FleetClaim(
        policy=label,
        saving_per_month=fleet_saving(
            pairs, [(job.observed, claim) for job, claim in zip(jobs, claims, strict=True)]
        ),
        claimed_per_month=sum(one.claimed_per_month for one in claims),
        jobs_claimed=sum(one.claimed_per_month > 0 for one in claims),
    )
