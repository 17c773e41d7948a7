"""A job of one main vertex, calibrated from tables: a series, profiles and, if given, outages.

The simulation has a restarted job's cold code as a cold cache: reads miss until the working set is
there, so a record's extra cost and the number of records are given as `read_miss_us` and
`unshared_mib`.

The series fixes the capacity of all slots, which nothing is left to test; the profiles fix how it
falls with fewer. So the error is that of the profiles' regression on numbers of cores left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dsp_gym.calibration.evidence import (
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    with_section,
)
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series_fit import (
    SeriesFit,
    fit_series,
    fit_warm_up_after_rescales,
    profile_row,
    saturated_profiles,
)
from dsp_gym.calibration.series_tables import Profile, read_outages, read_profiles, read_series
from dsp_gym.errors import ConfigError
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import flink_split, managed_mib_per_slot
from dsp_gym.job.spec import JobSpec
from dsp_gym.pages import code, note, page, section, table


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """A calibrated job, its file, and what it was calibrated to."""

    job: str
    used: tuple[str, ...]
    slot_memory_mib: float
    fit: SeriesFit
    job_text: str
    fitted: Evidence | None = None  # the job file's section

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know about it."""
        said = () if self.fitted is None else self.fitted.sentences()
        return (*self.fit.warnings, *said)

    def facts(self) -> list[tuple[str, str]]:
        """Name and value of every fitted number.

        Returns:
            Pairs (name with unit, formatted value), in the order of the printed table.
        """
        fit = self.fit
        found = [
            ("slots", str(fit.slots)),
            ("capacity when warm, records/s", f"{fit.capacity_per_s:,.0f}"),
            ("exponent of the loss with slots", f"{fit.loss:.3f}"),
            ("extra cost of a record after a start", f"{fit.warm_up.extra:.2f}"),
            ("records of a subtask until warm (1/e)", f"{fit.warm_up.records:,.0f}"),
            ("latency while nothing queues, s", f"{fit.base_latency_s:.2f}"),
            ("load that is always on the way, s", f"{fit.base_lag_s:.2f}"),
            ("records read over records offered", f"{fit.load_factor:.3f}"),
        ]
        if fit.outage_s is not None:
            text = " / ".join(f"{q:g}" for q in fit.outage_s)
            found.append(("outage of a rescale p10/p50/p90, s", text))
        return found

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            The job's name, the files used, and the fields of the fit by name.
        """
        fitted = None if self.fitted is None else self.fitted.model_dump(mode="json")
        return {"job": self.job, "used": list(self.used), "fitted": fitted} | asdict(self.fit)

    def render_html(self) -> str:
        """One page that needs nothing else.

        Returns:
            HTML of one page without outside references.
        """
        return page(
            f"{self.job}: calibrated from a series",
            f"From {', '.join(self.used)}.",
            *(note(text) for text in self.warnings),
            table((), self.facts()),
            section("Job file", code(self.job_text)),
        )


BLOCK_BYTES = 4096
"""What one miss brings into the cache of the simulation."""
END_TO_END_SLO_S = 2.0


def job_text(fit: SeriesFit, job: str, used: Sequence[str], slot_memory_mib: float) -> str:
    """Write the job file.

    Returns:
        YAML text.
    """
    managed = managed_mib_per_slot(slot_memory_mib, 1)
    cache = flink_split(managed, writes=False)[1]
    working_set = min(fit.warm_up.records * BLOCK_BYTES / 2**20, 0.95 * cache)
    us = 1e6 / (fit.capacity_per_s / fit.slots ** (1 - fit.loss))
    slo_s = max(0.1, END_TO_END_SLO_S - fit.base_latency_s)
    tables = "\n".join(f'  - "{name}"' for name in used)
    outage = ""
    if fit.outage_s is not None:
        low, middle, high = fit.outage_s
        outage = f"rescale:\n  outage_s: [{low:g}, {middle:g}, {high:g}]\n"
    return f"""\
job: "{job}"
description: "One main vertex, calibrated from a series and profiles."
used_in_fit:
{tables}
source:
  rate_per_s: {{value: {fit.reference_rate_per_s:.6g}, source: "median load of the series"}}
vertices:
  - name: source
    kind: source
    cpu_us_per_record: {{value: 0.1, source: "assumption: reading is part of the main vertex"}}
    parallelism: {fit.slots}
  - name: main
    kind: sink
    inputs: [{{from: source, ship: HASH}}]
    cpu_us_per_record: {{value: {us / 2:.6g}, source: "highest throughput of the series"}}
    efficiency: {{form: power, a: {{value: {fit.loss:.4g}, source: "saturated profiles"}}}}
    parallelism: {fit.slots}
    max_parallelism: 32768
    state:
      # Cold code after a start: a record that misses costs more, and so many records miss.
      reads: 1
      keys: 1
      value_bytes: 1
      unshared_mib: {{value: {working_set:.6g}, source: "records until warm, 4 KiB each"}}
      read_hit_us: {{value: {us / 2:.6g}, source: "assumption: half the cost of a record"}}
      read_miss_us: {{value: {us * fit.warm_up.extra:.6g}, source: "fit: cost after a start"}}
slot_sharing: true
memory: {{base_mib: {managed:.6g}, levels: 1}}
taskmanager: {{slots: 1, cores: 1, memory_mib: {slot_memory_mib:g}}}
max_parallelism_per_vertex: {fit.slots}
# {END_TO_END_SLO_S:g} s end to end, of which {fit.base_latency_s:.2f} s pass while nothing queues.
slo: {{latency_s: {slo_s:.4g}}}
{outage}"""


def evidence_of(
    fit: SeriesFit, profiles: Sequence[Profile], spec: JobSpec, command: str
) -> Evidence:
    """The ranges of the series and of saturated profiles, and the error with cores left out.

    Args:
        fit: the fit.
        profiles: the profiling runs.
        spec: the job file made from it: slots are shared, one core each.
        command: what made it.

    Returns:
        The section `fitted` of the job file.
    """
    used = saturated_profiles(profiles)
    names = [vertex.name for vertex in spec.vertices]

    def seen_at(slots: int, rate_per_s: float) -> SeenRate:
        return SeenRate(dict.fromkeys(names, slots), {}, rate_per_s)

    profiled = [seen_at(max(1, round(p.cores)), p.throughput_per_s) for p in used]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        x = np.array([profile_row(used[i]) for i in rows])
        y = np.log([used[i].throughput_per_s for i in rows])
        found = np.linalg.lstsq(x, y, rcond=None)[0]
        return lambda i: math.exp(float(np.dot(profile_row(used[i]), found)))

    error = error_of(
        predictions_left_out(spec, profiled, predict_from, folds(profiled, 3)),
        "cores of saturated profiles: each number, and all above or below one",
    )
    whole = seen_at(fit.slots, fit.capacity_per_s)
    return ranges_of(spec, [whole, *profiled], command).model_copy(update={"error": error})


def calibrate_series(
    series: Path,
    profiles: Path,
    job: str,
    *,
    outages: Path | None = None,
    policy: str | None = None,
    slot_memory_mib: float = 4096.0,
) -> SeriesReport:
    """The job file and report of two or three tables.

    Args:
        series: CSV of 30 s means of a run without rescales.
        profiles: CSV of profiling runs.
        job: name of the job.
        outages: CSV of outages; its rescales say what a restart costs.
        policy: whose outages; needed with `outages`.
        slot_memory_mib: TaskManager process memory / slots.

    Returns:
        The report, which holds the fit and the job file.
    """
    profiled = read_profiles(profiles)
    fit = fit_series(read_series(series), profiled)
    used = [series.name, profiles.name]
    if outages is not None:
        if policy is None:
            raise ConfigError("outages need a policy", remedy="Name it with --policy.")
        fit = fit_warm_up_after_rescales(fit, read_outages(outages), policy)
        used.append(f"{outages.name}: {policy}")
    text = job_text(fit, job, used, slot_memory_mib)
    evidence = evidence_of(
        fit, profiled, job_spec(text, job), f"dsp-gym calibrate: {', '.join(used)}"
    )
    text = with_section(text, evidence)
    return SeriesReport(job, tuple(used), slot_memory_mib, fit, text, evidence)
