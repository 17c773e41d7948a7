"""StreamBed: measured throughput by slots and memory, predicted by fits that have not seen it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from dsp_gym.job.catalog import load_job
from dsp_gym.job.placement import place, with_slot_memory
from dsp_gym.studies.fitting.fitted_values import text_of
from dsp_gym.studies.fitting.streambed import CellPrediction, leave_one_out
from dsp_gym.studies.fitting.streambed_model import (
    CROWDED_MIB,
    ENOUGH_MIB,
    QUERIES,
    StreambedCell,
    cells,
    read_runs,
)
from dsp_gym.studies.reproduce.registry import Check

MEDIAN_BAR, LARGEST_BAR = 0.07, 0.15
SOURCE = "StreamBed, streambed_mst.csv"
HINDSIGHT = {
    "q5": "; form and prior of the join's loss were chosen with all cells known",
    "q11": "; leaving operators' true rates out of the fit was chosen with all cells known",
}
"""What was not decided by the data that a cell was predicted from."""

LINEAR = {"q1": 0.36, "q5": 0.78, "q11": 0.26}
"""Worst error of a linear model by query, for comparison."""
CLIFF_BAR = {16: 0.5, 32: 0.25, 48: 0.25}
"""Most of the throughput of 2 GB per slot that q5 may keep with less, by slots."""


def streambed(data: Path) -> list[Check]:
    """Check the throughput of StreamBed's queries, each slot budget left out of the fit in turn.

    Returns:
        Checks of medians, of the largest errors and of the memory cliff.
    """
    found = {
        name: leave_one_out(query, read_runs(data, name), text_of(query.job))
        for name, query in QUERIES.items()
    }
    every = [prediction for predictions in found.values() for prediction in predictions]
    measured = {
        (cell.memory_mib, cell.slots): cell
        for cell in cells(read_runs(data, "q5"), (*CROWDED_MIB, ENOUGH_MIB))
    }
    return [
        _median("mst-median", [p.error for p in every], "parallelism as measured"),
        _median("mst-median-placed", [p.placed_error for p in every], "placed by --slots"),
        *(check for name, predictions in found.items() for check in _largest(name, predictions)),
        *(
            _cliff(measured[memory, slots], measured[ENOUGH_MIB, slots], bar)
            for memory in CROWDED_MIB
            for slots, bar in CLIFF_BAR.items()
        ),
    ]


def _median(name: str, errors: Sequence[float], how: str) -> Check:
    ours = statistics.median(map(abs, errors))
    return Check(
        f"streambed/{name}",
        SOURCE,
        f"median error over {len(errors)} cells of 2 GB per slot and more, each slot budget left "
        f"out of the fit in turn; {how}",
        "a linear model: 0.11",
        round(ours, 4),
        f"at most {MEDIAN_BAR:g}",
        ours <= MEDIAN_BAR,
    )


def _largest(query: str, found: Sequence[CellPrediction]) -> Iterator[Check]:
    """One check per memory cell of the query's largest slot budget."""
    slots = max(p.cell.slots for p in found)
    for p in found:
        if p.cell.slots == slots:
            yield Check(
                f"streambed/{query}-{slots}-{p.cell.memory_mib:g}",
                SOURCE,
                f"{query} on {slots} slots of {p.cell.memory_mib:g} MB, left out of the fit, "
                "records/s",
                round(p.cell.mst_per_s),
                round(p.published_per_s),
                f"within {LARGEST_BAR:.0%}, placed by --slots too",
                max(abs(p.error), abs(p.placed_error)) <= LARGEST_BAR,
                note=f"error {p.error:+.1%}, placed by --slots {p.placed_error:+.1%}; "
                f"a linear model errs by up to {LINEAR[query]:.0%}" + HINDSIGHT.get(query, ""),
            )


def _cliff(cell: StreambedCell, enough: StreambedCell, bar: float) -> Check:
    spec = load_job("streambed-q5")
    little, plenty = (
        place(with_slot_memory(spec, c.memory_mib), c.slots).result.rate_per_s
        for c in (cell, enough)
    )
    return Check(
        f"streambed/q5-cliff-{cell.slots}-{cell.memory_mib:g}",
        SOURCE,
        f"share of q5's throughput with 2 GB per slot left with {cell.memory_mib:g} MB, "
        f"{cell.slots} slots",
        round(cell.mst_per_s / enough.mst_per_s, 3),
        round(little / plenty, 3),
        f"below {bar:g}",
        little / plenty < bar,
        used_in_fit=True,
    )
