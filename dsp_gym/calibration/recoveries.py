"""Outage and capacity of a job from measured recoveries from failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.errors import ConfigError
from dsp_gym.sizing.recovery import recovery_s

COLUMNS = ("run", "checkpoint_interval_s", "throughput_per_s", "recovery_s")
ADAPTIVE = "checkpoint_interval_s"
"""Column that is empty where the interval changed during the run."""

_SHORTEST_OUTAGE_S, _MOST_CAPACITY = 1.0, 10.0
"""Bounds of the search: an outage, s, and a capacity over the highest load."""

_POINTS, _ROUNDS = 60, 6


@dataclass(frozen=True, slots=True)
class Recoveries:
    """N recoveries of one job, (N,) each.

    Attributes:
        job: its name.
        interval_s: between two checkpoints.
        load_per_s: records/s when the failure was injected.
        taken_s: from the failure until the job had caught up.
    """

    job: str
    interval_s: Floats
    load_per_s: Floats
    taken_s: Floats

    def __len__(self) -> int:
        return len(self.taken_s)

    def where(self, chosen: np.ndarray) -> Recoveries:
        """Return some of them.

        Args:
            chosen: (N,) flags.

        Returns:
            Recoveries of the same job.
        """
        picked = (self.interval_s[chosen], self.load_per_s[chosen], self.taken_s[chosen])
        return Recoveries(self.job, *picked)


@dataclass(frozen=True, slots=True)
class RecoveryFit:
    """What recoveries say of a job.

    Attributes:
        outage_s: from a failure until the job reads again, its detection included.
        capacity_per_s: records/s.
    """

    outage_s: float
    capacity_per_s: float

    def predicted_s(self, found: Recoveries) -> Floats:
        """Predict recoveries from failures just before the next checkpoint.

        Returns:
            Seconds, (N,).
        """
        return recovery_s(found.load_per_s, self.capacity_per_s, self.outage_s, found.interval_s)


def read_recoveries(file: Path) -> list[Recoveries]:
    """Read a table of recoveries; rows without a checkpoint interval are left out.

    Args:
        file: with the columns `COLUMNS`; others are not looked at.

    Returns:
        The recoveries of each job, which the column `run` names, in the order of the table.

    Raises:
        ConfigError: The file cannot be read, lacks a column or rows, or a number is none.
    """
    rows = [row for row in read_rows(file, COLUMNS) if row[ADAPTIVE].strip()]
    numbers = {
        column: np.array([_number(file, row, column) for row in rows]) for column in COLUMNS[1:]
    }
    if not rows:
        raise ConfigError(
            "holds no recovery", file=file, remedy=f"It needs rows with {', '.join(COLUMNS)}."
        )
    jobs = np.array([row["run"] for row in rows])
    return [
        Recoveries(str(job), *(values[jobs == job] for values in numbers.values()))
        for job in dict.fromkeys(jobs.tolist())
    ]


def _number(file: Path, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(
            f"{column} is no positive number",
            file=file,
            value=row[column],
            remedy=f"Give {column} in seconds or records/s, or leave the row out.",
        )
    return value


def fit_recoveries(found: Recoveries) -> RecoveryFit:
    """Find outage and capacity with the least mean absolute error of the recovery's logarithm.

    Of absolute errors a few recoveries that went another way, such as with a second failure, change
    little. The two numbers are searched for on a grid that is narrowed: no start to depend on.

    Args:
        found: two or more.

    Returns:
        The best of the last grid.
    """
    most_load = float(found.load_per_s.max())
    low = np.log([_SHORTEST_OUTAGE_S, most_load])
    high = np.log([float(found.taken_s.max()), _MOST_CAPACITY * most_load])
    for _ in range(_ROUNDS):
        outage, capacity = (np.exp(np.linspace(low[i], high[i], _POINTS)) for i in (0, 1))
        predicted = recovery_s(
            found.load_per_s, capacity[None, :, None], outage[:, None, None], found.interval_s
        )
        errors = np.abs(np.log(predicted / found.taken_s)).mean(axis=2)
        best = np.array(np.unravel_index(errors.argmin(), errors.shape))
        middle = np.log([outage[best[0]], capacity[best[1]]])
        width = (high - low) * 4 / _POINTS
        low, high = np.maximum(low, middle - width), np.minimum(high, middle + width)
    return RecoveryFit(float(outage[best[0]]), float(capacity[best[1]]))


def left_out(found: Recoveries) -> tuple[Floats, Sequence[RecoveryFit]]:
    """Predict each checkpoint interval's recoveries from those of the others.

    Returns:
        Predicted seconds, (N,), and the fit without each interval, in rising order.

    Raises:
        ConfigError: There is one interval only.
    """
    intervals = np.unique(found.interval_s)
    if len(intervals) < 2:
        raise ConfigError(
            f"has recoveries of {found.job} with one checkpoint interval only",
            key=ADAPTIVE,
            value=str(found.interval_s[0]),
            remedy="Measure with two intervals or more: one is predicted from the others.",
        )
    predicted, fits = np.empty(len(found)), []
    for interval_s in intervals:
        is_out = found.interval_s == interval_s
        fits.append(fit_recoveries(found.where(~is_out)))
        predicted[is_out] = fits[-1].predicted_s(found.where(is_out))
    return predicted, fits
