"""The commands that pages and `--help` show, in reading order.

Those of one page, or of the help of one command, belong together: one may need what another made.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import typer

from dsp_gym.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "quickstart.md",
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS / "concepts").glob("*.md")),
)


@dataclass(frozen=True)
class Shown:
    """One command as it is printed."""

    source: str  # page, or the command whose help it is
    text: str


def commands() -> list[Shown]:
    """All of them; one that a source shows twice stands once."""
    found = [Shown(name, text) for page in PAGES for name, text in _of_page(page)]
    root = typer.main.get_command(app)
    found += [Shown(name, text) for name, text in _of_help(root, ("dsp-gym",))]
    return list(dict.fromkeys(found))


def _of_page(page: Path) -> Iterator[tuple[str, str]]:
    text = page.read_text("utf-8")
    for block in re.findall(
        r"^ *```(?:sh|bash|console)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE
    ):
        for line in _whole(textwrap.dedent(block)):
            command = re.sub(r"(^|\s+)# .*", "", line)
            if command:
                yield str(page.relative_to(ROOT)), command


def _of_help(
    command: click.Command, path: tuple[str, ...], above: str | None = None
) -> Iterator[tuple[str, str]]:
    """The lines of an epilog are set in by two; what stands behind a wide gap is a remark.

    Args:
        command: whose help it is.
        path: the words that lead to it.
        above: the epilog of its group, which may be its own too.

    Yields:
        Source and text of each command.
    """
    if command.epilog != above:
        for line in _whole(command.epilog or ""):
            if line.startswith("  "):
                yield f"{' '.join(path)} --help", re.split(r"\s{3,}", line.strip())[0]
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of_help(inner, (*path, name), command.epilog)


def _whole(block: str) -> list[str]:
    """Lines, each with those that continue it."""
    return re.sub(r" \\\n\s*", " ", block).splitlines()
