"""The colours of a frame: those of the pages, dark or light."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dsp_gym.pages import STYLE

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

Scheme = Literal["dark", "light"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by what they are for."""

    paper: Colour
    sunk: Colour  # ground of a panel
    faint: Colour  # grid and borders
    grey: Colour
    quiet: Colour  # labels
    ink: Colour
    good: Colour
    wait: Colour
    bad: Colour
    lines: tuple[Colour, ...]  # one per policy or curve

    def of_busyness(self, share: float) -> Colour:
        """Choose a colour from grey over green to red, as an operator feels about a vertex so busy.

        Args:
            share: Of the time, 0 to 1; NaN: unknown.

        Returns:
            The colour.
        """
        if share != share:
            return self.grey
        stops = ((0.0, self.grey), (0.45, self.good), (0.75, self.good), (0.88, self.wait))
        for (low, first), (high, second) in zip(stops, (*stops[1:], (1.0, self.bad)), strict=True):
            if share <= high:
                return mixed(first, second, (share - low) / (high - low))
        return self.bad


def mixed(first: Colour, second: Colour, share: float) -> Colour:
    """Mix two colours.

    Args:
        first: At share 0.
        second: At share 1.
        share: Of the second; beyond 0 to 1 it is cut off.

    Returns:
        The colour.

    >>> mixed((0, 0, 0), (200, 100, 50), 0.5)
    (100, 50, 25)
    """
    part = min(1.0, max(0.0, share))
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second, strict=True))
    return red, green, blue


@cache
def theme(scheme: Scheme = "dark") -> Theme:
    """Look up the colours of the pages in one of their schemes.

    Returns:
        Read from the pages' style sheet, so that a frame and a page agree.
    """
    light, _, dark = STYLE.partition("@media (prefers-color-scheme: dark)")
    style = dark if scheme == "dark" else light
    found = dict(re.findall(r"(?<![\w-])--([\w-]+): #([0-9a-f]{3,6})\b", style.partition("* {")[0]))
    colours = {name: _colour(value) for name, value in found.items()}
    return Theme(
        **{name: colours[name] for name in ("paper", "sunk", "faint", "grey", "quiet", "ink")},
        **{name: colours[f"is-{name}"] for name in ("good", "wait", "bad")},
        lines=tuple(colours[f"line-{place}"] for place in range(8)),
    )


def _colour(value: str) -> Colour:
    digits = value if len(value) == 6 else "".join(2 * digit for digit in value)
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue
