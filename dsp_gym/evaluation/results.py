"""The results of a comparison in one form, whatever was compared: report, files and figures."""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dsp_gym.config.files import write_atomic
from dsp_gym.pages import Emphasis, details, lead, page, section, table

WHOLE_TABLE = "The whole table"
"""What a folded table is called whose leading columns stand above it."""


class Table(NamedTuple):
    """A table of text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def leading(self, heads: Iterable[str], silent: Iterable[str] = ()) -> Table:
        """Choose what a reader needs first.

        Args:
            heads: Columns to keep, the first one included.
            silent: First cells of rows to leave out.

        Returns:
            A table of these columns and of the other rows.
        """
        places = [self.head.index(one) for one in heads]
        left_out = set(silent)
        return Table(
            self.title,
            [self.head[place] for place in places],
            [[row[place] for place in places] for row in self.rows if row[0] not in left_out],
        )


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One table of a report with everything that belongs to it."""

    table: Table
    short: Table  # the same for a terminal, at most 80 columns wide
    emphasis: Mapping[int, Emphasis] = field(default_factory=dict)  # rows that stand out
    lead: Table | None = None  # what of it pages show; they fold the whole. None: all of it
    notes: tuple[str, ...] = ()  # sentences below the table
    charts: tuple[str, ...] = ()  # below the notes, on the page only
    sketch: str = ""  # the same in text, for a terminal and a card
    more: tuple[Table, ...] = ()  # further tables, folded on pages
    caveats: tuple[str, ...] = ()  # folded on the page, counted on a terminal


@dataclass(frozen=True, slots=True)
class Report:
    """What a comparison says to people, for a terminal, a page of documentation and a browser."""

    title: str
    headline: str
    parts: tuple[ReportPart, ...]
    reading: tuple[str, ...]  # how to read the tables
    origin: str = ""  # the command that made it, and the benchmark
    folded: tuple[str, ...] = ()  # markup at the end of the page


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a comparison leaves behind."""

    kind: str  # evaluation, frontier or entry
    report: Report
    files: Mapping[str, str | bytes]  # content by path below the folder of the results
    config: Mapping[str, Any]
    figures: Mapping[str, float] = field(default_factory=dict)  # by name, for a tracker
    tags: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, Path] = field(default_factory=dict)  # folders of trained policies
    warnings: tuple[str, ...] = ()

    def write(self, folder: Path) -> dict[str, Path]:
        """Write all files; folders among them replace those of earlier results.

        Args:
            folder: Folder of the results.

        Returns:
            The files at the top of the folder, by their suffix: `json`, `csv`, `md`, `html`.
        """
        whole = {Path(name).parts[0] for name in self.files if len(Path(name).parts) > 1}
        for name in whole:
            shutil.rmtree(folder / name, ignore_errors=True)
        for name, content in self.files.items():
            write_atomic(folder / name, content)
        return {
            Path(name).suffix.lstrip("."): folder / name
            for name in self.files
            if len(Path(name).parts) == 1
        }


def render_markdown(report: Report) -> str:
    """Render a report as a page of the documentation.

    Returns:
        Markdown text.
    """
    parts = [
        f"# {report.title}",
        "<!-- Written by `dsp-gym evaluate`; do not edit. -->",
        report.headline,
        report.origin,
    ]
    for part in report.parts:
        first = part.table if part.lead is None else part.lead
        parts += [f"## {part.table.title}", render_table(first) if first.rows else "", *part.notes]
        if part.lead is not None:
            parts.append(_folded(part.table._replace(title=WHOLE_TABLE)))
        parts += [_folded(extra) for extra in part.more]
    parts += ["## How to read this", *report.reading]
    return "\n\n".join(part for part in parts if part) + "\n"


def render_table(shown: Table) -> str:
    """Render a table as Markdown.

    Returns:
        Markdown text, without the title.
    """
    lines = [shown.head, ["---", *("---:" for _ in shown.head[1:])], *shown.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _folded(shown: Table) -> str:
    """Fold a table away on GitHub and in MkDocs; both read Markdown in it between empty lines."""
    summary = f"<summary>{html.escape(shown.title, quote=False)}</summary>"
    return f'<details markdown="1">\n{summary}\n\n{render_table(shown)}\n\n</details>'


def render_html(report: Report) -> str:
    """Render a report as one page without any outside reference.

    Returns:
        HTML of one page.
    """
    return page(
        report.title,
        *([lead(report.headline)] if report.headline else []),
        *(section(part.table.title, *_parts(part)) for part in report.parts),
        section("How to read and repeat this", *report.reading, *report.folded),
    )


def _parts(part: ReportPart) -> Iterable[str]:
    first = part.table if part.lead is None else part.lead
    if first.rows:
        yield table(first.head, first.rows, emphasis=part.emphasis)
    yield from part.notes
    if part.caveats:
        yield details("Where the model is beyond its fit", *part.caveats)
    yield from part.charts
    if part.lead is not None:
        whole = table(part.table.head, part.table.rows, emphasis=part.emphasis)
        yield details(WHOLE_TABLE, whole)
    for extra in part.more:
        yield details(extra.title, table(extra.head, extra.rows))
