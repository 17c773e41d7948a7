"""`dsp-gym leaderboard`: every policy, default and tuned, on one benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from dsp_gym.cli.engines import (
    open_engine,
)
from dsp_gym.cli.evaluate import DEFAULT_STORE
from dsp_gym.cli.only import narrowed
from dsp_gym.cli.options import (
    JsonOption,
    MasterOption,
    OnlyOption,
    OverwriteOption,
    PolicyOption,
    ResumeOption,
    StoreOption,
    TrackOption,
    WorkersOption,
)
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.cli.submit import submit, tell_unlike, with_entries
from dsp_gym.cli.tracked import record_frontier, record_scorecard

if TYPE_CHECKING:
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.leaderboard import Standing
    from dsp_gym.evaluation.scorecard import Scorecard

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    group = typer.Typer(cls=_RankedByDefault, help="Rank policies, or enter one of your own.")
    group.command(
        "rank",
        epilog="Examples:\n\n"
        "  dsp-gym leaderboard\n\n"
        "  dsp-gym leaderboard core-v1 --seeds 1 --policy my-policy\n\n"
        "  dsp-gym leaderboard core-v1 --only learned,ds2\n\n"
        "  dsp-gym leaderboard core-v2 --only learned     costs at equal lateness\n\n"
        "  dsp-gym leaderboard core-v1 --workers 4\n\n"
        "  dsp-gym leaderboard core-v1 --master spark://host:7077\n\n"
        "  dsp-gym leaderboard runs/leaderboards/core-v1/scorecard.json     rewrite the pages\n\n"
        "  dsp-gym leaderboard submit runs/q11/latest/policy     enter your own policy",
    )(leaderboard)
    group.command(
        epilog="Examples:\n\n"
        "  dsp-gym leaderboard submit runs/planning/policy --guardrails floor --knob late_price "
        "--values 1,2,4\n\n"
        "  dsp-gym leaderboard submit my_rule:half_busy\n\n"
        "  dsp-gym leaderboard submit my_rule:half_busy --cell seen-jobs-seen-loads --seeds 1     "
        "a trial"
    )(submit)
    app.add_typer(group, name="leaderboard")


class _RankedByDefault(TyperGroup):
    """`dsp-gym leaderboard core-v2` ranks, as `dsp-gym leaderboard rank core-v2` does."""

    default = "rank"
    """The command that is meant where none is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own context class is private
        if not args or args[0] not in self.commands:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def leaderboard(
    benchmark: Annotated[
        str,
        typer.Argument(
            help="A benchmark, a frontier, or the scorecard.json of an earlier leaderboard."
        ),
    ] = "core-v1",
    policy: PolicyOption = None,
    tuned: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of policies tuned on the benchmark, beside the shipped ones.  [default: "
            "runs/tuned/BENCHMARK]",
        ),
    ] = None,
    only: OnlyOption = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this cell of a frontier, such as unseen-jobs-unseen-loads; repeat."
        ),
    ] = None,
    trainings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=DIR",
            help="With a frontier: further trainings of a policy, DIR/seed-N/policy; its results "
            "are the mean over all. Repeat.",
        ),
    ] = None,
    entries: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With a frontier: folder of entries to run again."),
    ] = None,
    run_code: Annotated[
        bool,
        typer.Option("--run-code", help="Run entries with code, too: read the code first."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per load. Default: the benchmark's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the results.  [default: runs/leaderboards/BENCHMARK]"
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the Markdown page here, such as docs/leaderboard.md."
        ),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    track: TrackOption = True,
    uri: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Rank the installed policies, and those tuned on a benchmark, on that benchmark.

    Your own policy takes part once it is installed. Prints the ranking and writes it as Markdown
    and HTML, with the scorecard it was made from. A frontier, such as core-v2, runs every policy
    at several settings and compares costs at equal lateness.
    """
    from dsp_gym.cli.evaluate import played
    from dsp_gym.cli.frontier import find_frontier, frontier_board, print_board, write_board
    from dsp_gym.config.files import write_atomic
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation import leaderboard as board
    from dsp_gym.evaluation.frontier.play import decisions_in
    from dsp_gym.evaluation.kept import KeptResults
    from dsp_gym.evaluation.report import write_report
    from dsp_gym.evaluation.run import decisions_of

    frontier = find_frontier(
        benchmark, tuple(policy or ()), tuple(only or ()), seeds, tuple(trainings or ())
    )
    if frontier is not None:
        if tuned is not None:
            raise ConfigError(
                "is of a benchmark; a frontier lists its tuned rules",
                key="--tuned",
                value=str(tuned),
                remedy="Name the files in the frontier's policies, or add one with --policy FILE.",
            )
        name, swept = frontier
        where = out or Path("runs/frontiers") / name
        kept = KeptResults.beside(where, resume=resume, overwrite=overwrite)
        with (
            with_entries(swept, name, entries, run_code=run_code) as entered,
            open_engine(
                f"dsp-gym leaderboard {name}",
                master,
                workers,
                decisions_in(entered),
            ) as opened,
        ):
            result = frontier_board(name, entered, tuple(cell or ()), opened, kept)
        tell_unlike(result, entries)
        chosen = {"--policy": policy, "--only": only, "--cell": cell, "--trainings": trainings}
        words = [f" {option} {one}" for option, given in chosen.items() for one in given or ()]
        some = "" if seeds is None else f" --seeds {seeds}"
        some += "" if entries is None else f" --entries {entries}"
        command = f"dsp-gym leaderboard {benchmark}{some}{''.join(words)}"
        pages = write_board(result, where, page, command)
        kept.clear()
        print_board(result, pages, as_json)
        record = record_frontier(result, pages, uri) if track else None
        _tell(record, uri, as_json)
        return
    for option, given in (("--cell", cell), ("--entries", entries), ("--trainings", trainings)):
        if given:
            value = str(given if isinstance(given, Path) else given[0])
            raise ConfigError("needs a frontier, such as core-v2", key=option, value=value)
    read = _read(benchmark)
    if only and read is not None:
        raise ConfigError(
            "--only cannot select from the runs of a scorecard",
            key="--only",
            value=only[0],
            remedy="Name the benchmark instead of the scorecard.",
        )
    unfinished: KeptResults | None = None
    if read is not None:
        name, card = read
    else:
        name, config = _everyone(benchmark, tuple(policy or ()), tuned, seeds)
        config = narrowed(config, only, policy or ())
        decisions = decisions_of(config)
        unfinished = KeptResults.beside(out or _folder(name), resume=resume, overwrite=overwrite)
        with open_engine(f"dsp-gym leaderboard {name}", master, workers, decisions) as opened:
            card = played(config, opened, unfinished)
    folder = out or _folder(name)
    text = board.render_markdown(card, name)
    written = write_report(card, folder) | {
        "page": write_atomic(folder / "leaderboard.md", text),
        "ranking": write_atomic(folder / "leaderboard.html", board.render_html(card, name)),
    }
    if page is not None:
        written["docs"] = write_atomic(page, text)
    if unfinished is not None:
        unfinished.clear()
    found = board.standings(card)
    if as_json:
        print_json(
            {"benchmark": name, "currency": card.currency, "standings": found, "files": written}
        )
    else:
        _print_standings(name, card.currency, found, written)
    if track and read is None:
        _tell(record_scorecard(name, card, written, uri), uri, as_json)


def _print_standings(
    name: str, currency: str, found: Sequence[Standing], written: Mapping[str, Path]
) -> None:
    from dsp_gym.evaluation.report import number, percent

    columns = ("", "policy", f"{currency}/day", "SLO s/day", "late %", "saving %", "rescales/day")
    rows = [
        (
            None if one.rank is None else one.rank if one.keeps_slo else f"({one.rank})",
            one.policy,
            number(one.cost.value),
            f"{one.slo_s.value:,.0f}",
            percent(one.slo_share),
            None if one.saving is None else f"{100 * one.saving.value:.0f}",
            None if one.rescales is None else f"{one.rescales.value:.3g}",
        )
        for one in found
    ]
    print_table(columns, rows, title=f"{name}, per job", right=("", *columns[2:]))
    typer.echo()
    for kind, path in written.items():
        typer.echo(f"{kind:>7}  {path}")


def _tell(record: str | None, uri: str, as_json: bool) -> None:
    """Says where the run was recorded."""
    if record is not None and not as_json:
        typer.echo(f"MLflow  run {record} in {uri}")


def _folder(name: str) -> Path:
    return Path("runs/leaderboards") / name


def _read(benchmark: str) -> tuple[str, Scorecard] | None:
    """The scorecard of an earlier leaderboard, if one is named."""
    from dsp_gym.evaluation.scorecard import Scorecard

    path = Path(benchmark)
    if path.suffix != ".json" or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    return path.absolute().parent.name, Scorecard.from_json(text, benchmark)


def _everyone(
    benchmark: str, policies: tuple[str, ...], tuned: Path | None, seeds: int | None
) -> tuple[str, BenchmarkConfig]:
    """The name of a benchmark, and the benchmark with all policies."""
    from dsp_gym.cli.evaluate import read_benchmark
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.leaderboard import with_everyone

    if tuned is not None and not tuned.is_dir():
        raise ConfigError("is no folder", key="--tuned", value=str(tuned))
    name, config = read_benchmark(benchmark, policies)
    config = with_everyone(config, name, tuned or Path("runs/tuned") / name)
    if seeds is not None:
        config = config.model_copy(update={"seeds": seeds})
    return name, config
