"""The picture of a job: its vertices in the colours of how busy they are, tasks and memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dsp_gym.envs.watch.canvas import Mask, Point, Sheet, curve_mask, fitted, text_width
from dsp_gym.envs.watch.episode_data import Moment, Scene
from dsp_gym.envs.watch.figures import bytes_of, count
from dsp_gym.envs.watch.layout import arranged
from dsp_gym.envs.watch.theme import Colour, Theme, mixed

LARGEST, SMALLEST_GAP, WIDEST_GAP = (300, 136), (34, 12), 170
"""Of a vertex, and between two; pixels."""

_ROOMY, _MIDDLE, _NARROW = 96, 54, 112
"""Heights from which the text of a vertex is large, or middling; width below which it stands
outside."""

_GAP_OF_NARROW = 22

_STRIP, _TASKS_OF_STRIP = 56, 16
"""Pixels of a layer below which a vertex is a bar; tasks of a full bar, at least."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One vertex at one moment."""

    name: str
    tasks: int
    change: int  # of the tasks since the moment before
    memory_mib: float  # managed, of one subtask
    memory_change: int  # of the memory level
    busy: float
    rate_per_s: float
    has_memory: bool


class JobGraph:
    """Draws one job, moment by moment.

    Args:
        scene: The job.
        size: Width and height there are, pixels.
        look: Colours.
    """

    def __init__(self, scene: Scene, size: tuple[int, int], look: Theme) -> None:
        self.scene, self.size, self.look = scene, size, look
        plan = arranged([vertex.inputs for vertex in scene.vertices])
        width = min(LARGEST[0], (size[0] - SMALLEST_GAP[0] * (plan.layers - 1)) // plan.layers)
        height = min(LARGEST[1], (size[1] - SMALLEST_GAP[1] * (plan.rows - 1)) // plan.rows)
        self.node = (width, height)
        self._is_narrow = width < _NARROW
        pitch = size[0] / plan.layers
        self._is_strip = pitch < _STRIP
        if self._is_narrow:
            self.node = (min(64, round(pitch - _GAP_OF_NARROW)), max(24, min(52, height - 34)))
            width = round(pitch) - 4  # name and memory stand above and below
        most = (plan.layers - 1) * (width + WIDEST_GAP)
        room = (min(most, size[0] - width), size[1] - height)
        left = (size[0] - room[0]) / 2

        def place(at: Point) -> Point:
            return left + at[0] * room[0], height / 2 + at[1] * room[1]

        self.corners = [
            (x - self.node[0] / 2, y - self.node[1] / 2) for x, y in map(place, plan.centres)
        ]
        self._room = width
        paths = [[place(point) for point in edge] for edge in plan.edges]
        lines = [self._path(path) for path in paths]
        heads = [[(x - 8, y - 5), (x - 1, y), (x - 8, y + 5)] for x, y in (p[-1] for p in lines)]
        self._edges: Mask = curve_mask(size, [*lines, *heads], 2.0)

    def draw_edges(self, sheet: Sheet, corner: tuple[int, int]) -> None:
        """Draw what never changes, the edges, onto the ground of all frames.

        Args:
            sheet: The ground.
            corner: Upper left of the graph, pixels.
        """
        if self._is_strip:
            words = "Tasks of each vertex"
            sheet.text((corner[0], corner[1] + 10), words, self.look.quiet, 13)
        else:
            sheet.wash(corner, self._edges, self.look.grey, 0.8)

    def draw(self, sheet: Sheet, corner: tuple[int, int], now: Moment, before: Moment) -> None:
        """Draw the job onto a frame.

        Args:
            sheet: The frame.
            corner: Upper left of the graph, pixels.
            now: The moment.
            before: The moment before, to show what changed.
        """
        if self._is_strip:
            self._draw_strip(sheet, corner, now, before)
            return
        memory, levels = now.managed_mib(self.scene), now.memory_level - before.memory_level
        for place, vertex in enumerate(self.scene.vertices):
            node = _Node(
                vertex.name,
                int(now.parallelism[place]),
                int(now.parallelism[place] - before.parallelism[place]),
                float(memory[place]),
                int(levels[place]),
                float(now.busy[place]),
                float(now.records_in_per_s[place]),
                vertex.stateful or memory[place] > 0,
            )
            x, y = self.corners[place]
            self._draw(sheet, (round(corner[0] + x), round(corner[1] + y)), node)

    def _draw_strip(
        self, sheet: Sheet, corner: tuple[int, int], now: Moment, before: Moment
    ) -> None:
        """Draw a bar for each vertex, as high as it has tasks: there is no room for a graph."""
        look, (width, height) = self.look, self.size
        pitch = width / len(self.scene.vertices)
        most = max(_TASKS_OF_STRIP, int(now.parallelism.max()))
        for place in range(len(self.scene.vertices)):
            tasks = int(now.parallelism[place])
            x, bar = corner[0] + place * pitch, max(3, round((height - 36) * tasks / most))
            top = corner[1] + height - bar
            colour = look.of_busyness(float(now.busy[place]))
            sheet.box((x + 2, top), (pitch - 4, bar), colour, 2)
            changed = tasks != before.parallelism[place]
            shade = look.lines[0] if changed else look.quiet
            at = (x + pitch / 2, top - 4)
            sheet.text(at, str(tasks), shade, 12, bold=changed, align="centre")

    def _draw(self, sheet: Sheet, corner: tuple[int, int], node: _Node) -> None:
        (width, height), look = self.node, self.look
        x, y = corner
        colour = look.of_busyness(node.busy)
        border = look.lines[0] if node.change or node.memory_change else colour
        sheet.box((x, y), (width, height), border, 9)
        inner = (width - 4, height - 4)
        sheet.box((x + 2, y + 2), inner, mixed(look.sunk, colour, 0.16), 7)
        filled = 0.0 if node.busy != node.busy else node.busy
        sheet.box((x + 2, y + 2), inner, mixed(look.sunk, colour, 0.42), 7, filled=filled)
        if self._is_narrow:
            self._narrow(sheet, corner, node)
        elif height >= _ROOMY:
            self._roomy(sheet, corner, node, colour)
        else:
            self._dense(sheet, corner, node)

    def _roomy(self, sheet: Sheet, corner: tuple[int, int], node: _Node, colour: Colour) -> None:
        (width, height), look, (x, y) = self.node, self.look, corner
        left, right = x + 14, x + width - 14
        share = _share(node.busy)
        room = width - 36 - text_width(share, 17, True)
        sheet.text((left, y + 26), fitted(node.name, 16, room, True), look.ink, 16, bold=True)
        sheet.text((right, y + 26), share, look.ink, 17, bold=True, align="right")
        tasks = f"{node.tasks} task" + ("s" if node.tasks != 1 else "")
        end = sheet.text((left, y + 50), tasks, look.ink, 15)
        if node.change:
            sheet.text((left + end + 8, y + 50), _change(node.change), look.lines[0], 15, bold=True)
        rate = f"{count(node.rate_per_s)}/s"
        sheet.text((right, y + 50), rate, look.quiet, 14, align="right")
        self._squares(sheet, (left, y + 60), node, colour)
        if node.has_memory:
            words = f"{bytes_of(node.memory_mib)} per task"
            end = sheet.text((left, y + height - 12), words, look.quiet, 13)
            if node.memory_change:
                at = (left + end + 8, y + height - 12)
                sheet.text(at, "↑" if node.memory_change > 0 else "↓", look.lines[0], 14, bold=True)

    def _squares(self, sheet: Sheet, at: Point, node: _Node, colour: Colour) -> None:
        """Draw one square for each task, as far as there is room."""
        room = self.node[0] - 28
        lines = 2 if self.node[1] >= 120 else 1
        side = next((s for s in (11, 9, 7, 5, 3) if node.tasks <= lines * (room // (s + 3))), 0)
        if not side:
            sheet.box(at, (room, 8), colour, 3)
            return
        columns = room // (side + 3)
        for k in range(node.tasks):
            row, column = divmod(k, columns)
            place = (at[0] + column * (side + 3), at[1] + row * (side + 3))
            sheet.box(place, (side, side), colour, 2 if side > 4 else 0)

    def _dense(self, sheet: Sheet, corner: tuple[int, int], node: _Node) -> None:
        """Write name and busyness; below them tasks and memory, where there is room."""
        (width, height), look, (x, y) = self.node, self.look, corner
        left, right = x + 9, x + width - 9
        has_two = height >= 36
        first = y + (height // 2 - 4 if has_two else height // 2 + 5)
        size = 13 if height >= _MIDDLE else 12
        tasks = f"{node.tasks}{_change(node.change) if node.change else ''}"
        shown = _share(node.busy) if has_two else tasks
        room = width - 24 - text_width(shown, size, True)
        sheet.text((left, first), fitted(node.name, size, room, True), look.ink, size, bold=True)
        sheet.text((right, first), shown, look.ink, size, bold=True, align="right")
        if not has_two:
            return
        words = f"{node.tasks} task" + ("s" if node.tasks != 1 else "")
        if node.has_memory:
            words = f"{node.tasks} × {bytes_of(node.memory_mib)}"
        change = _change(node.change) if node.change else ""
        room = width - 20 - (text_width(change, size, True) if change else 0)
        second = first + size + 5
        sheet.text((left, second), fitted(words, size - 1, room), look.quiet, size - 1)
        sheet.text((right, second), change, look.lines[0], size, bold=True, align="right")

    def _narrow(self, sheet: Sheet, corner: tuple[int, int], node: _Node) -> None:
        """Write tasks and busyness; the name above, memory and changes below."""
        (width, height), look = self.node, self.look
        centre, y = corner[0] + width / 2, corner[1]
        name = fitted(node.name, 11, self._room)
        sheet.text((centre, y - 6), name, look.quiet, 11, align="centre")
        second = height >= 40
        first = y + (height / 2 - 2 if second else height / 2 + 5)
        sheet.text((centre, first), str(node.tasks), look.ink, 15, bold=True, align="centre")
        if second:
            at = (centre, y + height / 2 + 15)
            sheet.text(at, _share(node.busy), look.ink, 12, align="centre")
        change = _change(node.change) if node.change else ""
        memory = bytes_of(node.memory_mib) if node.has_memory else ""
        colour = look.lines[0] if change else look.quiet
        below = (centre, y + height + 14)
        sheet.text(below, change or memory, colour, 11, bold=bool(change), align="centre")

    def _path(self, points: list[Point]) -> list[Point]:
        """Draw a smooth line from the right side of a vertex to the left side of another."""
        half = self.node[0] / 2
        points = [
            (points[0][0] + half, points[0][1]),
            *points[1:-1],
            (points[-1][0] - half, points[-1][1]),
        ]
        found: list[Point] = [points[0]]
        share = np.linspace(0.0, 1.0, 17)[1:]
        for (x0, y0), (x1, y1) in pairwise(points):
            y = y0 + (y1 - y0) * (3 * share**2 - 2 * share**3)
            found += zip((x0 + (x1 - x0) * share).tolist(), y.tolist(), strict=True)
        return found


def _share(busy: float) -> str:
    return "–" if busy != busy else f"{100 * busy:.0f} %"


def _change(tasks: int) -> str:
    return f"{'+' if tasks > 0 else '−'}{abs(tasks)}"
