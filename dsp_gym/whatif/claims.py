"""What a policy would have saved, with intervals, from the replays of one job or of a fleet.

A policy's saving is the difference of two predictions of one model, that of the incumbent and that
of the policy, on the same load: an error common to both cancels. The incumbent is the deployed
configurations, or a policy that might have decided in their place. Each draw
takes days with replacement, the same for both, and one of the model's seeds; the interval is
widened by the model's error on the deployed configurations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.whatif.blocks import JobReplay, PolicyReplay
from dsp_gym.whatif.history import DAY_S
from dsp_gym.whatif.result import ObservedJob, Ranged, ReplayedIncumbent, Trust

DRAWS = 2000

SEED = 0

PER_MONTH = 3600.0 * HOURS_A_MONTH

Figures = dict[str, Ranged]
"""saving, saving_per_month, late and later."""


def model_errors(found: ObservedJob, trust: Trust) -> tuple[str, ...]:
    """The errors of the model on the deployed configurations that are beyond their bounds.

    Returns:
        One sentence for each; none if the model is trusted.
    """
    reasons = []
    if not found.cost_error <= trust.cost:
        reasons.append(
            f"the model's cost of the deployed configurations is off by "
            f"{100 * found.cost_error:.1f} %, more than {100 * trust.cost:g} %"
        )
    if found.late is None or found.model_late is None:
        reasons.append("lateness was not measured: the history holds neither latency nor backlog")
    elif not found.late_error <= trust.late:
        reasons.append(
            f"the model says that the deployed configurations were late "
            f"{100 * found.model_late:.1f} % of the time, observed were {100 * found.late:.1f} %: "
            f"more than {100 * trust.late:g} points apart"
        )
    if not found.lag_error <= trust.lag:
        reasons.append(
            f"the model's backlog of the deployed configurations is {found.model_lag_s:.3g} s of "
            f"arrivals, observed were {found.lag_s:.3g} s: off by more than {100 * trust.lag:g} %"
        )
    return tuple(reasons)


def figures_of(replay: JobReplay, policy: str, incumbent: str = INCUMBENT) -> Figures:
    """What a policy would have saved on a job, and how late it would have been.

    Args:
        replay: of the job.
        policy: its label.
        incumbent: label of what it would replace.

    Returns:
        Figures with 95 % intervals; money per month of 730 hours. Late shares are of the whole
        time, that in which the job was gone included.
    """
    base, own = replay.policies[incumbent], replay.policies[policy]
    drawn = _drawn(len(replay.blocks)), _seeds(replay.seeds)
    saved = base.of("cost") - own.of("cost")
    seconds, off = base.of("seconds"), replay.observed.cost_error
    per_month = _ratio(saved, seconds, drawn).times(PER_MONTH)
    share = _ratio(saved, base.of("cost"), drawn)
    late = _ratio(own.of("slo_s"), own.of("seconds"), drawn)
    later = _ratio(own.of("slo_s") - base.of("slo_s"), seconds, drawn)
    error, gone = replay.observed.late_error, replay.observed.gone
    return {
        "saving_per_month": _widened(per_month, off * abs(per_month.value)),
        "saving": _within(_widened(share, off * abs(share.value)), -np.inf, 1.0),
        "late": _within(_widened(late.with_gone(gone), error), 0.0, 1.0),
        "later": _within(_widened(later.times(1.0 - gone), error), -1.0, 1.0),
    }


def replayed_incumbent(replay: JobReplay, policy: str) -> ReplayedIncumbent:
    """What a job would have cost, and how late it would have been, under the incumbent policy.

    Returns:
        Its figures with 95 % intervals, widened by the model's error on the deployed
        configurations; money per month of 730 hours.
    """
    own, seen = replay.policies[policy], replay.observed
    drawn, seconds = (_drawn(len(replay.blocks)), _seeds(replay.seeds)), own.of("seconds")
    cost = _ratio(own.of("cost"), seconds, drawn).times(PER_MONTH)
    late = _ratio(own.of("slo_s"), seconds, drawn)
    return ReplayedIncumbent(
        policy=policy,
        cost_per_month=_within(_widened(cost, seen.cost_error * cost.value), 0.0, np.inf),
        late=_within(_widened(late.with_gone(seen.gone), seen.late_error), 0.0, 1.0),
        lag_s=own.lag_s,
        latency_p95_s=own.latency_p95_s,
        rescales_per_day=float(DAY_S * own.of("rescales").sum() / seconds.sum()),
    )


def fleet_saving(replays: Sequence[JobReplay], policy: str, incumbent: str = INCUMBENT) -> Ranged:
    """The sum of what a policy would have saved on several jobs.

    Days are drawn once for all jobs: on a busy day of the year they are busy together. A seed is
    drawn for each job.

    Args:
        replays: of the jobs.
        policy: its label.
        incumbent: label of what it would replace.

    Returns:
        Money per month of 730 hours.
    """
    blocks = sorted({block for one in replays for block in one.blocks})
    drawn = _drawn(len(blocks))
    total, mean, off = np.zeros(DRAWS), 0.0, []
    for number, one in enumerate(replays):
        base, own = (_laid(one, one.policies[name], blocks) for name in (incumbent, policy))
        saved, seconds = base["cost"] - own["cost"], base["seconds"]
        own_mean = float(saved.sum() / seconds.sum())
        seed = _seeds(one.seeds, number)[:, None]
        sums = seconds[drawn, seed].sum(axis=1)
        # A draw without a day of this job says nothing of it: the job's mean stands in.
        drawn_mean = saved[drawn, seed].sum(axis=1) / np.maximum(sums, 1e-9)
        total += np.where(sums > 0, drawn_mean, own_mean)
        mean += own_mean
        off.append(one.observed.cost_error * abs(own_mean) * PER_MONTH)
    low, high = np.quantile(total, (0.025, 0.975)).tolist()
    # The errors of several models are their own: they add at right angles.
    found = Ranged(value=mean, low=min(low, mean), high=max(high, mean))
    return _widened(found.times(PER_MONTH), float(np.linalg.norm(off)))


def _laid(replay: JobReplay, own: PolicyReplay, blocks: Sequence[int]) -> dict[str, Floats]:
    """Cost and seconds on the blocks of all jobs, (B, S); 0 where the job has no such block."""
    at = np.searchsorted(blocks, replay.blocks)
    found = {}
    for name in ("cost", "seconds"):
        found[name] = np.zeros((len(blocks), replay.seeds))
        found[name][at] = own.of(name)
    return found


def _drawn(blocks: int) -> Ints:
    """(draws, blocks) numbers of blocks, the same at every call."""
    return np.random.default_rng(SEED).integers(0, max(blocks, 1), size=(DRAWS, max(blocks, 1)))


def _seeds(seeds: int, job: int = 0) -> Ints:
    """(draws,) rows of a policy."""
    return np.random.default_rng((SEED + 1, job)).integers(0, seeds, size=DRAWS)


def _ratio(above: Floats, below: Floats, drawn: tuple[Ints, Ints]) -> Ranged:
    """Of sums (B, S): the mean over the seeds, and the range of the draws."""
    blocks, seed = drawn[0], drawn[1][:, None]
    value = float(above.sum() / below.sum())
    draws = above[blocks, seed].sum(axis=1) / np.maximum(below[blocks, seed].sum(axis=1), 1e-12)
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return Ranged(value=value, low=min(low, value), high=max(high, value))


def _widened(found: Ranged, off: float) -> Ranged:
    """The interval with a model's error added at right angles."""
    return Ranged(
        value=found.value,
        low=found.value - float(np.hypot(found.value - found.low, off)),
        high=found.value + float(np.hypot(found.high - found.value, off)),
    )


def _within(found: Ranged, least: float, most: float) -> Ranged:
    """The interval inside the bounds of the figure."""
    return Ranged(value=found.value, low=max(least, found.low), high=min(most, found.high))
