"""One to three policies beside each other, under the same load, in one frame."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.envs.watch.canvas import Pixels, Sheet, fitted
from dsp_gym.envs.watch.episode_data import Story
from dsp_gym.envs.watch.figures import clock, count, percent
from dsp_gym.envs.watch.job_graph import JobGraph
from dsp_gym.envs.watch.job_view import (
    HEIGHT,
    WIDTH,
    axis_of,
    draw_events,
    draw_status,
    events_of,
    seconds,
)
from dsp_gym.envs.watch.plot import CurvePanel, Stroke, time_labels
from dsp_gym.envs.watch.theme import Colour, Scheme, mixed, theme
from dsp_gym.pages import money, number

MOST_POLICIES = 3
_MARGIN, _GAP = 24, 24
_LOAD = (62, 118)  # y and height
_HEAD = 228  # baseline of a policy's name
_GRAPH = (300, 104)
_LATENCY = (420, 118)
_COST = (546, 118)


class SideBySide:
    """Draws policies under one load, whose curves are known from begin to end.

    Args:
        policies: Names and stories, one to three; all of the same job, load and times.
        scheme: Dark or light, as the pages.

    Raises:
        MissingExtraError: Pillow is not installed.
    """

    def __init__(self, policies: Sequence[tuple[str, Story]], scheme: Scheme = "dark") -> None:
        self.look = theme(scheme)
        self.names = [name for name, _ in policies]
        self.stories = [story for _, story in policies]
        self.colours: list[Colour] = [self.look.lines[k] for k in (1, 0, 2)[: len(policies)]]
        if len(policies) == 1:
            self.colours = [self.look.lines[0]]
        self.t_s = np.array(self.stories[0].series("t_s"))
        self._costs = [story.cost() for story in self.stories]
        self._late = [story.late_share() for story in self.stories]
        self._width = (WIDTH - 2 * _MARGIN - _GAP * (len(policies) - 1)) // len(policies)
        size = (self._width, _GRAPH[1])
        self._graphs = [JobGraph(story.scene, size, self.look) for story in self.stories]
        self._load = self._load_panel(self.look.ink)
        self._latency = self._column_panels("latency_p95_s")
        self._money = self._column_panels("cost_per_hour")
        self._ground = self._drawn_ground()

    def frame(self, share: float) -> Pixels:
        """Draw one moment.

        Args:
            share: Of the episode, 0 to 1.

        Returns:
            (720, 1280, 3) of uint8.
        """
        begin, end = self.t_s[0], self.t_s[-1]
        t_s = float(begin + share * (end - begin))
        place = int(np.searchsorted(self.t_s, t_s, side="right")) - 1
        sheet = self._ground.copy()
        words = f"{clock(60 * math.floor((t_s - begin) / 60))} of {clock(end - begin)}"
        sheet.text((WIDTH - _MARGIN, 40), words, self.look.quiet, 19, align="right")
        self._draw_load(sheet, t_s)
        for policy in range(len(self.stories)):
            self._draw_policy(sheet, policy, place, t_s)
        verdict = self._verdict(place)
        sheet.text((WIDTH / 2, HEIGHT - 17), verdict, self.look.ink, 19, bold=True, align="centre")
        return sheet.pixels()

    def _draw_load(self, sheet: Sheet, t_s: float) -> None:
        corner = (_MARGIN, _LOAD[0])
        self._load.draw(sheet, corner, math.ceil(self._load.column(t_s)))
        values = self.stories[0].series("offered_per_s")
        now = float(np.interp(t_s, self.t_s, np.nan_to_num(values, nan=values[1])))
        self._load.dot(sheet, corner, t_s, now)
        self._load.value(sheet, corner, f"{count(now)} records/s", self.look.ink)

    def _draw_policy(self, sheet: Sheet, policy: int, place: int, t_s: float) -> None:
        look, story, colour = self.look, self.stories[policy], self.colours[policy]
        x, now = self._x(policy), story.moments[place]
        draw_status(sheet, (x + self._width, _HEAD), now.status, look)
        late, cost = float(self._late[policy][place]), float(self._costs[policy][place])
        is_late = now.latency_p95_s > story.scene.slo_s or now.down_s > 0
        told = (
            (number(cost), f"{story.scene.currency} so far", look.ink),
            (percent(late), "late", look.bad if is_late else look.ink),
            (str(now.tasks), "tasks", look.ink),
        )
        is_broad = len(self.names) < 3
        step = self._width / (2.8 if is_broad else 2.5)
        for k, (value, label, shade) in enumerate(told):
            at = (x + k * step, _HEAD + 44)
            end = sheet.text(at, value, shade, 31 if is_broad else 25, bold=True)
            sheet.text((at[0] + end + 8, at[1]), label, look.quiet, 16 if is_broad else 14)
        self._graphs[policy].draw(sheet, (x, _GRAPH[0]), now, story.moments[max(0, place - 1)])
        names = ("latency_p95_s", "cost_per_hour")
        for panels, name, y in zip(
            (self._latency, self._money), names, (_LATENCY[0], _COST[0]), strict=True
        ):
            panel = panels[policy]
            panel.draw(sheet, (x, y), math.ceil(panel.column(t_s)))
            found = float(getattr(now, name))
            panel.dot(sheet, (x, y), t_s, found)
            written = (
                seconds(found)
                if name == "latency_p95_s"
                else f"{money(found, story.scene.currency)} / h"
            )
            panel.value(sheet, (x, y), written, colour)

    def _verdict(self, place: int) -> str:
        """Say what the last policy does better or worse than the first so far."""
        if len(self.names) == 1 or place < 1:
            return ""
        cost, other = float(self._costs[-1][place]), float(self._costs[0][place])
        late = 100 * float(self._late[-1][place] - self._late[0][place])
        if not other > 0:
            return ""
        saved = 100 * (1 - cost / other)
        how = "less" if saved >= 0 else "more"
        later = "less" if late <= 0 else "more"
        begin = "" if place == len(self.t_s) - 1 else "So far "
        return (
            f"{begin}{self.names[-1]} costs {abs(saved):.0f} % {how} than {self.names[0]} "
            f"and is late {number(abs(late))} points {later}"
        )

    def _x(self, policy: int) -> int:
        return _MARGIN + policy * (self._width + _GAP)

    def _drawn_ground(self) -> Sheet:
        look, scene = self.look, self.stories[0].scene
        ground = Sheet(WIDTH, HEIGHT, look.paper)
        end = ground.text((_MARGIN, 42), scene.job, look.ink, 28, bold=True)
        load = f"under {scene.load}" if scene.load else ""
        ground.text((_MARGIN + end + 14, 42), fitted(load, 19, 520), look.quiet, 19)
        self._load_panel(mixed(look.sunk, look.grey, 0.8)).draw(ground, (_MARGIN, _LOAD[0]))
        time_labels(ground, self._load, (_MARGIN, _LOAD[0]), look, 12)
        for policy, name in enumerate(self.names):
            x, colour = self._x(policy), self.colours[policy]
            ground.box((x, _HEAD - 18), (6, 22), colour, 3)
            room = self._width - 140
            ground.text((x + 16, _HEAD), fitted(name, 25, room, True), colour, 25, bold=True)
            self._graphs[policy].draw_edges(ground, (x, _GRAPH[0]))
            for panels, y in ((self._latency, _LATENCY[0]), (self._money, _COST[0])):
                ground.lay((x, y), panels[policy].empty())
        draw_events(ground, (WIDTH - _MARGIN, HEIGHT - 17), look)
        return ground

    def _load_panel(self, colour: Colour) -> CurvePanel:
        size = (WIDTH - 2 * _MARGIN, _LOAD[1])
        panel = CurvePanel(size, self.look, "Load", [Stroke(colour, area=0.15)], count)
        panel.update(axis_of(self.stories[0]), self.t_s, [self.stories[0].series("offered_per_s")])
        return panel

    def _column_panels(self, name: str) -> list[CurvePanel]:
        """Make a panel per policy with one scale for all."""
        every = np.concatenate([story.series(name) for story in self.stories])
        return [self._column_panel(k, name, every) for k in range(len(self.stories))]

    def _column_panel(self, policy: int, name: str, every: Floats) -> CurvePanel:
        story, colour = self.stories[policy], self.colours[policy]
        size = (self._width, _LATENCY[1])
        if name == "latency_p95_s":
            panel = CurvePanel(
                size,
                self.look,
                "Latency, p95",
                [Stroke(colour)],
                seconds,
                bound=story.scene.slo_s,
                scale="log",
            )
        else:
            stroke = Stroke(colour, step=True, area=0.2)
            panel = CurvePanel(size, self.look, "Cost per hour", [stroke], number)
        panel.hold(every)
        panel.update(axis_of(story), self.t_s, [story.series(name)], events_of(story))
        return panel
