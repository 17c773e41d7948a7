"""The results of a comparison in one form, whatever was compared: report, files and figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dsp_gym.config.files import write_atomic
from dsp_gym.pages import Emphasis, details, lead, page, section, table


class Table(NamedTuple):
    """A table of text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One table of a report with everything that belongs to it."""

    table: Table
    short: Table  # the same for a terminal, at most 80 columns wide
    emphasis: Mapping[int, Emphasis] = field(default_factory=dict)  # rows that stand out
    notes: tuple[str, ...] = ()  # sentences below the table
    charts: tuple[str, ...] = ()  # below the notes, on the page only
    sketch: str = ""  # the same in text, for a terminal and a card
    more: tuple[Table, ...] = ()  # further tables, folded on the page
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
        parts += [f"## {part.table.title}", render_table(part.table), *part.notes]
        for extra in part.more:
            parts += [f"{extra.title}:", render_table(extra)]
    parts += ["## How to read this", *report.reading]
    return "\n\n".join(part for part in parts if part) + "\n"


def render_table(shown: Table) -> str:
    """Render a table as Markdown.

    Returns:
        Markdown text, without the title.
    """
    lines = [shown.head, ["---", *("---:" for _ in shown.head[1:])], *shown.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    yield table(part.table.head, part.table.rows, emphasis=part.emphasis)
    yield from part.notes
    if part.caveats:
        yield details("Where the model is beyond its fit", *part.caveats)
    yield from part.charts
    for extra in part.more:
        yield details(extra.title, table(extra.head, extra.rows))
