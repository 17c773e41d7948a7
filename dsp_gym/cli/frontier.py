"""`dsp-gym leaderboard` of a frontier: policies at equal lateness."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dsp_gym.cli.output import print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.engine import Engine
    from dsp_gym.evaluation.frontier.board import FrontierBoard
    from dsp_gym.evaluation.frontier.config import FrontierConfig, Shifts
    from dsp_gym.evaluation.frontier.play import CellRuns
    from dsp_gym.evaluation.kept import KeptResults

SHIFTS = "shifts"
"""Name of the runs under shifts, beside those of the cells."""

__all__ = ["find_frontier", "frontier_board", "print_board", "write_board"]


def find_frontier(
    benchmark: str,
    policies: tuple[str, ...],
    only: tuple[str, ...],
    seeds: int | None,
    trainings: tuple[str, ...] = (),
) -> tuple[str, FrontierConfig] | None:
    """The frontier meant by a name or path, if it is one.

    Args:
        benchmark: A name or path.
        policies: Policies to add, each as one point.
        only: Labels to keep beside the tuned rules and the best plan, as `--only` takes them;
            none: all.
        seeds: Seeds per load; None: the frontier's.
        trainings: `LABEL=FOLDER` each: further trainings of the policy with that label.

    Returns:
        Its name and the frontier; None where the name is of another kind.

    Raises:
        ConfigError: No policy has a label, or a folder holds no training.
    """
    from dsp_gym.config.files import find, names, parse, read_yaml
    from dsp_gym.evaluation.frontier.config import FrontierConfig

    path = Path(benchmark)
    if benchmark in names("frontiers") and not path.exists():
        path = find("frontiers", benchmark)
    elif path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return None
    document = read_yaml(path)
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, dict):  # a benchmark has a list of jobs
        return None
    config = parse(FrontierConfig, document, path)
    return path.stem, _narrowed(config, policies, only, seeds, trainings)


def _narrowed(
    config: FrontierConfig,
    policies: tuple[str, ...],
    only: tuple[str, ...],
    seeds: int | None,
    trainings: tuple[str, ...],
) -> FrontierConfig:
    from dsp_gym.cli.only import chosen_of
    from dsp_gym.config.files import parse
    from dsp_gym.evaluation.frontier.config import FrontierConfig
    from dsp_gym.evaluation.run import PLAN

    document = config.model_dump(mode="json", by_alias=True)
    labels = [policy.name for policy in config.policies]
    added = [_entry(policy) for policy in policies if policy not in labels]
    if chosen := chosen_of(only, labels):
        kept = {*chosen, PLAN, *(policy.name for policy in config.policies if policy.rule)}
        document["policies"] = [
            entry
            for entry in document["policies"]
            if entry["name"] in kept or entry["policy"] in policies
        ]
        for entry in document["policies"]:
            if entry.get("fallback") not in kept:
                entry["fallback"] = None
        if document["shifts"] is not None:
            shifted = document["shifts"]["policies"]
            document["shifts"]["policies"] = {k: shifted[k] for k in shifted if k in kept}
    document["policies"] += added
    for one in trainings:
        _add_trainings(document["policies"], one)
    found = parse(FrontierConfig, document, "--policy, --only, --trainings")
    return found if seeds is None else found.with_seeds(seeds)


def _add_trainings(policies: list[dict[str, Any]], given: str) -> None:
    """Add the trainings of a folder to the policy with their label."""
    from dsp_gym.errors import ConfigError, did_you_mean

    label, _, folder = given.partition("=")
    labels = [entry["name"] for entry in policies]
    if label not in labels:
        raise ConfigError(
            f"there is no policy '{label}' here",
            key="--trainings",
            value=given,
            remedy=did_you_mean(label, labels),
        )
    found = sorted(map(str, Path(folder).glob("seed-*/policy"))) if folder else []
    if not found:
        raise ConfigError(
            f"the folder '{folder}' holds no training",
            key="--trainings",
            value=given,
            remedy="Train with other seeds first: dsp-gym train EXPERIMENT --seed 1 --out "
            f"{folder or 'FOLDER'}/seed-1",
        )
    policies[labels.index(label)]["trainings"] = found


def _entry(policy: str) -> dict[str, object]:
    """A policy to add; a folder of trainings, as `dsp-gym train` writes it, is one of several."""
    from dsp_gym.evaluation.labels import LATEST, label_of

    folder = Path(policy)
    if (folder / LATEST).is_symlink():
        folder /= LATEST
    trained = sorted(folder.glob("seed-*/policy"))
    if not trained:
        return {"policy": policy}
    first, *others = map(str, trained)
    return {"policy": first, "name": label_of(folder.absolute()), "trainings": others}


def frontier_board(
    name: str,
    config: FrontierConfig,
    cells: tuple[str, ...],
    engine: Engine,
    everything: KeptResults,
) -> FrontierBoard:
    """Plays the cells of a frontier, each with a progress bar, and estimates it.

    Args:
        name: Of the frontier.
        config: The frontier.
        cells: Names of the cells to play; none: all.
        engine: Where.
        everything: Keeps finished runs, and gives those of an interrupted leaderboard.

    Returns:
        The board; cells whose recorded loads are not there are left out with the reason.
    """
    from dsp_gym.cli.engines import cells_bar
    from dsp_gym.errors import ConfigError, LoadError, did_you_mean
    from dsp_gym.evaluation.batch_of_runs import versions
    from dsp_gym.evaluation.frontier.board import board_of, currency_of
    from dsp_gym.evaluation.frontier.play import play_cell
    from dsp_gym.evaluation.kept import KeptResults

    known = {cell.name: cell for cell in config.cells()}
    offered = [*known, *([SHIFTS] if config.shifts is not None else [])]
    for wanted in cells:
        if wanted not in offered:
            raise ConfigError(
                f"there is no cell '{wanted}'", key="--cell", remedy=did_you_mean(wanted, offered)
            )
    currency_of(config)  # refuses two before anything is played
    played: list[CellRuns] = []
    left_out: dict[str, str] = {}
    for cell in known.values():
        if cells and cell.name not in cells:
            continue
        kept = KeptResults(everything.folder / cell.name)
        try:
            with cells_bar(f"runs of {cell.name}") as told:
                played.append(play_cell(config, cell, engine=engine, told=told, kept=kept))
        except LoadError as error:
            if cell.loads != "recorded":
                raise
            left_out[cell.name] = str(error)
            typer.echo(f"{cell.name} is left out: {error}", err=True)
        except KeyboardInterrupt:
            typer.echo(
                f"Stopped; {len(played)} cells and {len(kept)} runs of {cell.name} are kept in "
                f"{everything.folder}. Continue with the same command and --resume.",
                err=True,
            )
            raise
    shifted = []
    if config.shifts is not None and (not cells or SHIFTS in cells):
        shifted = _shifts(config, config.shifts, everything.folder, engine)
    if not played and not shifted:
        raise ConfigError("every cell is left out", key="loads.recorded")
    return board_of(name, config, played, left_out, versions(()), shifted)


def _shifts(config: FrontierConfig, shifts: Shifts, folder: Path, engine: Engine) -> list[CellRuns]:
    """Plays every shift, each with a progress bar."""
    from dsp_gym.cli.engines import cells_bar
    from dsp_gym.evaluation.frontier.play import play_shift
    from dsp_gym.evaluation.kept import KeptResults

    played = []
    try:
        for number, shift in enumerate(shifts.all()):
            kept = KeptResults(folder / f"{SHIFTS}-{number}")
            with cells_bar(f"jobs, shifted: {shift.name}") as told:
                played.append(play_shift(config, shift, engine=engine, told=told, kept=kept))
    except KeyboardInterrupt:
        typer.echo(
            f"Stopped; {len(played)} shifts are kept in {folder}. Continue with the same command "
            "and --resume.",
            err=True,
        )
        raise
    return played


def print_board(board: FrontierBoard, written: dict[str, Path], as_json: bool) -> None:
    """Prints the headline, a table per cell and the files."""
    import json

    from dsp_gym.evaluation.frontier.board import render_json
    from dsp_gym.evaluation.frontier.tables import headline, shift_table, terminal_rows

    if as_json:
        print_json({**json.loads(render_json(board)), "files": written})
        return
    typer.echo(headline(board))
    for cell in board.cells:
        columns, rows = terminal_rows(cell, board.config)
        title = f"{cell.title}, {board.currency} per job and day"
        print_table(columns, rows, title=title, right=columns[1:])
    if board.shifts:
        columns, rows = shift_table(board)
        print_table(columns, rows, title="Shifts", right=columns[2:])
    typer.echo()
    for kind, path in written.items():
        typer.echo(f"{kind:>8}  {path}")


def write_board(
    board: FrontierBoard, folder: Path, page: Path | None, command: str
) -> dict[str, Path]:
    """Writes the board as JSON, Markdown and HTML, and the runs of each cell.

    Args:
        board: The board.
        folder: Where.
        page: Another place of the Markdown; None: none.
        command: The line that made the board, as the page tells it.

    Returns:
        What was written, by kind.
    """
    from dsp_gym.config.files import write_atomic
    from dsp_gym.evaluation.frontier.board import render_json
    from dsp_gym.evaluation.frontier.page import render_html, render_markdown

    for cell in board.cells:
        text = cell.runs.model_dump_json(by_alias=True)
        write_atomic(folder / "runs" / f"{cell.runs.cell}.json", text)
    text = render_markdown(board, command)
    written = {
        "json": write_atomic(folder / "frontier.json", render_json(board, command)),
        "markdown": write_atomic(folder / "frontier.md", text),
        "html": write_atomic(folder / "frontier.html", render_html(board)),
    }
    return written if page is None else {**written, "page": write_atomic(page, text)}
