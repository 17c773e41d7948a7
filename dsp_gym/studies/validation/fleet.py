r"""From nothing to a fleet page: three real jobs, an hour of history, one command.

    python -m dsp_gym.studies.validation.fleet [--minutes 60] [--out FILE.json] [--home FOLDER]

Three jobs share a local Flink whose Prometheus scrapes them: the word count under DS2, Q11 under
Justin, Q1 with five tasks all the time. Two hours of `diurnal-bursts` pass in an hour. Then
`dsp-gym discover` describes the jobs that Flink runs, and `dsp-gym backtest` is asked as a user
asks it, with the address of Prometheus and these files: it fits a model to the history of each job,
and replays the deployed configurations. Held to the bars: the seconds until the page is there, and
the model's cost and lateness against what was observed, by job. An hour is less than the week that
a verdict needs, so no saving is claimed; what counts here is whether the model may be trusted.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.config.files import write_atomic
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.studies.runner import dsp_gym, run, write_figures
from dsp_gym.studies.running import WINDOW
from dsp_gym.studies.validation.drive import compressed

SCALED_BY = {"flink-wordcount": "ds2-local", "flink-q11": "justin-local", "flink-q1": None}
"""The acting policy of each job, from one task per vertex; None: `DEPLOYED`, all the time."""

DEPLOYED = {"flink-q1": {"map": 5}}
"""Tasks of the vertices that have more than one."""

SLOTS = 24
INTERVAL_S = 30
POLICIES = "ds2,justin-paper,planner"
BARS = {"seconds": 600.0, "cost": 0.05, "late": 0.02, "trusted": 2}
"""The page in so many seconds; the model's error in cost (share) and lateness (share of the time),
of at least so many of the three jobs."""


def lived(cluster: LocalCluster, folder: Path, seconds: int) -> None:
    """Three jobs under their loads for so many seconds; they still run when this returns."""
    policies = []
    for job, policy in SCALED_BY.items():
        spec = load_job(job)
        rates = compressed(seconds, spec.source.rate_per_s, compression=2)
        load = load_arguments(rates[:-1], folder, round(1000 * time.time()))
        one = Configuration.of_spec(spec)
        deployed = replace(one, parallelism={**one.parallelism, **DEPLOYED.get(job, {})})
        Submission.of_spec(spec, load, job).submit(cluster.rest, deployed)
        if policy is not None:
            config = {
                "job": job,
                "job_name": job,
                "where": {"home": str(cluster.home.folder)},
                "policy": policy,
                "interval_s": INTERVAL_S,
                "window": WINDOW.model_dump(),
            }
            file = write_atomic(folder / f"{job}.yaml", yaml.safe_dump(config))
            how = ("--apply", "--sole", "--no-serve", "--duration", f"{seconds}s")
            command = dsp_gym("shadow", file, *how, "--journal", folder / "journals" / job)
            with (folder / f"{job}.log").open("w") as log:
                policies.append(subprocess.Popen(command, stdout=log, stderr=log))
    until = time.monotonic() + seconds
    try:
        for running in policies:
            if running.wait(max(until + 300 - time.monotonic(), 1.0)) != 0:
                typer.echo(f"a policy ended with {running.returncode}: see {folder}", err=True)
        time.sleep(max(until - time.monotonic(), 0.0))
    finally:
        for running in policies:
            running.terminate()


def asked(cluster: LocalCluster, out: Path, days: float) -> tuple[float, dict[str, Any]]:
    """`dsp-gym discover`, then `dsp-gym backtest` on what Prometheus has.

    Returns:
        Seconds both took, and the document.
    """
    assert cluster.prometheus_url is not None  # the settings ask for one
    jobs, begun = out.parent / "jobs", time.monotonic()
    found = ("--prometheus", cluster.prometheus_url, "--jobs", jobs, "--days", f"{days:.4g}")
    how = ("--policies", POLICIES, "--interval", INTERVAL_S)
    subprocess.run(dsp_gym("discover", "--flink", cluster.rest_url, "--out", jobs), check=True)
    ran = subprocess.run(
        dsp_gym("backtest", *found, *how, "--out", out, "--overwrite", "--json"),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return time.monotonic() - begun, json.loads(ran.stdout)


def figures(seconds: float, document: dict[str, Any], minutes: float) -> dict[str, object]:
    """What the page took, and how far each job's model is from what was observed.

    Returns:
        By job: cost per month and late share, observed and by the model, and whether both are
        within the bars.
    """
    jobs = {}
    for job in document["jobs"]:
        seen = job["observed"]
        cost = abs(seen["model_cost_per_month"] / seen["cost_per_month"] - 1)
        late = None if seen["late"] is None else abs(seen["model_late"] - seen["late"])
        jobs[job["name"]] = {
            **seen,
            "cost_off": cost,
            "late_off": late,
            "trusted": cost <= BARS["cost"] and late is not None and late <= BARS["late"],
        }
    trusted = sum(bool(found["trusted"]) for found in jobs.values())
    return {
        "minutes": minutes,
        "seconds": seconds,
        "jobs": jobs,
        "holds": {"page": seconds <= BARS["seconds"], "trusted": trusted >= BARS["trusted"]},
    }


def main(
    minutes: Annotated[float, typer.Option(min=5, help="Length of the history.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Where the figures are written.")] = None,
    folder: Annotated[Path, typer.Option(help="Loads, journals, history, pages.")] = Path(
        "runs/fleet"
    ),
    home: Annotated[
        Path | None, typer.Option(help="Folder of the cluster, which is ended.")
    ] = None,
) -> None:
    """Run three jobs for an hour, backtest them, and compare the model with what was observed."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = ClusterSettings(slots=SLOTS, rest_port=0, prometheus_port=0)
    cluster = LocalCluster.up(settings, home or folder / "cluster")
    try:
        lived(cluster, folder, round(60 * minutes))
        seconds, document = asked(cluster, folder / "report", minutes / 1440)
    finally:
        cluster.down()
    write_figures(figures(seconds, document, minutes), out)


if __name__ == "__main__":
    run(main)
