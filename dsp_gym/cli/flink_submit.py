"""`dsp-gym flink submit`: a job with a load, on a cluster that is up."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import (
    ConfigurationOption,
    HomeOption,
    JsonOption,
    assignments,
    seconds,
    shipped,
)
from dsp_gym.cli.output import print_json
from dsp_gym.errors import ConfigError, FlinkError, did_you_mean

if TYPE_CHECKING:
    from dsp_gym.backends.flink.local.cluster import LocalCluster
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.loop.configuration import Configuration

_EXAMPLES = """
Examples:

  dsp-gym flink submit flink-q11 --load 2000

  dsp-gym flink submit flink-q5 --load diurnal-bursts --duration 2h

  dsp-gym flink submit flink-q11 --configuration session=4@1,sink@-1
"""


def register(group: typer.Typer) -> None:
    """Add the command to `dsp-gym flink`."""
    group.command(epilog=_EXAMPLES)(submit)


def submit(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job with a flink section, or a job file.",
            autocompletion=shipped("jobs"),
        ),
    ],
    load: Annotated[
        str | None,
        typer.Option(
            metavar="RATE|LOAD",
            help="Records/s over all sources, or a load (shipped, or a file) times the job's rate. "
            "Default: the job file's rate.",
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option(help="Length of a load; its last rate holds after it.")
    ] = "1h",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the load and the records.")] = 0,
    configuration: ConfigurationOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the job in Flink; default: the job file's.")
    ] = None,
    savepoint: Annotated[str | None, typer.Option(help="Savepoint to start from.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a job under a load and wait until every subtask runs."""
    from dsp_gym.backends.flink.local.cluster import LocalCluster
    from dsp_gym.backends.flink.submission import Submission

    spec = _submittable(job)
    start = _configuration(spec, configuration)
    cluster = LocalCluster.attach(home)
    arguments = {**_load(spec, load, duration, seed, cluster), "seed": str(seed)}
    submission = Submission.of_spec(spec, arguments, name)
    _check_name_is_free(cluster, submission.job_name)
    job_id = submission.submit(cluster.rest, start, savepoint)
    page = f"{cluster.rest_url}/#/job/running/{job_id}/overview"
    if as_json:
        told = {"job_id": job_id, "name": submission.job_name, "page": page}
        print_json({**told, "configuration": start, "arguments": arguments})
        return
    typer.echo(f"{submission.job_name} runs as {job_id}: {start}")
    typer.echo(f"Look at it:  {page}")
    typer.echo(f"Stop it:     dsp-gym flink down --job {submission.job_name}")


def _submittable(job: str) -> JobSpec:
    from dsp_gym.job.catalog import list_jobs, load_job

    spec = load_job(job)
    if spec.flink is None:
        known = ", ".join(one.job for one in list_jobs() if one.flink is not None)
        raise ConfigError(
            f"the job '{spec.job}' can only be simulated: its file has no 'flink' section",
            remedy=f"Jobs that have one: {known or 'none'}.",
        )
    return spec


def _configuration(spec: JobSpec, given: str | None) -> Configuration:
    """Change the job file's configuration as the option says."""
    from dsp_gym.loop.configuration import Configuration

    start = Configuration.of_spec(spec)
    tasks, levels = assignments(given)
    for name in (*tasks, *levels):
        if name not in start.parallelism:
            raise ConfigError(
                f"job '{spec.job}' has no vertex '{name}'",
                remedy=did_you_mean(name, start.parallelism),
            )
    for name, value in tasks.items():
        most = min(spec.vertex(name).max_parallelism, spec.max_parallelism_per_vertex)
        _check_range(f"the parallelism of '{name}'", value, 1, most)
    for name, value in levels.items():
        _check_range(f"the memory level of '{name}'", value, -1, spec.memory.levels - 1)
    return Configuration({**start.parallelism, **tasks}, {**start.memory_level, **levels})


def _check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} must be {low} to {high}", value=value)


def _load(
    spec: JobSpec, load: str | None, duration: str, seed: int, cluster: LocalCluster
) -> dict[str, str]:
    """Turn a rate or a load into the program's arguments."""
    from dsp_gym.backends.flink.submission import load_arguments
    from dsp_gym.config.files import load_model
    from dsp_gym.loads.generate import rates
    from dsp_gym.loads.spec import LoadConfig

    epoch_ms = int(time.time() * 1000)
    try:
        per_s = spec.source.rate_per_s if load is None else float(load)
    except ValueError:
        config = load_model(LoadConfig, "loads", str(load))
        factors = rates(config.load, seed=seed, duration_s=seconds(duration))
        folder = cluster.home.folder / "loads"
        return load_arguments(factors * spec.source.rate_per_s, folder, epoch_ms)
    if not 0 <= per_s < math.inf:
        raise ConfigError("is no rate", key="--load", value=str(load), remedy="For instance 2000.")
    return {"rate": f"{per_s:.10g}", "epoch-ms": str(epoch_ms)}


def _check_name_is_free(cluster: LocalCluster, name: str) -> None:
    from dsp_gym.backends.flink.rest import ENDED

    for job in cluster.rest.jobs():
        if job.name == name and job.state not in ENDED:
            raise FlinkError(
                f"a job named '{name}' runs already ({job.id})",
                remedy=f"Cancel it: dsp-gym flink down --job {name}, or give this one --name NAME.",
            )
