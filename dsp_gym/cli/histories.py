"""Where `dsp-gym backtest` takes its histories from: journals, recordings, tables, Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.backends.flink.labels import Labels
    from dsp_gym.evaluation.backtest.history import JobHistory
    from dsp_gym.job.spec import JobSpec

__all__ = ["Histories", "Sources", "read_histories"]

DAYS = 14.0
"""Of Prometheus, where the command line says nothing."""

_WAYS = "Give --prometheus, --series, --journal or --recording; see dsp-gym backtest --help."


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line says of its histories."""

    journal: Sequence[Path]
    recording: Sequence[Path]
    series: Path | None
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

    from dsp_gym.evaluation.backtest.history import since

    _check(sources)
    if sources.prometheus is not None:
        return _of_prometheus(sources)
    read = _of_tables(sources) if sources.series is not None else _of_records(sources)
    if sources.days is None:
        return read
    return replace(read, found=tuple(since(one, sources.days) for one in read.found))


def _check(sources: Sources) -> None:
    given = (sources.journal, sources.recording, sources.series, sources.prometheus)
    if sum(bool(one) for one in given) != 1:
        raise ConfigError("needs exactly one source of history", remedy=_WAYS)
    if sources.job is not None and not (sources.journal or sources.recording):
        raise ConfigError(
            "belongs to --journal and --recording",
            key="--job",
            value=sources.job,
            remedy="Put job.yaml beside series.csv; for --prometheus name --jobs DIR.",
        )
    if sources.jobs is not None and (sources.flink or sources.selector):
        raise ConfigError(
            "holds the files of jobs that --flink and --selector describe",
            key="--jobs",
            value=str(sources.jobs),
            remedy="Leave one of them out.",
        )
    if sources.names and sources.jobs is None:
        raise ConfigError(
            "belongs to --jobs", key="--job-name", value=sources.names[0], remedy="Leave it out."
        )
    beside = (
        ("--flink", sources.flink),
        ("--selector", sources.selector),
        ("--kubeconfig", sources.kubeconfig),
        ("--jobs", sources.jobs),
        ("--labels", sources.labels),
        ("--account", sources.account),
    )
    for key, value in beside:
        if value and sources.prometheus is None:
            raise ConfigError(
                "belongs to --prometheus", key=key, value=str(value), remedy="Leave it out."
            )


def _of_records(sources: Sources) -> Histories:
    from dsp_gym.evaluation.backtest.journals import journal_history, recording_histories
    from dsp_gym.job.catalog import load_job

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
    from dsp_gym.evaluation.backtest.series import series_history, series_jobs

    assert sources.series is not None  # its caller looked
    name = sources.series.resolve().name
    found = tuple(series_history(folder) for folder in series_jobs(sources.series))
    return Histories(name, f"the tables of {name}", found)


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
    from dsp_gym.evaluation.backtest.history import since
    from dsp_gym.evaluation.backtest.prometheus import fetched_history

    url = str(sources.prometheus)
    keep = keep_folder(sources.keep, url, name, spec, labels)
    history = FlinkHistory(url, name, spec, keep=keep, labels=labels, account=sources.account)
    found = fetched_history(history, spec, days, sources.interval_s, on_chunk=done)
    return since(found, days)


def _named_jobs(sources: Sources) -> tuple[list[tuple[str, JobSpec]], list[str]]:
    """Flink's name and the job file of each job, and the jobs that no file can describe."""
    from dsp_gym.evaluation.backtest.prometheus import job_files

    if sources.jobs is None:
        return _running(sources)
    specs = job_files(sources.jobs)
    called = _called(sources.names, [spec.job for spec in specs])
    return [(called.get(spec.job, spec.job), spec) for spec in specs], []


def _running(sources: Sources) -> tuple[list[tuple[str, JobSpec]], list[str]]:
    """The jobs that run now, as `dsp-gym discover` describes them."""
    import time

    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.backends.discovery.writing import described
    from dsp_gym.cli.discover import WatchedCluster, found_on

    alone = sources.flink is None or sources.selector is not None
    cluster = WatchedCluster(
        flink=sources.flink,
        prometheus=sources.prometheus if alone else None,
        selector=sources.selector,
        namespace=sources.namespace,
        kubeconfig=sources.kubeconfig,
        labels=sources.labels,
        account=sources.account,
    )
    jobs, failed = found_on(cluster, [])
    made = described(jobs, Choices(), time.time())
    refused = [*failed, *made.refused]
    if not made.files:
        raise refused[0]
    return [(one.found.name, one.spec) for one in made.files], [str(one) for one in refused]


def _stops(error: Exception) -> bool:
    """Whether no other job would fare better: the server does not answer, or refuses."""
    return getattr(error, "reason", None) in ("Unauthorized", "Unreachable", "Timeout")


def _called(given: Sequence[str], jobs: Sequence[str]) -> dict[str, str]:
    """Flink's name by job file, of pairs FILE=NAME."""
    from dsp_gym.errors import did_you_mean

    found = {}
    for pair in given:
        job, equals, name = pair.partition("=")
        if not equals or not name or job not in jobs:
            raise ConfigError(
                "is no FILE=NAME of a job file",
                key="--job-name",
                value=pair,
                remedy=did_you_mean(job, jobs),
            )
        found[job] = name
    return found
