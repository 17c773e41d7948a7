"""`dsp-gym dataset`: training data from recordings, journals, Prometheus and rollouts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.inspect import print_accounting, tables_of
from dsp_gym.cli.options import JsonOption, refuse_given, shipped
from dsp_gym.cli.output import json_line, print_json, print_table
from dsp_gym.cli.tracked import recorded, recorded_id, tracker_for, with_track
from dsp_gym.errors import MissingExtraError

if TYPE_CHECKING:
    from dsp_gym.trackers import Tracker

_GROUP = """
Examples:

  dsp-gym dataset build flink-q11-day                           into runs/datasets/flink-q11-day

  dsp-gym inspect runs/datasets/flink-q11-day

  dsp-gym dataset export runs/datasets/flink-q11-day
"""
_BUILD = """
Examples:

  dsp-gym dataset build flink-q11-day                          from recordings that ship

  dsp-gym dataset build history.yaml --out data/history         again: only new parts

  dsp-gym dataset build history.yaml --follow 60                once a minute, until Ctrl-C

  dsp-gym dataset build history.yaml --master spark://host:7077 --out /shared/history

  dsp-gym dataset build q11-rollouts --engine polars            in seconds, without a JVM
"""
_EXPORT = """
Examples:

  dsp-gym dataset build flink-q11-day

  dsp-gym dataset export runs/datasets/flink-q11-day

  MINARI_DATASETS_PATH=runs/minari minari list local
"""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Build training data from the history of jobs, and export it.",
        epilog=_GROUP,
        no_args_is_help=True,
    )
    group.command(epilog=_BUILD)(build)
    group.command(epilog=_EXPORT)(export)
    app.add_typer(group, name="dataset")


_FollowOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="S",
        help="Look for new files of archives, journals and recordings every S seconds; 0: "
        "once. With --json, one line per look.",
    ),
]


_EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "--master",
        metavar="polars|URL",
        help="polars: the same rows of rollouts and journals, without a JVM; or Spark's master, "
        "such as spark://host:7077. Default: Spark on this machine's cores.",
        autocompletion=lambda: ["polars", "local[*]", "spark://", "yarn", "k8s://"],
    ),
]


def build(
    config: Annotated[
        str,
        typer.Argument(
            help="A shipped dataset, or the path of a YAML file.",
            autocompletion=shipped("datasets"),
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder, or s3://bucket/name. Default: runs/datasets/NAME."
        ),
    ] = None,
    engine: _EngineOption = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build every partition, not only changed ones.")
    ] = False,
    follow: _FollowOption = None,
    track: Annotated[
        str | None,
        typer.Option(
            metavar="URI|none",
            help="MLflow store, where MLflow is installed. Default: the configuration's.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a dataset, or only its new and changed parts.

    It builds the partitions (job and day) with changed inputs, and publishes the result in one
    step: after an interruption the dataset is the old one, and the same command continues. With
    --follow every file is taken once, and the result is that of one build of all files; files must
    arrive whole: written under a name that begins with a dot, then renamed.
    """
    from dsp_gym.config.files import find, load_model
    from dsp_gym.datasets.delta import DATASETS

    pipeline = _pipeline("build" if follow is None else "streaming")
    model: Any = importlib.import_module("spark_pipelines.config").DatasetConfig
    wanted = load_model(model, "datasets", find("datasets", config))
    folder = out or str(DATASETS / wanted.name)
    engine = None if engine == "spark" else engine  # Spark on this machine's cores
    begun = list[str]()
    try:
        if follow is None:
            how = {"engine": engine, "rebuild": rebuild}
            _build(pipeline, wanted, folder, how, track, as_json, begun)
        else:
            polars = engine if engine == "polars" else None
            given = {"--rebuild": rebuild, "--track": track, "--engine": polars}
            refuse_given(given, "does not apply to --follow")
            looks = pipeline.follow(wanted, folder, every_s=follow or None, master=engine)
            _follow(looks, folder, as_json)
    except KeyboardInterrupt:
        is_old = follow is None and "publish" not in begun
        what = "the dataset is unchanged" if is_old else "what was published stays"
        typer.echo(f"Stopped; {what}, and the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _build(
    pipeline: Any,
    wanted: Any,
    folder: str,
    how: Mapping[str, object],
    track: str | None,
    as_json: bool,
    begun: list[str],
) -> None:
    """Build once, record it, and print the result; names of stages that begin go to `begun`."""
    tracking = with_track(wanted.tracking, track)
    tracker = tracker_for(tracking, "datasets")
    with _progress(begun) as observer:
        built = pipeline.build(wanted, folder, observer=observer, **how)
    record = _record(tracker, wanted.name, built, tracking.uri)
    summary = _summary(built) | ({} if record is None else {"mlflow_run": record})
    if as_json:
        print_json(summary)
        return
    _print_summary(summary)
    if record is not None:
        typer.echo(f"MLflow   run {record} in {tracking.uri}")


def _follow(looks: Iterator[Any], folder: str, as_json: bool) -> None:
    """Print one line per look."""
    for seen in looks:
        built = seen.built if seen.built is not None and seen.built.is_new else None
        look = {
            "folder": folder,
            "arrived": seen.arrived,
            "late": seen.late,
            "refused": int(bool(seen.problem)),
            "problem": seen.problem or None,
            "published": built is not None,
            "revision": None if built is None else built.manifest.revision,
            "partitions": 0 if built is None else built.made,
        }
        if as_json:
            typer.echo(json_line(look))
            continue
        made = "nothing new"
        if built is not None:
            made = f"revision {look['revision']}, {look['partitions']} partitions made"
        aside = f", {seen.late} closed days left as they are" if seen.late else ""
        typer.echo(f"{look['arrived']} files: {made}{aside}")
        if seen.problem:
            typer.echo(f"Nothing was published: {seen.problem}", err=True)


def export(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Folder of a dataset, or s3://bucket/name.")
    ],
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
    split: Annotated[
        str | None, typer.Option(help="train, validation or test. Default: all.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace Minari datasets of the same names.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a dataset's transitions as Minari datasets, one for each job and policy."""
    from dsp_gym.datasets.minari import export_minari

    written = export_minari(dataset, out, experiment=experiment, split=split, replace=overwrite)
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


def _pipeline(module: str) -> Any:
    """Import a module of the pipeline by name: the library stands below it."""
    try:
        importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "building a dataset") from None
    return importlib.import_module(f"spark_pipelines.{module}")


@contextmanager
def _progress(begun: list[str]) -> Iterator[object]:
    """Draw a bar on stderr over the stages; without a terminal, print a line per stage."""
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

            def begin(self, stages: int) -> None:
                shown.update(task, total=stages)

            def stage(self, name: str, detail: str) -> None:
                text = f"{name} {detail}".strip()
                shown.update(task, description=text, completed=len(begun), tasks="")
                begun.append(name)
                if not shown.console.is_terminal:
                    typer.echo(text, err=True)

            def tasks(self, done: int, of: int) -> None:
                shown.update(task, tasks=f"{done}/{of} tasks" if of else "")

        yield Shown()


def _record(tracker: Tracker, name: str, built: Any, store: str) -> str | None:
    manifest = built.manifest
    tags = {"kind": "dataset", "folder": built.home.uri, **manifest.versions}
    with recorded(tracker, name, tags, store):
        tracker.params(
            {
                "config": manifest.config,
                "revision": manifest.revision,
                "content_sha256": manifest.content_sha256,
                "sources": {s.name: s.path for s in manifest.sources},
            }
        )
        numbers = {f"rows/{table}": float(manifest.rows(table)) for table in tables_of(manifest)}
        numbers |= {f"accounting/{k.replace(':', '/')}": v for k, v in built.accounting.items()}
        numbers |= {f"seconds/{stage}": seconds for stage, seconds in built.seconds.items()}
        tracker.metrics(numbers, step=manifest.revision)
        if built.home.folder is not None:
            for file in ("manifest.json", "quality.json", "quality.html"):
                tracker.artifact(Path(built.report(file)))
    return recorded_id(tracker)


def _summary(built: Any) -> dict[str, Any]:
    manifest = built.manifest
    return {
        "folder": built.home.uri,
        "revision": manifest.revision,
        "published": built.is_new,
        "content_sha256": manifest.content_sha256,
        "partitions": {"made": built.made, "kept": built.kept, "lost": len(built.lost)},
        "rows": {name: manifest.rows(name) for name in tables_of(manifest)},
        "splits": manifest.splits,
        "accounting": built.accounting,
        "notes": built.notes,
        "seconds": built.seconds,
        "report": built.report("quality.html"),
    }


def _print_summary(summary: dict[str, Any]) -> None:
    made = summary["partitions"]
    if not summary["published"]:
        typer.echo("Nothing to build: every partition is up to date with its inputs.")
    rows = [
        (name, count, ", ".join(f"{s} {n}" for s, n in summary["splits"].get(name, {}).items()))
        for name, count in summary["rows"].items()
    ]
    print_table(("table", "rows", "by split"), rows, right=("rows",))
    print_accounting(summary["accounting"])
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
