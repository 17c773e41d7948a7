"""Cost against lateness in text, for a terminal and a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsp_gym.pages import number, percent

WIDTH, HEIGHT = 60, 14
"""Columns and lines between the axes; with labels it fits 80 columns."""


def sketch(
    points: Mapping[str, Sequence[tuple[float, float]]],
    currency: str,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> str:
    """Draw groups of settings in the plane of lateness and cost.

    Args:
        points: (late share, cost per day) of the settings by the sign that marks them, one
            character; a later group covers an earlier one.
        currency: Of the costs.
        width: Columns of the plane.
        height: Its lines.

    Returns:
        Lines of text; the cheaper a setting the lower, the more punctual the further left.

    Raises:
        ValueError: There is no setting to draw.

    >>> print(sketch({".": [(0.0, 12.0), (0.1, 4.0)], "o": [(0.1, 12.0)]}, "USD", 9, 3))
    USD per day
       12 |.       o
          |
        4 |        .
          +---------
           0 %  10 %
           late, share of the time
    """
    pairs = [pair for group in points.values() for pair in group]
    if not pairs:
        raise ValueError("there is no setting to draw")
    most = max(late for late, _ in pairs) or 1.0
    low, high = min(cost for _, cost in pairs), max(cost for _, cost in pairs)
    plane = [[" "] * width for _ in range(height)]
    for sign, group in points.items():
        for late, cost in group:
            share = (high - cost) / (high - low) if high > low else 1.0
            plane[round(share * (height - 1))][round(late / most * (width - 1))] = sign
    margin = max(5, len(number(high)), len(number(low)))
    labels = {0: number(high), height - 1: number(low)}
    lines = [
        f"{labels.get(row, ''):>{margin}} |{''.join(signs)}".rstrip()
        for row, signs in enumerate(plane)
    ]
    end = f"{percent(most)} %"
    left = " " * (margin + 2)
    return "\n".join(
        [
            f"{currency} per day",
            *lines,
            f"{' ' * margin} +{'-' * width}",
            f"{left}0 %{end:>{width - 3}}",
            f"{left}late, share of the time",
        ]
    )
