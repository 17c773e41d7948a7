"""`dsp-gym evaluate`: policies against each other, on the same loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import (
    cells_bar,
    open_engine,
)
from dsp_gym.cli.only import narrowed
from dsp_gym.cli.options import (
    MasterOption,
    OnlyOption,
    OverwriteOption,
    PolicyOption,
    ResumeOption,
    StoreOption,
    TrackOption,
    WorkersOption,
)
from dsp_gym.cli.output import counted, print_table
from dsp_gym.cli.tracked import is_policy_folder, record_scorecard

if TYPE_CHECKING:
    from dsp_gym.config.strict_json import Document
    from dsp_gym.engine import Engine
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.experiment import ExperimentConfig
    from dsp_gym.evaluation.kept import KeptResults
    from dsp_gym.evaluation.scorecard import Scorecard

__all__ = [
    "benchmark_of",
    "played",
    "print_scorecard",
    "read_benchmark",
    "read_config",
    "register",
]

DEFAULT_STORE = "sqlite:///mlflow.db"

_RUN = "run:"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym evaluate quick\n\n"
        "  dsp-gym evaluate q11 --policy learned-q11\n\n"
        "  dsp-gym evaluate quick --only ds2,justin-artifact\n\n"
        "  dsp-gym evaluate runs/evaluations/quick/scorecard.json     the same evaluation again\n\n"
        "  dsp-gym evaluate core-v1 --workers 4                      four local processes\n\n"
        "  dsp-gym evaluate core-v1 --master spark://host:7077\n\n"
        "  dsp-gym evaluate core-v1 --resume                         after Ctrl-C, on any engine"
    )(evaluate)


def evaluate(
    config: Annotated[
        str,
        typer.Argument(
            help="A benchmark, an experiment, the folder of a trained policy, a scorecard.json, or "
            "run:ID of a run recorded in MLflow."
        ),
    ],
    policy: PolicyOption = None,
    only: OnlyOption = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per load. Default: the config's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the results. Default: runs/evaluations/NAME."),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON; write files and an MLflow run only with --out."),
    ] = False,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Print intervals and more metrics, wider than 80 columns."),
    ] = False,
    track: TrackOption = True,
    uri: StoreOption = DEFAULT_STORE,
) -> None:
    """Compare policies on unseen jobs and loads.

    Every policy meets the same loads, seeds and faults. Prints a scorecard, best policy first, and
    writes it as JSON, CSV (every run) and one HTML page.
    """
    from dsp_gym.evaluation.kept import KeptResults
    from dsp_gym.evaluation.report import write_report
    from dsp_gym.evaluation.run import decisions_of

    source = _fetched(config.removeprefix(_RUN), uri) if config.startswith(_RUN) else config
    name, benchmark = read_benchmark(source, tuple(policy or ()))
    benchmark = narrowed(benchmark, only, (source, *(policy or ())))
    if seeds is not None:
        benchmark = benchmark.model_copy(update={"seeds": seeds})
    decisions = decisions_of(benchmark)
    folder = out or (None if as_json else Path("runs/evaluations") / name)
    kept = None
    if folder is not None:
        kept = KeptResults.beside(folder, resume=resume, overwrite=overwrite)
    with open_engine(f"dsp-gym evaluate {name}", master, workers, decisions) as opened:
        scorecard = played(benchmark, opened, kept)
    if folder is None or kept is None:
        typer.echo(scorecard.to_json(), nl=False)
        return
    written = write_report(scorecard, folder)
    kept.clear()
    if as_json:
        typer.echo(scorecard.to_json(), nl=False)
    else:
        print_scorecard(scorecard, wide=wide)
        for kind, path in written.items():
            typer.echo(f"{kind:>6}  {path}")
    record = record_scorecard(name, scorecard, written, uri) if track else None
    if record is not None and not as_json:
        typer.echo(f"MLflow  run {record} in {uri}")


def played(benchmark: BenchmarkConfig, engine: Engine, kept: KeptResults | None) -> Scorecard:
    """Runs a benchmark with a progress bar.

    Args:
        benchmark: What to run.
        engine: Where.
        kept: Keeps finished runs, and gives those of an interrupted evaluation. None: nothing is
            kept.

    Returns:
        The scorecard, the same on every engine.
    """
    from dsp_gym.evaluation.run import evaluate as run

    try:
        with cells_bar("runs") as told:
            return run(benchmark, engine=engine, told=told, kept=kept)
    except KeyboardInterrupt:
        if kept is not None and len(kept):
            typer.echo(
                f"Stopped; the results of {len(kept)} runs are kept in {kept.folder}. "
                "Continue with the same command and --resume.",
                err=True,
            )
        raise


def read_benchmark(config: str, policies: tuple[str, ...] = ()) -> tuple[str, BenchmarkConfig]:
    """The benchmark meant by a name or path, and what to call it.

    Args:
        config: A benchmark, an experiment, the folder of a trained policy, or the scorecard of an
            earlier evaluation.
        policies: Policies to add to it.

    Returns:
        The benchmark's name and the benchmark.
    """
    from dsp_gym.config.files import parse, read_yaml
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.experiment import ExperimentConfig
    from dsp_gym.evaluation.scorecard import Scorecard

    path = Path(config)
    if is_policy_folder(config):
        file = path / "config.yaml"
        experiment = parse(ExperimentConfig, read_yaml(file), file)
        return experiment.name, benchmark_of(experiment, (config, *policies))
    if path.suffix == ".json" and path.is_file():
        card = Scorecard.from_json(path.read_text(encoding="utf-8"), config)
        benchmark = parse(BenchmarkConfig, _beside(card.config, path.parent), config)
        return path.absolute().parent.name, _with(benchmark, policies)
    name, found = read_config(config)
    if isinstance(found, ExperimentConfig):
        return name, benchmark_of(found, policies)
    return name, _with(found, policies)


def read_config(config: str) -> tuple[str, BenchmarkConfig | ExperimentConfig]:
    """The benchmark or experiment of a name or path, and what to call it.

    Returns:
        The experiment's name or the name of the benchmark's file, and the configuration.
    """
    from dsp_gym.config.files import find, names, parse, read_yaml
    from dsp_gym.errors import ConfigError, did_you_mean
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.experiment import ExperimentConfig

    path = Path(config)
    known = {kind: names(kind) for kind in ("benchmarks", "experiments")}
    if len(path.parts) == 1 and not path.suffix and not path.exists():
        kinds = [kind for kind, shipped in known.items() if config in shipped]
        if not kinds:
            raise ConfigError(
                f"there is no benchmark or experiment '{config}'",
                remedy=did_you_mean(config, [n for shipped in known.values() for n in shipped]),
            )
        file = find(kinds[0], config)
    else:
        file = find("benchmarks", path)
    document = read_yaml(file)
    if isinstance(document, dict) and document.keys() & {"agent", "env", "evaluation", "name"}:
        experiment = parse(ExperimentConfig, document, file)
        return experiment.name, experiment
    return file.stem, parse(BenchmarkConfig, document, file)


def benchmark_of(experiment: ExperimentConfig, policies: tuple[str, ...] = ()) -> BenchmarkConfig:
    """The comparison an experiment asks for.

    Args:
        experiment: The experiment.
        policies: Policies to add. Trained ones run inside the experiment's guardrails; without
            any, that of the newest training that has ended is taken.

    Returns:
        The experiment's benchmark with the trained policies added.
    """
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.trainings import trained_policy

    trained = [name for name in policies if _is_trained(name)]
    first = trained[0] if trained else None
    if not policies:
        newest = trained_policy(experiment.name)
        if newest is None:
            raise ConfigError(
                f"experiment '{experiment.name}' has no trained policy yet",
                file=Path("runs") / experiment.name,
                remedy="Run dsp-gym train first, or name a policy: --policy FOLDER.",
            )
        first = str(newest)
    benchmark = experiment.benchmark(first)
    return _with(
        benchmark, tuple(name for name in policies if name != first), experiment.guardrails
    )


def _fetched(run_id: str, uri: str) -> str:
    """What to evaluate of a recorded run: its scorecard, or the policy it trained."""
    from dsp_gym.errors import RegistryError
    from dsp_gym.trackers.mlflow import fetch_run

    folder = Path("runs/recorded") / run_id
    if not folder.is_dir():
        fetch_run(run_id, folder, uri)
    for found in (folder / "scorecard.json", folder / "policy"):
        if found.exists():
            return str(found)
    raise RegistryError(
        "the run holds neither a scorecard nor a policy",
        value=run_id,
        remedy="Name a run of dsp-gym train or dsp-gym evaluate.",
    )


def _beside(config: Document, folder: Path) -> Document:
    """The config of a scorecard, with trained policies taken from the record it stands in."""
    kept = {
        entrant["name"]: folder / "policies" / entrant["name"] for entrant in config["policies"]
    }
    policies = [
        {**entrant, "policy": str(kept[entrant["name"]])}
        if is_policy_folder(str(kept[entrant["name"]]))
        else entrant
        for entrant in config["policies"]
    ]
    return {**config, "policies": policies}


def _is_trained(policy: str) -> bool:
    """Whether it is a trained policy: a folder of one, or one that is shipped."""
    from dsp_gym.policies.registry import is_trained, resolve

    return is_trained(resolve(policy)[1])


def _with(
    benchmark: BenchmarkConfig, policies: tuple[str, ...], guardrails: str | None = None
) -> BenchmarkConfig:
    """The benchmark with further policies, trained ones inside the guardrails."""
    from dsp_gym.config.files import parse
    from dsp_gym.evaluation.config import BenchmarkConfig

    labels = {entrant.name for entrant in benchmark.policies}
    added = [
        {"policy": policy, "guardrails": guardrails if _is_trained(policy) else None}
        for policy in policies
        if policy not in labels
    ]
    document = {name: getattr(benchmark, name) for name in BenchmarkConfig.model_fields}
    document["policies"] = (*benchmark.policies, *added)
    return parse(BenchmarkConfig, document, "--policy")


def print_scorecard(scorecard: Scorecard, *, wide: bool = False) -> None:
    """Print the scorecard's headline, and one table per job.

    Args:
        scorecard: The scorecard.
        wide: Print all columns.
    """
    from dsp_gym.evaluation.headline import headline
    from dsp_gym.evaluation.report import ranked_table, validity_notes

    typer.echo(f"{headline(scorecard)}\n")
    for job in scorecard.jobs:
        table = ranked_table(scorecard, job, wide=wide)
        bold = () if table.best is None else (table.policies.index(table.best),)
        print_table(table.columns, table.rows, title=job, right=table.columns[1:], bold=bold)
        beyond = validity_notes(scorecard, job)
        if wide:
            for text in beyond:
                typer.echo(f"note: {text}")
        elif beyond:
            said = counted(len(beyond), "sentence")
            typer.echo(f"note: runs went beyond the fit of {job}'s model: {said} with --wide")
        typer.echo()
