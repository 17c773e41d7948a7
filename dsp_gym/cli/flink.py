"""`dsp-gym flink`: a real Flink cluster on this machine, and jobs submitted to it."""

from __future__ import annotations

import math
import shlex
import time
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import (
    ConfigurationOption,
    HomeOption,
    JsonOption,
    RateOption,
    assignments,
    constant_rate,
    seconds,
    shipped,
)
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError, FlinkError, did_you_mean

if TYPE_CHECKING:
    from dsp_gym.backends.flink.local.cluster import ClusterStatus, LocalCluster
    from dsp_gym.backends.flink.rest import JobSummary
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.loop.configuration import Configuration

_SUBMIT = """
Examples:

  dsp-gym flink submit flink-q11 --rate 2000

  dsp-gym flink submit flink-q5 --load diurnal-bursts --duration 2h

  dsp-gym flink submit flink-q11 --configuration session=4@1,sink@-1
"""

_UP = """
Examples:

  dsp-gym flink up

  dsp-gym flink up --scheduler adaptive

  dsp-gym flink up --home /tmp/second --rest-port 0 --prometheus-port 0
"""


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Run a real Flink and Prometheus on this machine; submit jobs to it.",
        no_args_is_help=True,
    )
    group.command(epilog=_UP)(up)
    group.command(epilog="Examples:\n\n  dsp-gym flink status\n\n  dsp-gym flink status --json")(
        status
    )
    group.command(epilog=_SUBMIT)(submit)
    group.command(
        epilog="Examples:\n\n  dsp-gym flink down\n\n  dsp-gym flink down --job flink-q11"
    )(down)
    app.add_typer(group, name="flink")


def up(
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="default: memory per vertex; adaptive: parallelism changes in place.",
            show_default="default",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Task slots.", show_default="16")] = None,
    managed_mib: Annotated[
        int | None,
        typer.Option(help="Managed memory of all slots, MiB.", show_default="3072"),
    ] = None,
    rest_port: Annotated[
        int | None,
        typer.Option(help="Flink's REST and web page; 0: a free one.", show_default="8081"),
    ] = None,
    prometheus_port: Annotated[
        int | None, typer.Option(help="Prometheus; 0: a free one.", show_default="9090")
    ] = None,
    prometheus: Annotated[
        bool | None, typer.Option(help="Store metrics.", show_default="--prometheus")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a Flink cluster and Prometheus, or restart their dead processes."""
    from dsp_gym.backends.flink.local.cluster import LocalCluster
    from dsp_gym.backends.flink.local.settings import ClusterSettings
    from dsp_gym.config.files import parse

    given = {
        "scheduler": scheduler,
        "slots": slots,
        "managed_mib": managed_mib,
        "rest_port": rest_port,
        "prometheus_port": prometheus_port,
        "prometheus": prometheus,
    }
    asked = {key: value for key, value in given.items() if value is not None}
    began = time.monotonic()
    settings = None
    if asked:  # merged into those of the cluster that is there
        there = LocalCluster.find(home)
        kept = {} if there is None else there.settings.model_dump()
        settings = parse(ClusterSettings, {**kept, **asked}, "dsp-gym flink up")
    cluster = LocalCluster.up(settings, home)
    if not as_json:
        typer.echo(f"Up after {time.monotonic() - began:.0f} s.")
    _show(cluster, cluster.status(), as_json)


def status(
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the running and the dead processes; exit code 1 if one is unhealthy."""
    from dsp_gym.backends.flink.local.cluster import LocalCluster

    cluster = LocalCluster.attach(home)
    seen = cluster.status()
    _show(cluster, seen, as_json)
    if not seen.healthy:
        if not as_json:
            typer.echo("Start the dead parts: dsp-gym flink up", err=True)
        raise typer.Exit(1)


def down(
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Stop this job alone, by name or id; its state is lost."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the processes that `up` started, or one job; logs, savepoints and samples stay."""
    from dsp_gym.backends.flink.local.cluster import LocalCluster
    from dsp_gym.backends.flink.local.launch import default_home

    if job is not None:
        _cancel(LocalCluster.attach(home), job, as_json)
        return
    cluster = LocalCluster.find(home)
    ended = () if cluster is None else cluster.down()
    folder = home or default_home()
    if as_json:
        print_json({"home": folder, "ended": ended})
    else:
        typer.echo(f"Ended: {', '.join(ended) or 'nothing ran'}. Folder: {folder}")


def _cancel(cluster: LocalCluster, job: str, as_json: bool) -> None:
    from dsp_gym.backends.flink.rest import ENDED

    rest = cluster.rest
    found = next((one for one in rest.jobs() if one.id == job), None) or rest.find_job(job)
    if found.state not in ENDED:
        rest.cancel(found.id)
    state = rest.wait_for(found.id, ENDED, 60.0)
    if as_json:
        print_json({"job_id": found.id, "name": found.name, "state": state})
    else:
        typer.echo(f"{found.name} ({found.id}) is {state}.")


def _show(cluster: LocalCluster, seen: ClusterStatus, as_json: bool) -> None:
    jobs = cluster.rest.jobs() if seen.flink_version else []
    if as_json:
        print_json(
            {
                "status": seen,
                "healthy": seen.healthy,
                "rest_url": cluster.rest_url,
                "prometheus_url": cluster.prometheus_url,
                "jobs": jobs,
                "savepoints": cluster.savepoints,
                "logs": cluster.logs,
            }
        )
        return
    print_table(
        ["part", "state", "pid", "MiB", "address", "log"],
        [
            [p.name, p.state, p.pid, p.memory_mib and round(p.memory_mib), p.address, p.log]
            for p in seen.parts
        ],
        right=["pid", "MiB"],
    )
    if seen.flink_version:
        typer.echo(
            f"\nFlink {seen.flink_version}, {seen.settings.scheduler} scheduler, "
            f"{seen.slots_available} of {seen.slots_total} slots free"
        )
    if jobs:
        _print_jobs(jobs)


def _print_jobs(jobs: list[JobSummary]) -> None:
    typer.echo()
    print_table(
        ["job", "state", "started", "id"],
        [
            [
                job.name,
                job.state,
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.start_s)),
                job.id,
            ]
            for job in sorted(jobs, key=lambda job: job.start_s)
        ],
    )


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
    rate: RateOption = None,
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

    constant = constant_rate(rate, load)
    spec = _submittable(job)
    start = _configuration(spec, configuration)
    cluster = LocalCluster.attach(home)
    arguments = {**_load(spec, load, constant, duration, seed, cluster), "seed": str(seed)}
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
    typer.echo(f"Stop it:     dsp-gym flink down --job {shlex.quote(submission.job_name)}")


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
    spec: JobSpec,
    load: str | None,
    constant: float | None,
    duration: str,
    seed: int,
    cluster: LocalCluster,
) -> dict[str, str]:
    """Turn a rate or a load into the program's arguments."""
    from dsp_gym.backends.flink.submission import load_arguments
    from dsp_gym.config.files import load_model
    from dsp_gym.loads.generate import rates
    from dsp_gym.loads.spec import LoadConfig

    epoch_ms = int(time.time() * 1000)
    try:
        per_s = (constant or spec.source.rate_per_s) if load is None else float(load)
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
                remedy=f"Cancel it: dsp-gym flink down --job {shlex.quote(name)}, or give this one "
                "--name NAME.",
            )
