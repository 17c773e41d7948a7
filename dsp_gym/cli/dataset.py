"""`dsp-gym dataset`: training data from recordings, journals, Prometheus and rollouts."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.dataset_follow import register_follow
from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.cli.tracked import tell_missing
from dsp_gym.errors import DatasetError, MissingExtraError

if TYPE_CHECKING:
    from dsp_gym.datasets.manifest import DatasetManifest
    from dsp_gym.datasets.reader import Dataset
    from dsp_gym.experiments.experiment import TrackingConfig
    from dsp_gym.trackers import Tracker

__all__ = ["register"]

_GROUP = """
Examples:

  dsp-gym dataset build flink-q11-day                           into runs/datasets/flink-q11-day

  dsp-gym dataset inspect runs/datasets/flink-q11-day

  dsp-gym dataset validate runs/datasets/flink-q11-day
"""
_BUILD = """
Examples:

  dsp-gym dataset build flink-q11-day                          from recordings that ship

  dsp-gym dataset build history.yaml --out data/history         again: only new parts

  dsp-gym dataset build history.yaml --master spark://host:7077 --out /shared/history
"""
_EXPORT = """
Examples:

  dsp-gym dataset build flink-q11-day

  dsp-gym dataset export-minari runs/datasets/flink-q11-day

  MINARI_DATASETS_PATH=runs/minari minari list local
"""
_FOLDER = typer.Argument(metavar="DATASET", help="Folder of a dataset.")
_INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        help="Build training data from the history of jobs, and inspect it.",
        epilog=_GROUP,
        no_args_is_help=True,
    )
    group.command(epilog=_BUILD)(build)
    group.command(epilog="Example: dsp-gym dataset inspect runs/datasets/flink-q11-day")(inspect)
    group.command(epilog="Example: dsp-gym dataset validate runs/datasets/flink-q11-day")(validate)
    group.command("export-minari", epilog=_EXPORT)(export_minari)
    register_follow(group)
    app.add_typer(group, name="dataset")


def build(
    config: Annotated[
        str,
        typer.Argument(
            help="A shipped dataset, or the path of a YAML file.",
            autocompletion=shipped("datasets"),
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder. Default: runs/datasets/NAME.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Spark's master, such as spark://host:7077. Default: this machine's cores.",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build every partition, not only changed ones.")
    ] = False,
    as_json: JsonOption = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Record with MLflow where it is installed.")
    ] = True,
) -> None:
    """Build a dataset, or only its new and changed parts.

    It builds the partitions (job and day) with changed inputs, and publishes the result in one
    step: after an interruption the dataset is the old one, and the same command continues.
    """
    from dsp_gym.config.files import find, load_model

    pipeline = _pipeline("build")
    model: Any = importlib.import_module("spark_pipelines.config").DatasetConfig
    file = find("datasets", config)
    wanted = load_model(model, "datasets", file)
    folder = out or Path("runs/datasets") / wanted.name
    tracker = _tracker(wanted.tracking) if track else None
    try:
        with _progress() as observer:
            built = pipeline.build(
                wanted, folder, master=master, rebuild=rebuild, observer=observer
            )
    except KeyboardInterrupt:
        typer.echo(
            "Stopped; the dataset is unchanged, and the same command continues the build.",
            err=True,
        )
        raise typer.Exit(_INTERRUPTED) from None
    record = None if tracker is None else _record(tracker, wanted.name, built)
    tell_missing(tracker, wanted.tracking.uri)
    summary = _summary(built) | ({} if record is None else {"mlflow_run": record})
    if as_json:
        print_json(summary)
        return
    _print_summary(summary)
    if record is not None:
        typer.echo(f"MLflow   run {record} in {wanted.tracking.uri}")


def inspect(dataset: Annotated[Path, _FOLDER], as_json: JsonOption = False) -> None:
    """Show the content of a dataset and its sources."""
    from dsp_gym.datasets.reader import Dataset

    opened = Dataset.open(dataset)
    manifest = opened.manifest
    if as_json:
        print_json({"folder": opened.folder, **manifest.model_dump(mode="json", by_alias=True)})
        return
    typer.echo(f"{manifest.name}, revision {manifest.revision}, content {manifest.content_sha256}")
    _print_tables(opened)
    rows = [
        (s.name, s.kind, s.path, s.clock, len(s.pieces), sum(max(0, p.rows) for p in s.pieces))
        for s in manifest.sources
    ]
    columns = ("source", "kind", "path", "clock", "pieces", "rows")
    typer.echo()
    print_table(columns, rows, right=columns[4:])
    _print_accounting(manifest.accounting)
    typer.echo(f"\nreport   {opened.folder / 'quality.html'}")


def validate(dataset: Annotated[Path, _FOLDER], as_json: JsonOption = False) -> None:
    """Compare every file of a dataset with its manifest; exit code 2 when one differs."""
    from dsp_gym.config.temporary import left_in
    from dsp_gym.datasets.reader import Dataset

    opened = Dataset.open(dataset)
    problems = opened.problems()
    files = sum(len(t.files) for p in opened.manifest.partitions for t in p.tables.values())
    left = [file for folder, _, _ in os.walk(opened.folder) for file in left_in(Path(folder))]
    if as_json:
        found = {"files": files, "problems": problems, "left": left}
        print_json({"folder": opened.folder, **found})
        if problems:
            raise typer.Exit(2)
        return
    if problems:
        raise DatasetError(
            f"{len(problems)} of its partitions differ from the manifest: {'; '.join(problems)}",
            file=opened.folder,
            remedy="Build it again with --rebuild.",
        )
    typer.echo(f"{opened.folder}: {files} files, all as in the manifest")
    for file in left:
        typer.echo(f"  left by a write that was killed, to be removed by the next: {file}")


def export_minari(
    dataset: Annotated[Path, _FOLDER],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of Minari datasets, as MINARI_DATASETS_PATH."),
    ] = Path("runs/minari"),
    experiment: Annotated[
        str | None,
        typer.Option(
            help="Experiment whose loads, environment and guardrails the decisions were made "
            "under. Default: what the transitions were encoded for.",
            autocompletion=shipped("experiments"),
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="train, validation or test. Default: all.")] = (
        None
    ),
    version: Annotated[int, typer.Option(min=0, help="Version of each dataset.")] = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace datasets of the same names.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a dataset's transitions as Minari datasets, one for each job and policy."""
    from dsp_gym.datasets.minari import export_minari as export

    written = export(
        dataset, out, experiment=experiment, split=split, version=version, replace=replace
    )
    if as_json:
        print_json(written)
        return
    rows = [
        (
            w.id,
            w.episodes,
            w.steps,
            *(None if s is None else f"{s:.4g}" for s in (w.random_score, w.expert_score)),
        )
        for w in written
    ]
    columns = ("dataset", "episodes", "steps", "random", "expert")
    print_table(columns, rows, right=columns[1:])
    typer.echo(f"\nread them with MINARI_DATASETS_PATH={out.absolute()}")


class _Built(Protocol):
    """The result of a build, as the pipeline returns it."""

    folder: Path
    manifest: DatasetManifest
    is_new: bool
    made: int
    kept: int
    lost: Sequence[object]
    accounting: Mapping[str, int]
    notes: Sequence[str]
    seconds: Mapping[str, float]


def _pipeline(module: str) -> Any:
    """A module of the pipeline, by name: the library stands below it."""
    try:
        importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "building a dataset") from None
    return importlib.import_module(f"spark_pipelines.{module}")


@contextmanager
def _progress() -> Iterator[object]:
    """A bar on stderr over the stages; a line per stage without a terminal."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from dsp_gym.cli.progress import bar

    columns = (
        TextColumn("{task.description:<40}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
    )
    with bar(*columns, lines=False) as shown:
        task = shown.add_task("", total=None, tasks="")

        class Shown:
            """Draws the progress of a build."""

            number = 0

            def begin(self, stages: int) -> None:
                shown.update(task, total=stages)

            def stage(self, name: str, detail: str) -> None:
                text = f"{name} {detail}".strip()
                shown.update(task, description=text, completed=self.number, tasks="")
                self.number += 1
                if not shown.console.is_terminal:
                    typer.echo(text, err=True)

            def tasks(self, done: int, of: int) -> None:
                shown.update(task, tasks=f"{done}/{of} tasks" if of else "")

        yield Shown()


def _tracker(tracking: TrackingConfig) -> Tracker | None:
    """The tracker of the config; none where it is off, or MLflow is not installed."""
    from dsp_gym.trackers import open_tracker

    if not tracking.enabled:
        return None
    try:
        return open_tracker(tracking.uri, tracking.experiment or "datasets")
    except MissingExtraError:
        return None


def _record(tracker: Tracker, name: str, built: _Built) -> str | None:
    manifest = built.manifest
    tracker.start(name, {"kind": "dataset", "folder": str(built.folder), **manifest.versions})
    status = "FAILED"
    try:
        tracker.params(
            {
                "config": manifest.config,
                "revision": manifest.revision,
                "content_sha256": manifest.content_sha256,
                "sources": {s.name: s.path for s in manifest.sources},
            }
        )
        numbers = {f"rows/{table}": float(manifest.rows(table)) for table in _tables_of(manifest)}
        numbers |= {f"accounting/{k.replace(':', '/')}": v for k, v in built.accounting.items()}
        numbers |= {f"seconds/{stage}": seconds for stage, seconds in built.seconds.items()}
        tracker.metrics(numbers, step=manifest.revision)
        revision = built.folder / "revisions" / str(manifest.revision)
        for file in ("manifest.json", "quality.json", "quality.html"):
            tracker.artifact(revision / file)
        status = "FINISHED"
    finally:
        tracker.end(status)
    return None if tracker.problem is not None else tracker.run_id


def _summary(built: _Built) -> dict[str, Any]:
    manifest = built.manifest
    return {
        "folder": built.folder,
        "revision": manifest.revision,
        "published": built.is_new,
        "content_sha256": manifest.content_sha256,
        "partitions": {"made": built.made, "kept": built.kept, "lost": len(built.lost)},
        "rows": {name: manifest.rows(name) for name in _tables_of(manifest)},
        "splits": manifest.splits,
        "accounting": built.accounting,
        "notes": built.notes,
        "seconds": built.seconds,
        "report": built.folder / "revisions" / str(manifest.revision) / "quality.html",
    }


def _tables_of(manifest: DatasetManifest) -> list[str]:
    return sorted({name for p in manifest.partitions for name in p.tables})


def _print_summary(summary: dict[str, Any]) -> None:
    made = summary["partitions"]
    if not summary["published"]:
        typer.echo("Nothing to build: every partition is up to date with its inputs.")
    rows = [
        (name, count, ", ".join(f"{s} {n}" for s, n in summary["splits"].get(name, {}).items()))
        for name, count in summary["rows"].items()
    ]
    print_table(("table", "rows", "by split"), rows, right=("rows",))
    _print_accounting(summary["accounting"])
    for text in summary["notes"]:
        typer.echo(f"Note: {text}", err=True)
    if made["lost"]:
        typer.echo(
            f"{made['lost']} partitions are kept though no source holds them any more; --rebuild "
            "drops them.",
            err=True,
        )
    typer.echo(
        f"\ndataset  {summary['folder']}, revision {summary['revision']}: {made['made']} "
        f"partitions made, {made['kept']} kept"
    )
    typer.echo(f"content  {summary['content_sha256']}")
    typer.echo(f"report   {summary['report']}")


def _print_tables(opened: Dataset) -> None:
    manifest = opened.manifest
    names = _tables_of(manifest)
    rows = [
        (p.job, p.day, p.revision, *(p.tables[n].rows if n in p.tables else None for n in names))
        for p in manifest.partitions
    ]
    columns = ("job", "day", "revision", *names)
    print_table(columns, rows, right=columns[2:])


def _print_accounting(accounting: Mapping[str, int]) -> None:
    if accounting:
        typer.echo()
        print_table(("outcome", "rows"), list(accounting.items()), right=("rows",))
