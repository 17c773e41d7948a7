"""Numbers of a frame: three digits and a unit."""

from __future__ import annotations

from dsp_gym.pages import number


def count(value: float) -> str:
    """Write a count or a rate, thousands and millions shortened.

    Returns:
        Three digits; "–" for NaN.

    >>> count(48_213), count(999.6), count(1_250_000), count(7)
    ('48.2k', '1k', '1.25M', '7')
    """
    for one, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * one:
            return f"{number(value / one)}{unit}"
    return number(value)


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it.

    Returns:
        Up to three digits and the unit; "–" for NaN.

    >>> duration(0.0423), duration(75), duration(600), duration(9000), duration(200_000)
    ('42 ms', '75 s', '10 min', '2.5 h', '55.6 h')
    """
    if seconds != seconds:
        return "–"
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{number(seconds)} s"
    if seconds < 3570:
        return f"{number(seconds / 60)} min"
    return f"{number(seconds / 3600)} h"


def clock(seconds: float) -> str:
    """Write a moment of an episode.

    Returns:
        Hours and minutes, or minutes and seconds of less than an hour.

    >>> clock(3 * 3600 + 5 * 60), clock(7200), clock(59)
    ('3 h 05 min', '2 h', '0 min 59 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"


def percent(share: float) -> str:
    """Write a share of the time.

    Returns:
        Percent, with one digit behind the point below ten; "–" for NaN.

    >>> percent(0.0123), percent(0.5), percent(0.0)
    ('1.2 %', '50 %', '0 %')
    """
    if share != share:
        return "–"
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def bytes_of(mib: float) -> str:
    """Write an amount of memory.

    Returns:
        MiB, or GiB from a thousand MiB on.

    >>> bytes_of(158), bytes_of(2048), bytes_of(1_500_000)
    ('158 MiB', '2 GiB', '1,465 GiB')
    """
    return f"{number(mib)} MiB" if mib < 999.5 else f"{number(mib / 1024)} GiB"
