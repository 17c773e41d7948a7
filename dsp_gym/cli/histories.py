"""Where `dsp-gym backtest` takes its histories from.

Journals, recordings, datasets, tables, Prometheus, and what Flink's autoscaler has stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.backends.discovery.writing import Discovered
    from dsp_gym.backends.flink.autoscaler_state import AutoscalerState
    from dsp_gym.backends.flink.labels import Labels
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.whatif.history import JobHistory

__all__ = ["Histories", "Sources", "read_histories"]

DAYS = 14.0
"""Of Prometheus, where the command line says nothing."""

DATASETS = Path("runs/datasets")
"""Where `dsp-gym dataset build` puts a dataset by its name."""

KUBERNETES = "kubernetes"
"""In place of a file or a database: the ConfigMaps of the cluster."""

_WAYS = (
    "Give --prometheus, --dataset, --series, --autoscaler, --journal or --recording; see dsp-gym "
    "backtest --help."
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line says of its histories."""

    journal: Sequence[Path]
    recording: Sequence[Path]
    dataset: Sequence[str]
    series: Path | None
    autoscaler: str | None  # a file, a database, or `kubernetes`
    vertices: Sequence[str]  # HEX=NAME: the job file's name of a vertex id, for the autoscaler
    prometheus: str | None
    flink: str | None  # that describes its running jobs, for Prometheus
    selector: str | None  # labels of FlinkDeployments, likewise
    namespace: str
    kubeconfig: Path | None
    jobs: Path | None  # folder of job files; None: the running jobs are described
    names: Sequence[str]  # FILE=NAME: Flink's name of a job file
    labels: str | None
    account: Path | None
    keep: Path
    job: str | None  # file of the job, for journals and recordings
    interval_s: int
    days: float | None


@dataclass(frozen=True, slots=True)
class Histories:
    """Histories that were read."""

    name: str  # for the folder of the results
    source: str  # in words
    found: tuple[JobHistory, ...]
    left_out: tuple[str, ...] = ()


def read_histories(sources: Sources) -> Histories:
    """Reads the histories that a command line names.

    Returns:
        The histories, and the jobs of which none could be read.

    Raises:
        ConfigError: The command line names no source, or several.
    """
    from dataclasses import replace

    from dsp_gym.whatif.history import since

    _check(sources)
    if sources.prometheus is not None:
        return _of_prometheus(sources)
    if sources.autoscaler is not None:
        read = _of_autoscaler(sources, sources.autoscaler)
    elif sources.dataset:
        read = _of_datasets(sources)
    else:
        read = _of_tables(sources) if sources.series is not None else _of_records(sources)
    if sources.days is None:
        return read
    return replace(read, found=tuple(since(one, sources.days) for one in read.found))


def _check(sources: Sources) -> None:
    given = (
        sources.journal,
        sources.recording,
        sources.dataset,
        sources.series,
        sources.autoscaler,
        sources.prometheus,
    )
    if sum(bool(one) for one in given) != 1:
        raise ConfigError("needs exactly one source of history", remedy=_WAYS)
    of_one_job = sources.journal or sources.recording or sources.dataset or sources.autoscaler
    if sources.job is not None and not of_one_job:
        raise ConfigError(
            "belongs to --journal, --recording, --dataset and --autoscaler",
            key="--job",
            value=sources.job,
            remedy="Put job.yaml beside series.csv; for --prometheus name --jobs DIR.",
        )
    if sources.jobs is not None and (sources.flink or sources.selector):
        raise ConfigError(
            "cannot be used with --flink or --selector, which describe the jobs themselves",
            key="--jobs",
            value=str(sources.jobs),
            remedy="Leave one of them out.",
        )
    if sources.names and sources.jobs is None:
        raise ConfigError(
            "belongs to --jobs", key="--job-name", value=sources.names[0], remedy="Leave it out."
        )
    if sources.vertices and (sources.autoscaler is None or sources.job is None):
        raise ConfigError(
            "belongs to --autoscaler with --job",
            key="--vertex",
            value=sources.vertices[0],
            remedy="Leave it out.",
        )
    either = sources.prometheus is not None or sources.autoscaler is not None
    beside = (
        ("--flink", sources.flink, either),
        ("--selector", sources.selector, either),
        ("--kubeconfig", sources.kubeconfig, either),
        ("--jobs", sources.jobs, sources.prometheus is not None),
        ("--labels", sources.labels, sources.prometheus is not None),
        ("--account", sources.account, sources.prometheus is not None),
    )
    for key, value, fits in beside:
        if value and not fits:
            raise ConfigError(
                "belongs to --prometheus", key=key, value=str(value), remedy="Leave it out."
            )


def _of_records(sources: Sources) -> Histories:
    from dsp_gym.job.catalog import load_job
    from dsp_gym.whatif.recordings import journal_history, recording_histories

    spec = None if sources.job is None else load_job(sources.job)
    if sources.journal:
        folders, kind = sources.journal, "journal"
        found = [journal_history(folder, spec=spec) for folder in folders]
    else:
        folders, kind = sources.recording, "recording"
        seconds = sources.interval_s
        found = [one for folder in folders for one in recording_histories(folder, spec, seconds)]
    names = [folder.resolve().name for folder in folders]
    return Histories(names[0], f"{kind} {', '.join(names)}", tuple(found))


def _of_tables(sources: Sources) -> Histories:
    from dsp_gym.whatif.series import series_history, series_jobs

    assert sources.series is not None  # its caller looked
    name = sources.series.resolve().name
    found = tuple(series_history(folder) for folder in series_jobs(sources.series))
    return Histories(name, f"the tables of {name}", found)


def _of_datasets(sources: Sources) -> Histories:
    from dsp_gym.datasets.reader import Dataset
    from dsp_gym.job.catalog import load_job
    from dsp_gym.whatif.datasets import dataset_histories

    spec = None if sources.job is None else load_job(sources.job)
    found: list[JobHistory] = []
    for given in sources.dataset:
        folder = Path(given)
        is_name = len(folder.parts) == 1 and not folder.exists()
        found += dataset_histories(Dataset.open(DATASETS / given if is_name else folder), spec)
    names = [Path(given).resolve().name for given in sources.dataset]
    return Histories(names[0], f"dataset {', '.join(names)}", tuple(found))


def _of_autoscaler(sources: Sources, where: str) -> Histories:
    from dsp_gym.errors import DspGymError
    from dsp_gym.redaction import redacted
    from dsp_gym.whatif.stored import stored_history

    states, described = _stored(sources, where), _with_ids(sources)
    found, left_out = [], list(described.refused)
    for state in states:
        known = next((one for one in described.jobs if state.vertices <= set(one[1])), None)
        try:
            spec, vertices = known or described.jobs[0]
            found.append(stored_history(state, spec, vertices, sources.interval_s))
        except DspGymError as error:
            if len(states) == 1:
                raise
            left_out.append(str(error))
    name = "autoscaler" if where == KUBERNETES or "://" in where else Path(where).stem
    return Histories(
        name, f"the state of Flink's autoscaler, {redacted(where)}", tuple(found), tuple(left_out)
    )


def _stored(sources: Sources, where: str) -> list[AutoscalerState]:
    from dsp_gym.backends.flink.autoscaler_state import (
        states_in_database,
        states_in_file,
        states_of_config_maps,
    )

    if "://" in where:
        return states_in_database(where)
    if where != KUBERNETES:
        return states_in_file(Path(where))
    from dsp_gym.backends.kubernetes.api import KubernetesApi
    from dsp_gym.backends.kubernetes.config import KubernetesPlace
    from dsp_gym.backends.kubernetes.connection import resources_at
    from dsp_gym.config.files import parse

    if sources.selector is None:
        raise ConfigError(
            "needs the labels of FlinkDeployments",
            key="--autoscaler",
            value=where,
            remedy="Add --selector LABELS, and --namespace where it is not 'default'.",
        )
    place: dict[str, object] = {"selector": sources.selector, "namespace": sources.namespace}
    at = parse(KubernetesPlace, place | {"kubeconfig": sources.kubeconfig}, "options")
    api = KubernetesApi.connect(at)
    try:
        names = {f"autoscaler-{name}" for name in resources_at(api, at)}
        maps, _ = api.list("ConfigMap", namespace=at.namespace, selector="component=autoscaler")
    finally:
        api.close()
    own = [one for one in maps if (one.get("metadata") or {}).get("name") in names]
    return states_of_config_maps(own, f"namespace {at.namespace}")


@dataclass(frozen=True, slots=True)
class _WithIds:
    """Job files, each with the names of its vertices by id."""

    jobs: tuple[tuple[JobSpec, dict[str, str]], ...]
    refused: tuple[str, ...] = ()


def _with_ids(sources: Sources) -> _WithIds:
    """The job files that a stored state is read with."""
    from dsp_gym.job.catalog import load_job

    if sources.job is not None:
        spec = load_job(sources.job)
        names = [vertex.name for vertex in spec.vertices]
        given = {value: key for key, value in _pairs(sources.vertices, names, "--vertex").items()}
        return _WithIds(((spec, given),))
    if sources.flink is None and sources.selector is None:
        raise ConfigError(
            "the state names vertices by their ids, and nothing says which job they are of",
            key="--autoscaler",
            value=sources.autoscaler,
            remedy="Name the running job: --flink URL or --selector LABELS; or its file, --job "
            "FILE with --vertex HEX=NAME for each vertex.",
        )
    made = _described(sources, None)
    pairs = [
        (one.spec, dict(zip([v.id for v in one.found.vertices], _names(one.spec), strict=True)))
        for one in made.files
    ]
    return _WithIds(tuple(pairs), tuple(str(error) for error in made.refused))


def _names(spec: JobSpec) -> list[str]:
    return [vertex.name for vertex in spec.vertices]


def _of_prometheus(sources: Sources) -> Histories:
    from dsp_gym.backends.flink.labels import Labels
    from dsp_gym.cli.progress import bar
    from dsp_gym.errors import DspGymError
    from dsp_gym.redaction import redacted

    url, days = str(sources.prometheus), sources.days or DAYS
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "a URL begins with http:// or https://",
            key="--prometheus",
            value=url,
            remedy="Write it out: http://127.0.0.1:9090",
        )
    labels = Labels.parse(sources.labels)
    named, left_out = _named_jobs(sources)
    found = []
    with bar() as shown:
        task = shown.add_task("fetching", total=len(named))
        for place, (name, spec) in enumerate(named):

            def done(chunks: int, of: int, place: int = place) -> None:
                shown.update(task, completed=place + chunks / of)

            try:
                found.append(_fetched(sources, name, spec, labels, days, done))
            except DspGymError as error:
                if len(named) == 1 or _stops(error):
                    raise
                left_out.append(f"{name}: {error}")
            shown.update(task, completed=place + 1)
    host = redacted(url).partition("://")[2].strip("/").replace("/", "-").replace(":", "-")
    return Histories(host, f"Prometheus {redacted(url)}", tuple(found), tuple(left_out))


def _fetched(
    sources: Sources,
    name: str,
    spec: JobSpec,
    labels: Labels,
    days: float,
    done: Callable[[int, int], None],
) -> JobHistory:
    from dsp_gym.backends.flink.history import FlinkHistory, keep_folder
    from dsp_gym.whatif.history import since
    from dsp_gym.whatif.prometheus import fetched_history

    url = str(sources.prometheus)
    keep = keep_folder(sources.keep, url, name, spec, labels)
    history = FlinkHistory(url, name, spec, keep=keep, labels=labels, account=sources.account)
    found = fetched_history(history, spec, days, sources.interval_s, on_chunk=done)
    return since(found, days)


def _named_jobs(sources: Sources) -> tuple[list[tuple[str, JobSpec]], list[str]]:
    """Flink's name and the job file of each job, and the jobs that no file can describe."""
    from dsp_gym.whatif.prometheus import job_files

    if sources.jobs is None:
        return _running(sources)
    specs = job_files(sources.jobs)
    called = _called(sources.names, [spec.job for spec in specs])
    return [(called.get(spec.job, spec.job), spec) for spec in specs], []


def _running(sources: Sources) -> tuple[list[tuple[str, JobSpec]], list[str]]:
    """The jobs that run now: Flink's name and the job file of each, and those without a file."""
    alone = sources.flink is None or sources.selector is not None
    made = _described(sources, sources.prometheus if alone else None)
    return [(one.found.name, one.spec) for one in made.files], [str(one) for one in made.refused]


def _described(sources: Sources, prometheus: str | None) -> Discovered:
    """The jobs that run now, as `dsp-gym discover` describes them."""
    import dataclasses
    import time

    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.backends.discovery.writing import described
    from dsp_gym.cli.discover import WatchedCluster, found_on

    cluster = WatchedCluster(
        flink=sources.flink,
        prometheus=prometheus,
        selector=sources.selector,
        namespace=sources.namespace,
        kubeconfig=sources.kubeconfig,
        labels=sources.labels,
        account=sources.account,
    )
    jobs, failed = found_on(cluster, [])
    made = described(jobs, Choices(), time.time())
    made = dataclasses.replace(made, refused=(*failed, *made.refused))
    if not made.files:
        raise made.refused[0]
    return made


def _stops(error: Exception) -> bool:
    """Whether no other job would fare better: the server does not answer, or refuses."""
    return getattr(error, "reason", None) in ("Unauthorized", "Unreachable", "Timeout")


def _pairs(given: Sequence[str], right: Sequence[str], option: str) -> dict[str, str]:
    """Pairs LEFT=RIGHT by the side that must be one of `right`."""
    from dsp_gym.errors import did_you_mean

    found = {}
    for pair in given:
        left, equals, value = pair.partition("=")
        if not left or not equals or value not in right:
            raise ConfigError(
                "is not HEX=NAME with a vertex of the job file",
                key=option,
                value=pair,
                remedy=did_you_mean(value, right),
            )
        found[value] = left
    return found


def _called(given: Sequence[str], jobs: Sequence[str]) -> dict[str, str]:
    """Flink's name by job file, of pairs FILE=NAME."""
    from dsp_gym.errors import did_you_mean

    found = {}
    for pair in given:
        job, equals, name = pair.partition("=")
        if not equals or not name or job not in jobs:
            raise ConfigError(
                "is not FILE=NAME with a job file",
                key="--job-name",
                value=pair,
                remedy=did_you_mean(job, jobs),
            )
        found[job] = name
    return found
