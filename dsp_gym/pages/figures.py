"""Figures for a page: Matplotlib with settings of our own, as SVG, the same bytes each time."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsp_gym.errors import MissingExtraError
from dsp_gym.pages.page import Html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: Any = {  # Any: Matplotlib types each key's value on its own
    "axes.axisbelow": True,
    "axes.edgecolor": "#c4c8cf",
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.family": "sans-serif",
    "grid.color": "#e6e8ec",
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: small, and in the page's font
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextmanager
def figure(
    width_in: float, height_in: float, *, salt: str, extra: str, purpose: str
) -> Iterator[Figure]:
    """A figure to draw on, with our settings whatever the user's are.

    Args:
        width_in: Inches.
        height_in: Inches.
        salt: Keeps the ids inside the SVG apart from those of the page's other figures, and the
            same each time.
        extra: The extra of dsp-gym that brings Matplotlib to the reader of this report.
        purpose: What is drawn, for the message where Matplotlib is not installed.

    Yields:
        An empty Matplotlib figure of that size; Matplotlib's settings are the user's again after
        the block.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra, purpose) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": salt})
        yield Figure(figsize=(width_in, height_in), layout="constrained")


def svg(drawn: Figure, description: str) -> Html:
    """The figure as an `<svg>` element that scrolls sideways; to be called inside `figure`.

    Args:
        drawn: A figure that `figure` gave.
        description: The content in words, for readers who cannot see the figure.

    Returns:
        Markup: a `<div>` around the `<svg>` element, labelled with the description.
    """
    stream = io.StringIO()
    drawn.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    label = html.escape(description, quote=True)
    text = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return Html(f'<div class="wide drawn">{text}</div>')
