"""The page of published numbers and figures, study by study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reproduction_plots import PLOTS

from dsp_gym.studies.reproduce.registry import Check, reproduce, studies
from generator.markdown import page, table


def section(study: str, checks: Sequence[Check]) -> str:
    """The table of one study."""
    rows = [
        [
            f"`{check.name}`",
            check.claim,
            check.published,
            "–" if check.ours is None else check.ours,
            check.tolerance,
            "yes" if check.used_in_fit else "no",
            {True: "ok", False: "**failed**", None: "–"}[check.passed],
            check.note or "",
        ]
        for check in checks
    ]
    head = ["check", "claim", "published", "ours", "tolerance", "in fit", "result", "note"]
    return f"## {study}\n\n{studies()[study]}.\n\n{table(head, rows)}"


def reproduction(data: Path | None) -> str:
    """The table of published numbers, study by study."""
    found = {study: reproduce(study, data) for study in studies()}
    every = [check for checks in found.values() for check in checks]
    bar = [check for check in every if check.passed is not None]
    unseen = [check for check in bar if not check.used_in_fit]
    summary = (
        f"{len(bar)} checks have a bar, {sum(not c.failed for c in bar)} of them pass. "
        f"{len(unseen)} compare with numbers no parameter was fitted to, "
        f"{sum(not c.failed for c in unseen)} of them pass. "
        f"{len(every) - len(bar)} are reported without a bar or were skipped."
    )
    return page(
        "Published numbers",
        "This page compares figures published in papers with those of the model, for readers who "
        "want to know how far to trust it. `dsp-gym reproduce` recomputes them, and "
        '`python docs/generate.py` writes this page. "In fit" marks figures that a parameter of '
        "the job was fitted or chosen to meet; "
        "[Shipped jobs](reference/jobs.md#what-was-used-in-a-fit) lists them by job. The StreamBed "
        "study needs the folder of measured data (`DSP_GYM_DATA`). The runs of the study `espa` "
        "are in github.com/delftdata/espa-autoscaling at commit 2290fa6, below "
        "`results/st2/final_results`: put the samples of each run into one table with the "
        "columns that `dsp-gym reproduce espa --runs FILE` takes.",
        summary,
        reproduction_figures(),
        *(section(study, checks) for study, checks in found.items()),
    )


def reproduction_figures() -> str:
    """The papers' figures as ours, each with its seed and command."""
    parts = [
        f"![{plot.title}](figures/reproduction/{name}.svg)\n\n**{plot.title}.** {plot.caption} "
        f"{plot.seeds}; the numbers: `{plot.command}`, the drawing: "
        "`python docs/generate.py`."
        for name, plot in PLOTS.items()
    ]
    return "\n\n".join(["## Figures", *parts])
