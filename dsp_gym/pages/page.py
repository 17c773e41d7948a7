"""A page of HTML that needs nothing else: no script, no style sheet, no font is fetched.

Parts are text or `Html`. Text becomes a paragraph (in a table, a cell) and is escaped, whatever it
holds; `Html` is markup and stands as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Html", "code", "details", "heading", "note", "page", "section", "table"]


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
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=_body(parts))


def section(title: str, *parts: str) -> Html:
    """Parts under a heading of their own, set off by a line.

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


def details(summary: str, *parts: str) -> Html:
    """Parts that are folded away until the reader asks for them.

    Returns:
        Markup: a `<details>` element.
    """
    return Html(f"<details>\n<summary>{html.escape(summary)}</summary>\n{_body(parts)}\n</details>")


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, prose: bool = False) -> Html:
    """A table that scrolls sideways where the window is too narrow.

    Args:
        columns: Heads; none for a plain list of names and values.
        rows: Cells, each row as long as the others.
        prose: Whether cells are sentences: they wrap, and are aligned left. Numbers do not wrap and
            are aligned right, but for the first column.

    Returns:
        Markup: a `<div>` around the `<table>`.

    >>> print(table(("job", "cost"), [("q1 & q2", "3")]))
    <div class="wide"><table>
    <tr><th>job</th><th>cost</th></tr>
    <tr><td>q1 &amp; q2</td><td>3</td></tr>
    </table></div>
    """
    lines = [_row("th", columns)] if columns else []
    lines += [_row("td", row) for row in rows]
    kind = ' class="prose"' if prose else ""
    body = "\n".join(lines)
    return Html(f'<div class="wide"><table{kind}>\n{body}\n</table></div>')


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells) + "</tr>"


def _body(parts: Iterable[str]) -> str:
    return "\n".join(
        part if isinstance(part, Html) else f"<p>{html.escape(part)}</p>" for part in parts
    )


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(text)


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2430; background: #fff;
       max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid #e6e8ec;
       padding-top: 1.5rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #e6e8ec;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.prose th, .prose td { white-space: normal; text-align: left; }
pre { background: #f6f7f9; padding: 1rem; overflow-x: auto; font-size: 12px; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
