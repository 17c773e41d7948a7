"""What a replay comes to: sums by block of time, and curves thin enough to be drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.cost import HOURS_A_MONTH
from dsp_gym.whatif.history import DAY_S, JobHistory
from dsp_gym.whatif.replay import HistoryReplay, PolicyRun
from dsp_gym.whatif.result import Line, ObservedJob, ReplayedRescale

SUMMED = ("seconds", "cost", "slo_s", "down_s", "rescales")

LEAST_DAYS = 3.0
"""A shorter history is cut into twelve blocks instead of days."""

BLOCKS = 12

SHOWN = 700
"""Points of a curve."""


class PolicyReplay(ConfigModel):
    """One policy, or the deployed configurations, on one history."""

    sums: dict[str, tuple[tuple[float, ...], ...]] = Field(
        description="seconds, cost, slo_s, down_s and rescales by block and seed"
    )
    lag_s: float = Field(description="mean backlog, s of arrivals")
    latency_p95_s: float = Field(description="mean p95 latency, s")
    line: Line = Field(description="subtasks, cost_per_h, latency_s and lag_s, thinned")
    changes: tuple[ReplayedRescale, ...] = Field(description="rescales in the order of time")
    beyond: tuple[str, ...] = Field(description="how far it went beyond the fit of the model")

    def of(self, quantity: str) -> Floats:
        """Sums of one quantity, (B, S)."""
        return np.array(self.sums[quantity])


class JobReplay(ConfigModel):
    """Every policy on one history."""

    job: str = Field(description="name of the job")
    intervals: int = Field(description="intervals that were replayed")
    seeds: int = Field(description="rows of each policy")
    blocks: tuple[int, ...] = Field(description="days since 1970, or the numbers of the blocks")
    policies: dict[str, PolicyReplay] = Field(description="by label; the incumbent is the first")
    failures: dict[str, str] = Field(description="policies that could not be replayed, and why")
    observed: ObservedJob = Field(description="the deployed configurations")


def job_replay(history: JobHistory, replay: HistoryReplay) -> JobReplay:
    """Sum up a replay.

    Args:
        history: that was gone through.
        replay: one interval of it at least.

    Returns:
        Sums by block, curves and rescales of every policy that decided to the end.
    """
    at = np.array(replay.slots)
    length_s = DAY_S if history.days >= LEAST_DAYS else history.days * DAY_S / BLOCKS
    begin_s = 0.0 if history.days >= LEAST_DAYS else float(history.t_s[0])
    block = np.floor((history.t_s[at] - begin_s) / length_s + 1e-9).astype(int)
    runs = {name: run for name, run in replay.runs.items() if name not in replay.failures}
    return JobReplay(
        job=history.name,
        intervals=len(replay),
        seeds=replay.seeds,
        blocks=tuple(np.unique(block).tolist()),
        policies={name: _policy(history, run, at, block) for name, run in runs.items()},
        failures=replay.failures,
        observed=with_gone(history, observed_job(history, replay.runs[INCUMBENT], at), at),
    )


def with_gone(history: JobHistory, seen: ObservedJob, at: Ints) -> ObservedJob:
    """Add the time in which the job was gone to its late shares.

    A job that fails and comes back as it was is late for everybody: no policy caused it, and no
    replay covers it.

    Args:
        history: of the job.
        seen: figures of the replayed slots.
        at: (N,) those slots.

    Returns:
        Figures of the whole time; the same where no such time is known.
    """
    late_s = np.where(np.isnan(history.arrived), history.late * history.seconds, np.nan)
    late_s[at] = np.nan
    gone_s, replayed_s = float(np.nansum(late_s)), float(history.seconds[at].sum())
    if seen.late is None or not gone_s > 0:
        return seen
    gone = gone_s / (gone_s + replayed_s)
    late, model = (gone + (1.0 - gone) * (one or 0.0) for one in (seen.late, seen.model_late))
    return seen.model_copy(update={"gone": gone, "late": late, "model_late": model})


def _policy(history: JobHistory, run: PolicyRun, at: Ints, block: Ints) -> PolicyReplay:
    values = {name: run.of(name) for name in run.values}
    starts = np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1])
    line = {
        "subtasks": np.array(run.tasks),
        "cost_per_h": 3600 * (values["cost"] / values["seconds"]).mean(axis=1),
        "latency_s": values["latency_p95_s"].mean(axis=1),
        "lag_s": values["pending_s"].mean(axis=1),
    }
    rows = np.arange(values["cost"].shape[1])
    fitted = history.spec.fitted is not None
    return PolicyReplay(
        sums={
            name: tuple(map(tuple, np.add.reduceat(values[name], starts).tolist()))
            for name in SUMMED
        },
        lag_s=float(values["pending_s"].mean()),
        latency_p95_s=float(values["latency_p95_s"].mean()),
        line=thinned(history, at, line),
        changes=tuple(run.changes),
        beyond=tuple(run.extremes.validity(rows).sentences()) if fitted else (),
    )


def observed_job(history: JobHistory, model: PolicyRun, at: Ints) -> ObservedJob:
    """The observed figures of some slots, beside the model's with the deployed configurations.

    Args:
        history: of the job.
        model: its replay with the deployed configurations.
        at: (N,) slots that the replay went through, in its order.

    Returns:
        Cost, lateness, lag and rescales, each over the slots in which it was measured.
    """
    seconds = history.seconds[at]
    said = {name: model.of(name).mean(axis=1) for name in ("seconds", "cost", "slo_s", "pending_s")}
    cost = np.isfinite(history.cost_per_h[at])
    spent = history.cost_per_h[at] * seconds / 3600.0
    late, lag = np.isfinite(history.late[at]), np.isfinite(history.lag_s[at])
    late_s = np.where(late, history.late[at] * seconds, 0.0)
    per_month = 3600 * HOURS_A_MONTH
    return ObservedJob(
        days=history.days,
        coverage=history.coverage,
        held=0 if history.watched is None else len(history.watched.held_s),
        cost_per_month=per_month * _over(spent[cost], seconds[cost]),
        model_cost_per_month=per_month * _over(said["cost"][cost], said["seconds"][cost]),
        late=_over(late_s[late], seconds[late]) if late.any() else None,
        model_late=_over(said["slo_s"][late], said["seconds"][late]) if late.any() else None,
        lag_s=float(history.lag_s[at][lag].mean()) if lag.any() else None,
        model_lag_s=float(said["pending_s"][lag].mean()) if lag.any() else None,
        rescales_per_day=DAY_S * _over(np.nan_to_num(history.rescales[at]), seconds),
    )


def _over(above: Floats, below: Floats) -> float:
    return float(above.sum() / max(float(below.sum()), 1e-9))


def shown_slots(history: JobHistory) -> Ints:
    """The first slot of each drawn point.

    Returns:
        Rising slots, at most `SHOWN` + 1.
    """
    return np.arange(0, len(history), max(1, -(-len(history) // SHOWN)))


def thinned(history: JobHistory, at: Ints, values: Mapping[str, Floats]) -> Line:
    """Curves over the drawn points: the highest latency and lag, the mean of the others.

    Args:
        history: of the slots.
        at: (N,) slots of the values.
        values: (N,) each.

    Returns:
        One number for each of `shown_slots`; None where nothing is known.
    """
    starts = shown_slots(history)
    found = {}
    for name, part in values.items():
        whole = np.full(len(history), np.nan)
        whole[at] = part
        merge = np.fmax.reduceat if name in ("latency_s", "lag_s") else _means
        drawn = merge(whole, starts)
        found[name] = tuple(
            None if not np.isfinite(v) else float(f"{v:.5g}") for v in drawn.tolist()
        )
    return found


def _means(values: Floats, starts: Ints) -> Floats:
    known = np.isfinite(values)
    count = np.add.reduceat(known.astype(float), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)
