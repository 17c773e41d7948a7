"""Markdown: pages, tables, and text of docstrings on one line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

from dsp_gym.config.model import ConfigModel

Row = Sequence[object]


def page(title: str, *parts: str) -> str:
    """A page of Markdown."""
    note = "<!-- Written by docs/generate.py; do not edit. -->"
    return "\n\n".join([note, f"# {title}", *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """A Markdown table; text of a cell stays on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


def cell(value: object) -> str:
    """A value on one line, safe inside a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """A value as it would stand in YAML."""
    if value is None:
        return "none"
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}`"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} entries"
    return f"`{value}`"


def cleaned(thing: object) -> str:
    """The docstring of a class or module as plain paragraphs."""
    text = inspect.getdoc(thing) or ""
    if isinstance(thing, type) and issubclass(thing, ConfigModel):
        return plain(text)
    return plain(text.partition("\n\n")[0])


def plain(text: str) -> str:
    """Text of a docstring as Markdown."""
    return re.sub(r"``(.*?)``", r"`\1`", text).strip()


def first_line(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return plain((text or "").strip().partition("\n\n")[0])


def anchor(title: str) -> str:
    """The id that MkDocs gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
