"""Figures of the papers, drawn from our runs, as SVG: the same bytes for the same numbers.

`docs/generate.py` writes them to docs/figures/reproduction/ and shows them in reproduction.md.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsp_gym.calibration.series_tables import read_series
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.cost import requested
from dsp_gym.job.spec import JobSpec
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.studies.reproduce.closed_loop import apart
from dsp_gym.studies.reproduce.demeter import SETUPS, simulate
from dsp_gym.studies.reproduce.ds2 import PHASE_S, flink_word_count, heron
from dsp_gym.studies.reproduce.justin import MEMORY_MIB, TASKS, on_nexmark, rates_per_s
from dsp_gym.studies.reproduce.streambed_planner import (
    SLOT_GIB,
    TABLES,
    learned,
    planned_slots,
    replays,
)

STYLE = {
    "svg.hashsalt": "dsp-gym",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
BLUE, RED, GREEN, PURPLE, GREY = "#3b6ea8", "#c8553d", "#4f8f5b", "#8e6bbf", "#9aa1ab"
COLOURS = (BLUE, RED, GREEN, PURPLE, "#b0892f")
SEED = 0
GOOD, NEAR = 0.99, 0.9
"""Share of the rate from which a run carries it, and from which it comes close."""


@dataclass(frozen=True)
class Plot:
    """One figure: what it shows, and what makes its numbers."""

    title: str
    caption: str
    command: str
    draw: Callable[[Path], Figure]
    seeds: str = "Seed 0"


def svg(figure: Figure) -> str:
    """The figure's text, without the date and version that would change its bytes."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def drawn(plot: Plot, data: Path) -> str:
    """One figure as SVG."""
    with matplotlib.rc_context(STYLE):
        return svg(plot.draw(data))


def ds2_figure_6(_data: Path) -> Figure:
    """Parallelism over time on Heron."""
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    policies = {
        "Dhalion": PolicyConfig(policy="dhalion"),
        "DS2": PolicyConfig(policy="ds2", params={"interval_s": 60}),
    }
    runs = {name: heron(policy, 2400) for name, policy in policies.items()}
    for axis, vertex, least in zip(panels, ("flatmap", "count"), (10, 20), strict=True):
        for colour, (name, run) in zip((RED, BLUE), runs.items(), strict=True):
            _steps(axis, [(t, c[vertex][0]) for t, c in run.path], 2400, colour, name)
        axis.axhline(least, color=GREY, ls=":", label="least that sustains the rate")
        axis.set(title=vertex, xlabel="seconds")
    panels[0].set_ylabel("tasks")
    _legend(figure, panels[0])
    return figure


def ds2_figure_7(_data: Path) -> Figure:
    """Rate and parallelism of the two phases on Flink."""
    spec, found = load_job("wordcount-flink"), flink_word_count()
    high, end = spec.source.rate_per_s, PHASE_S + 1000
    rates = np.concatenate([np.full(PHASE_S, high), np.full(1000, high / 2)])
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.plot(rates / 1e6, color=GREY, lw=2.5, label="target")
    capacity = [(t, mst(spec, apart(c)[0]).rate_per_s / 1e6) for t, c in found.path]
    _steps(top, capacity, end, PURPLE, "capacity of the configuration")
    top.set(ylabel="M sentences/s", ylim=(0, None))
    for colour, vertex in zip((RED, BLUE), ("flatmap", "count"), strict=True):
        _steps(bottom, [(t, c[vertex][0]) for t, c in found.path], end, colour, vertex)
    bottom.set(xlabel="seconds", ylabel="tasks", ylim=(0, None))
    _legend(figure, top, bottom)
    return figure


def justin_figure_4(_data: Path) -> Figure:
    """Rate by tasks and memory of the three micro-benchmarks."""
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    for axis, workload in zip(
        figure.subplots(1, 3, sharey=True), ("read", "write", "update"), strict=True
    ):
        shares, target = rates_per_s(workload)
        for i, (colour, mib) in enumerate(zip(COLOURS, MEMORY_MIB, strict=True)):
            places = [at + 0.16 * (i - 2) for at in range(len(TASKS))]
            heights = [min(1.0, shares[tasks, mib]) * target / 1e3 for tasks in TASKS]
            axis.bar(places, heights, 0.15, color=colour, label=f"{mib} MiB")
        axis.axhline(target / 1e3, color="#1f2430", ls=":")
        axis.set_xticks(range(len(TASKS)), [str(tasks) for tasks in TASKS])
        axis.set(title=workload, xlabel="tasks")
        if workload == "read":
            axis.set_ylabel("thousand records/s")
            _legend(figure, axis)
    return figure


def justin_figure_5(_data: Path) -> Figure:
    """Capacity, cores and memory of DS2 and Justin over time."""
    queries = ("q1", "q3", "q5", "q8", "q11")
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(3, len(queries), sharex=True)
    for column, query in enumerate(queries):
        spec = load_job(f"nexmark-{query}")
        target = spec.source.rate_per_s
        for policy, dashes in (("ds2-justin", ":"), ("justin-artifact", "-")):
            path = on_nexmark(spec, policy, 1800).path
            found = [(t, *_shape(spec, configuration)) for t, configuration in path]
            for row, colour in enumerate((PURPLE, RED, GREEN)):
                points = [(point[0] / 60, point[row + 1]) for point in found]
                _steps(panels[row, column], points, 30, colour, policy, dashes)
        panels[0, column].axhline(target / 1e6, color=BLUE, ls="--", lw=1)
        panels[0, column].set_title(query.upper())
        panels[2, column].set_xlabel("minutes")
        for row in range(3):
            panels[row, column].set_ylim(bottom=0)
    for row, label in enumerate(("capacity, M events/s", "CPU cores", "memory, GiB")):
        panels[row, 0].set_ylabel(label)
    _legend(figure, panels[1, 0])
    return figure


def streambed_table_3(_data: Path) -> Figure:
    """Slots for the published rates, by memory per slot."""
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axis = figure.subplots()
    for column, (query, published) in enumerate(TABLES.items()):
        first = column * (len(SLOT_GIB) + 1)
        ours = planned_slots(query)
        found = {"published": (published.slots, GREY, "s")}
        if not isinstance(ours, str):
            found["ours"] = (ours, BLUE, "o")
        for label, (slots, colour, marker) in found.items():
            known = [(first + i, count) for i, count in enumerate(slots) if count is not None]
            axis.plot(
                *zip(*known, strict=True),
                marker,
                color=colour,
                ms=5,
                label=label if column == 0 else None,
            )
        about = f"{query}, {published.rate_per_s / 1e6:g} M/s"
        axis.annotate(about, (first, 1.5e4), fontsize=7)
        if isinstance(ours, str):
            axis.annotate("ours: not reached", (first, 300), color=RED, fontsize=7)
    places = [c * (len(SLOT_GIB) + 1) + i for c in range(len(TABLES)) for i in range(len(SLOT_GIB))]
    axis.set_xticks(places, [f"{gib:g}" for gib in SLOT_GIB] * len(TABLES))
    axis.set(yscale="log", ylim=(30, 3e4), ylabel="slots", xlabel="GB per slot")
    _legend(figure, axis)
    return figure


def streambed_table_4(_data: Path) -> Figure:
    """The learned models over what they were learned of, for the largest profile."""
    figure = Figure(figsize=(7, 2.2), layout="constrained")
    forms = {"linear": lambda x: x, "log": np.log, "sqrt": np.sqrt}
    for axis, query in zip(figure.subplots(1, 5), TABLES, strict=True):
        plan = learned(query)
        model, tried = plan.model, plan.measured
        level = max(int(one["memory_level"]) for one in tried)
        mib = next(p.slot_mib for p in plan.profiles if p.memory_level == level)
        slots = np.linspace(min(int(one["slots"]) for one in tried), 48, 60)
        form = forms[str(model["form"])]
        rate = model["a"] * form(np.float64(mib)) + model["b"] * form(slots) + model["c"]
        axis.plot(slots, rate / 1e6, color=BLUE, label="model")
        axis.plot(
            [int(one["slots"]) for one in tried],
            [float(one["mst_per_s"]) / 1e6 for one in tried],
            "o",
            ms=3,
            color=RED,
            label="budgets tried",
        )
        axis.set(title=f"{query}: {model['form']}", xlabel="slots", ylim=(0, None))
        if query == "q1":
            axis.set_ylabel("M events/s")
            _legend(figure, axis)
    return figure


def streambed_figure_6(_data: Path) -> Figure:
    """What every tried budget carries of its estimate, and of half as much again."""
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    panels = figure.subplots(2, len(TABLES), sharex=True, sharey=True)
    for column, query in enumerate(TABLES):
        for row, field in enumerate(("at_100", "at_150")):
            axis: Axes = panels[row, column]
            for replay in replays(query):
                share = float(getattr(replay, field))
                colour = GREEN if share >= GOOD else PURPLE if share >= NEAR else RED
                place = (replay.slots, replay.memory_level)
                axis.plot(*place, "s", ms=5, color=colour, alpha=0.75)
        panels[0, column].set_title(query)
        panels[1, column].set_xlabel("slots")
    for row, label in enumerate(("at 100 %", "at 150 %")):
        panels[row, 0].set_yticks(range(len(SLOT_GIB)), [f"{gib:g} GB" for gib in SLOT_GIB])
        panels[row, 0].set_ylabel(label)
        panels[row, 0].set(xlim=(-3, 53), ylim=(-0.6, 3.6))
    return figure


def demeter_cars(data: Path) -> Figure:
    """Slots over 18 h, recorded and simulated."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    series = read_series(data / "demeter_cars_static24.csv")
    panels[0].plot(series.t_s / 3600, series.offered_per_s / 1e3, color=GREY)
    panels[0].set(ylabel="thousand events/s", ylim=(0, None))
    for axis, name in zip(panels[1:], ("reactive", "operator"), strict=True):
        setup = SETUPS[name]
        recorded = read_series(data / f"demeter_cars_{setup.recorded}.csv")
        axis.plot(recorded.t_s / 3600, recorded.slots, color=GREY, lw=0.7, label="recorded, run 1")
        slots = [(t / 3600, float(count)) for t, count in simulate(setup, data, SEED).slots]
        _steps(axis, slots, 18, BLUE, "simulated")
        axis.set(ylabel=f"slots, {name}", ylim=(0, 26))
    _legend(figure, panels[1])
    panels[2].set_xlabel("hours")
    return figure


def _legend(figure: Figure, *axes: Axes) -> None:
    """One legend below the panels, so that it hides neither bar nor curve."""
    found = [axis.get_legend_handles_labels() for axis in axes]
    handles, labels = ([one for pair in found for one in pair[k]] for k in (0, 1))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=7
    )


def _steps(
    axis: Axes,
    points: list[tuple[float, float]],
    end: float,
    colour: str,
    label: str,
    dashes: str = "-",
) -> None:
    x, y = [t for t, _ in points], [value for _, value in points]
    axis.step([*x, end], [*y, y[-1]], where="post", color=colour, label=label, ls=dashes, lw=1.2)


def _shape(spec: JobSpec, configuration: dict[str, tuple[int, int]]) -> tuple[float, float, float]:
    parallelism, levels = apart(configuration)
    held = requested(spec, parallelism, levels)
    rate = min(mst(spec, parallelism, levels).rate_per_s, spec.source.rate_per_s)
    return rate / 1e6, held.cores, held.memory_mib / 1024


PLOTS = {
    "ds2-figure-6": Plot(
        "DS2, Figure 6",
        "Word count on Heron: Dhalion changes one operator at a time and ends "
        "over-provisioned, DS2 is there in one step.",
        "dsp-gym reproduce dhalion",
        ds2_figure_6,
    ),
    "ds2-figure-7": Plot(
        "DS2, Figure 7",
        "Word count on Flink: 2 M sentences/s for 800 s, then 1 M. Shown is what "
        "the running configuration can carry.",
        "dsp-gym reproduce ds2-word-count",
        ds2_figure_7,
    ),
    "justin-figure-4": Plot(
        "Justin, Figure 4",
        "Rate of one operator by tasks and managed memory, capped by the source (dotted).",
        "dsp-gym reproduce justin-micro",
        justin_figure_4,
        "No randomness",
    ),
    "justin-figure-5": Plot(
        "Justin, Figure 5",
        "DS2 (dotted) and Justin as released (plain): capacity against the "
        "target (dashed), cores, memory.",
        "dsp-gym reproduce justin-nexmark",
        justin_figure_5,
    ),
    "streambed-table-3": Plot(
        "StreamBed, Table 3",
        "Slots that a plan learned on at most 48 slots asks for at the "
        "published rates, with 110 % head-room.",
        "dsp-gym reproduce streambed-tables",
        streambed_table_3,
        "Seed 42 of the testbed",
    ),
    "streambed-table-4": Plot(
        "StreamBed, Table 4",
        "The models that were chosen, for the largest profile, over all budgets that were tried.",
        "dsp-gym reproduce streambed-tables",
        streambed_table_4,
        "Seed 42 of the testbed",
    ),
    "streambed-figure-6": Plot(
        "StreamBed, Figure 6",
        "Share carried of the estimated throughput (upper row) and of "
        "150 % of it (lower row): green carries 99 %, purple 90 %, red less. Shown are the "
        "budgets that the planner tried.",
        "dsp-gym reproduce streambed-tables",
        streambed_figure_6,
        "Seed 42 of the testbed, 1 of the replays",
    ),
    "demeter-cars": Plot(
        "Demeter CARS",
        "Slots of 18 h: recorded run 1 and the published autoscalers as policies "
        "on the calibrated job.",
        "dsp-gym reproduce demeter-autoscalers",
        demeter_cars,
    ),
}
"""File name below docs/figures/reproduction/ to figure."""
