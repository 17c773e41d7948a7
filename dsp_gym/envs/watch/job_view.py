"""One job in a frame of 1280 x 720 pixels: figures, graph, and curves of the episode so far."""

from __future__ import annotations

import math

import numpy as np

from dsp_gym.envs.watch.canvas import Pixels, Sheet, fitted, text_width
from dsp_gym.envs.watch.episode_data import Scene, Story
from dsp_gym.envs.watch.figures import bytes_of, clock, count, duration, percent
from dsp_gym.envs.watch.job_graph import JobGraph
from dsp_gym.envs.watch.plot import CurvePanel, PanelEvents, Stroke, TimeAxis, time_labels
from dsp_gym.envs.watch.theme import Colour, Scheme, Theme, mixed, theme
from dsp_gym.loop.snapshot import Status
from dsp_gym.pages import money, number

WIDTH, HEIGHT = 1280, 720
"""Pixels of a frame."""

_MARGIN, _GAP = 20, 8
_TILES = (76, 70)  # y and height
_GRAPH = (184, 212)
_PANELS = (418, 132)
_SHORTEST_S = 3600.0
"""Length of a time axis at least, where that of the episode is unknown."""


class JobView:
    """Draws frames of one job; a frame adds to the one before.

    Args:
        scene: The job.
        scheme: Dark or light, as the pages.

    Raises:
        MissingExtraError: Pillow is not installed.
    """

    def __init__(self, scene: Scene, scheme: Scheme = "dark") -> None:
        self.scene, self.look = scene, theme(scheme)
        self._graph = JobGraph(scene, (WIDTH - 2 * _MARGIN, _GRAPH[1]), self.look)
        self._ground = self._drawn_ground()
        self._sheet = self._ground.copy()
        self._panels = _panels(scene, self.look)

    def frame(self, story: Story) -> Pixels:
        """Draw the episode so far.

        Args:
            story: Of the scene, with a moment at least.

        Returns:
            (720, 1280, 3) of uint8.
        """
        sheet, now = self._sheet, story.now
        sheet.lay((0, 0), self._ground)
        self._draw_head(sheet, story)
        self._draw_tiles(sheet, story)
        said = fitted(now.said, 13, 900)
        sheet.text((_MARGIN + 90, _GRAPH[0] - 14), said, self.look.quiet, 13)
        self._graph.draw(sheet, (_MARGIN, _GRAPH[0]), now, story.before)
        self._draw_curves(sheet, story)
        return sheet.pixels()

    def _draw_head(self, sheet: Sheet, story: Story) -> None:
        look, now = self.look, story.now
        begin = draw_status(sheet, (WIDTH - _MARGIN, 42), now.status, look)
        elapsed = now.t_s - story.moments[0].t_s
        words = clock(elapsed)
        if self.scene.length_s:
            words += f" of {clock(self.scene.length_s)}"
            done = elapsed / self.scene.length_s
            sheet.box((_MARGIN, 61), (WIDTH - 2 * _MARGIN, 4), look.lines[0], 2, filled=done)
        sheet.text((begin - 18, 41), words, look.quiet, 17, align="right")

    def _draw_tiles(self, sheet: Sheet, story: Story) -> None:
        look, now = self.look, story.now
        late, latency = float(story.late_share()[-1]), now.latency_p95_s
        rescales = int(story.rescaled().sum())
        memory = float((now.managed_mib(self.scene) * now.parallelism).sum())
        told: list[tuple[str, str, Colour]] = [
            (count(now.offered_per_s), "records/s", look.ink),
            (duration(latency), f"SLO {duration(self.scene.slo_s)}", self._judged(latency)),
            (percent(late), "of the time", look.ink),
            (
                number(float(story.cost()[-1])),
                f"{money(now.cost_per_hour, self.scene.currency)} / h",
                look.ink,
            ),
            (count(now.tasks), f"{bytes_of(memory)} managed", look.ink),
            (str(rescales), "so far", look.ink),
        ]
        width = _tile_width(len(told))
        for place, (value, unit, colour) in enumerate(told):
            x = _MARGIN + place * (width + _GAP)
            end = sheet.text((x + 14, _TILES[0] + 55), value, colour, 25, bold=True)
            unit = fitted(unit, 13, width - 36 - end)
            sheet.text((x + 22 + end, _TILES[0] + 55), unit, look.quiet, 13)

    def _judged(self, latency_s: float) -> Colour:
        return self.look.bad if latency_s > self.scene.slo_s else self.look.ink

    def _draw_curves(self, sheet: Sheet, story: Story) -> None:
        now, axis, t_s = story.now, axis_of(story), story.series("t_s")
        events = events_of(story)
        told = (
            (("processed_per_s", "offered_per_s"), f"{count(now.processed_per_s)}/s"),
            (("latency_p95_s",), duration(now.latency_p95_s)),
            (("cost_per_hour",), money(now.cost_per_hour, self.scene.currency)),
            (("pending",), count(now.pending)),
        )
        for place, (panel, (names, words)) in enumerate(zip(self._panels, told, strict=True)):
            corner = _panel_corner(place)
            panel.update(axis, t_s, [story.series(name) for name in names], events)
            panel.draw(sheet, corner)
            value = getattr(now, names[0])
            panel.dot(sheet, corner, now.t_s, value)
            colour = self._judged(now.latency_p95_s) if place == 1 else self.look.ink
            panel.value(sheet, corner, words, colour)
            if place > 1:
                time_labels(sheet, panel, corner, self.look)

    def _drawn_ground(self) -> Sheet:
        look = self.look
        ground = Sheet(WIDTH, HEIGHT, look.paper)
        end = ground.text((_MARGIN, 43), self.scene.job, look.ink, 27, bold=True)
        load = f"under {self.scene.load}" if self.scene.load else ""
        ground.text((_MARGIN + end + 14, 43), fitted(load, 18, 420), look.quiet, 18)
        ground.box((_MARGIN, 61), (WIDTH - 2 * _MARGIN, 4), look.faint, 2)
        labels = ("Load", "Latency, p95", "Late", "Cost so far", "Tasks", "Rescales")
        width = _tile_width(len(labels))
        for place, label in enumerate(labels):
            x = _MARGIN + place * (width + _GAP)
            ground.box((x, _TILES[0]), (width, _TILES[1]), look.sunk, 10)
            ground.text((x + 14, _TILES[0] + 23), label, look.quiet, 14)
        ground.text((_MARGIN + 2, _GRAPH[0] - 14), "Job graph", look.quiet, 14)
        draw_ramp(ground, (WIDTH - _MARGIN, _GRAPH[0] - 14), look)
        self._graph.draw_edges(ground, (_MARGIN, _GRAPH[0]))
        draw_events(ground, (WIDTH - _MARGIN, _PANELS[0] - 7), look)
        return ground


def draw_events(sheet: Sheet, at: tuple[int, int], look: Theme) -> None:
    """Draw the legend of what the panels mark, which ends at a point."""
    x = at[0] - sheet.text(at, "job down", look.quiet, 12, align="right") - 20
    sheet.box((x, at[1] - 9), (14, 10), mixed(look.paper, look.bad, 0.3))
    x -= 14
    x -= sheet.text((x, at[1]), "rescale", look.quiet, 12, align="right") + 8
    sheet.box((x, at[1] - 10), (2, 12), look.lines[3])


def draw_ramp(sheet: Sheet, at: tuple[int, int], look: Theme) -> None:
    """Draw the legend of the colours of busyness, which ends at a point."""
    steps, width = 60, 2
    right = at[0] - text_width("100 % busy", 12) - 8
    sheet.text((at[0], at[1]), "100 % busy", look.quiet, 12, align="right")
    for k in range(steps):
        place = (right - (steps - k) * width, at[1] - 9)
        sheet.box(place, (width, 9), look.of_busyness(k / (steps - 1)))
    sheet.text((right - steps * width - 8, at[1]), "idle", look.quiet, 12, align="right")


def draw_status(sheet: Sheet, right: tuple[int, int], status: Status, look: Theme) -> int:
    """Draw a job's status as a dot and a word that ends at a point.

    Returns:
        Where it begins, pixels from the left.
    """
    colour = {
        Status.RUNNING: look.good,
        Status.SAVEPOINTING: look.wait,
        Status.RESTARTING: look.wait,
        Status.FAILED: look.bad,
    }[status]
    words = status.name.lower()
    x, y = right[0] - text_width(words, 17, True), right[1]
    sheet.text((x, y - 1), words, colour, 17, bold=True)
    sheet.box((x - 18, y - 12), (10, 10), colour, 5)
    return x - 18


def axis_of(story: Story) -> TimeAxis:
    """Find the time axis of an episode so far.

    Returns:
        The whole episode; where its length is unknown or was exceeded, a length that doubles.
    """
    begin = story.moments[0].t_s
    passed_s = story.now.t_s - begin
    if story.scene.length_s and passed_s <= story.scene.length_s:
        return TimeAxis(begin, story.scene.length_s)
    times = max(1.0, passed_s / _SHORTEST_S)
    return TimeAxis(begin, _SHORTEST_S * 2.0 ** math.ceil(math.log2(times)))


def events_of(story: Story) -> PanelEvents:
    """Find when a job was rescaled, and when it was down.

    Returns:
        Times of the intervals' begins, and spans from there; an outage that goes on from one
        interval to the next is several spans.
    """
    begins, down_s = story.series("t_s") - story.series("seconds"), story.series("down_s")
    spans = np.stack([begins, begins + down_s], axis=1)[down_s > 0]
    return PanelEvents(begins[story.rescaled()], spans)


def _tile_width(tiles: int) -> int:
    return (WIDTH - 2 * _MARGIN - (tiles - 1) * _GAP) // tiles


def _panel_size() -> tuple[int, int]:
    return (WIDTH - 2 * _MARGIN - _GAP) // 2, _PANELS[1]


def _panel_corner(place: int) -> tuple[int, int]:
    width, height = _panel_size()
    row, column = divmod(place, 2)
    return _MARGIN + column * (width + _GAP), _PANELS[0] + row * (height + _GAP)


def seconds(value: float) -> str:
    """Write a latency in seconds, for an axis.

    Returns:
        Three digits and the unit.
    """
    return f"{number(value)} s"


def _panels(scene: Scene, look: Theme) -> list[CurvePanel]:
    size, (front, second, third) = _panel_size(), look.lines[:3]
    both = [Stroke(front, area=0.2, key="processed"), Stroke(second, thick=1.5, key="offered")]
    return [
        CurvePanel(size, look, "Records per second", both, count),
        CurvePanel(
            size,
            look,
            "Latency, 95th percentile",
            [Stroke(front)],
            seconds,
            bound=scene.slo_s,
            scale="log",
        ),
        CurvePanel(size, look, "Cost per hour", [Stroke(third, step=True, area=0.2)], number),
        CurvePanel(size, look, "Backlog, records", [Stroke(look.lines[4], area=0.25)], count),
    ]
