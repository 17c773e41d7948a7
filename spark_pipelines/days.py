"""Days of a partition: UTC days of a Unix clock, numbered days of a simulation's."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

DAY_S = 86_400

UNIX_FROM_S = 1e8
"""A time from here on (1973) is a Unix time; a run's own clock would have run for three years."""


def is_unix(t_s: float) -> bool:
    """Whether a time is on a Unix clock, not on a run's own.

    Returns:
        True from `UNIX_FROM_S` on.
    """
    return t_s >= UNIX_FROM_S


def day_of(t_s: float) -> str:
    """The day of a time.

    Returns:
        A UTC date, or `0000-00-` and the day of the run's clock.

    >>> day_of(1767225599.5), day_of(90_000.0)
    ('2025-12-31', '0000-00-01')
    """
    if is_unix(t_s):
        return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%d")
    return f"0000-00-{int(t_s // DAY_S):02d}"


def moment_s(moment: float | str) -> float:
    """Seconds of a moment: a number as it is, ISO 8601 as Unix seconds; UTC without an offset.

    Returns:
        Seconds since 1970, or of the run's own clock where a number was given.

    >>> moment_s("2026-01-01"), moment_s(600)
    (1767225600.0, 600.0)
    >>> moment_s("2026-01-01T02:00:00+02:00")
    1767225600.0
    """
    if not isinstance(moment, str):
        return float(moment)
    if re.fullmatch(r"\d+(\.\d+)?", moment):
        return float(moment)
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(
            f"{moment!r} is no moment; write 2026-03-01 or 2026-03-01T12:00:00"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def day_of_column(t_s: Column) -> Column:
    """The same of a column.

    Returns:
        A string column: `2026-01-31` on a Unix clock, else `0000-00-NN` with the day's number.
    """
    from pyspark.sql import functions as f

    days = f.floor(t_s / DAY_S)
    unix = f.date_from_unix_date(days.cast("int")).cast("string")
    number = days.cast("string")
    own = f.concat(
        f.lit("0000-00-"), f.when(f.length(number) < 2, f.lpad(number, 2, "0")).otherwise(number)
    )
    return f.when(t_s >= UNIX_FROM_S, unix).otherwise(own)


SHARES = ("busy_ms_per_s", "backpressured_ms_per_s", "idle_ms_per_s")

FROM_MS = 1e11
"""A Unix time of the year 5138; in milliseconds, of 1973."""

LARGEST = 1e18
"""No counter of a job is as large, and no number of bytes."""


def largest_of(metric: str, time_tolerance_ms: float) -> float:
    """The largest value that a metric may have.

    Args:
        metric: its name.
        time_tolerance_ms: by how much a time share may exceed 1000 ms/s.

    Returns:
        A bound in the metric's own unit; `quality.checks.judge` holds the same.

    >>> largest_of("idle_ms_per_s", 100.0), largest_of("tm_cpu_load", 100.0)
    (1100.0, 1.0)
    """
    if metric in SHARES:
        return 1000.0 + time_tolerance_ms
    return 1.0 if metric == "tm_cpu_load" else LARGEST
