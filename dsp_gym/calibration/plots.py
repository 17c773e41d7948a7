"""The report's charts: predicted against seen, fitted and held-out runs apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dsp_gym.calibration.errors import Compared
from dsp_gym.pages import Html, ScatterPoint, against, heading

Pair = tuple[str, float, float]
"""What is compared, in words, what was seen of it, and what was predicted."""


def charts(compared: Sequence[Compared]) -> list[Html]:
    """Draw rate, busyness, hit rate and read latency, predicted over seen.

    Returns:
        A heading and a chart for each quantity that was measured.
    """
    quantities: list[tuple[str, str, Callable[[Compared], Iterator[Pair]]]] = [
        ("Sustained rate", "records/s", _rate),
        ("Busy, share of the time", "share", lambda one: _vertices(one, "busy")),
        ("Hit rate of the cache", "share", lambda one: _vertices(one, "hit")),
        ("Latency of reads", "us", lambda one: _vertices(one, "read_us")),
    ]
    found: list[Html] = []
    for title, unit, pairs in quantities:
        groups = [
            _group(name, [pair for one in compared if one.in_fit == in_fit for pair in pairs(one)])
            for name, in_fit in (("fitted", True), ("held out", False))
        ]
        if any(group.x for group in groups):
            found += [
                heading(title),
                against(
                    f"{title}: predicted against seen, {unit}",
                    [group for group in groups if group.x],
                    x_label=f"seen, {unit}",
                    y_label=f"predicted, {unit}",
                ),
            ]
    return found


def _rate(one: Compared) -> Iterator[Pair]:
    yield one.seen.run, one.seen.rate_per_s, one.predicted.rate_per_s


def _vertices(one: Compared, quantity: str) -> Iterator[Pair]:
    """A quantity of each vertex that has it."""
    said: Mapping[str, float] = getattr(one.predicted, quantity)
    seen: Mapping[str, float] = getattr(one.seen, quantity)
    return ((f"{one.seen.run}, {v}", value, said[v]) for v, value in seen.items() if v in said)


def _group(name: str, pairs: Sequence[Pair]) -> ScatterPoint:
    texts, x, y = zip(*pairs, strict=True) if pairs else ((), (), ())
    return ScatterPoint(name, x, y, tuple(f"{name}, {text}" for text in texts))
