"""A panel of curves over time that grow to the right; only new columns of pixels are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.envs.watch.canvas import Mask, Sheet, area_mask, curve_mask, text_width
from dsp_gym.envs.watch.figures import duration
from dsp_gym.envs.watch.theme import Colour, Theme, mixed

_TITLE = 30
"""Pixels above the curves, for title and value."""

_TICKS = 48
"""Pixels left of the curves, for the numbers of the axis."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a curve is drawn."""

    colour: Colour
    step: bool = False  # a value holds from the point before it
    area: float = 0.0  # strength of the colour below the curve, 0 to 1
    thick: float = 2.0  # pixels
    key: str = ""  # its name beside the title, in its colour


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time of all panels of a frame."""

    begin_s: float
    length_s: float

    def ticks(self, most: int) -> list[float]:
        """List round times within the axis.

        Returns:
            Seconds since its begin, at most so many and the begin.
        """
        steps = (60, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800)
        step = next((s for s in steps if self.length_s / s <= most), self.length_s / most)
        return list(np.arange(0, self.length_s + 1, step))


@dataclass(frozen=True, slots=True, eq=False)
class PanelEvents:
    """Events that a panel marks."""

    rescales_s: Floats  # (n,) times
    down_s: Floats  # (m, 2) when the job went down, and when it was up again


EMPTY = PanelEvents(np.empty(0), np.empty((0, 2)))


class CurvePanel:
    """Curves over one time axis, with a title, a value and a grid.

    Args:
        size: Width and height, pixels.
        look: Colours.
        title: Above the curves.
        strokes: One per curve; the first one lies in front.
        written: How a value of the axis is written.
        bound: Values up to here are good; the curve is red above. None: no bound.
        scale: Of the values.
    """

    def __init__(
        self,
        size: tuple[int, int],
        look: Theme,
        title: str,
        strokes: Sequence[Stroke],
        written: Callable[[float], str],
        *,
        bound: float | None = None,
        scale: Literal["linear", "log"] = "linear",
    ) -> None:
        self.size, self.look, self.title = size, look, title
        self.strokes, self.written = tuple(strokes), written
        self.bound, self.scale = bound, scale
        self.axis = TimeAxis(0.0, 0.0)
        self._low, self._high = self._limits(np.empty(0))
        self._ground: Sheet | None = None
        self._picture: Sheet | None = None
        self._done = 0

    @property
    def width(self) -> int:
        """Pixels of the curves."""
        return self.size[0] - _TICKS - 8

    @property
    def height(self) -> int:
        """Pixels of the curves."""
        return self.size[1] - _TITLE - 8

    def column(self, t_s: float) -> float:
        """Find where a time lies.

        Returns:
            Pixels from the left end of the curves.
        """
        return float(self._columns(np.array(t_s)))

    def _columns(self, t_s: Floats) -> Floats:
        return np.asarray((t_s - self.axis.begin_s) / self.axis.length_s * (self.width - 2))

    def hold(self, values: Floats) -> None:
        """Make the axis long enough for values to come.

        Args:
            values: Any number of them; NaN: unknown.
        """
        self._low, self._high = self._limits(values)

    def empty(self) -> Sheet:
        """Draw the panel without its curves.

        Returns:
            A picture to draw on.
        """
        return self._drawn_ground()

    def update(
        self, axis: TimeAxis, t_s: Floats, curves: Sequence[Floats], events: PanelEvents = EMPTY
    ) -> None:
        """Take in the curves so far; what was drawn before stays, unless an axis grew.

        Args:
            axis: The time that is shown.
            t_s: (n,) times, rising; those of the last call, and new ones.
            curves: Values (n,) of each curve; NaN: a gap.
            events: What to mark.
        """
        fresh = 0 if len(t_s) < self._done or axis != self.axis else self._done
        low, high = self._limits(np.concatenate([curve[fresh:] for curve in curves]))
        if axis != self.axis or low < self._low or high > self._high or len(t_s) < self._done:
            self.axis, self._low = axis, min(low, self._low)
            self._high = max(high, self._high)
            self._picture, self._done = self._drawn_ground(), 0
        if len(t_s) == self._done:
            return
        x = self._columns(t_s)
        first = 0 if self._done < 2 else max(0, math.floor(x[self._done - 1]) - 3)
        columns = first, min(self.width, math.ceil(x[-1]) + 3)
        self._done = len(t_s)
        self._renew(columns)
        self._mark(columns, events)
        for stroke, curve in reversed(list(zip(self.strokes, curves, strict=True))):
            line, area = path_masks(x, self._row(curve), stroke, columns, self.height)
            self._lay(columns, area, stroke.colour, stroke.area)
            self._lay(columns, line, stroke.colour)
            if self.bound is not None:
                above = round(float(self._row(np.array(self.bound))))
                self._lay(columns, line[: max(0, above)], self.look.bad)

    def draw(self, sheet: Sheet, corner: tuple[int, int], until: int | None = None) -> None:
        """Lay the panel onto a frame.

        Args:
            sheet: The frame.
            corner: Upper left, pixels.
            until: Columns of the curves that are laid; None: the whole panel.
        """
        picture = self._picture or self._drawn_ground()
        sheet.lay(corner, picture, None if until is None else _TICKS + until)

    def value(self, sheet: Sheet, corner: tuple[int, int], words: str, colour: Colour) -> None:
        """Write the value of the moment at the panel's upper right."""
        at = (corner[0] + self.size[0] - 12, corner[1] + 20)
        sheet.text(at, words, colour, 15, bold=True, align="right")

    def dot(self, sheet: Sheet, corner: tuple[int, int], t_s: float, value: float) -> None:
        """Mark the moment on the first curve; nothing where the value is unknown."""
        if value != value:
            return
        x = corner[0] + _TICKS + self.column(t_s)
        y = corner[1] + _TITLE + float(self._row(np.array(value)))
        late = self.bound is not None and value > self.bound
        sheet.box((x - 5, y - 5), (10, 10), self.look.sunk, 5)
        colour = self.look.bad if late else self.strokes[0].colour
        sheet.box((x - 4, y - 4), (8, 8), colour, 4)

    def _renew(self, columns: tuple[int, int]) -> None:
        """Wipe what was drawn in some columns."""
        if self._picture is None or self._ground is None:
            return
        box = (_TICKS + columns[0], _TITLE, _TICKS + columns[1], _TITLE + self.height)
        self._picture.image.paste(self._ground.image.crop(box), box[:2])

    def _mark(self, columns: tuple[int, int], events: PanelEvents) -> None:
        """Shade the time the job was down, and draw a line at each rescale."""
        if not len(events.rescales_s) and not len(events.down_s):
            return
        shape = (self.height, columns[1] - columns[0])
        spans, lines = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        places = np.arange(*columns)
        down = np.round(self._columns(events.down_s)).astype(np.int64)
        for begin, end in down[down[:, 1] >= columns[0]]:
            spans[:, (places >= begin) & (places < max(end, begin + 1))] = 255
        lines[:, np.isin(places, np.round(self._columns(events.rescales_s)))] = 255
        self._lay(columns, spans, self.look.bad, 0.18)
        self._lay(columns, lines, self.look.lines[3], 0.6)

    def _lay(self, columns: tuple[int, int], mask: Mask, colour: Colour, part: float = 1) -> None:
        if self._picture is not None and part and mask.any():
            self._picture.wash((_TICKS + columns[0], _TITLE), mask, colour, part)

    def _limits(self, values: Floats) -> tuple[float, float]:
        """Choose round ends of the axis that hold the bound and the known values."""
        known = values[np.isfinite(values)]
        if self.scale == "log":
            bound = self.bound or 1.0
            low = float(known[known > 0].min(initial=0.1 * bound))
            high = float(known.max(initial=3 * bound))
            return 10.0 ** math.floor(math.log10(low) + 1e-9), _round_up(1.05 * high)
        least = 1e-9 if self.bound is None else 1.25 * self.bound
        return 0.0, _round_up(float(known.max(initial=least)))

    def _row(self, values: Floats) -> Floats:
        """Convert values to pixels from the upper end of the curves."""
        low, high = self._low, self._high
        if self.scale == "log":
            kept = np.log(np.maximum(values, low))
            low, high = math.log(low), math.log(high)
        else:
            kept = values
        return np.asarray((1 - (kept - low) / (high - low)) * (self.height - 3) + 1)

    def _drawn_ground(self) -> Sheet:
        """Draw the empty panel, keep it, and return a copy to draw on."""
        look, (width, height) = self.look, self.size
        ground = Sheet(width, height, look.paper)
        ground.box((0, 0), (width, height), look.sunk, 10)
        begin = 26 + ground.text((14, 20), self.title, look.quiet, 14)
        for stroke in self.strokes:
            begin += 12 + ground.text((begin, 20), stroke.key, stroke.colour, 13)
        if self.bound is not None:
            top = round(float(self._row(np.array(self.bound))))
            band = (self.width, self.height - top)
            ground.box((_TICKS, _TITLE + top), band, mixed(look.sunk, look.good, 0.12))
            ground.box((_TICKS, _TITLE + top), (self.width, 1), mixed(look.sunk, look.good, 0.6))
            words = f"SLO {self.written(self.bound)}"
            ground.text((26 + text_width(self.title, 14), 20), words, look.good, 13)
        for value in self._ticks():
            y = _TITLE + round(float(self._row(np.array(value))))
            ground.box((_TICKS, y), (self.width, 1), mixed(look.sunk, look.faint, 0.9))
            ground.text((_TICKS - 6, y + 4), self.written(value), look.grey, 11, align="right")
        self._ground = ground
        return ground.copy()

    def _ticks(self) -> list[float]:
        if self.scale == "log":
            powers = range(round(math.log10(self._low)), math.floor(math.log10(self._high)) + 1)
            found = [10.0**power for power in powers]
            return found[:: 1 + len(found) // 5]
        return [0.0, self._high / 2, self._high]


def _round_up(value: float) -> float:
    """Round up to 1, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if m * power >= value * 0.9999)


def path_masks(
    x: Floats, y: Floats, stroke: Stroke, columns: tuple[int, int], height: int
) -> tuple[Mask, Mask]:
    """Draw a line and the area below it, in some columns of pixels, with smooth edges.

    Args:
        x: (n,) places of the points, pixels, not falling.
        y: (n,) pixels from above; NaN: a gap.
        stroke: Thickness, and whether values are steps.
        columns: The first one, and the one behind the last.
        height: Of the masks, pixels.

    Returns:
        Masks (height, columns) of the line and of the area.
    """
    first, last = columns
    near = slice(max(0, int(np.searchsorted(x, first)) - 2), int(np.searchsorted(x, last)) + 2)
    x, y = x[near], y[near]
    if stroke.step and len(x) > 1:
        x, y = np.repeat(x, 2)[:-1], np.repeat(y, 2)[1:]
    known = np.isfinite(y)
    points = np.stack([x - first, y], axis=1)
    runs = np.split(points, np.flatnonzero(np.diff(known)) + 1)
    paths = [run.tolist() for run in runs if np.isfinite(run).all()]
    size = (last - first, height)
    line = curve_mask(size, paths, stroke.thick)
    return line, area_mask(size, paths) if stroke.area else np.zeros_like(line)


def time_labels(
    sheet: Sheet, panel: CurvePanel, corner: tuple[int, int], look: Theme, most: int = 6
) -> None:
    """Write the times of the axis below a panel."""
    for t_s in panel.axis.ticks(most):
        x = corner[0] + _TICKS + panel.column(panel.axis.begin_s + t_s)
        words = duration(t_s) if t_s else "0"
        at = (x, corner[1] + panel.size[1] + 14)
        sheet.text(at, words, look.grey, 11, align="centre")
