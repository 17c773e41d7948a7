"""Excluded periods: Quartz cron expressions and daily ranges, joined by `&&`.

The rules are those of Quartz' `CronExpression` (6 or 7 fields: seconds, minutes, hours, day of
month, month, day of week, year) and `DailyCalendar` (`HH:mm:ss-HH:mm:ss`). Times are UTC.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from dsp_gym.errors import ConfigError

MONTHS = {name.upper(): i for i, name in enumerate(calendar.month_abbr) if name}
SUNDAY_FIRST = [calendar.SUNDAY, *range(calendar.SUNDAY)]
DAYS = {calendar.day_abbr[day].upper(): i for i, day in enumerate(SUNDAY_FIRST, start=1)}
FIELDS = (
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 1, 7),
    ("year", 1970, 2099),
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?::(\d{1,3}))?)?")


@dataclass(frozen=True)
class Daily:
    """A range of every day, ends included; milliseconds since midnight."""

    start_ms: int
    end_ms: int

    def holds(self, at: datetime, ms: int) -> bool:
        """Return whether a time lies inside the range.

        Returns:
            True from the first to the last millisecond of the range, both included.
        """
        # Quartz' DailyCalendar counts milliseconds of the day.
        since = ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + ms
        return self.start_ms <= since <= self.end_ms


@dataclass(frozen=True)
class Cron:
    """Allowed values per field; days with `L`, `W` or `#` are kept as written."""

    sets: tuple[frozenset[int], ...]
    month_day: str | None = None
    week_day: str | None = None

    def holds(self, at: datetime, _ms: int = 0) -> bool:
        """Return whether a second satisfies the expression.

        Returns:
            True where all seven fields match; a Quartz expression is precise to the second.
        """
        second, minute, hour, _, month, _, year = self.sets
        return (
            at.second in second
            and at.minute in minute
            and at.hour in hour
            and at.month in month
            and at.year in year
            and self._month_day(at)
            and self._week_day(at)
        )

    def _month_day(self, at: datetime) -> bool:
        if self.month_day is None:
            return at.day in self.sets[3]
        last = calendar.monthrange(at.year, at.month)[1]
        # L is the last day of the month, L-3 three days before, W the nearest weekday.
        text, weekday = self.month_day.removesuffix("W"), self.month_day.endswith("W")
        # A day beyond the end of a month counts as its last day.
        day = last - int(text[2:] or 0) if text.startswith("L") else min(int(text), last)
        if not weekday:
            return at.day == day
        # The nearest day from Monday to Friday in the same month.
        of_week = datetime(at.year, at.month, day, tzinfo=UTC).weekday()
        if of_week == 5:
            day += 2 if day == 1 else -1
        elif of_week == 6:
            day -= 2 if day == last else -1
        return at.day == day

    def _week_day(self, at: datetime) -> bool:
        # Quartz counts days of the week from 1 on Sunday, Python from 0 on Monday.
        today = (at.weekday() + 1) % 7 + 1
        if self.week_day is None:
            return today in self.sets[5]
        if "#" in self.week_day:
            # FRI#2 is the second Friday of the month; FRIL the last one.
            day, _, nth = self.week_day.partition("#")
            return today == _named(day, DAYS) and (at.day - 1) // 7 + 1 == int(nth)
        day = self.week_day.removesuffix("L")
        last = calendar.monthrange(at.year, at.month)[1]
        # "L" alone is Saturday, the last day of Quartz' week; with a day it is the last one of the
        # month.
        return today == _named(day or "7", DAYS) and (not day or at.day > last - 7)


Period = tuple[Daily | Cron, ...]
"""Conditions that hold together: at most one of each kind."""


def periods(texts: tuple[str, ...], key: str) -> tuple[Period, ...]:
    """Read a list of expressions.

    Returns:
        One period per expression.

    Raises:
        ConfigError: One is neither a daily range nor a cron expression, or joins two of a kind.
    """
    return tuple(_period(text, key) for text in texts)


def excluded(given: tuple[Period, ...], unix_ms: int) -> bool:
    """Return whether a time lies inside any of the periods.

    Returns:
        True where every part of one period holds at that time (UTC).
    """
    # Times of both kinds are in UTC.
    at = datetime.fromtimestamp(unix_ms // 1000, UTC)
    return any(all(part.holds(at, unix_ms % 1000) for part in period) for period in given)


def _period(text: str, key: str) -> Period:
    parts: list[Daily | Cron] = []
    for part in text.split("&&"):
        try:
            parts.append(_daily(part.strip()) or _cron(part.strip()))
        except ValueError as error:
            raise ConfigError(
                f"is neither a daily range nor a Quartz cron expression: {error}",
                key=key,
                value=text,
                remedy="Write '09:30:00-11:00:00', '* * 9-11 * * ?', or both with &&.",
            ) from None
    if len(parts) > 2 or len({type(part) for part in parts}) < len(parts):
        raise ConfigError(
            "may join one daily range and one cron expression",
            key=key,
            value=text,
            remedy="Separate further periods by a semicolon.",
        )
    return tuple(parts)


def _daily(text: str) -> Daily | None:
    """Read a range; None where the text is no pair of times."""
    ends = text.split("-")
    found = [_CLOCK.fullmatch(end) for end in ends]
    if len(ends) != 2 or found[0] is None or found[1] is None:
        return None
    start, end = (_since_midnight(match) for match in found if match is not None)
    if start >= end:
        raise ValueError("it ends before it starts")
    return Daily(start, end)


def _since_midnight(match: re.Match[str]) -> int:
    hour, minute, second, ms = (int(part or 0) for part in match.groups())
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no time {match.group()}")
    return ((hour * 60 + minute) * 60 + second) * 1000 + ms


def _cron(text: str) -> Cron:
    texts = text.upper().split()
    if len(texts) not in (6, 7):
        raise ValueError("it has neither 6 nor 7 fields")
    month_day, week_day = texts[3], texts[5]
    # "?" means no condition; Quartz demands it for exactly one of the two days.
    if (month_day == "?") == (week_day == "?"):
        # Quartz supports no day of month together with a day of week.
        raise ValueError("exactly one of day of month and day of week must be ?")
    special_month = month_day if re.fullmatch(r"L(-\d+)?W?|\d{1,2}W", month_day) else None
    special_week = (
        week_day if re.fullmatch(r"L|(\d|[A-Z]{3})L|(\d|[A-Z]{3})#[1-5]", week_day) else None
    )
    sets = []
    for i, (name, low, high) in enumerate(FIELDS):
        # The year, the seventh field, is optional.
        field = texts[i] if i < len(texts) else "*"
        free = field == "?" or (i == 3 and special_month) or (i == 5 and special_week)
        sets.append(_values("*" if free else field, name, low, high))
    if special_week and special_week != "L":
        _named(special_week.rstrip("L").partition("#")[0], DAYS)
    return Cron(tuple(sets), special_month, special_week)


def _values(field: str, name: str, low: int, high: int) -> frozenset[int]:
    names = MONTHS if name == "month" else DAYS if name == "day of week" else {}
    allowed: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            raise ValueError(f"'{part}' is no step of {name}")
        every = int(step) if slash else 1
        if span in ("*", ""):
            first, last = low, high
        elif "-" in span:
            first, last = (_named(end, names) for end in span.split("-", 1))
        else:
            first = _named(span, names)
            last = high if slash else first
        if not (low <= first <= high and low <= last <= high):
            raise ValueError(f"'{part}' is outside {low} to {high}, {name}")
        if last < first:  # over the turn: FRI-MON, 22-2
            if name == "year":
                raise ValueError(f"'{part}' ends before it starts")
            # Continue past the end and wrap around by the modulo below.
            last += high - low + 1
        # Modulo the length of the field, so that wrapped ranges start over at its lowest value.
        allowed.update((v - low) % (high - low + 1) + low for v in range(first, last + 1, every))
    return frozenset(allowed)


def _named(text: str, names: dict[str, int]) -> int:
    if text in names:
        return names[text]
    if not text.isdigit():
        raise ValueError(f"'{text}' is no number")
    return int(text)
