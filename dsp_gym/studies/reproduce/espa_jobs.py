"""Fits the job files of the espa runs: Nexmark Q1, Q3 and Q11 in Flink's reactive mode.

    python -m dsp_gym.studies.reproduce.espa_jobs --data FOLDER --write

Each is calibrated by `dsp_gym.calibration.scaled_fit` on the given runs of one repeat; how the jobs
were deployed comes from github.com/delftdata/espa-autoscaling at commit 2290fa6.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.scaled_fit import cold_s
from dsp_gym.calibration.scaled_job import DeployedJob, ScaledReport, report_of
from dsp_gym.calibration.scaled_runs import ScaledRun, read_runs
from dsp_gym.config import files
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.runner import DataOption, WriteOption, run

FILE = "espa_runs.csv.gz"
COMMAND = "python -m dsp_gym.studies.reproduce.espa_jobs --data ../shared/data --write"
TOPICS = {"q1": 1, "q3": 2, "q11": 1}
"""Topics that each query reads, of 24 partitions."""
PARTITIONS, MOST, START = 24, 16, 8
MEMORY_MIB, CHECKPOINT_S = 4000.0, 10.0


def job_of(query: str, runs: Sequence[ScaledRun], without: Collection[str] = ()) -> ScaledReport:
    """Calibrate a query's job.

    Args:
        query: q1, q3 or q11.
        runs: of all queries.
        without: policies whose runs are left out.

    Returns:
        The report, which holds the job file.
    """
    seen = [run for run in runs if run.policy not in without]
    own = [run for run in seen if run.query == query]
    # Code is loaded and compiled as fast whatever the query; few runs of some show it.
    cold = cold_s(seen)
    deployed = DeployedJob(MEMORY_MIB, CHECKPOINT_S, PARTITIONS * TOPICS[query], MOST, START, cold)
    left_out = "".join(f", those of {policy} left out" for policy in without)
    used = (f"{FILE}: {len(own)} runs of {query}{left_out}",)
    return report_of(own, name_of(query), used, COMMAND, deployed)


def spec_of(query: str, runs: Sequence[ScaledRun], without: Collection[str] = ()) -> JobSpec:
    """Calibrate a query's job without some policies' runs.

    Returns:
        The job.
    """
    return job_spec(job_of(query, runs, without).job_text, name_of(query))


def name_of(query: str) -> str:
    """Name of a query's job file.

    Returns:
        Such as espa-q1.
    """
    return f"espa-{query}"


def main(data: DataOption, write: WriteOption = False) -> None:
    """Fit the job files of the espa runs, and print or write them."""
    runs = read_runs(data / FILE).runs
    for query in TOPICS:
        report = job_of(query, runs)
        if write:
            files.write_atomic(_path(query), report.job_text)
        else:
            typer.echo(report.job_text, nl=False)


def _path(query: str) -> Path:
    """Of a shipped job file, which need not be there yet."""
    return files.find("jobs", "demeter-cars").with_name(f"{name_of(query)}.yaml")


if __name__ == "__main__":
    run(main)
