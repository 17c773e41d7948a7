"""Draws the architecture picture from docs/architecture.yaml, once for each colour scheme.

    python docs/architecture.py

Boxes and groups stand where the text says; an arrow follows its points, of which `box.side` is the
middle of a side. A test compares the committed pictures with what this file draws.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from math import dist
from pathlib import Path
from typing import NamedTuple, TypedDict

import yaml

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS / "architecture.yaml"
FONT = "Roboto, Helvetica, Arial, sans-serif"

Point = tuple[float, float]


class Block(TypedDict, total=False):
    """A box or a group of the source."""

    title: str
    text: str
    at: tuple[float, float]
    size: tuple[float, float]


class Arrow(TypedDict, total=False):
    """An arrow of the source."""

    path: list[str | list[float]]
    label: str
    beside: str


class Picture(TypedDict):
    """The source."""

    title: str
    size: tuple[float, float]
    groups: list[Block]
    boxes: dict[str, Block]
    arrows: list[Arrow]


class Colours(NamedTuple):
    """One colour scheme."""

    ink: str
    faint: str
    line: str
    box: str
    group: str
    page: str


SCHEMES = {
    "light": Colours("#1f2430", "#5b6270", "#3f51b5", "#e8eaf6", "#f7f8fc", "#ffffff"),
    "dark": Colours("#e6e8ee", "#a9b0c0", "#9fa8da", "#2d3450", "#232838", "#1e2129"),
}


def pictures() -> dict[str, str]:
    """File name below docs/ and SVG of the picture in each colour scheme."""
    source: Picture = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return {f"architecture-{name}.svg": drawn(source, c) for name, c in SCHEMES.items()}


def drawn(source: Picture, colours: Colours) -> str:
    """The picture as SVG; its text stays text."""
    width, height = source["size"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="{FONT}" role="img" aria-label="{escape(source["title"])}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colours.line}"/>'
        "</marker></defs>",
        *(group(block, colours) for block in source["groups"]),
        *(box(block, colours) for block in source["boxes"].values()),
        *(arrow(one, source["boxes"], colours) for one in source["arrows"]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def group(block: Block, colours: Colours) -> str:
    """A frame around boxes, its title and the path of its code on top."""
    x, y, width, height = *block["at"], *block["size"]
    middle = x + width / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" '
        f'fill="{colours.group}" stroke="{colours.line}" stroke-dasharray="5 4"/>'
        + words(middle, y + 22, block["title"], colours.ink, 14, bold=True)
        + words(middle, y + 40, block.get("text", ""), colours.faint, 12)
    )


def box(block: Block, colours: Colours) -> str:
    """A box with a title, and below it what it is or where its code is."""
    x, y, width, height = *block["at"], *block["size"]
    middle, centre = x + width / 2, y + height / 2
    text = block.get("text", "")
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
        f'fill="{colours.box}" stroke="{colours.line}"/>'
        + words(middle, centre + (-3 if text else 5), block["title"], colours.ink, 14)
        + words(middle, centre + 14, text, colours.faint, 12)
    )


def arrow(one: Arrow, boxes: dict[str, Block], colours: Colours) -> str:
    """A line through its points, with its label at the longest piece."""
    points = [point(end, boxes) for end in one["path"]]
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    line = (
        f'<path d="{path}" fill="none" stroke="{colours.line}" stroke-width="1.6" '
        'marker-end="url(#tip)"/>'
    )
    if "label" not in one:
        return line
    (x0, y0), (x1, y1) = max(pairwise(points), key=lambda ends: dist(*ends))
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    if "beside" in one:
        x, anchor = (x + 9, "start") if one["beside"] == "right" else (x - 9, "end")
        return line + words(x, y + 4, one["label"], colours.faint, 12, anchor=anchor)
    return line + words(x, y - 7, one["label"], colours.faint, 12)


def point(end: str | list[float], boxes: dict[str, Block]) -> Point:
    """A point as given, or the middle of a side of a box."""
    if not isinstance(end, str):
        return end[0], end[1]
    name, _, side = end.partition(".")
    (x, y), (width, height) = boxes[name]["at"], boxes[name]["size"]
    return {
        "left": (x, y + height / 2),
        "right": (x + width, y + height / 2),
        "top": (x + width / 2, y),
        "bottom": (x + width / 2, y + height),
    }[side]


def words(
    x: float,
    y: float,
    text: str,
    colour: str,
    size: int,
    *,
    bold: bool = False,
    anchor: str = "middle",
) -> str:
    """A line of text; nothing of an empty one."""
    if not text:
        return ""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}"{weight} '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


if __name__ == "__main__":
    for name, svg in pictures().items():
        (DOCS / name).write_text(svg, encoding="utf-8")
