"""What rescales of a running job cost, by Flink's own account (2.3 and later, adaptive scheduler).

`/jobs/:jobid/rescales/summary` (FLINK-38896) and `/jobs/:jobid/rescales/overview` (FLINK-38893).
Flink keeps the account where `web.adaptive-scheduler.rescale-history.size` is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError

__all__ = ["FEW", "RescaleAccount", "rescale_account"]

FEW = 3
"""Fewest completed rescales whose durations stand for those to come, the job's start among them."""

_LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class RescaleAccount:
    """The completed rescales of a job since it started."""

    completed: int  # its first start among them
    failed: int
    shortest_s: float  # from the cause to the new configuration; 0 where none was completed
    median_s: float
    p90_s: float
    last_s: float | None  # of the latest that was completed; None: there was none

    @property
    def outage_s(self) -> tuple[float, float, float] | None:
        """Durations as a job file has them, the shortest for p10; None where there are too few."""
        if self.completed < FEW or self.p90_s <= 0:
            return None
        return self.shortest_s, self.median_s, self.p90_s


def rescale_account(rest: FlinkRest, job_id: str) -> RescaleAccount | None:
    """Flink's account of the rescales of a job.

    Args:
        rest: the cluster.
        job_id: Flink's id of the job.

    Returns:
        The account; None where Flink keeps none: before 2.3, under another scheduler, or switched
        off.

    Raises:
        FlinkError: Flink does not answer, or answers what it never writes.
    """
    try:
        summary = rest.get(f"/jobs/{job_id}/rescales/summary")
        overview = rest.get(f"/jobs/{job_id}/rescales/overview")
    except FlinkError as error:
        if error.reason == "NotFound":
            return None
        raise
    with rest.reading():
        counts = _object(summary, "rescalesCounts")
        took = _object(summary, "completedRescalesDurationStatsInMillis")
        last = _object(overview, "latest").get("completed")
        found = RescaleAccount(
            completed=_count(counts, "completed"),
            failed=_count(counts, "failed"),
            shortest_s=_seconds(took, "min"),
            median_s=_seconds(took, "p50"),
            p90_s=_seconds(took, "p90"),
            last_s=None if last is None else _between(last),
        )
        if not found.shortest_s <= found.median_s <= found.p90_s:
            raise ValueError(f"durations of rescales do not rise: {took!r}")
        return found


def _object(document: object, key: str) -> Document:
    if not isinstance(document, dict) or not isinstance(document[key], dict):
        raise TypeError(f"'{key}' is no object")
    found: Document = document[key]
    return found


def _count(document: Document, key: str) -> int:
    value = document[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"'{key}' is {value!r}, expected a count")
    return value


def _seconds(document: Document, key: str) -> float:
    """Of milliseconds; Flink writes "NaN" for the quantiles of nothing."""
    value = document[key]
    if value == "NaN":
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"'{key}' is {value!r}, expected milliseconds")
    seconds = float(value) / 1000.0
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(f"'{key}' is {value!r} ms, expected up to a day")
    return seconds


def _between(rescale: object) -> float | None:
    """How long one rescale took; None where it has not ended."""
    if not isinstance(rescale, dict):
        raise TypeError("'completed' is no object")
    begun, ended = rescale["startTimestampInMillis"], rescale["endTimestampInMillis"]
    return None if ended is None else _seconds({"took": ended - begun}, "took")
