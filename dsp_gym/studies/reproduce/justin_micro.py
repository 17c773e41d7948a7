"""Justin, section 3: what Read, Write and Update sustain, by tasks and memory per task.

A configuration sustains the target when its MST is at least 99 % of it, the share StreamBed calls a
success too. The benchmark's source is capped by the target, so rates above it are not seen.
"""

from __future__ import annotations

from pathlib import Path

from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import compile_jobs
from dsp_gym.studies.reproduce.registry import Check

TASKS = (1, 2, 4, 8)
MEMORY_MIB = (128, 256, 512, 1024, 2048)
SUSTAINED = 0.99
SOURCE = "Justin, section 3, Figure 4"

RateTable = dict[tuple[int, int], float]


def rates_per_s(workload: str) -> tuple[RateTable, float]:
    """Share of the target each (tasks; MiB) reaches, not capped, and the target in records/s.

    Returns:
        (shares by (tasks, MiB), target); a share above 1 leaves head-room.
    """
    spec = load_job(f"justin-{workload}")
    tables = compile_jobs([spec])
    target = spec.source.rate_per_s
    rates = {
        (tasks, mib): mst(spec, {"state": tasks}, {"state": level}, tables).rate_per_s / target
        for tasks in TASKS
        for level, mib in enumerate(MEMORY_MIB)
    }
    return rates, target


def justin_micro(_data: Path | None = None) -> list[Check]:
    """The checks; they need no data folder.

    Returns:
        One check per pattern or cell of the figure.
    """
    read, write, update = (rates_per_s(workload)[0] for workload in ("read", "write", "update"))
    return [
        _pattern(
            "read",
            read,
            {(4, 1024), (4, 2048), (8, 512), (8, 1024), (8, 2048)},
            "Read sustains 50 K/s from (4; 1,024) or (8; 512)",
        ),
        _within(
            "read-8-256", "Read with (8; 256) is just below the target", read[8, 256], 0.9, 0.99
        ),
        _pattern(
            "write",
            write,
            {(8, mib) for mib in MEMORY_MIB},
            "Write sustains 50 K/s with 8 tasks, whatever the memory",
        ),
        _within(
            "write-4",
            "Write with 4 tasks is very close to the target",
            min(write[4, mib] for mib in MEMORY_MIB),
            0.97,
            0.99,
        ),
        _within(
            "write-1-128",
            "Write with (1; 128) is slightly below (1; 256)",
            write[1, 128] / write[1, 256],
            0.95,
            0.999,
        ),
        _within(
            "write-memory",
            "Write does not respond to memory from 256 MB on, largest gain",
            max(write[tasks, 2048] / write[tasks, 256] for tasks in TASKS),
            1.0,
            1.01,
        ),
        _pattern(
            "update",
            update,
            {(8, mib) for mib in MEMORY_MIB if mib > 128},
            "Update sustains 30 K/s only with 8 tasks and more than 128 MB",
        ),
        _within(
            "update-plateau-4",
            "Update with 4 tasks: gain of 2,048 over 1,024 MB",
            update[4, 2048] / update[4, 1024],
            1.0,
            1.05,
        ),
        _within(
            "update-plateau-8",
            "Update with 8 tasks: gain of 2,048 over 256 MB, capped by the target",
            min(update[8, 2048], 1.0) / min(update[8, 256], 1.0),
            1.0,
            1.05,
        ),
    ]


def _pattern(name: str, rates: RateTable, published: set[tuple[int, int]], claim: str) -> Check:
    ours = {key for key, share in rates.items() if share >= SUSTAINED}
    return Check(
        f"justin-micro/{name}",
        SOURCE,
        claim,
        _listed(published),
        _listed(ours),
        "the same configurations",
        ours == published,
        used_in_fit=True,
    )


def _within(name: str, claim: str, ours: float, low: float, high: float) -> Check:
    return Check(
        f"justin-micro/{name}",
        SOURCE,
        claim,
        "in words",
        round(ours, 4),
        f"{low:g} to {high:g}",
        low <= ours <= high,
        used_in_fit=True,
    )


def _listed(configurations: set[tuple[int, int]]) -> str:
    return " ".join(f"({tasks};{mib})" for tasks, mib in sorted(configurations)) or "none"
