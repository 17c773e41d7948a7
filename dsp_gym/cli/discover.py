"""`dsp-gym discover`: job files for the jobs that run somewhere."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import (
    AccountOption,
    JsonOption,
    KubeconfigOption,
    LabelsOption,
    NamespaceOption,
)
from dsp_gym.cli.output import counted, plain, print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.backends.discovery.found import FoundJob
    from dsp_gym.backends.discovery.writing import Discovered
    from dsp_gym.backends.flink.patient import PatientSamples
    from dsp_gym.errors import FlinkError

__all__ = ["WatchedCluster", "found_on", "register"]

_EXAMPLES = """
Examples:

  dsp-gym discover --flink http://127.0.0.1:8081                      every running job, into jobs/

  dsp-gym discover --flink http://127.0.0.1:8081 --job words --out my-jobs --slo-latency-s 5

  dsp-gym discover --selector team=ads --namespace jobs --flink 'http://{name}-rest.jobs:8081'

  dsp-gym discover --prometheus http://127.0.0.1:9090 --labels job_name=flink_job,tm_id=pod
"""
_SOURCES = (
    "Name Flink's REST interface: --flink URL; or resources of the operator: --selector LABELS; or "
    "a Prometheus: --prometheus URL."
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(discover)


def discover(
    flink: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Flink's REST interface. With --selector, {name} is the resource's name.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus of the cluster, if Flink is out of reach."),
    ] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS", help="FlinkDeployments with these labels, such as team=ads."
        ),
    ] = None,
    deployment: Annotated[
        str | None, typer.Option(metavar="NAME", help="One FlinkDeployment.")
    ] = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(help="Name of a job in Flink; repeat. Default: all running jobs."),
    ] = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the job files.")] = Path(
        "jobs"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing job files.")
    ] = False,
    slo_latency_s: Annotated[
        float | None,
        typer.Option(min=0.001, help="Bound on p95 end-to-end latency, s. Default: 2."),
    ] = None,
    core_hour: Annotated[
        float | None,
        typer.Option(
            min=0, help="Price of a core for an hour. Default: a cloud's list price, USD."
        ),
    ] = None,
    gib_hour: Annotated[
        float | None,
        typer.Option(min=0, help="Price of a GiB for an hour. Default: a cloud's list price, USD."),
    ] = None,
    currency: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Currency of both prices, such as EUR. Default: USD."),
    ] = None,
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            min=1, max=2048, help="Most tasks of a vertex. Default: the slots of the cluster."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a job file for every running job, from Flink, Kubernetes or Prometheus.

    Nothing is changed there. What could not be found stands in the file as a comment, with where to
    look. Exit code 1: some jobs got no file.
    """
    _check(out, flink, prometheus)
    choices = _choices(slo_latency_s, core_hour, gib_hour, currency, max_parallelism)
    _belongs("--prometheus URL", prometheus, {"--labels": labels, "--account": account})
    on_kubernetes = selector or deployment
    _belongs("--selector LABELS", on_kubernetes, {"--kubeconfig": kubeconfig, "--context": context})
    cluster = WatchedCluster(
        flink, prometheus, selector, deployment, namespace, kubeconfig, context, labels, account
    )
    jobs, failed = found_on(cluster, job or [])
    _write(jobs, failed, choices, out, overwrite=overwrite, as_json=as_json)


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """Where jobs run, as a command line says it."""

    flink: str | None = None
    prometheus: str | None = None
    selector: str | None = None
    deployment: str | None = None
    namespace: str = "default"
    kubeconfig: Path | None = None
    context: str | None = None
    labels: str | None = None
    account: Path | None = None


def found_on(cluster: WatchedCluster, names: list[str]) -> tuple[list[FoundJob], list[FlinkError]]:
    """Looks at the jobs that run somewhere, with a progress bar.

    Args:
        cluster: where.
        names: of jobs in Flink; none: all that run.

    Returns:
        What was found, and why nothing was found of some resources.

    Raises:
        ConfigError: No option, or two options, give the place of the jobs.
        FlinkError: The cluster does not answer, or runs no such job.
    """
    flink, series = cluster.flink, None
    if cluster.prometheus is not None:
        series = _series(cluster.prometheus, cluster.labels, cluster.account)
    if cluster.selector is not None or cluster.deployment is not None:
        place: dict[str, object] = {
            "selector": cluster.selector,
            "name": cluster.deployment,
            "namespace": cluster.namespace,
        }
        place |= {"kubeconfig": cluster.kubeconfig, "context": cluster.context, "rest_url": flink}
        return _by_kubernetes(place, series, names)
    if flink is not None and series is not None:
        raise ConfigError(
            "--flink and --prometheus both name the jobs",
            remedy="Leave --prometheus out: Flink describes the jobs better.",
        )
    if flink is not None:
        return _by_rest(flink, names), []
    if series is not None:
        return _by_series(series, names), []
    raise ConfigError("the place of the jobs is missing", remedy=_SOURCES)


def _choices(
    slo_latency_s: float | None,
    core_hour: float | None,
    gib_hour: float | None,
    currency: str | None,
    max_parallelism: int | None,
) -> Choices:
    """What the command line says, the rest as a job file has it."""
    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.config.files import parse
    from dsp_gym.job.spec import Prices, Slo

    if currency is not None and (core_hour is None or gib_hour is None):
        raise ConfigError(
            "the default prices are in US dollars and are not converted",
            key="--currency",
            value=currency,
            remedy="Give both prices in this currency: --core-hour and --gib-hour.",
        )
    prices = {"core_hour": core_hour, "gib_hour": gib_hour, "currency": currency}
    slo = {"latency_s": slo_latency_s}
    return Choices(
        parse(Slo, {k: v for k, v in slo.items() if v is not None}, "the command line"),
        parse(Prices, {k: v for k, v in prices.items() if v is not None}, "the command line"),
        max_parallelism,
    )


def _check(out: Path, *urls: str | None) -> None:
    for option, url in zip(("--flink", "--prometheus"), urls, strict=True):
        if url is not None and not url.startswith(("http://", "https://")):
            raise ConfigError(
                "a URL begins with http:// or https://",
                key=option,
                value=url,
                remedy="Write it out: http://127.0.0.1:8081",
            )
    if out.exists() and not out.is_dir():
        raise ConfigError(
            "is a file, not a folder", key="--out", value=str(out), remedy="Name a folder."
        )


def _belongs(to: str, given: object, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None and given is None:
            raise ConfigError(f"{option} belongs to {to}", remedy=f"Add {to}, or leave it out.")


def _series(url: str, labels: str | None, account: Path | None) -> PatientSamples:
    from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples
    from dsp_gym.backends.flink.prometheus_api import Labels

    return PatientSamples(url, None, HistoryOptions(retries=2), Labels.parse(labels), account)


def _by_series(source: PatientSamples, names: list[str]) -> list[FoundJob]:
    import time

    from dsp_gym.backends.discovery.prometheus import found_by_prometheus

    return found_by_prometheus(source, time.time(), names)


def _by_kubernetes(
    place: dict[str, object], source: PatientSamples | None, names: list[str]
) -> tuple[list[FoundJob], list[FlinkError]]:
    import time

    from dsp_gym.backends.discovery.flink import found_by_rest
    from dsp_gym.backends.discovery.kubernetes import found_by_kubernetes
    from dsp_gym.backends.discovery.prometheus import found_by_prometheus
    from dsp_gym.backends.kubernetes.api import KubernetesApi
    from dsp_gym.backends.kubernetes.config import KubernetesPlace
    from dsp_gym.config.files import parse

    at = parse(KubernetesPlace, place, "options")
    by_series = None
    if source is not None:
        known = source

        def by_series(job_id: str) -> FoundJob:
            return found_by_prometheus(known, time.time(), ids=[job_id])[0]

    api = KubernetesApi.connect(at)
    try:
        found, failed = found_by_kubernetes(api, at, found_by_rest, by_series)
    finally:
        api.close()
    return [one for one in found if not names or one.name in names], failed


def _by_rest(url: str, names: list[str]) -> list[FoundJob]:
    from dsp_gym.backends.discovery.flink import found_by_rest, running_jobs
    from dsp_gym.backends.flink.rest import FlinkRest
    from dsp_gym.cli.progress import bar

    rest = FlinkRest(url)
    jobs = running_jobs(rest, names)
    with bar() as shown:
        task = shown.add_task("jobs", total=len(jobs))
        found = []
        for one in jobs:
            found.append(found_by_rest(rest, one.id))
            shown.advance(task)
    return found


def _write(
    jobs: list[FoundJob],
    failed: list[FlinkError],
    choices: Choices,
    out: Path,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    import dataclasses
    import time

    from dsp_gym.backends.discovery.writing import described, write_all

    made = described(jobs, choices, time.time())
    made = dataclasses.replace(made, refused=(*failed, *made.refused))
    paths = write_all(made.files, out, overwrite=overwrite)
    if as_json:
        print_json(_document(made, paths))
    else:
        _tell(made, paths)
    if not made.files and made.refused:
        raise made.refused[0]
    if not made.files:
        raise ConfigError("no job runs there", remedy="Start one, or name others with --job.")
    if made.refused:
        raise typer.Exit(1)


def _document(made: Discovered, paths: list[Path]) -> dict[str, object]:
    return {
        "schema": "dsp-gym/discovery/1",
        "jobs": [
            {
                "file": str(path),
                "job": one.spec.job,
                "flink_name": one.found.name,
                "job_id": one.found.job_id,
                "vertices": [vertex.name for vertex in one.spec.vertices],
                "not_found": [plain(note) for note in one.notes],
            }
            for path, one in zip(paths, made.files, strict=True)
        ],
        "refused": [str(error) for error in made.refused],
        "remarks": list(made.remarks),
    }


def _tell(made: Discovered, paths: list[Path]) -> None:
    from dsp_gym.backends.flink.submissions import shown

    if paths:
        print_table(
            ["file", "job in Flink", "vertices", "to look at"],
            [
                [str(path), shown(one.found.name), len(one.spec.vertices), len(one.notes)]
                for path, one in zip(paths, made.files, strict=True)
            ],
            right=["vertices", "to look at"],
        )
        some = shlex.quote(str(paths[0]))
        typer.echo(f"{counted(len(paths), 'job file')} written. Next: dsp-gym simulate {some}")
    for remark in made.remarks:
        typer.echo(f"note: {remark}")
    for error in made.refused if made.files else ():
        typer.echo(f"no file: {error}", err=True)
