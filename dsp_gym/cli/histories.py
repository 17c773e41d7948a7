"""Where `dsp-gym backtest` takes its histories from: folders, found out by what stands in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.discovery.document import Choices
from dsp_gym.backends.flink.history import FlinkHistory, keep_folder
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.cli.discover import WatchedCluster, found_on
from dsp_gym.cli.options import refuse_given, refuse_no_url
from dsp_gym.cli.progress import bar
from dsp_gym.control.fleet_folder import flink_names
from dsp_gym.datasets.delta import DATASETS, REVISIONS
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.base import MANIFEST
from dsp_gym.records.shipped import SAMPLES
from dsp_gym.redaction import redacted
from dsp_gym.whatif.datasets import dataset_histories
from dsp_gym.whatif.follow import journals_in
from dsp_gym.whatif.history import JobHistory, since
from dsp_gym.whatif.journal_history import journal_histories
from dsp_gym.whatif.prometheus import fetched_history, job_files
from dsp_gym.whatif.recordings import recording_histories
from dsp_gym.whatif.series import holds_series, series_history, series_jobs

DAYS = 14.0
"""Of Prometheus, where the command line says nothing."""

KEEP = Path("runs/history")
"""Where samples that were fetched from a Prometheus are kept."""

KINDS = ("journal", "recording", "dataset", "series")

_WAYS = (
    "Name the folder of a journal, recording, dataset or of tables (DIR/JOB/series.csv), or a "
    "shipped name such as journals/flink-q11-day; or give --prometheus URL."
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line says of its histories."""

    given: Sequence[str]
    prometheus: str | None
    jobs: Sequence[str]  # job files and folders of them, NAME=FILE where Flink's name is another
    labels: str | None
    account: Path | None
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
    """Read the histories that a command line names.

    Returns:
        The histories, and the jobs of which none could be read.

    Raises:
        ConfigError: The command line names no source, or one that is none.
    """
    if bool(sources.given) == (sources.prometheus is not None):
        raise ConfigError("needs folders or a Prometheus, and not both", remedy=_WAYS)
    if sources.prometheus is not None:
        return _of_prometheus(sources)
    given = {"--labels": sources.labels, "--account": sources.account}
    refuse_given(given, "belongs to --prometheus")
    if len(sources.jobs) > 1:
        raise ConfigError(
            "several job files, and a folder is a source of one job",
            key="--jobs",
            value=", ".join(sources.jobs),
            remedy="Name one file.",
        )
    # None: the model of the journal, or a fitted one.
    spec = load_job(sources.jobs[0]) if sources.jobs else None
    places = [kind_of(given) for given in sources.given]
    found = [one for kind, place in places for one in _read(kind, place, spec, sources.interval_s)]
    if sources.days is not None:
        found = [since(one, sources.days) for one in found]
    names = [place.resolve().name for _, place in places]
    said = ", ".join(f"{kind} {name}" for (kind, _), name in zip(places, names, strict=True))
    return Histories(names[0], said, tuple(found))


def kind_of(given: str) -> tuple[str, Path]:
    """Find out what a folder or a shipped name is.

    Args:
        given: a path; or KIND/NAME or NAME of something that ships or was built by its name.

    Returns:
        journal, recording, dataset or series; and its folder.

    Raises:
        ConfigError: It is none of them, or several.
    """
    places = [Path(given)] if Path(given).is_dir() else _by_name(given)
    found = [(kind, place) for place in places for kind in KINDS if _is(kind, place)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            "is no journal, recording, dataset or folder of tables",
            key="SOURCE",
            value=given,
            remedy=_WAYS,
        )
    raise ConfigError(
        f"is several things: {', '.join(f'{kind} {place}' for kind, place in found)}",
        key="SOURCE",
        value=given,
        remedy=f"Write which one: {' or '.join(f'{kind}s/{given}' for kind, _ in found)}",
    )


def _by_name(given: str) -> list[Path]:
    """The folders that a name may mean: what ships, and datasets that were built."""
    kind, _, name = given.rpartition("/")
    roots = {
        "journals": SAMPLES / "journals",
        "recordings": SAMPLES / "recordings",
        "datasets": DATASETS,
    }
    if kind not in ("", *roots):
        return []
    chosen = [root for key, root in roots.items() if kind in ("", key)]
    return [root / name for root in chosen if name and (root / name).is_dir()]


def _is(kind: str, folder: Path) -> bool:
    if kind == "journal":
        return bool(journals_in(folder))
    if kind == "recording":
        return (folder / MANIFEST).is_file() and (folder / "events.jsonl").is_file()
    if kind == "dataset":
        return (folder / REVISIONS).is_dir()
    return holds_series(folder)


def _read(kind: str, folder: Path, spec: JobSpec | None, interval_s: int) -> list[JobHistory]:
    if kind == "journal":
        return [one for place in journals_in(folder) for one in journal_histories(place, spec)]
    if kind == "recording":
        return recording_histories(folder, spec, interval_s)
    if kind == "dataset":
        return dataset_histories(Dataset.open(folder), spec)

    if spec is not None:
        raise ConfigError(
            "belongs to journals, recordings, datasets and --prometheus",
            key="--jobs",
            value=spec.job,
            remedy="Put job.yaml beside series.csv.",
        )
    return [series_history(place) for place in series_jobs(folder)]


def _of_prometheus(sources: Sources) -> Histories:
    url, days = str(sources.prometheus), sources.days or DAYS
    refuse_no_url("--prometheus", url, "http://127.0.0.1:9090")
    labels = Labels.parse(sources.labels)
    named, left_out = (_filed(sources.jobs), []) if sources.jobs else _running(sources)
    found = []
    with bar() as shown:
        task = shown.add_task("fetching", total=len(named))
        for place, (name, spec) in enumerate(named):

            def done(chunks: int, of: int, place: int = place) -> None:
                shown.update(task, completed=place + chunks / of)

            try:
                found.append(_fetched(sources, name, spec, labels, days, done))
            except DspGymError as error:
                # No other job would fare better where the server does not answer, or refuses.
                stops = getattr(error, "reason", None) in ("Unauthorized", "Unreachable", "Timeout")
                if len(named) == 1 or stops:
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
    from dsp_gym.backends.upstream.access import access_of

    url = str(sources.prometheus)
    keep = keep_folder(KEEP, url, name, spec, labels)
    history = FlinkHistory(
        url, name, spec, keep=keep, labels=labels, account=access_of(sources.account)
    )
    found = fetched_history(history, spec, days, sources.interval_s, on_chunk=done)
    return since(found, days)


def _filed(jobs: Sequence[str]) -> list[tuple[str, JobSpec]]:
    """Flink's name and the job file of each job that the command line names."""
    found: dict[str, tuple[str, JobSpec]] = {}  # a file that is named replaces the folder's
    for given in sorted(jobs, key=lambda one: not Path(one).is_dir()):
        if Path(given).is_dir():
            names = flink_names(Path(given))
            specs = job_files(Path(given))
            found |= {spec.job: (names.get(spec.job, spec.job), spec) for spec in specs}
            continue
        name, equals, file = given.rpartition("=")
        spec = load_job(file)
        found[spec.job] = (name if equals else spec.job, spec)
    return list(found.values())


def _running(sources: Sources) -> tuple[list[tuple[str, JobSpec]], list[str]]:
    """The jobs that run now, as `dsp-gym discover` describes them, and those without a file."""
    cluster = WatchedCluster(
        prometheus=sources.prometheus, labels=sources.labels, account=sources.account
    )
    made = found_on(cluster, [], Choices())
    if not made.files:
        raise made.refused[0]
    return [(one.found.name, one.spec) for one in made.files], [str(one) for one in made.refused]
