"""The job file of a job of one main vertex, calibrated from a series.

The simulation has a restarted job's cold code as a cold cache: reads miss until the working set is
there, so a record's extra cost and the number of records are given as `read_miss_us` and
`unshared_mib`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsp_gym.calibration.series_fit import SeriesFit
from dsp_gym.job.memory import flink_split, managed_mib_per_slot

__all__ = ["job_text"]

BLOCK_BYTES = 4096
"""What one miss brings into the cache of the simulation."""
END_TO_END_SLO_S = 2.0


def job_text(fit: SeriesFit, job: str, used: Sequence[str], slot_memory_mib: float) -> str:
    """Writes the job file.

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
