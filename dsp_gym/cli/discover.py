"""`dsp-gym discover`: a folder with job files for the jobs that run somewhere."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import (
    AccountOption,
    JsonOption,
    KubeconfigOption,
    LabelsOption,
    NamespaceOption,
    names_of,
    refuse_given,
    refuse_no_url,
)
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.cli.progress import bar
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.backends.discovery.found import FoundJob
    from dsp_gym.backends.discovery.writing import Discovered
    from dsp_gym.backends.flink.patient import PatientSamples
    from dsp_gym.control.fleet_folder import FleetPlace
    from dsp_gym.errors import FlinkError

EXAMPLES = """
Examples:

  dsp-gym discover --flink http://127.0.0.1:8081                      every running job, into jobs/

  dsp-gym discover --flink http://127.0.0.1:8081 --jobs words --out my-jobs --slo-latency-s 5

  dsp-gym discover --selector team=ads --namespace jobs --flink 'http://{name}-rest.jobs:8081'

  dsp-gym discover --prometheus http://127.0.0.1:9090 --labels job_name=flink_job,tm_id=pod
"""
_ADD = "Add it, or leave this out."
_SOURCES = (
    "Name Flink's REST interface: --flink URL; or resources of the operator: --selector LABELS; or "
    "a Prometheus: --prometheus URL."
)


_PricesOption = Annotated[
    str | None,
    typer.Option(
        metavar="CORE,GIB[,CODE]",
        help="Prices of a core and of a GiB for an hour, and their currency, such as "
        "0.05,0.006,EUR. Default: a cloud's list prices, USD.",
    ),
]


_OutOption = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Folder of the job files, which dsp-gym shadow DIR runs beside the jobs.",
    ),
]


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
            metavar="LABELS|NAME",
            help="FlinkDeployments with these labels, such as team=ads, or the one of this name.",
        ),
    ] = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    jobs: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Names of jobs in Flink. Default: all running jobs."),
    ] = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    out: _OutOption = Path("jobs"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing job files.")
    ] = False,
    slo_latency_s: Annotated[
        float | None,
        typer.Option(min=0.001, help="Bound on p95 end-to-end latency, s. Default: 2."),
    ] = None,
    prices: _PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a job file for every running job, and what shadow mode needs, from where they run.

    Nothing is changed there. On Kubernetes a job file has the name of its resource. What could not
    be found stands in the file as a comment, with where to look. Exit code 1: some jobs got no
    file.
    """
    refuse_no_url("--flink", flink, "http://127.0.0.1:8081")
    refuse_no_url("--prometheus", prometheus, "http://127.0.0.1:8081")
    _refuse_file(out)
    choices = _choices(slo_latency_s, prices)
    if prometheus is None:
        of_flink = flink is not None and selector is None
        given = {"--labels": labels, "--account": None if of_flink else account}
        refuse_given(given, "belongs to --prometheus URL", _ADD)
    if selector is None:
        refuse_given({"--kubeconfig": kubeconfig}, "belongs to --selector LABELS", _ADD)
    cluster = WatchedCluster(flink, prometheus, selector, namespace, kubeconfig, labels, account)
    names = [] if jobs is None else names_of(jobs, "--jobs")
    _write(found_on(cluster, names, choices), cluster, out, overwrite=overwrite, as_json=as_json)


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(
            "is a file, not a folder", key="--out", value=str(out), remedy="Name a folder."
        )


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """The place of running jobs, as a command line gives it."""

    flink: str | None = None
    prometheus: str | None = None
    selector: str | None = None  # labels, or the name of one resource
    namespace: str = "default"
    kubeconfig: Path | None = None
    labels: str | None = None
    account: Path | None = None

    @property
    def names_resource(self) -> bool:
        """Whether the selector is the name of one resource, not labels."""
        return re.fullmatch(r"[a-z0-9.-]+", self.selector or "") is not None

    def place(self) -> FleetPlace:
        """The same for a configuration of shadow mode.

        Returns:
            Where the jobs are watched.
        """
        from dsp_gym.control.fleet_folder import FleetPlace

        return FleetPlace(
            rest_url=self.flink,
            prometheus_url=self.prometheus,
            account=self.account,
            labels=self.labels,
            namespace=self.namespace,
            kubeconfig=self.kubeconfig,
            selector=None if self.names_resource else self.selector,
            resource=self.selector if self.names_resource else None,
        )


def found_on(cluster: WatchedCluster, names: list[str], choices: Choices) -> Discovered:
    """Look at running jobs, with a progress bar, and describe them.

    Args:
        cluster: The place of the jobs.
        names: Names in Flink; none: all running jobs.
        choices: What a cluster does not say.

    Returns:
        The job files, and the errors of jobs and resources that could not be read.

    Raises:
        ConfigError: No option, or two options, give the place of the jobs.
        FlinkError: The cluster does not answer, or runs no such job.
    """
    from dsp_gym.backends.discovery.writing import described

    jobs, failed = _looked_at(cluster, names)
    made = described(jobs, choices, time.time())
    return replace(made, refused=(*failed, *made.refused))


def _looked_at(
    cluster: WatchedCluster, names: list[str]
) -> tuple[list[FoundJob], list[FlinkError]]:
    flink, series = cluster.flink, None
    if cluster.prometheus is not None:
        series = _series(cluster.prometheus, cluster.labels, cluster.account)
    if cluster.selector is not None:
        place: dict[str, object] = {
            "name" if cluster.names_resource else "selector": cluster.selector,
            "namespace": cluster.namespace,
            "kubeconfig": cluster.kubeconfig,
            "rest_url": flink,
        }
        return _by_kubernetes(place, series, names)
    if flink is not None and series is not None:
        raise ConfigError(
            "--flink and --prometheus both name the jobs",
            remedy="Leave --prometheus out: Flink describes the jobs better.",
        )
    if flink is not None:
        return _by_rest(flink, names, cluster.account)
    if series is not None:
        from dsp_gym.backends.discovery.prometheus import found_by_prometheus

        failed: list[FlinkError] = []
        return found_by_prometheus(series, time.time(), names, failed=failed), failed
    raise ConfigError("the place of the jobs is missing", remedy=_SOURCES)


def _choices(slo_latency_s: float | None, prices: str | None) -> Choices:
    """Read the latency bound and the prices; a job file's own defaults for the rest."""
    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.config.files import parse
    from dsp_gym.job.spec import Prices, Slo

    given = {} if slo_latency_s is None else {"latency_s": slo_latency_s}
    slo = parse(Slo, given, "the command line")
    if prices is None:
        return Choices(slo)
    match = re.fullmatch(r"([\d.]+),([\d.]+)(?:,([A-Z]+))?", prices.replace(" ", ""))
    if match is None:
        raise ConfigError(
            "takes two prices and a currency",
            key="--prices",
            value=prices,
            remedy="Write CORE,GIB or CORE,GIB,CODE, such as 0.05,0.006,EUR.",
        )
    core, gib, code = match.groups()
    document = {"core_hour": float(core), "gib_hour": float(gib)}
    return Choices(slo, parse(Prices, document | ({"currency": code} if code else {}), "--prices"))


def _series(url: str, labels: str | None, account: Path | None) -> PatientSamples:
    from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples
    from dsp_gym.backends.flink.prometheus_api import Labels
    from dsp_gym.backends.upstream.access import access_of

    options = HistoryOptions(retries=2)
    return PatientSamples(url, None, options, Labels.parse(labels), access_of(account))


def _by_kubernetes(
    place: dict[str, object], source: PatientSamples | None, names: list[str]
) -> tuple[list[FoundJob], list[FlinkError]]:
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


def _by_rest(
    url: str, names: list[str], account: Path | None
) -> tuple[list[FoundJob], list[FlinkError]]:
    from dsp_gym.backends.discovery.flink import found_by_rest, running_jobs
    from dsp_gym.backends.flink.rest import FlinkRest
    from dsp_gym.backends.flink.versions import check_told_version
    from dsp_gym.backends.upstream.access import access_of
    from dsp_gym.errors import FlinkError

    rest = FlinkRest(url, access=access_of(account))
    check_told_version(rest)
    jobs = running_jobs(rest, names)
    with bar() as shown:
        task = shown.add_task("jobs", total=len(jobs))
        found, failed = [], []
        for one in jobs:
            try:
                found.append(found_by_rest(rest, one.id))
            except FlinkError as error:  # one that has just begun, or ended: the others have files
                failed.append(error)
            shown.advance(task)
    return found, failed


def _write(
    made: Discovered, cluster: WatchedCluster, out: Path, *, overwrite: bool, as_json: bool
) -> None:
    from dsp_gym.backends.discovery.writing import write_all
    from dsp_gym.control.fleet_folder import fleet_files, flink_names, left_over

    texts = {out / f"{one.stem}.yaml": one.text for one in made.files}
    paths = list(texts)
    if made.files:
        texts |= fleet_files(made.files, out, cluster.place())
    before = flink_names(out) if made.files else {}
    write_all(texts, overwrite=overwrite)
    if left := left_over(out, before, texts):
        made = replace(made, remarks=(*made.remarks, left))
    if as_json:
        print_json(_document(made, paths))
    else:
        _tell(made, paths, out)
    if not made.files and made.refused:
        raise made.refused[0]
    if not made.files:
        raise ConfigError("no job runs there", remedy="Start one, or name others with --jobs.")
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
                "not_found": one.notes,
            }
            for path, one in zip(paths, made.files, strict=True)
        ],
        "refused": [str(error) for error in made.refused],
        "remarks": list(made.remarks),
    }


def _tell(made: Discovered, paths: list[Path], out: Path) -> None:
    from dsp_gym.backends.flink.submissions import shown
    from dsp_gym.control.fleet_folder import FOLDER, README

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
        typer.echo(
            f"{counted(len(paths), 'job file')} written. Next: dsp-gym simulate {some}, or as "
            f"{out / FOLDER / README} says"
        )
    for remark in made.remarks:
        typer.echo(f"note: {remark}")
    for error in made.refused if made.files else ():
        typer.echo(f"no file: {error}", err=True)
