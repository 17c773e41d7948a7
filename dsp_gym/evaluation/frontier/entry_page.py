"""What an entry says of itself: every setting, its rank, and a plot beside the frontier."""

from __future__ import annotations

from collections.abc import Mapping

from dsp_gym.evaluation.frontier.board import BoardCell, FrontierBoard
from dsp_gym.evaluation.frontier.estimate import FrontierPoint, PolicyFrontier
from dsp_gym.evaluation.frontier.published import PlacedSetting, PublishedCell, place
from dsp_gym.evaluation.frontier.sketch import sketch
from dsp_gym.evaluation.frontier.tables import level_of
from dsp_gym.evaluation.results import Report, ReportPart, Table
from dsp_gym.evaluation.run import PLAN
from dsp_gym.pages import Html, ScatterPoint, money, number, percent, scatter

OWN, RULE, OTHER, KNOWS = "O", "r", ".", "c"
"""Signs of the sketch: the entry, tuned rules, other published policies, who knows the load."""


def entry_report(
    board: FrontierBoard, published: Mapping[str, PublishedCell], command: str
) -> Report:
    """Make the report of an entry.

    Args:
        board: Played by the entry alone.
        published: What was published of the same frontier, by cell.
        command: The line that made it.

    Returns:
        The costs at the levels of lateness, then a part for each cell: every setting and a plot.
    """
    costs = cost_table(board)
    beside = [_part(board, cell, published.get(cell.runs.cell)) for cell in board.cells]
    return Report(
        title=f"{_own(board.cells[0]).policy} on {board.name}" if board.cells else board.name,
        headline=" ".join(_rank(board, cell, published) for cell in board.cells),
        parts=(ReportPart(costs, costs), *beside),
        reading=(
            "A setting is ranked by its cost among the published policies, each at the lateness of "
            f"that setting, interpolated between its own; {PLAN}, which knows the future load, is "
            "not ranked. A published policy that is later at each of its settings is behind.",
        ),
        origin=f"Made by `{command}`.",
    )


def cost_table(board: FrontierBoard) -> Table:
    """List the entry's costs at the levels of lateness.

    Returns:
        A row per cell; a dash where the entry is later at each of its settings.
    """
    head = [f"{percent(level)} % late" for level in board.config.lateness]
    rows = []
    for cell in board.cells:
        costs = _own(cell).cost.values()
        rows.append((cell.title, *("–" if one is None else number(one.value) for one in costs)))
    name = _own(board.cells[0]).policy if board.cells else board.name
    return Table(name, [f"{board.currency} per day", *head], rows)


def points_table(cell: BoardCell, currency: str, published: PublishedCell | None) -> Table:
    """List cost and lateness of every setting, and its rank.

    Args:
        cell: Played by the entry alone.
        currency: Of the costs.
        published: What was published of this cell; None: nothing, so there are no ranks.

    Returns:
        A row per setting, the most punctual first.
    """
    head = ["setting", "late", f"{currency} per day"]
    points = _sorted(_own(cell))
    rows = [_setting(point) for point in points]
    if published is None:
        return Table(cell.title, head, rows)
    places = place(points, published)
    whole = [(*row, *_placed(one)) for row, one in zip(rows, places, strict=True)]
    return Table(cell.title, [*head, "rank", "cheapest rule as late", "of its cost"], whole)


def sketch_of(cell: BoardCell, currency: str, published: PublishedCell | None) -> str:
    """Draw the entry beside the frontier, in text.

    Args:
        cell: Played by the entry alone.
        currency: Of the costs.
        published: What was published of this cell; None: the entry is alone.

    Returns:
        The plot, and below it what its signs mean.
    """
    own = [(point.late, point.cost) for point in _own(cell).points]
    shown: dict[str, list[tuple[float, float]]] = {}
    for one in published.policies if published is not None else ():
        sign = RULE if one.rule else KNOWS if one.policy == PLAN else OTHER
        points = zip(one.late.tolist(), one.cost.tolist(), strict=True)
        shown.setdefault(sign, []).extend(points)
    meant = {OTHER: "published policies", RULE: "tuned rules", KNOWS: PLAN}
    said = [f"{sign} {meant[sign]}" for sign in meant if sign in shown]
    legend = "   ".join([f"{OWN} {_own(cell).policy}", *said])
    return f"{sketch({**shown, OWN: own}, currency)}\n{legend}"


def _part(board: FrontierBoard, cell: BoardCell, published: PublishedCell | None) -> ReportPart:
    table = points_table(cell, board.currency, published)
    drawn = sketch_of(cell, board.currency, published)
    return ReportPart(
        table,
        table,
        notes=(_beside(board, published),),
        charts=(_drawn(board, cell, published),),
        sketch=drawn,
    )


def _beside(board: FrontierBoard, published: PublishedCell | None) -> str:
    """Say what the entry stands beside."""
    if published is None:
        return (
            f"Nothing was published of this cell of {board.name}, so there is no rank; "
            f"dsp-gym evaluate {board.name} --entries FOLDER plays the others beside it."
        )
    count = len(published.seeds)
    return (
        f"Beside {len(published.policies)} published policies, run with {count} "
        f"seed{'s' if count > 1 else ''} of each load."
    )


def _rank(board: FrontierBoard, cell: BoardCell, published: Mapping[str, PublishedCell]) -> str:
    """Say in one sentence where the entry stands: at the middle level, or where it is punctual."""
    found, level, currency = _own(cell), level_of(board.config), board.currency
    where = cell.title[0].lower() + cell.title[1:]
    most = _sorted(found)[0]
    cost = found.cost[level]
    at = most if cost is None else FrontierPoint(None, level, cost.value, 0.0, 0.0)
    said = f"On {where}, {found.policy} costs {money(at.cost, currency)} per day "
    said += f"at {percent(at.late)} % late"
    if cost is None:
        said += f", its most punctual setting; it never reaches {percent(level)} %"
    if cell.runs.cell not in published:
        return f"{said}."
    (placed,) = place([at], published[cell.runs.cell])
    return f"{said}: rank {placed.rank} of {placed.of}."


def _placed(one: PlacedSetting) -> tuple[str, str, str]:
    ratio = "–" if one.ratio is None else number(one.ratio)
    return f"{one.rank} of {one.of}", one.rule or "–", ratio


def _setting(point: FrontierPoint) -> tuple[str, str, str]:
    value = "–" if point.value is None else f"{point.value:g}"
    return value, f"{percent(point.late)} %", number(point.cost)


def _own(cell: BoardCell) -> PolicyFrontier:
    (own,) = cell.frontiers
    return own


def _sorted(own: PolicyFrontier) -> list[FrontierPoint]:
    return sorted(own.points, key=lambda point: point.late)


def _drawn(board: FrontierBoard, cell: BoardCell, published: PublishedCell | None) -> Html:
    """Draw the same for a browser."""
    currency, own = board.currency, _own(cell)
    shown = [
        (one.policy, one.rule, list(zip(one.late.tolist(), one.cost.tolist(), strict=True)))
        for one in (published.policies if published is not None else ())
    ]
    shown.insert(0, (own.policy, False, [(point.late, point.cost) for point in own.points]))
    points = []
    for name, rule, pairs in shown:
        late, cost = ([pair[at] for pair in sorted(pairs)] for at in (0, 1))
        texts = [
            f"{name}: {money(y, currency)} per day, {percent(x)} % late"
            for x, y in zip(late, cost, strict=True)
        ]
        x = [100 * share for share in late]
        points.append(ScatterPoint(name, x, cost, texts, own=name == own.policy, dashed=rule))
    return scatter(
        f"Cost against lateness of {own.policy} and the published policies: {cell.title}.",
        points,
        x_label="late, share of the time",
        y_label=f"{currency} per day",
    )
