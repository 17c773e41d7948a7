"""The job file and the report of a job fitted to scaled runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dsp_gym.calibration.evidence import (
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    what_folds_leave_out,
    with_section,
)
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.scaled_fit import ScaledFit, amdahl, fit_runs, share_kept
from dsp_gym.calibration.scaled_runs import ScaledRun, read_runs
from dsp_gym.calibration.series import END_TO_END_SLO_S
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.signals import Response
from dsp_gym.job.spec import JobSpec
from dsp_gym.pages import code, note, page, section, table

NEVER_LIMITS_US = 0.1
LOG, READ, WORK, MORE = "log", "read", "work", "more-{}"
"""Names of the topic, of the sources, of the operator busiest beside them, and of all others."""
KEY_GROUPS = 32768
"""Flink's upper bound, which reactive mode takes."""


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """What no table of samples tells of a job.

    Attributes:
        memory_mib: of a TaskManager of one slot and one core.
        checkpoint_interval_s: between checkpoints; 0: outages hold what is read again.
        partitions: of the topic; None: unknown.
        most: TaskManagers the autoscaler may ask for; None: the most it did.
        start: TaskManagers at the start; None: those of the median run.
        cold_s: how long added TaskManagers are cold; None: as the job's own runs show.
    """

    memory_mib: float = 4096.0
    checkpoint_interval_s: float = 0.0
    partitions: int | None = None
    most: int | None = None
    start: int | None = None
    cold_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScaledReport:
    """A calibrated job, its file, and what it was calibrated to."""

    job: str
    used: tuple[str, ...]
    fit: ScaledFit
    job_text: str
    fitted: Evidence
    notes: tuple[str, ...]  # of reading the table

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know about it."""
        return (*self.notes, *self.fit.warnings, *self.fitted.sentences())

    def facts(self) -> list[tuple[str, str]]:
        """Name and value of every fitted number.

        Returns:
            Pairs (name with unit, formatted value), in the order of the printed table.
        """
        fit = self.fit
        outage = " / ".join(f"{q:.1f}" for q in fit.outage_s)
        seen = ", ".join(f"{n}: {rate:,.0f}" for n, rate, _ in fit.per_taskmanager)
        found = [
            ("capacity of one TaskManager, records/s", f"{fit.capacity_per_s:,.0f}"),
            ("loss with each further TaskManager", f"{fit.loss:.3g}"),
            ("measured per TaskManager, by their number", seen),
            ("records counted over records that arrive", f"{fit.selectivity:.3f}"),
            ("outage of a change p10/p50/p90, s", f"{outage} ({fit.changes} changes)"),
            ("operators that share a slot", str(len(fit.busy))),
            ("latency while nothing waits, s", f"{fit.base_latency_s:.2f}"),
        ]
        busiest = max(fit.busy, key=lambda response: _at(response, 1.0))
        shown = {"busiest operator": busiest, "backpressured": fit.backpressured}
        if fit.cpu is not None:
            shown["CPU"] = fit.cpu
        for name, response in shown.items():
            values = " / ".join(f"{_at(response, load):.2f}" for load in (0.25, 0.5, 1.0))
            found.append((f"{name} of one TaskManager at 25 / 50 / 100 % load", values))
        return found

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            The job's name, the files used, and the fields of the fit by name.
        """
        said = {"job": self.job, "used": list(self.used), "notes": list(self.notes)}
        return said | {"fitted": self.fitted.model_dump(mode="json")} | asdict(self.fit)

    def render_html(self) -> str:
        """One page that needs nothing else.

        Returns:
            HTML of one page without outside references.
        """
        return page(
            f"{self.job}: calibrated from scaled runs",
            f"From {', '.join(self.used)}.",
            *(note(text) for text in self.warnings),
            table((), self.facts()),
            section("Job file", code(self.job_text)),
        )


def _at(response: Response, load: float) -> float:
    """What a gauge of one TaskManager shows."""
    return min(1.0, max(0.0, response[0] + response[1] * load + response[2] * load**2))


def calibrate_runs(
    file: Path, job: str, query: str | None = None, memory_mib: float = 4096.0
) -> ScaledReport:
    """The job file and report of a table of scaled runs.

    Args:
        file: the table.
        job: name of the job.
        query: the job in the table, where it holds several.
        memory_mib: of a TaskManager.

    Returns:
        The report, which holds the fit and the job file.
    """
    read = read_runs(file)
    runs = read.of(query, file)
    chosen = f" --query {query}" if query is not None else ""
    return report_of(
        runs,
        job,
        (f"{file.name}: {len(runs)} runs" + (f" of {query}" if query else ""),),
        f"dsp-gym calibrate {file.name}{chosen}",
        DeployedJob(memory_mib=memory_mib),
        read.notes,
    )


def report_of(
    runs: Sequence[ScaledRun],
    job: str,
    used: tuple[str, ...],
    command: str,
    deployed: DeployedJob,
    notes: tuple[str, ...] = (),
) -> ScaledReport:
    """Fit a job to runs and write its file.

    Args:
        runs: of one job.
        job: its name.
        used: tables, in words.
        command: what makes the file again.
        deployed: what the runs do not tell.
        notes: of reading them.

    Returns:
        The report.
    """
    fit = fit_runs(runs)
    text = job_text(fit, job, used, command, deployed)
    evidence = evidence_of(fit, len(runs), job_spec(text, job), command)
    return ScaledReport(job, used, fit, with_section(text, evidence), evidence, notes)


def names_of(fit: ScaledFit) -> list[str]:
    """Names of the operators of a slot, sources first.

    Returns:
        One per operator.
    """
    return [READ, WORK, *(MORE.format(i) for i in range(2, len(fit.busy)))][: len(fit.busy)]


def job_text(
    fit: ScaledFit, job: str, used: Sequence[str], command: str, deployed: DeployedJob
) -> str:
    """Write the job file.

    Returns:
        YAML text.
    """
    start, most = deployed.start or fit.start, deployed.most or fit.most_taskmanagers
    interval_s = deployed.checkpoint_interval_s
    # On average half an interval is read again, which the peak of the lag holds.
    low, middle, high = (max(1.0, q - interval_s / 2) for q in fit.outage_s)
    partitions = f"\n    partitions: {deployed.partitions}" if deployed.partitions else ""
    again = f"\n  checkpoint_interval_s: {interval_s:g}" if interval_s else ""
    cold_s = fit.cold_s if deployed.cold_s is None else deployed.cold_s
    cold = f"\n  cold_s: {cold_s:.3g}" if cold_s else ""
    slo_s = max(0.1, END_TO_END_SLO_S - fit.base_latency_s)
    return f"""\
job: {json.dumps(job)}
description: "The operators of one slot, calibrated from runs that an autoscaler scaled as one."
used_in_fit:
{chr(10).join(f"  - {json.dumps(name)}" for name in used)}
fit_script: {json.dumps(command)}
source:
  rate_per_s: {{value: {fit.reference_per_s:.6g}, source: "median load of the runs"}}
vertices:
  - name: {LOG}
    kind: source
    cpu_us_per_record: {{value: {NEVER_LIMITS_US}, source: "assumption: the topic never limits"}}
    parallelism: 1{partitions}
{_vertices(fit, start)}\
slot_sharing: true
memory: {{base_mib: {managed_mib_per_slot(deployed.memory_mib, 1):.6g}, levels: 1}}
taskmanager: {{slots: 1, cores: 1, memory_mib: {deployed.memory_mib:g}}}
max_parallelism_per_vertex: {most}
rescale:
  mode: in_place
  outage_s: [{low:.3g}, {middle:.3g}, {high:.3g}]  # peak of the lag over the load{again}{cold}
# {END_TO_END_SLO_S:g} s end to end, of which {fit.base_latency_s:.2f} s pass while nothing waits.
slo: {{latency_s: {slo_s:.4g}}}
signals:
  # Factors of 1, load, load squared, load * ln(tasks), load squared * ln(tasks).
{_signals(fit)}"""


def _vertices(fit: ScaledFit, start: int) -> str:
    names = names_of(fit)
    text, before = "", LOG
    for place, name in enumerate(names):
        us = f"{{value: {NEVER_LIMITS_US}, source: \"its time is in '{READ}'\"}}"
        efficiency = ""
        if place == 0:
            source = "throughput of samples behind the load"
            us = f'{{value: {1e6 / fit.capacity_per_s:.6g}, source: "{source}"}}'
            efficiency = f"\n    efficiency: {{form: usl, a: {fit.loss:.4g}}}"
        kind = "sink" if place == len(names) - 1 else "operator"
        passes = ""
        if place == len(names) - 2 and fit.selectivity != 1.0:
            passes = f"\n    selectivity: {fit.selectivity:.4g}"
        text += f"""\
  - name: {name}
    kind: {kind}
    inputs: [{{from: {before}, ship: REBALANCE}}]
    cpu_us_per_record: {us}{passes}{efficiency}
    parallelism: {start}
    max_parallelism: {KEY_GROUPS}
"""
        before = name
    return text


def _signals(fit: ScaledFit) -> str:
    nothing = (0.0,) * 5

    def row(response: Sequence[float]) -> str:
        return "[" + ", ".join(f"{factor:g}" for factor in response) + "]"

    text = f"  cpu: {row(fit.cpu or nothing)}\n  lag_s: {row(fit.lag_s)}\n  vertices:\n"
    for place, (name, busy) in enumerate(zip(names_of(fit), fit.busy, strict=True)):
        back = f", backpressured: {row(fit.backpressured)}" if place == 0 else ""
        text += f"    {name}: {{busy: {row(busy)}{back}}}\n"
    return text


def evidence_of(fit: ScaledFit, runs: int, spec: JobSpec, command: str) -> Evidence:
    """The ranges of the measured capacities, and the error with numbers of TaskManagers left out.

    Args:
        fit: the fit.
        runs: that it comes from.
        spec: the job file made from it.
        command: what made it.

    Returns:
        The section `fitted` of the job file.
    """
    shown = fit.per_taskmanager
    names = [vertex.name for vertex in spec.vertices]
    seen = [SeenRate(dict.fromkeys(names, n), {}, n * rate) for n, rate, _ in shown]

    def refit(rows: Sequence[int]) -> Callable[[int], float]:
        capacity, loss = amdahl([shown[i] for i in rows], [])

        def predict(i: int) -> float:
            n = shown[i][0]
            return float(capacity * n * share_kept(n, loss))

        return predict

    kept = folds(seen) if len(seen) > 1 else []
    error = error_of(
        predictions_left_out(spec, seen, refit, kept),
        what_folds_leave_out(seen),
        fitted=[
            math.log(refit(range(len(seen)))(i) / one.rate_per_s) for i, one in enumerate(seen)
        ],
    )
    found = ranges_of(spec, seen, command)
    return found.model_copy(update={"error": error, "runs": runs})
