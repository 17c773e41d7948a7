"""Fits the job files of Demeter's CARS.

    python -m dsp_gym.studies.reproduce.demeter_jobs --data FOLDER --write

Two files of one job, both calibrated by `dsp_gym.calibration.series` on the static run and the
profiles. `demeter-cars` is one vertex that takes every slot, as reactive mode scales it;
`demeter-cars-unchained` has the five vertices of the published program, which disables operator
chaining, as the operator scales them one by one. How long a restart takes, and for redeploys what
it costs afterwards, come from each policy's runs 2 and 3; run 1 is in no fit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from dsp_gym.calibration.evidence import with_section
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series import BLOCK_BYTES, evidence_of
from dsp_gym.calibration.series_fit import SeriesFit, fit_series, fit_warm_up_after_rescales
from dsp_gym.calibration.series_tables import read_outages, read_profiles, read_series
from dsp_gym.config import files
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.studies.reproduce.demeter import CHECKED_RUN, OPERATOR, REACTIVE
from dsp_gym.studies.runner import DataOption, WriteOption, run

COMMAND = "python -m dsp_gym.studies.reproduce.demeter_jobs --data ../shared/data --write"
MEMORY_MIB = 4096.0
KEY_GROUPS = {"in_place": 32768, "redeploy": 24}
"""Reactive mode takes Flink's upper bound; the operator's deployment sets 24."""
TRIGGERED = 0.3
"""Share of records whose window fires: every 50 m of a car that sends its place each second."""
CHAIN: tuple[tuple[str, float], ...] = (
    ("read", 0.5),
    ("before", 0.05),
    ("window", 1.0),
    ("measure", 0.05 / TRIGGERED),
    ("sink", 0.2 / TRIGGERED),
)
"""CPU of a record of each vertex over the window's, which carries the fitted capacity: assumed."""
JOBS = ("demeter-cars", "demeter-cars-unchained")


def job_files(data: Path) -> dict[str, str]:
    """Name and content of both job files.

    Returns:
        Texts of YAML by the job's name, the chained job first.
    """
    series = read_series(data / "demeter_cars_static24.csv")
    profiles = read_profiles(data / "demeter_cars_profiles.csv")
    fit = fit_series(series, profiles)
    others = [o for o in read_outages(data / "demeter_cars_outages.csv") if o.run != CHECKED_RUN]
    reactive = [
        o.outage_s
        for o in others
        if o.policy == REACTIVE and not o.failure_injected and o.slots_after > 0
    ]
    low, middle, high = np.quantile(reactive, [0.1, 0.5, 0.9]).tolist()
    redeployed = fit_warm_up_after_rescales(fit, others, OPERATOR)
    assert redeployed.outage_s is not None
    chained, unchained = JOBS
    texts = {
        chained: _text(
            chained,
            "Demeter's CARS, one vertex per slot, rescaled in place as by Flink's reactive mode.",
            fit,
            (("main", 1.0),),
            ("in_place", (low, middle, high)),
        ),
        unchained: _text(
            unchained,
            "Demeter's CARS with its five unchained vertices, redeployed from a savepoint.",
            redeployed,
            CHAIN,
            ("redeploy", redeployed.outage_s),
        ),
    }
    return {
        name: with_section(text, evidence_of(fit, profiles, job_spec(text, name), COMMAND))
        for name, text in texts.items()
    }


def _text(
    name: str,
    about: str,
    fit: SeriesFit,
    chain: tuple[tuple[str, float], ...],
    rescale: tuple[str, tuple[float, float, float]],
) -> str:
    us = 1e6 / (fit.capacity_per_s / fit.slots ** (1 - fit.loss))
    mode, (low, middle, high) = rescale
    before, vertices, fires = "log", "", False
    for vertex, share in chain:
        vertices += _vertex(
            vertex,
            before,
            us * share,
            TRIGGERED if fires else 1.0,
            fit,
            KEY_GROUPS[mode],
            last=vertex == chain[-1][0],
        )
        before, fires = vertex, fires or vertex == "window"
    warm_up = "" if mode == "in_place" else ", runs 2 and 3 of the operator: cost after a redeploy"
    return f"""\
job: {name}
description: "{about}"
used_in_fit:
  - "demeter_cars_static24.csv and demeter_cars_profiles.csv: capacity, loss, warm-up{warm_up}"
  - "demeter_cars_outages.csv: outages of the policy's runs 2 and 3"
fit_script: "{COMMAND}"
source:
  rate_per_s: {{value: {fit.reference_rate_per_s:.6g}, source: "median load of the series"}}
vertices:
  - name: log
    kind: source
    cpu_us_per_record: {{value: 0.1, source: "assumption: Kafka is never the limit"}}
    parallelism: {fit.slots}
{vertices}\
slot_sharing: true
memory: {{base_mib: {managed_mib_per_slot(MEMORY_MIB, 1):.6g}, levels: 1}}
taskmanager: {{slots: 1, cores: 1, memory_mib: {MEMORY_MIB:g}}}
max_parallelism_per_vertex: {{value: {fit.slots}, source: "slots of the published runs"}}
rescale:
  mode: {mode}
  outage_s: [{low:g}, {middle:g}, {high:g}] # demeter_cars_outages.csv, runs 2 and 3
# 2 s end to end, of which {fit.base_latency_s:.2f} s pass while nothing queues.
slo: {{latency_s: {max(0.1, 2.0 - fit.base_latency_s):.4g}}}
"""


def _vertex(
    name: str, before: str, us: float, reached: float, fit: SeriesFit, groups: int, *, last: bool
) -> str:
    """One vertex; cold code after a start is a cold cache: so many records miss, each costs more.

    Args:
        name: of the vertex.
        before: the vertex it reads from.
        us: CPU microseconds of one of its records.
        reached: records it sees per record of the job.
        fit: the calibrated job.
        groups: its key groups.
        last: it is the sink.
    """
    kind = "    kind: sink\n" if last else ""
    ship = "HASH" if name in ("main", "window") else "REBALANCE"
    selectivity = ""
    if name == "window":
        selectivity = (
            f'    selectivity: {{value: {TRIGGERED:g}, source: "assumption: a window '
            'fires every 50 m"}\n'
        )
    whence = "highest throughput of the series" if ship == "HASH" else "assumption: see fit_script"
    loss = f'{{value: {fit.loss:.4g}, source: "saturated profiles"}}'
    cold = fit.warm_up.records * reached * BLOCK_BYTES / 2**20
    return f"""\
  - name: {name}
{kind}    inputs: [{{from: {before}, ship: {ship}}}]
    cpu_us_per_record: {{value: {us / 2:.6g}, source: "{whence}"}}
{selectivity}    efficiency: {{form: power, a: {loss}}}
    parallelism: {fit.slots}
    max_parallelism: {groups} # key groups, as published
    state:
      # Cold code after a start: a record that misses costs more, and so many records miss.
      reads: 1
      keys: 1
      value_bytes: 1
      unshared_mib: {{value: {cold:.6g}, source: "records until warm, 4 KiB each"}}
      read_hit_us: {{value: {us / 2:.6g}, source: "assumption: half the cost of a record"}}
      read_miss_us: {{value: {us * fit.warm_up.extra:.6g}, source: "fit: cost after a start"}}
"""


def main(data: DataOption, write: WriteOption = False) -> None:
    """Fit the job files of Demeter's CARS, and print or write them."""
    for name, text in job_files(data).items():
        if write:
            files.write_atomic(files.find("jobs", name), text)
        else:
            typer.echo(text, nl=False)


if __name__ == "__main__":
    run(main)
