"""A page of HTML that needs nothing else: whatever it shows stands in it, scripts included.

Parts are text or `Html`. Text becomes a paragraph (in a table, a cell) and is escaped, whatever it
holds; `Html` is markup and stands as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain, repeat
from types import MappingProxyType
from typing import Literal

Emphasis = Literal["best", "mine", "best mine"]
"""How a row of a table stands out: the winner is bold, the reader's own has another ground."""


Judgement = Literal["good", "wait", "bad"]
"""How a condition stands: it holds, is not decided yet, or speaks against."""

_MARKS: Mapping[Judgement, str] = MappingProxyType({"good": "✓", "wait": "…", "bad": "✗"})


class Html(str):
    """Markup, to be shown as it is; made by the functions here and by `svg`."""

    __slots__ = ()


def page(title: str, *parts: str) -> str:
    """The whole document, the title as its first heading.

    Args:
        title: Text, also of the browser's tab.
        parts: Paragraphs and markup, in order.

    Returns:
        HTML that needs no other file.
    """
    body, style, script = _body(parts), STYLE, ""
    if '<div class="chart"' in body:
        of_charts, source = chart_script()
        style, script = of_charts + style, f"\n<script>{source}</script>"
    return _PAGE.format(title=html.escape(title), style=style, script=script, body=body)


def section(title: str, *parts: str) -> Html:
    """Parts under their own heading, set off by a line.

    Returns:
        Markup: a `<section>` with an `<h2>`.
    """
    return Html(f"<section>\n<h2>{html.escape(title)}</h2>\n{_body(parts)}\n</section>")


def heading(text: str) -> Html:
    """A heading inside a section.

    Returns:
        Markup: an `<h3>`.
    """
    return Html(f"<h3>{html.escape(text)}</h3>")


def link(text: str, target: str) -> Html:
    """A link to another page.

    Args:
        text: Of the link.
        target: A relative path or an address; not of others, who could name a script.

    Returns:
        Markup: an `<a>` element.
    """
    return Html(f'<a href="{html.escape(target, quote=True)}">{html.escape(text)}</a>')


def shaded(text: str, heat: float) -> Html:
    """A cell of a table on a coloured ground.

    Args:
        text: Of the cell.
        heat: From 0, no colour, to 1.

    Returns:
        Markup: a `<span>`.
    """
    return Html(f'<span class="heat" style="--heat:{heat:.2f}">{html.escape(text)}</span>')


def judged(text: str, how: Judgement) -> Html:
    """Text with a mark and a colour that say how a condition stands.

    Args:
        text: Of the cell.
        how: It holds ("good"), more has to be seen ("wait"), or it speaks against ("bad").

    Returns:
        Markup: a `<span>`.
    """
    return Html(f'<span class="is-{how}">{_MARKS[how]} {html.escape(text)}</span>')


def details(summary: str, *parts: str) -> Html:
    """Parts that are folded away until the reader asks for them.

    Returns:
        Markup: a `<details>` element.
    """
    return Html(f"<details>\n<summary>{html.escape(summary)}</summary>\n{_body(parts)}\n</details>")


def lead(text: str) -> Html:
    """The one sentence a reader in a hurry needs, below the title.

    Returns:
        Markup: a large paragraph.
    """
    return Html(f'<p class="lead">{html.escape(text)}</p>')


def note(text: str) -> Html:
    """A paragraph the reader must not miss.

    Returns:
        Markup: a paragraph that begins with a bold "Note:".
    """
    return Html(f"<p><b>Note:</b> {html.escape(text)}</p>")


def code(text: str) -> Html:
    """Text as it is, lines and spaces kept.

    Returns:
        Markup: a `<pre>` element, the text escaped.
    """
    return Html(f"<pre>{html.escape(text)}</pre>")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    prose: bool = False,
    cards: bool = False,
    emphasis: Mapping[int, Emphasis] = MappingProxyType({}),
) -> Html:
    """A table that scrolls sideways where the window is too narrow.

    Args:
        columns: Heads; none for a plain list of names and values.
        rows: Cells, each row as long as the others.
        prose: Whether cells are sentences: they wrap, and are aligned left. Numbers do not wrap and
            are aligned right, but for the first column.
        cards: Whether each row becomes a card of its own where the window is narrow, as on a
            phone: its first cell is the title, and each other cell has its head before it; a cell
            whose head ends with ":" takes a line of its own, without the head.
        emphasis: Rows that stand out, by their place.

    Returns:
        Markup: a `<div>` around the `<table>`.

    >>> print(table(("job", "cost"), [("q1 & q2", "3")]))
    <div class="wide"><table>
    <tr><th>job</th><th>cost</th></tr>
    <tr><td>q1 &amp; q2</td><td>3</td></tr>
    </table></div>
    """
    heads = [head.removesuffix(":") for head in columns]
    labels = [_label(head) for head in columns[1:]] if cards else []
    lines = [_row("th", heads, "heads" if cards else None)] if columns else []
    lines += [_row("td", row, emphasis.get(place), labels) for place, row in enumerate(rows)]
    kind = " ".join(name for name, on in (("prose", prose), ("cards", cards)) if on)
    begin = f'<table class="{kind}">' if kind else "<table>"
    body = "\n".join(lines)
    return Html(f'<div class="wide">{begin}\n{body}\n</table></div>')


def _label(head: str) -> str:
    """The attribute that puts a head before its cell on a card."""
    if head.endswith(":"):
        return ' class="across"'
    return f' data-label="{html.escape(head, quote=True)}"'


def _row(
    tag: str, cells: Iterable[str], kind: str | None = None, labels: Sequence[str] = ()
) -> str:
    begin = "<tr>" if kind is None else f'<tr class="{kind}">'
    texts = (cell if isinstance(cell, Html) else html.escape(cell) for cell in cells)
    given = chain(("", *labels), repeat(""))
    return (
        begin
        + "".join(f"<{tag}{said}>{text}</{tag}>" for text, said in zip(texts, given, strict=False))
        + "</tr>"
    )


def _body(parts: Iterable[str]) -> str:
    return "\n".join(
        part if isinstance(part, Html) else f"<p>{html.escape(part)}</p>" for part in parts
    )


STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1f2430; --quiet: #5b6270; --faint: #e3e6ea; --sunk: #f5f6f8;
  --grey: #8a919c; --accent: #2f62a0; --good: rgba(46, 125, 50, .08); --mine: #fff6dc;
  --is-good: #1b6e2e; --is-wait: #7a5200; --is-bad: #b3261e;
  --line-0: #2f62a0; --line-1: #c04a32; --line-2: #3b7f49; --line-3: #7d57b5;
  --line-4: #93701c; --line-5: #1f7f86; --line-6: #a2477a; --line-7: #59606d; }
@media (prefers-color-scheme: dark) { :root:not([data-scheme=light]) {
  --paper: #14171c; --ink: #e4e7ec; --quiet: #a3abb8; --faint: #2c323b; --sunk: #1d2127;
  --grey: #7d8592; --accent: #7fb0ea; --good: rgba(120, 200, 130, .10); --mine: #2e2a18;
  --is-good: #7cc48b; --is-wait: #e6b450; --is-bad: #ff9a8f;
  --line-0: #6ea6e8; --line-1: #f08a70; --line-2: #7cc48b; --line-3: #b79ae8;
  --line-4: #d9b450; --line-5: #5cc3ca; --line-6: #e58cbb; --line-7: #a3abb8; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1200px; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
@media (min-width: 2000px) { body { max-width: 1800px; font-size: 17px; } }
a { color: var(--accent); }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--faint); padding-top: 1.5rem; }
.lead { font-size: 1.25em; margin: .5rem 0 1.5rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
.drawn svg { background: #fff; } /* its ink is dark whatever the scheme */
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid var(--faint);
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.heat { display: block; margin: -.25rem -.75rem; padding: .25rem .75rem;
       background: color-mix(in srgb, var(--line-1) calc(var(--heat) * 45%), transparent); }
.is-good { color: var(--is-good); } .is-wait { color: var(--is-wait); }
.is-bad { color: var(--is-bad); }
.bars { font-family: monospace; white-space: pre; letter-spacing: -.05em; }
tr.best td { font-weight: 600; }
tr.mine td { background: var(--mine); }
.cards th:first-child, .cards td:first-child { min-width: 8rem; max-width: 16rem;
  white-space: normal; }
.cards td.across { white-space: normal; min-width: 10rem; }
@media (max-width: 1150px) {
  .cards, .cards tbody { display: block; } .cards thead { display: none; }
  .cards tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr));
    gap: .15rem 1rem; padding: .6rem 0;
    border-bottom: 1px solid var(--faint); }
  .cards tr.heads { display: none; }
  .cards th, .cards td, .cards td:nth-child(n) { border: 0; padding: 0; text-align: left;
    min-width: 0; white-space: normal; }
  .cards th, .cards td:first-child, .cards td.across { grid-column: 1 / -1; max-width: none;
    font-size: 15px; font-weight: 600; }
  .cards td.across { font-weight: 400; font-size: inherit; }
  .cards td[data-label]::before { content: attr(data-label) " "; color: var(--quiet); } }
.prose th, .prose td { white-space: normal; text-align: left; }
pre { background: var(--sunk); padding: 1rem; overflow-x: auto; font-size: 12px; }
details { margin: 1rem 0; } summary { cursor: pointer; font-weight: 600; }
.chart { margin: 1rem 0; }
.panel { display: flex; flex-wrap: wrap; gap: 0 .5rem; margin-top: .5rem; }
.unit { color: var(--quiet); }
.values { color: var(--quiet); font-variant-numeric: tabular-nums; white-space: pre-wrap; }
.said { color: var(--quiet); min-height: 1.5em; margin: .25rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem .5rem; }
.key { font: inherit; color: inherit; background: none; border: 1px solid var(--faint);
       border-radius: 1em; padding: 0 .75em; cursor: pointer; }
.key::before { content: ""; display: inline-block; width: .7em; height: .7em; border-radius: 50%;
       background: var(--key); margin-right: .45em; }
.key[aria-pressed=false] { color: var(--quiet); text-decoration: line-through; }
.key[aria-pressed=false]::before { background: none; box-shadow: inset 0 0 0 2px var(--key); }
[hidden] { display: none; }
select { font: inherit; color: inherit; background: var(--sunk); max-width: 100%; }
@media print { body { max-width: none; margin: 0; } .chart, tr { break-inside: avoid; }
       .legend, label { display: none; } }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>{script}
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


@cache
def chart_script() -> tuple[str, str]:
    """What a page with charts needs.

    Returns:
        Its style and its script.
    """
    here = files("dsp_gym.pages")
    style = here.joinpath("vendor/uPlot.min.css").read_text(encoding="utf-8")
    scripts = (here.joinpath(name) for name in ("vendor/uPlot.iife.min.js", "charts.js"))
    return style, "\n".join(script.read_text(encoding="utf-8") for script in scripts)
