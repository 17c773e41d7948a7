"""The report of a frontier's board."""

from __future__ import annotations

from dsp_gym.evaluation.frontier.board import (
    TITLES,
    BoardCell,
    FrontierBoard,
    whole_fingerprint,
)
from dsp_gym.evaluation.frontier.tables import (
    ComparesAtLateness,
    cost_table,
    headline,
    leading_costs,
    level_of,
    shift_table,
    short_table,
    tables_beside,
)
from dsp_gym.evaluation.results import Report, ReportPart, Table
from dsp_gym.evaluation.run import PLAN
from dsp_gym.pages import Html, ScatterPoint, money, percent, scatter


def _explained(board: FrontierBoard) -> list[str]:
    config = board.config
    rules = ", ".join(policy.name for policy in config.policies if policy.rule)
    level = level_of(config)
    return [
        f"Benchmark {board.name}, fingerprint {board.fingerprint}, dsp-gym "
        f"{board.versions.get('dsp-gym', '?')}. A job is late while its p95 latency exceeds its "
        "bound, or while it is down. Every policy ran with each value of its own knob, a parameter "
        "that trades cost for lateness. Its cost at a lateness is interpolated between these "
        f"settings: {board.currency} per job and day, the geometric mean over jobs. A dash: the "
        "policy is later at each of its settings.",
        f"The best rule is the cheapest at that lateness of {rules}. The gap closed is 0 % at the "
        f"best rule and 100 % at {PLAN}, which knows the future load. Its plan is the best one of "
        "its own model, which assumes warm caches: it is no bound, and on single jobs another "
        "policy may cost less at the same lateness. The worst 5 % are the latest "
        f"runs at {percent(level)} % mean lateness, or at that of the best rule where it is more "
        "punctual at each of its settings: the others are compared with it at the same lateness, "
        "and so are the rescales per day. "
        f"Brackets hold {100 * config.confidence:g} % "
        "bootstrap intervals over jobs, loads and trainings.",
        "The dearest job is the one with the highest cost at that lateness against the tuned rule "
        "that is cheapest on this job, each on the job's own frontier; 'later on' names the jobs "
        "on which a rule reaches the lateness and the policy does not.",
        "Against each tuned rule, costs are divided by the rule's at the same lateness; rescales "
        "per day likewise, at the rule's laxest setting where it is more punctual than that.",
        f"The price is money plus {config.late_weight:g} times the late share, in units of the "
        "cost of the job's reference configuration; each policy runs at the setting that was "
        "cheapest on seen jobs and loads, and its worst 5 % are those of that setting. The "
        "probability of improvement is the share of runs with "
        "a lower price than the best rule's on the same job, load and seed; the difference to a "
        "fallback is paired in the same way.",
        "Under shifts every policy keeps one setting, so the table compares prices. The rise is "
        "the increase of the ratio to the best rule over its value on the unchanged jobs.",
    ]


def _played(cell: BoardCell, currency: str) -> str:
    runs = cell.runs
    count = len(runs.jobs) * len(runs.loads) * len(runs.seeds)
    return (
        f"{currency} per job and day. {len(runs.jobs)} jobs under {', '.join(runs.loads)}, "
        f"{len(runs.seeds)} seed{'s' if len(runs.seeds) > 1 else ''}: {count} runs for "
        "each setting."
    )


def _part(board: FrontierBoard) -> str:
    """Say what the board leaves out of a shipped frontier; empty: nothing."""
    whole = whole_fingerprint(board)
    if whole is None:
        return ""
    seeds = board.config.seeds_per_load()
    return (
        f" This is the part of the frozen benchmark {board.name} (fingerprint {whole}) with "
        f"{seeds} seed{'s' if seeds > 1 else ''} of each load; its own fingerprint is "
        f"{board.fingerprint}."
    )


def report_of(board: FrontierBoard, command: str = "") -> Report:
    """Make the report of a board.

    Args:
        board: The board.
        command: The line that made it.

    Returns:
        A part per cell, then the shifts and what was left out.
    """
    parts = [_cell_part(board, cell) for cell in board.cells]
    if board.shifts:
        shifts = shift_table(board)
        heads = [one for one in shifts.head if one not in ("rescales per day", "rise")]
        parts.append(ReportPart(shifts, shifts, lead=shifts.leading(heads)))
    if board.left_out:
        reasons = [(TITLES[name], reason) for name, reason in board.left_out.items()]
        left = Table("Left out", ("cell", "reason"), reasons)
        parts.append(ReportPart(left, left))
    made = f"Made by `{command}`; " if command else ""
    return Report(
        title=f"Costs at equal lateness: {board.name}",
        headline=headline(board),
        parts=tuple(parts),
        reading=tuple(_explained(board)),
        origin="The first table is the fairest: jobs and loads outside all training and tuning. "
        f"{made}[how to read the columns](#how-to-read-this).{_part(board)}",
    )


def _cell_part(board: FrontierBoard, cell: BoardCell) -> ReportPart:
    config, currency = board.config, board.currency
    whole = cost_table(cell, config)
    lead, silent = leading_costs(whole, config)
    return ReportPart(
        table=whole,
        short=short_table(cell, config, currency),
        lead=lead,
        notes=(*silent, _played(cell, currency)),
        charts=(
            "A point for each setting of a policy's knob; tuned rules are dashed. "
            "Dotted: no policy is better in both.",
            drawn(cell, config, currency),
        ),
        more=tuple(tables_beside(cell, config, currency)),
    )


def drawn(cell: BoardCell, config: ComparesAtLateness, currency: str) -> Html:
    """Draw cost against lateness, a line for each policy.

    Args:
        cell: The policies.
        config: Of the board.
        currency: Of the costs.

    Returns:
        Markup of a chart.
    """
    points = []
    for one in cell.frontiers:
        found = sorted(one.points, key=lambda point: point.late)
        texts = [
            f"{one.policy}: {money(p.cost, currency)} per day, {percent(p.late)} % late"
            for p in found
        ]
        late, cost = [100 * point.late for point in found], [point.cost for point in found]
        points.append(ScatterPoint(one.policy, late, cost, texts, dashed=one.rule))
    return scatter(
        f"Cost against lateness of every policy: {cell.title}.",
        points,
        x_label="late, share of the time",
        y_label=f"{currency} per day",
        x_most=300 * max(config.lateness),
    )
