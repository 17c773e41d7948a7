"""`dsp-gym leaderboard submit`: one policy on a frontier, as an entry for its board."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import (
    open_engine,
)
from dsp_gym.cli.options import (
    JsonOption,
    MasterOption,
    OverwriteOption,
    ResumeOption,
    WorkersOption,
)
from dsp_gym.cli.output import print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.evaluation.frontier.board import FrontierBoard
    from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
    from dsp_gym.evaluation.frontier.entry import EntryDocument
    from dsp_gym.policies.local_module import LocalPolicy

__all__ = ["submit", "tell_unlike", "with_entries"]

ENTRIES = Path("runs/entries")


def submit(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|MODULE:POLICY",
            help="The folder of a trained policy, of which nothing is executed; or a policy in "
            "code, which is imported and run.",
        ),
    ],
    on: Annotated[str, typer.Option(help="A frontier: a shipped name, or a file.")] = "core-v2",
    name: Annotated[
        str | None, typer.Option(help="Label on the board.  [default: the policy's own]")
    ] = None,
    guardrails: Annotated[
        str | None,
        typer.Option(help="Guardrails around the policy, such as floor for a trained one."),
    ] = None,
    knob: Annotated[
        str | None,
        typer.Option(help="Parameter that trades cost for lateness. Default: one setting."),
    ] = None,
    values: Annotated[str | None, typer.Option(help="Values of the knob: 1,2,4.")] = None,
    cell: Annotated[
        list[str] | None, typer.Option(help="Only this cell, for a trial; repeat.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds per load, for a trial. Default: the frontier's."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the entry.  [default: runs/entries/FRONTIER/NAME]"
        ),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run your policy on a frontier and write an entry for its board.

    Plays one short run twice first, which must give the same. The entry holds the policy, a card,
    every run, the frontier's fingerprint and the versions; `dsp-gym leaderboard core-v2 --entries
    DIR` plays it anew beside all others.
    """
    from dsp_gym.cli.frontier import find_frontier, frontier_board
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.frontier.entry import refuse_chance, write_entry
    from dsp_gym.evaluation.frontier.play import decisions_in
    from dsp_gym.evaluation.kept import KeptResults

    found = find_frontier(on, (), (), seeds)
    if found is None:
        raise ConfigError(
            "is not a frontier",
            key="--on",
            value=on,
            remedy="Name core-v2, or the file of a frontier.",
        )
    frontier, config = found
    with _known(policy, name) as (label, code):
        mine = _swept(label if code else policy, label, guardrails, knob, values)
        # Alone: the frontier's own policies, and shifts, are the board's.
        alone = config.model_copy(update={"policies": (mine,), "shifts": None})
        refuse_chance(alone, mine)
        folder = out or ENTRIES / frontier / label
        kept = KeptResults.beside(folder, resume=resume, overwrite=overwrite)
        with open_engine(
            f"dsp-gym leaderboard submit {label}",
            master,
            workers,
            decisions_in(alone),
        ) as opened:
            board = frontier_board(frontier, alone, tuple(cell or ()), opened, kept)
        document = _document(board, config, mine, code)
        source = _source(policy, code)
        card = _card(policy, code, document, board)
        runs = [one.runs for one in board.cells]
        written = write_entry(folder, document, runs, source, card)
        kept.clear()
    if as_json:
        print_json({**document.model_dump(mode="json", by_alias=True), "files": written})
        return
    _print(board, document)
    for kind, path in written.items():
        typer.echo(f"{kind:>8}  {path}")
    typer.echo(f"next      dsp-gym leaderboard {on} --entries {folder.parent}")


@contextmanager
def _known(policy: str, name: str | None) -> Iterator[tuple[str, LocalPolicy | None]]:
    """The label of a policy, and its code where it is code, which the registry knows meanwhile."""
    from dsp_gym.errors import PolicyError
    from dsp_gym.policies.local_module import offer_local, parse_local_policy
    from dsp_gym.policies.registry import POLICY_FILE

    code = parse_local_policy(policy)
    if code is not None:
        label = name or code.attribute.replace("_", "-").lower()
        with offer_local({label: code}, [Path.cwd()]):
            yield label, code
        return
    if not (Path(policy) / POLICY_FILE).is_file():
        raise PolicyError(
            "is neither the folder of a trained policy nor module:Policy",
            value=policy,
            remedy="dsp-gym train makes a folder. For code: docs/guides/enter-the-leaderboard.md.",
        )
    folder = Path(policy).resolve()
    yield name or (folder.parent.name if folder.name == "policy" else folder.name), None


def _swept(
    policy: str, label: str, guardrails: str | None, knob: str | None, values: str | None
) -> SweptPolicy:
    from dsp_gym.config.files import parse
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.frontier.config import SweptPolicy

    try:
        swept = [float(value) for value in (values or "").split(",") if value.strip()]
    except ValueError:
        raise ConfigError(
            "are no numbers", key="--values", value=values, remedy="Write them as 1,2,4."
        ) from None
    document = {
        "policy": policy,
        "name": label,
        "guardrails": guardrails,
        "knob": [] if knob is None else [knob],
        "values": swept,
    }
    return parse(SweptPolicy, document, "dsp-gym leaderboard submit")


def _document(
    board: FrontierBoard, config: FrontierConfig, mine: SweptPolicy, code: LocalPolicy | None
) -> EntryDocument:
    from dsp_gym.config.files import parse
    from dsp_gym.evaluation.frontier.board import frontier_fingerprint
    from dsp_gym.evaluation.frontier.entry import EntryDocument

    costs = {
        cell.runs.cell: {
            f"{level:g}": None if cost is None else cost.value
            for level, cost in cell.frontiers[0].cost.items()
        }
        for cell in board.cells
    }
    document = {
        "schema": "dsp-gym/entry/1",
        "name": mine.name,
        "frontier": board.name,
        "fingerprint": frontier_fingerprint(config),
        "code": None if code is None else str(code),
        "guardrails": mine.guardrails,
        "knob": mine.knob[0] if mine.knob else None,
        "values": mine.values,
        "costs": costs,
        "currency": board.currency,
        "left_out": board.left_out,
        "versions": board.versions,
    }
    return parse(EntryDocument, document, "dsp-gym leaderboard submit")


def _source(policy: str, code: LocalPolicy | None) -> Path | None:
    """What goes into the entry: a folder, or the one file of a module that is no package's."""
    import sys

    if code is None:
        return Path(policy)
    file = Path(sys.modules[code.module].__file__ or "")
    return file if file.stem == code.module else None


def _card(
    policy: str, code: LocalPolicy | None, document: EntryDocument, board: FrontierBoard
) -> str:
    """The trained policy's own card, or what its code says of itself; then what was played."""
    import inspect
    import sys

    own = Path(policy) / "card.md"
    said = own.read_text(encoding="utf-8").rstrip() if code is None and own.is_file() else ""
    if code is not None:
        made = getattr(sys.modules[code.module], code.attribute)
        said = f"# {document.name}\n\n{inspect.getdoc(made) or 'No description.'}"
    played = [f"- {cell.title}: {_costs(document, cell.runs.cell)}" for cell in board.cells]
    left = [f"- {cell} is left out: {reason}" for cell, reason in board.left_out.items()]
    head = f"## On {document.frontier} ({document.fingerprint})"
    return "\n".join([said, "", head, "", *played, *left, ""])


def _costs(document: EntryDocument, cell: str) -> str:
    from dsp_gym.evaluation.report import percent
    from dsp_gym.pages import money

    def shown(cost: float | None) -> str:
        return "never that rarely" if cost is None else money(cost, document.currency)

    return ", ".join(
        f"{shown(cost)} at {percent(float(level))} % late"
        for level, cost in document.costs[cell].items()
    )


def _print(board: FrontierBoard, document: EntryDocument) -> None:
    from dsp_gym.evaluation.report import number, percent

    levels = [f"{percent(level)} % late" for level in board.config.lateness]
    rows = [
        (
            cell.title,
            *(
                None if cost is None else number(cost)
                for cost in document.costs[cell.runs.cell].values()
            ),
        )
        for cell in board.cells
    ]
    print_table([f"{document.currency} per day", *levels], rows, title=document.name, right=levels)
    typer.echo()


@contextmanager
def with_entries(
    config: FrontierConfig, frontier: str, folder: Path | None, *, run_code: bool
) -> Iterator[FrontierConfig]:
    """A frontier with the entries of others.

    Args:
        config: The frontier.
        frontier: Its name.
        folder: Holds a folder per entry; None: none.
        run_code: Import and run the policies that are code; they are left out otherwise.

    Yields:
        The frontier with a policy per entry, which the registry knows within the block.

    Raises:
        ConfigError: Two entries, or an entry and a policy of the frontier, share a name.
    """
    from dsp_gym.config.files import parse
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.frontier.board import currency_of
    from dsp_gym.evaluation.frontier.config import FrontierConfig
    from dsp_gym.evaluation.frontier.entry import read_entries
    from dsp_gym.policies.local_module import offer_local

    if folder is None:
        yield config
        return
    codes: dict[str, LocalPolicy] = {}
    places, added = [], []
    for where, entry, code in read_entries(folder, frontier, currency_of(config)):
        if code is not None and not run_code:
            typer.echo(f"{entry.name} is left out: it is code, see --run-code", err=True)
            continue
        if code is not None:
            if code.module in {other.module for other in codes.values()}:
                raise ConfigError(
                    f"another entry has a module '{code.module}', too",
                    file=where,
                    remedy="Rename one of them: Python identifies a module by its name.",
                )
            codes[entry.name] = code
            places.append(where / "policy")
        added.append(entry.swept(str(where / "policy") if code is None else entry.name))
    document = config.model_dump(mode="json", by_alias=True)
    document["policies"] += [one.model_dump(mode="json", by_alias=True) for one in added]
    with offer_local(codes, places):
        yield parse(FrontierConfig, document, f"{frontier} with the entries of {folder}")


def tell_unlike(board: FrontierBoard, folder: Path | None) -> None:
    """Says which entries did not give again what they claim."""
    from dsp_gym.evaluation.frontier.entry import read_entries, unlike

    names = {policy.name for policy in board.config.policies}
    for where, entry, _ in (
        [] if folder is None else read_entries(folder, board.name, board.currency)
    ):
        if entry.name in names and (cells := unlike(where, entry, board)):
            said = f"{entry.name} gave other runs than its entry in {', '.join(cells)}"
            typer.echo(f"note: {said}", err=True)
