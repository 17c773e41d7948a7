"""The observation of a capacity action: one vector of ratios and logarithms for each job.

A job that is a hundred times as fast under a hundred times the load looks the same. The table below
and `describe` have the same order: each row of the table is a line of the function.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dsp_gym.arrays import Floats32
from dsp_gym.compiling import njit
from dsp_gym.envs.capacity.action import CHOICES, KAPPAS, CapacityTargets, running_cost
from dsp_gym.envs.capacity.load_history import EXTREME_SPANS, MEAN_SPANS, CourseMemory
from dsp_gym.envs.features import LIMIT
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import JOB, VERTEX, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.sizing.service import Believed, believed


class CapacityFeature(NamedTuple):
    """One row of the table of features."""

    name: str
    unit: str
    about: str  # one sentence


def _rows() -> tuple[CapacityFeature, ...]:
    spans = list(MEAN_SPANS)[1:]
    means = [(f"over_mean_{s}", "2 ln", f"present load over its mean of {s}") for s in spans]
    peaks = [
        (f"peak_{s}", "ln", f"peak of the load, forgotten within {s}, over the present load")
        for s in EXTREME_SPANS
    ]
    troughs = [
        (f"trough_{s}", "ln", f"present load over its trough, forgotten within {s}")
        for s in EXTREME_SPANS
    ]
    costs = [
        (f"cost_{kappa:g}", "2 ln", f"cost of the target at {kappa:g} times the load over now")
        for kappa in KAPPAS
    ]
    rows = [
        *means,
        *peaks,
        *troughs,
        ("swing", "5 ln", "how far the load is from its mean of ten minutes, over an hour"),
        ("flicker", "5 ln", "how far a minute is from the one before, over two hours"),
        ("minute", "3 ln", "last minute's arrivals over the present mean"),
        ("minute_over_window", "3 ln", "last minute's arrivals over those of the metrics window"),
        ("minute_change", "3 ln", "last minute's arrivals over those of the minute before"),
        ("utilisation", "2 ln", "present load over what the configuration is believed to carry"),
        ("is_tight", "0 or 1", "whether the present load takes more than 93 % of that"),
        ("backlog", "log10", "1 + backlog in seconds of the present load"),
        ("busy_now", "0..1", "busyness of the hottest vertex in the last minute"),
        ("busy_trend", "3 ln", "that over its mean of the metrics window"),
        ("age", "log10 / 2", "1 + minutes since the configuration started"),
        ("window_fill", "0..1", "share of the metrics window covered since then"),
        ("outage", "100 s", "the last rescale's outage, or what the job file says"),
        ("rescales", "thirds", "restarts of the last two hours"),
        ("history", "log10", "1 + time since the load was first seen, in ten minutes"),
        ("grain", "5 / tasks", "how coarse steps of one task are"),
        *costs,
        ("is_able", "0 or 1", "whether the job can be re-targeted now"),
        ("late_price", "ln", "price of a late minute, in minutes of the reference configuration"),
    ]
    return tuple(CapacityFeature(*row) for row in rows)


CAPACITY_FEATURES = {row.name: row for row in _rows()}
"""The table of features by name, in the order of the observation."""

_TIGHT = 0.93
_LEAST_BUSY = 10.0
"""Busyness below which no trend is shown, ms/s."""

_FAR = 3.0
"""Largest change of cost the agent sees, in the unit of its feature; larger ones count as this."""


class CapacityInputs(NamedTuple):
    """The inputs of a description, for compiled code."""

    shown: SnapshotArrays
    known: Believed
    load: CourseMemory
    to: CapacityTargets


@njit(cache=True, nogil=True)
def _ln(over: float, under: float) -> float:
    """Return the logarithm of a ratio; 0 where one of the two is unknown or zero."""
    return math.log(over / under) if over > 0.0 and under > 0.0 else 0.0


@njit(cache=True, nogil=True)
def _describe_spans(load: CourseMemory, j: int, out: Floats32) -> int:
    """Write the features of job j that compare its load over several spans; return their number."""
    mean, peak, trough = load.means.mean[j], load.extremes.peak[j], load.extremes.trough[j]
    present, at = load.course.present_per_s[j], 0
    for i in range(1, mean.shape[0]):
        out[at] = 2.0 * _ln(mean[0], mean[i])
        at += 1
    for i in range(peak.shape[0]):
        out[at] = _ln(peak[i], present)
        at += 1
    for i in range(trough.shape[0]):
        out[at] = _ln(present, trough[i])
        at += 1
    return at


@njit(cache=True, nogil=True)
def _over_vertices(t: JobFacts, shown: SnapshotArrays, j: int) -> tuple[float, float, float]:
    """Return the tasks of job j, and its largest busyness now and over the window, ms/s.

    Sources are left out; v is a vertex.
    """
    tasks, hottest, usual = 0.0, 0.0, 0.0
    for v in range(t.n[t.row[j]]):
        if t.kind[t.row[j], v] != SOURCE:
            tasks += shown.parallelism[j, v]
            busy = shown.vertex[VERTEX.busy_now_ms_per_s][j, v]
            mean_busy = shown.vertex[VERTEX.busy_ms_per_s][j, v]
            hottest = busy if busy > hottest else hottest  # False for NaN
            usual = mean_busy if mean_busy > usual else usual
    return tasks, hottest, usual


@njit(cache=True, nogil=True)
def describe(t: JobFacts, s: CapacityInputs, late_price: float, j: int, out: Floats32) -> None:
    """Write the features of job j (job file k): v a vertex, i a place in a family of features.

    Args:
        t: The jobs.
        s: The snapshot, the memory and the service model.
        late_price: Price of a late minute.
        j: The job's row.
        out: (features,), written.
    """
    k, c = t.row[j], s.load.course
    mean = s.load.means.mean[j]
    present, now = c.present_per_s[j], s.shown.job[JOB.t_s, j]
    # `at` is the place of the next feature; families of several spans come first.
    at = _describe_spans(s.load, j, out)
    tasks, hottest, usual = _over_vertices(t, s.shown, j)
    carried = believed(s.known, t, j, s.shown.parallelism[j], s.shown.memory_level[j])
    outage, fill = s.shown.job[JOB.outage_s, j], s.shown.job[JOB.window_fill, j]
    age = now - s.shown.job[JOB.running_since_s, j]
    history = now - c.begun_s[j]

    # From here on one line per row of the table; the factors bring each near -1..1.
    out[at] = 5.0 * c.swing[j]
    out[at + 1] = 5.0 * c.flicker[j]
    out[at + 2] = 3.0 * _ln(c.last_per_s[j], mean[0])
    out[at + 3] = 3.0 * _ln(c.last_per_s[j], c.window_per_s[j])
    out[at + 4] = 3.0 * _ln(c.last_per_s[j], c.before_per_s[j])
    out[at + 5] = 2.0 * _ln(present, carried)
    out[at + 6] = 1.0 if present > _TIGHT * carried else 0.0
    out[at + 7] = math.log10(1.0 + c.backlog[j] / present) if present > 0.0 else 0.0
    out[at + 8] = hottest / 1000.0
    out[at + 9] = 3.0 * _ln(max(hottest, _LEAST_BUSY), max(usual, _LEAST_BUSY))
    out[at + 10] = math.log10(1.0 + age / 60.0) / 2.0 if age > 0.0 else 0.0
    out[at + 11] = fill if fill > 0.0 else 0.0
    out[at + 12] = (t.outage_s[k, 1] if math.isnan(outage) else outage) / 100.0
    out[at + 13] = c.rescales[j] / 3.0
    out[at + 14] = math.log10(1.0 + history / 600.0) if history > 0.0 else 0.0
    out[at + 15] = 5.0 / max(tasks, 1.0)
    at += 16
    running = running_cost(t, s.shown, j)
    for i in range(s.to.cost.shape[1]):
        out[at] = min(max(2.0 * _ln(s.to.cost[j, i], running), -_FAR), _FAR)
        at += 1
    able = False
    for choice in range(1, CHOICES):
        able = able or s.to.valid[j, choice]
    out[at] = 1.0 if able else 0.0
    out[at + 1] = _ln(late_price, 1.0)
    # Clipped as every observation: a network needs bounded inputs.
    for i in range(out.shape[0]):
        out[i] = min(max(out[i], -LIMIT), LIMIT)
