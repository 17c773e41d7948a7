"""`dsp-gym flink submit`: a job with a load, on a cluster that is up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.options import HomeOption, JsonOption
from dsp_gym.cli.output import print_json
from dsp_gym.errors import ConfigError, FlinkError, did_you_mean

if TYPE_CHECKING:
    from dsp_gym.backends.flink.local.cluster import LocalCluster
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.loop.configuration import Configuration

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym flink submit flink-q11 --rate 2000

  dsp-gym flink submit flink-q5 --load diurnal-bursts --duration 2h

  dsp-gym flink submit flink-q11 --parallelism session=4 --level session=1,sink=-1
"""


def register(group: typer.Typer) -> None:
    """Adds the command to `dsp-gym flink`."""
    group.command(epilog=_EXAMPLES)(submit)


def submit(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job with a flink section, or a job file.",
            autocompletion=shipped("jobs"),
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Records/s over all sources; default: the job file's."),
    ] = None,
    load: Annotated[
        str | None, typer.Option(help="A shipped load, or a load file, times the job's rate.")
    ] = None,
    duration: Annotated[
        str, typer.Option(help="Length of --load; its last rate holds after it.")
    ] = "1h",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the load and the records.")] = 0,
    parallelism: Annotated[
        str | None, typer.Option(help="VERTEX=P,...; others keep the job file's.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="VERTEX=X,...: memory level, -1 for none; others keep the job file's."),
    ] = None,
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
    from dsp_gym.cli.simulate import seconds

    if rate is not None and load is not None:
        raise ConfigError("--rate and --load both set the load", remedy="Give one.")
    spec = _submittable(job)
    configuration = _configuration(spec, parallelism, level)
    cluster = LocalCluster.attach(home)
    epoch_ms = int(time.time() * 1000)
    if load is None:
        per_s = spec.source.rate_per_s if rate is None else rate
        arguments = {"rate": f"{per_s:.10g}", "epoch-ms": str(epoch_ms)}
    else:
        arguments = _load(spec, load, seconds(duration), seed, cluster, epoch_ms)
    submission = Submission.of_spec(spec, arguments | {"seed": str(seed)}, name)
    _check_name_is_free(cluster, submission.job_name)
    job_id = submission.submit(cluster.rest, configuration, savepoint)
    page = f"{cluster.rest_url}/#/job/running/{job_id}/overview"
    if as_json:
        print_json(
            {
                "job_id": job_id,
                "name": submission.job_name,
                "page": page,
                "configuration": configuration,
                "arguments": arguments,
            }
        )
        return
    typer.echo(f"{submission.job_name} runs as {job_id}: {configuration}")
    typer.echo(f"Look at it:  {page}")
    typer.echo(f"Stop it:     dsp-gym flink cancel {submission.job_name}")


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


def _configuration(spec: JobSpec, parallelism: str | None, level: str | None) -> Configuration:
    """The job file's configuration with what the options change."""
    from dsp_gym.cli.mst import assignments
    from dsp_gym.loop.configuration import Configuration

    start = Configuration.of_spec(spec)
    tasks, levels = assignments("--parallelism", parallelism), assignments("--level", level)
    for name in (*tasks, *levels):
        if name not in start.parallelism:
            raise ConfigError(
                f"job '{spec.job}' has no vertex '{name}'",
                remedy=did_you_mean(name, start.parallelism),
            )
    for name, value in tasks.items():
        most = min(spec.vertex(name).max_parallelism, spec.max_parallelism_per_vertex)
        _check_range(f"--parallelism {name}", value, 1, most)
    for name, value in levels.items():
        _check_range(f"--level {name}", value, -1, spec.memory.levels - 1)
    return Configuration({**start.parallelism, **tasks}, {**start.memory_level, **levels})


def _check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} must be {low} to {high}", value=value)


def _load(
    spec: JobSpec, load: str, duration_s: int, seed: int, cluster: LocalCluster, epoch_ms: int
) -> dict[str, str]:
    from dsp_gym.backends.flink.submission import load_arguments
    from dsp_gym.config.files import load_model
    from dsp_gym.loads.generate import rates
    from dsp_gym.loads.spec import LoadConfig

    config = load_model(LoadConfig, "loads", load)
    factors = rates(config.load, seed=seed, duration_s=duration_s)
    folder = cluster.home.folder / "loads"
    return load_arguments(factors * spec.source.rate_per_s, folder, epoch_ms)


def _check_name_is_free(cluster: LocalCluster, name: str) -> None:
    from dsp_gym.backends.flink.rest import ENDED

    for job in cluster.rest.jobs():
        if job.name == name and job.state not in ENDED:
            raise FlinkError(
                f"a job named '{name}' runs already ({job.id})",
                remedy=f"Cancel it: dsp-gym flink cancel {name}, or give this one --name NAME.",
            )
