"""`dsp-gym evaluate`: policies against each other, on the same loads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import cells_bar, kept_beside, open_engine
from dsp_gym.cli.options import (
    MasterOption,
    OverwriteOption,
    PoliciesOption,
    ResumeOption,
    StoreOrNoneOption,
    WorkersOption,
    listed,
)
from dsp_gym.cli.output import counted, print_table
from dsp_gym.cli.tracked import DEFAULT_STORE, record_results, store_of
from dsp_gym.errors import ConfigError, RegistryError, did_you_mean

if TYPE_CHECKING:
    from dsp_gym.evaluation.comparison import (
        BenchmarkComparison,
        FrontierComparison,
        RefereeComparison,
        RefereePart,
    )
    from dsp_gym.evaluation.results import Results
    from dsp_gym.evaluation.submission import EntryComparison
    from dsp_gym.experiments.comparison import Chosen

_RUN = "run:"


BenchmarkArgument = Annotated[
    str,
    typer.Argument(
        help="A benchmark, frontier, referee or experiment: its name or file; the folder of a "
        "trained policy, a results.json, or run:ID of a run recorded in MLflow."
    ),
]


TrainingsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL=DIR",
        help="Of a frontier or referee: further trainings of a policy, DIR/seed-N/policy; its "
        "results are the mean over all. Repeat.",
    ),
]


EntryOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|MODULE:POLICY|YAML",
        help="Of a frontier: play this policy alone, and write an entry for the board. The code of "
        "a module is run; a YAML file names the policy, its knob and guardrails.",
    ),
]

EntriesOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR,DIR",
        help="Of a frontier: play these entries again. A folder of several leaves out those that "
        "are code: read the code of one, then name its own folder.",
    ),
]


SeedsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Seeds per load; of a referee, triples of each kind of jobs in each family of load. "
        "Default: the benchmark's.",
    ),
]

CellOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Of a frontier or referee: only these cells or families of load."
    ),
]

SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        metavar="development|test",
        help="Of a referee: the set of triples. test: seeds from the commit under evaluation; each "
        "evaluation is a line of the ledger.  [default: development]",
    ),
]

KeyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Of a referee: seeds of your own, from any file's content."),
]


EXAMPLES = (
    "Examples:\n\n"
    "  dsp-gym evaluate quick\n\n"
    "  dsp-gym evaluate q11 --policies all,learned-q11\n\n"
    "  dsp-gym evaluate quick --policies ds2,justin-artifact\n\n"
    "  dsp-gym evaluate core-v2 --policies planner            costs at equal lateness\n\n"
    "  dsp-gym evaluate core-v2 --entry my_rule:half_busy     enter your own policy\n\n"
    "  dsp-gym evaluate core-v3 --seeds 1                     a part of the development set\n\n"
    "  dsp-gym evaluate core-v3 --set test                    seeds of the commit\n\n"
    "  dsp-gym evaluate runs/evaluations/quick/results.json   the same comparison again\n\n"
    "  dsp-gym evaluate core-v1 --workers 4                   four local processes\n\n"
    "  dsp-gym evaluate core-v1 --resume                      after Ctrl-C, on any engine"
)


def evaluate(
    context: typer.Context,
    benchmark: BenchmarkArgument,
    policies: PoliciesOption = None,
    seeds: SeedsOption = None,
    trainings: TrainingsOption = None,
    cell: CellOption = None,
    entry: EntryOption = None,
    entries: EntriesOption = None,
    which: SetOption = None,
    key: KeyOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the results. Default: a folder below runs/."),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    workers: WorkersOption = None,
    master: MasterOption = None,
    track: StoreOrNoneOption = DEFAULT_STORE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; write files and a record only with --out.")
    ] = False,
) -> None:
    """Compare policies on unseen jobs and loads.

    Every policy meets the same loads, seeds and faults. A benchmark runs each policy once; the
    cheapest of those that are rarely late comes first. A frontier, such as core-v2, runs every
    policy at several settings and compares costs at equal lateness. A referee, such as core-v3,
    does so on triples of a job, a load and a seed that nobody knows beforehand. Writes
    results.json and a report as Markdown and HTML.
    """
    from dsp_gym.experiments.comparison import Chosen

    chosen = Chosen(listed(policies), seeds, tuple(trainings or ()))
    with _comparison(context, chosen, listed(cell), listed(entries)) as asked:
        folder = out or (None if as_json else asked.folder)
        with (
            kept_beside(folder, resume, overwrite, "the results of {} runs") as kept,
            open_engine(f"dsp-gym evaluate {asked.name}", master, workers, asked.decisions) as ours,
            cells_bar("runs") as told,
        ):
            results = asked.play(ours, told, kept)
    written = {} if folder is None else results.write(folder)
    if kept is not None:
        kept.clear()
    for text in results.warnings:
        typer.echo(f"note: {text}", err=True)
    if as_json:
        typer.echo(results.files["results.json" if entry is None else "entry.json"], nl=False)
    else:
        _show(results, written)
    if written and entry is None:
        record = record_results(asked.name, results, written, track)
        if record is not None and not as_json:
            typer.echo(f"MLflow  run {record} in {track}")


@contextmanager
def _comparison(
    context: typer.Context, chosen: Chosen, cells: tuple[str, ...], entries: tuple[str, ...]
) -> Iterator[BenchmarkComparison | FrontierComparison | RefereeComparison | EntryComparison]:
    """Read what is asked for; within the block the registry knows the entries' code."""
    from dsp_gym.evaluation.comparison import (
        BenchmarkComparison,
        FrontierComparison,
        RefereeComparison,
    )
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.frontier.board import currency_of
    from dsp_gym.evaluation.frontier.entry import entered, read_entries
    from dsp_gym.evaluation.referee.config import RefereeConfig
    from dsp_gym.evaluation.submission import entry_comparison
    from dsp_gym.experiments.comparison import read_comparison, with_choice

    source, entry = str(context.params["benchmark"]), context.params["entry"]
    if source.startswith(_RUN):
        store = store_of(context.params["track"]) or DEFAULT_STORE
        source = _fetched(source.removeprefix(_RUN), store)
    name, whole = read_comparison(source)
    config, command = with_choice(whole, chosen), _command(context)
    given = {"--cell": cells, "--entry": entry, "--entries": entries}
    drawn = {"--set": context.params["which"], "--key": context.params["key"]}
    if isinstance(config, BenchmarkConfig):
        _refuse(given, "needs a frontier, such as core-v2")
    if not isinstance(config, RefereeConfig):
        _refuse(drawn, "needs a referee, such as core-v3")
    if isinstance(config, BenchmarkConfig):
        yield BenchmarkComparison(name, config, command)
    elif isinstance(config, RefereeConfig):
        _refuse({**given, "--cell": None}, "needs a frontier, such as core-v2")
        part = _part(drawn["--set"], drawn["--key"], cells, chosen.seeds)
        yield RefereeComparison.of(name, config, command, part)
    elif entry is not None:
        with entry_comparison(FrontierComparison(name, config, command, cells), entry) as alone:
            yield alone
    else:
        found = []
        if entries:
            found = read_entries([Path(one) for one in entries], name, currency_of(config))
        with entered(config, found) as (board, playing):
            for one in found:
                if one not in playing:
                    typer.echo(
                        f"{one.document.name} is left out: it is code; read it, then name its "
                        f"folder: --entries {one.folder}",
                        err=True,
                    )
            yield FrontierComparison(name, board, command, cells, playing)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse options that the benchmark has no use for."""
    for option, value in given.items():
        if value:
            raise ConfigError(why, key=option, value=str(value))


def _part(
    which: str | None, key: Path | None, families: tuple[str, ...], each: int | None
) -> RefereePart:
    """Check what is asked of a referee."""
    from dsp_gym.evaluation.comparison import RefereePart

    sets = ("development", "test")
    if which is not None and which not in sets:
        raise ConfigError("there is no such set", key="--set", remedy=did_you_mean(which, sets))
    if which is not None and key is not None:
        raise ConfigError("is a set of its own", key="--key", remedy="Leave --set out.")
    if key is not None and not key.is_file():
        raise ConfigError("there is no such file", key="--key", value=str(key))
    return RefereePart(which == "test", key, families, each)


def _command(context: typer.Context) -> str:
    """Return the command line as results show it: without what does not change them."""
    words = ["dsp-gym evaluate", str(context.params["benchmark"])]
    for parameter in context.command.params:
        if parameter.name in (
            "policies",
            "seeds",
            "trainings",
            "cell",
            "entry",
            "entries",
            "which",
            "key",
        ):
            value = context.params[parameter.name]
            given = value if isinstance(value, list | tuple) else [value] if value else []
            words += [f"{parameter.opts[0]} {shlex.quote(str(one))}" for one in given]
    return " ".join(words)


def _fetched(run_id: str, uri: str) -> str:
    """Fetch what can be played again of a recorded run: its results, or the policy it trained."""
    from dsp_gym.trackers.mlflow import fetch_run

    folder = Path("runs/recorded") / run_id
    if not folder.is_dir():
        fetch_run(run_id, folder, uri)
    for found in (folder / "results.json", folder / "policy"):
        if found.exists():
            return str(found)
    raise RegistryError(
        "the run holds neither results nor a policy",
        value=run_id,
        remedy="Name a run of dsp-gym train or dsp-gym evaluate.",
    )


def _show(results: Results, written: Mapping[str, Path]) -> None:
    """Print headline, tables and files."""
    report = results.report
    if report.headline:
        typer.echo(f"{report.headline}\n")
    for part in report.parts:
        title, columns, rows = part.short
        best = [row for row, how in part.emphasis.items() if how.startswith("best")]
        print_table(columns, rows, title=title, right=columns[1:], bold=best)
        if part.sketch:
            typer.echo("\n".join(["", *part.notes, "", part.sketch]))
        if part.caveats:
            said = counted(len(part.caveats), "sentence")
            typer.echo(f"note: runs went beyond the fit of {title}'s model: {said} in the report")
        typer.echo()
    for kind, path in written.items():
        typer.echo(f"{kind:>6}  {path}")
