"""The lines under an answer that say how far it can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsp_gym.job.validity import Validity


def print_validity(found: Validity, rate_per_s: float) -> None:
    """Print the 90 % interval of a predicted rate, and everything asked beyond the fit."""
    ends = found.interval(rate_per_s)
    if ends is not None:
        typer.echo(f"90 % interval: {ends[0]:,.0f} to {ends[1]:,.0f} records/s")
    for sentence in found.sentences():
        typer.echo(f"note: {sentence}")
