"""Fits the `justin-*` micro-benchmarks to the inequalities of Justin's section 3.

    python -m dsp_gym.studies.fitting.justin_micro [--write]

The figure is not published as numbers; the text says which configurations sustain the target. Five
numbers (CPU, read hit, extra of a miss, write, space factor) are sought that keep every throughput
on its side of 99 % of the target, with a margin. Many solutions would do; this is the one least
squares gives from a fixed start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.tables import JobTables, compile_jobs
from dsp_gym.studies.fitting.fitted_values import (
    fitted_values,
    keep,
    searched,
    text_of,
    with_values,
)
from dsp_gym.studies.reproduce.justin import MEMORY_MIB
from dsp_gym.studies.runner import WriteOption, run

COMMAND = "python -m dsp_gym.studies.fitting.justin_micro --write"

START = {
    "cpu_us": 15.0,
    "read_hit_us": 60.0,
    "read_miss_us": 400.0,
    "write_us": 60.0,
    "space_factor": 1.8,
}
COLUMNS = {
    "cpu_us": "cpu_s",
    "read_hit_us": "read_hit_s",
    "read_miss_us": "read_miss_s",
    "write_us": "write_s",
}
"""Of the compiled job, in seconds."""
FAR = (0.0, 0.97)  # clearly not sustained
KEPT = (1.05, np.inf)  # clearly sustained
BANDS: dict[str, dict[tuple[int, int], tuple[float, float]]] = {
    # (tasks, MiB) to the share of the target it must reach; the others follow by monotonicity.
    "read": {
        (4, 1024): KEPT,
        (8, 512): KEPT,
        (8, 256): (0.95, 0.98),  # just below
        (4, 512): FAR,
        (2, 2048): FAR,
    },
    # 4 tasks are very close, also with 128 MB.
    "write": {(8, 128): KEPT, (4, 128): (0.972, 0.98), (4, 256): (0.975, 0.989)},
    "update": {(8, 256): KEPT, (8, 128): FAR, (4, 2048): FAR},
}


def shares(tables: JobTables, target_per_s: float, at: Sequence[tuple[int, int]]) -> list[float]:
    """Share of the target each (tasks, MiB) reaches; columns are source, state, sink.

    Returns:
        One share per pair, in the order given; 1 where the target is just carried.
    """
    return [
        mst_per_s(
            tables,
            0,
            np.array([1, tasks, 1]),
            np.array([0, MEMORY_MIB.index(mib), 0]),
        )
        / target_per_s
        for tasks, mib in at
    ]


def fit(texts: Mapping[str, str]) -> dict[str, float]:
    """The five numbers, from the text of each workload's job file.

    Returns:
        Fitted values by the names of `START`, in the units of the job file.
    """
    specs = {name: job_spec(text, name) for name, text in texts.items()}
    tables = {name: compile_jobs([spec]) for name, spec in specs.items()}
    # Bytes per entry with a space factor of 1.
    entry_mib = {
        name: tables[name].entry_mib[0, 1] / (state.space_factor if state else 1.0)
        for name, spec in specs.items()
        for state in (spec.vertex("state").state,)
    }

    def loss(values: dict[str, float]) -> float:
        # Of equal solutions, the one next to the start.
        total = 1e-4 * sum(np.log(values[name] / START[name]) ** 2 for name in START)
        for name, spec in specs.items():
            for value, column in COLUMNS.items():
                getattr(tables[name], column)[0, 1] = values[value] * 1e-6
            tables[name].entry_mib[0, 1] = values["space_factor"] * entry_mib[name]
            reached = shares(tables[name], spec.source.rate_per_s, list(BANDS[name]))
            for share, (low, high) in zip(reached, BANDS[name].values(), strict=True):
                total += max(low - share, share - high, 0.0) ** 2
        return float(total)

    return searched(loss, START, 0.1, xatol=1e-5, fatol=1e-12, maxiter=4000)


def evidence_of(name: str, text: str) -> Evidence:
    """The ranges of the published inequalities; nothing is left to test the fit on.

    Returns:
        The section `fitted` of the job file.
    """
    tasks, mib = zip(*BANDS[name], strict=True)
    rate = job_spec(text, name).source.rate_per_s
    return Evidence(
        command=COMMAND,
        runs=len(tasks),
        parallelism={"state": (min(tasks), max(tasks))},
        managed_memory_mib=(min(mib), max(mib)),
        rate_per_s=(rate, rate),
    )


def main(write: WriteOption = False) -> None:
    """Fit the micro-benchmarks to the inequalities of Justin's section 3."""
    texts = {name: text_of(f"justin-{name}") for name in BANDS}
    values = fit(texts)
    for name, text in texts.items():
        fitted = with_values(text, {key: values[key] for key in fitted_values(text)})
        keep(f"justin-{name}", fitted, evidence_of(name, fitted), write=write)


if __name__ == "__main__":
    run(main)
