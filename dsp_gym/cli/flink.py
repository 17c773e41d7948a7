"""`dsp-gym flink`: a real Flink cluster on this machine, and jobs submitted to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli import flink_submit
from dsp_gym.cli.options import HomeOption, JsonOption
from dsp_gym.cli.output import print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.backends.flink.local.cluster import ClusterStatus, LocalCluster
    from dsp_gym.backends.flink.rest import JobSummary

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
    flink_submit.register(group)
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
