"""Cache misses per record of the recorded update jobs beside the closed forms, nothing fitted."""

from __future__ import annotations

import numpy as np

from dsp_gym.job.capacity import block_reads, read_shares
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import compile_jobs
from dsp_gym.metrics.window import increase
from dsp_gym.records.flink_runs import read_flink_runs

JOBS = ("flink-runs-direct-update", "flink-runs-update")


def misses_per_record(data_folder, job):
    """Seen and predicted misses of the saturated runs of one job."""
    spec = load_job(job)
    tables = compile_jobs([spec])
    name = job.removeprefix("flink-runs-")
    column = [vertex.name for vertex in spec.topological_order()].index("state")
    found = []
    for run in read_flink_runs(data_folder / "flink_runs", spec):
        if not run.name.startswith(f"{name}-p") or not run.name.endswith("-sat"):
            continue
        settled = run.samples().between(run.t_running_s + 9.0, run.t_end_s)
        total = {}
        for metric in ("cache_misses_total", "records_in_total"):
            times, _, values = settled.grid("state", metric)
            total[metric] = float(np.nansum(increase(times, values)[0]))
        p = run.configuration.parallelism["state"]
        level = run.configuration.memory_level["state"]
        served, _ = read_shares(tables, 0, column, p, level, 0.0)
        lookups, compacted = block_reads(tables, 0, column, p, level, 0.0)
        seen = total["cache_misses_total"] / total["records_in_total"]
        found.append((run.name, seen, lookups * (1.0 - served) + compacted))
    return found


def test_misses_per_record_of_flink_runs_update_follow_from_rocksdbs_tree_alone(data_folder):
    found = [row for job in JOBS for row in misses_per_record(data_folder, job)]
    assert len(found) == 12 + 16
    off = np.abs(np.log([said / seen for _, seen, said in found]))
    assert np.median(off) <= 0.04
    assert np.quantile(off, 0.9) <= 0.20
