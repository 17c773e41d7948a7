"""Fits the `nexmark-q*` job files to the final parallelism of Justin's section 5.

    python -m dsp_gym.studies.fitting.nexmark --data FOLDER [--write]

A published final says how busy tasks were: DS2 aims at 50 %, accepts 20 to 80 %, and more than
doubles a saturated vertex (1, 3, 7, 15 tasks). A vertex that settles at 12 after 7 was about 82 %
busy with 7. From such utilizations follow the CPU time of a record, and, where two memory levels
are published, the cost of a cache miss. Q1's loss with parallelism is ContTune's measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.calibration.csv_rows import measured_rows
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import level_mib
from dsp_gym.job.tables import compile_jobs
from dsp_gym.studies.fitting.fitted_values import fitted_values, keep, text_of, with_values
from dsp_gym.studies.runner import DataOption, WriteOption, run

COMMAND = "python -m dsp_gym.studies.fitting.nexmark --data ../shared/data --write"


@dataclass(frozen=True, slots=True)
class Target:
    """How busy a vertex is at the job's reference rate, average over its subtasks."""

    parallelism: int
    level: int
    utilization: float


TARGETS: dict[str, tuple[str, tuple[Target, ...]]] = {
    # 7 tasks are inside the band, 3 are saturated.
    "nexmark-q1": ("map", (Target(7, 0, 0.62),)),
    # From 7 tasks to 12: ceil(7 * 0.82 / 0.5).
    "nexmark-q3": ("join", (Target(7, 0, 0.823),)),
    # 15 tasks are saturated, 24 (the cap) are inside the band.
    "nexmark-q5": ("window", (Target(24, 0, 0.735),)),
    # Level 1: from 7 tasks to 12. Level 0: 15 are above the band, 24 (the cap) inside.
    "nexmark-q8": ("join", (Target(7, 1, 0.82), Target(24, 0, 0.60))),
    # Level 1: from 3 tasks to 6. Level 0: from 7 tasks to 12.
    "nexmark-q11": ("session", (Target(3, 1, 0.90), Target(7, 0, 0.822))),
}
"""Job to its main vertex and what is known of it."""


def solve(name: str, text: str) -> str:
    """The job file with its CPU time, and with two targets its miss cost, fitted.

    Returns:
        The text with the fitted lines replaced and all others as they were.
    """
    main_vertex, targets = TARGETS[name]
    spec = job_spec(text, name)
    tables = compile_jobs([spec])
    v = [vertex.name for vertex in spec.topological_order()].index(main_vertex)
    inflow = spec.source.rate_per_s * tables.ratio[0, v]
    # seconds(target) = cpu + reads * miss rate * miss cost + what stays
    rows, seconds = [], []
    for target in targets:
        _, hit = vertex_capacity(tables, 0, v, target.parallelism, target.level, inflow)
        write_s = tables.write_s[0, v] * tables.write_factor[0, v, target.level + 1]
        stays = tables.reads[0, v] * tables.read_hit_s[0, v] + tables.writes[0, v] * write_s
        rows.append([1.0, tables.reads[0, v] * (1 - hit)])
        useful = tables.useful[0, v, target.parallelism]
        seconds.append(target.utilization * useful / inflow - stays)
    if len(targets) == 1:  # the miss cost stays as it is
        rows.append([0.0, 1.0])
        seconds.append(tables.read_miss_s[0, v])
    cpu_s, miss_s = np.linalg.solve(np.array(rows), np.array(seconds))
    fitted = {"cpu_us": cpu_s * 1e6, "read_miss_us": miss_s * 1e6}
    return with_values(text, {key: fitted[key] for key in list(fitted)[: len(targets)]})


def evidence_of(name: str, text: str) -> Evidence:
    """The ranges of the published finals; nothing is left to test the fit on.

    Returns:
        The section `fitted` of the job file.
    """
    main_vertex, targets = TARGETS[name]
    spec = job_spec(text, name)
    tasks = [target.parallelism for target in targets]
    mib = [level_mib(spec.memory.base_mib, target.level) for target in targets]
    return Evidence(
        command=COMMAND,
        runs=len(targets),
        parallelism={main_vertex: (min(tasks), max(tasks))},
        managed_memory_mib=(min(mib), max(mib)) if spec.vertex(main_vertex).state else None,
        rate_per_s=(spec.source.rate_per_s, spec.source.rate_per_s),
    )


def power_of(data: Path) -> float:
    """Exponent a of efficiency p^-a of the Q1 map, by least squares on logarithms.

    Returns:
        The exponent a, without unit; 0 would be perfect scaling.
    """
    trials: dict[int, list[float]] = {}
    for row in measured_rows(data / "nexmark_q1_mapper_scaling.csv"):
        rate = float(row["processing_ability_events_per_s"])
        trials.setdefault(int(row["parallelism"]), []).append(rate)
    mean = {p: np.mean(rates) for p, rates in trials.items()}
    # Through e(1) = 1, as the form demands.
    x = np.log(list(mean))
    y = np.log([rate / p / mean[1] for p, rate in mean.items()])
    return float(-(x @ y) / (x @ x))


def main(data: DataOption, write: WriteOption = False) -> None:
    """Fit the Nexmark queries to the final parallelism of Justin's section 5."""
    for name in TARGETS:
        text = text_of(name)
        if "q1_power" in fitted_values(text):
            text = with_values(text, {"q1_power": power_of(data)})
        text = solve(name, text)
        keep(name, text, evidence_of(name, text), write=write)


if __name__ == "__main__":
    run(main)
