"""The tables of a frontier's board, as rows of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from dsp_gym.evaluation.frontier.board import BoardCell, FrontierBoard
from dsp_gym.evaluation.frontier.estimate import DearestJob, PolicyFrontier
from dsp_gym.evaluation.results import Table
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.statistics import BootstrapEstimate
from dsp_gym.pages import money, number, percent

NAMED = 6
"""Jobs named in one field of a table."""


class ComparesAtLateness(Protocol):
    """A configuration with levels of lateness at which costs are compared."""

    @property
    def lateness(self) -> tuple[float, ...]:
        """Shares of the time, 0..1."""


def level_of(config: ComparesAtLateness) -> float:
    """Return the middle one of the levels: its columns have intervals.

    Args:
        config: A frontier, or a referee.

    Returns:
        A share of the time.
    """
    levels = sorted(config.lateness)
    return levels[len(levels) // 2]


def headline(board: FrontierBoard) -> str:
    """Return the result in one sentence: the cheapest policy of the first cell.

    Returns:
        A sentence; it says so where no policy reaches the lateness.
    """
    if not board.cells:
        return _shift_headline(board)
    return cheapest_sentence(board.cells[0], level_of(board.config), board.currency)


def cheapest_sentence(
    cell: BoardCell, level: float, currency: str, bounds: Collection[str] = (PLAN,)
) -> str:
    """Say which policy of a cell is the cheapest at a lateness.

    Args:
        cell: The cell.
        level: Share of the time late.
        currency: Of the costs.
        bounds: Policies that know more than any can on a real job, and do not count.

    Returns:
        A sentence; it says so where no policy reaches the lateness.
    """
    able = [(one, one.cost[level]) for one in cell.frontiers if one.policy not in bounds]
    known = [(one, cost) for one, cost in able if cost is not None]
    where = cell.title[0].lower() + cell.title[1:]
    if not known:
        return f"No policy is late at most {percent(level)} % of the time on {where}."
    best, cost = min(known, key=lambda pair: pair[1].value)
    text = f"On {where}, {best.policy} is the cheapest at {percent(level)} % late: "
    text += money(cost.value, currency)
    ratio = best.ratio[level]
    if best.rule or ratio is None:
        return f"{text} per day."
    return f"{text} per day, {percent(1 - ratio.value)} % less than the best tuned rule."


def _shift_headline(board: FrontierBoard) -> str:
    """Return the largest rise of a ratio, where no cell was played."""
    risen = [(one.rise, one) for one in board.shifts if one.rise is not None and not one.rule]
    if not risen:
        return "Only tuned rules ran under shifts."
    rise, one = max(risen, key=lambda pair: pair[0])
    return (
        f"Against the best tuned rule, {one.policy} loses most under the shift '{one.shift}': its "
        f"price is {number(one.ratio.value)} of the rule's, {rise:+.2f} against no shift."
    )


def cost_table(cell: BoardCell, config: ComparesAtLateness) -> Table:
    """List what the policies of a cell cost at equal lateness.

    Returns:
        A row per policy: the one that knows the load, then the cheapest first.
    """
    level = level_of(config)
    head = (
        "policy",
        *(f"{percent(share)} % late" for share in config.lateness),
        *(
            f"{what}, {percent(level)} %"
            for what in (
                "of the best rule",
                "gap closed",
                f"above {PLAN}",
                "worst 5 % late",
                "rescales/day",
                "dearest job",
            )
        ),
    )
    rows = []
    for one in _ordered(cell, level):
        worst, rescales = one.worst[level], one.rescales[level]
        rows.append(
            (
                f"{one.policy} (tuned rule)" if one.rule else one.policy,
                *(shown(one.cost[share], interval=share == level) for share in config.lateness),
                shown(one.ratio[level], interval=True),
                shown(one.closed[level], 100.0, " %", interval=True),
                shown(one.regret[level], 100.0, " %", interval=True),
                "–" if worst is None else f"{percent(worst)} %",
                "–" if rescales is None else number(rescales),
                _dearest_job(one.dearest_job[level]),
            )
        )
    return Table(cell.title, head, rows)


LED_BY = 3
"""Levels of lateness that a page leads with."""


def leading_costs(whole: Table, config: ComparesAtLateness) -> tuple[Table, tuple[str, ...]]:
    """Choose what a page shows of the costs: at the levels of lateness, and of the best rule's.

    Args:
        whole: Made by `cost_table`.
        config: Of the board.

    Returns:
        The table, without policies that reach no level; and a sentence that names those, if any.
    """
    count = len(config.lateness)
    silent = [row[0] for row in whole.rows if all(cell == "–" for cell in row[1 : count + 1])]
    middle = config.lateness.index(level_of(config))
    begin = min(max(0, middle - LED_BY // 2), max(0, count - LED_BY))
    heads = [
        whole.head[0],
        *whole.head[1 : count + 1][begin : begin + LED_BY],
        whole.head[count + 1],
    ]
    most = percent(max(config.lateness))
    said = f"At no setting late at most {most} % of the time: {', '.join(silent)}."
    return whole.leading(heads, silent), (said,) if silent else ()


def short_table(cell: BoardCell, config: ComparesAtLateness, currency: str) -> Table:
    """Return the columns of the costs that a terminal has room for.

    Returns:
        The policy, its costs, and two comparisons.
    """
    whole, keep = cost_table(cell, config), len(config.lateness) + 3
    title = f"{cell.title}, {currency} per job and day"
    return Table(title, whole.head[:keep], [row[:keep] for row in whole.rows])


def _ordered(cell: BoardCell, level: float) -> list[PolicyFrontier]:
    return sorted(
        cell.frontiers,
        key=lambda one: (
            one.policy != PLAN,
            cost.value if (cost := one.cost[level]) is not None else float("inf"),
        ),
    )


def _dearest_job(found: DearestJob | None) -> str:
    """Return the job with the highest ratio, and those on which the policy is later than a rule."""
    if found is None:
        return "–"
    named = ", ".join(found.later[:NAMED])
    more = f" and {len(found.later) - NAMED} more" if len(found.later) > NAMED else ""
    return f"{number(found.ratio)} ({found.job}){f'; later on {named}{more}' if named else ''}"


def shown(
    estimate: BootstrapEstimate | None, factor: float = 1.0, unit: str = "", interval: bool = False
) -> str:
    """Write an estimate.

    Args:
        estimate: The estimate; None: there is none.
        factor: On all numbers.
        unit: Behind the value.
        interval: With the interval's ends.

    Returns:
        Text; a dash where there is no estimate.
    """
    if estimate is None:
        return "–"
    value, low, high = (number(factor * part) for part in estimate)
    return f"{value}{unit} [{low}, {high}]" if interval and low != high else f"{value}{unit}"


PRICE_HEAD = (
    "",
    "policy",
    "setting",
    "price",
    "late",
    "worst 5 % late",
    "probability of improvement",
    "price less its fallback's",
)


def _price_rows(cell: BoardCell) -> list[tuple[str, ...]]:
    ranked = [one for one in cell.priced if one.policy != PLAN]
    places = {one.policy: str(place) for place, one in enumerate(ranked, 1)}
    points = {(one.policy, point.value): point for one in cell.frontiers for point in one.points}
    return [
        (
            places.get(one.policy, "–"),
            one.policy,
            "–" if one.value is None else f"{one.value:g}",
            shown(one.price, interval=True),
            f"{percent(points[one.policy, one.value].late)} %",
            f"{percent(points[one.policy, one.value].worst)} %",
            shown(one.better, 100.0, " %", interval=True),
            shown(one.over_fallback, interval=True),
        )
        for one in cell.priced
    ]


COST = "cost per day"


def _priced(head: Sequence[str], currency: str) -> tuple[str, ...]:
    """Headings with the currency of the costs."""
    return tuple(f"{currency} per day" if name == COST else name for name in head)


KNOWN_HEAD = (
    "price of a late second",
    "late",
    COST,
    "worst 5 % late",
    "rescales per day",
)


def _known_rows(cell: BoardCell) -> list[tuple[str, ...]]:
    """Return the frontier of the policy that knows the load, setting by setting."""
    return [
        (
            "–" if point.value is None else f"{point.value:g}",
            f"{percent(point.late)} %",
            number(point.cost),
            f"{percent(point.worst)} %",
            number(point.rescales),
        )
        for one in cell.frontiers
        if one.policy == PLAN
        for point in one.points
    ]


def _against_rules(cell: BoardCell, level: float) -> Table:
    """List costs and rescales of every other policy against each tuned rule."""
    rules = [one.policy for one in cell.frontiers if one.rule]
    rows = []
    for one in _ordered(cell, level):
        if one.rule or one.policy == PLAN:
            continue
        found = [one.against[rule][level] for rule in rules]
        rescales = ("–" if part.rescales is None else number(part.rescales) for part in found)
        rows.append((one.policy, *(shown(part.cost, interval=True) for part in found), *rescales))
    head = (f"{what}, of {rule}" for what in ("cost", "rescales") for rule in rules)
    return Table(f"Against each tuned rule, {percent(level)} % late", ("policy", *head), rows)


def _against_yardsticks(cell: BoardCell, config: ComparesAtLateness) -> list[Table]:
    """List what each policy costs of each yardstick, level by level."""
    levels = sorted(config.lateness)
    return [
        Table(
            f"Cost, of that of {yardstick.policy}",
            ("policy", *(f"{percent(level)} % late" for level in levels)),
            [
                (one.policy, *(shown(found[level].cost, interval=True) for level in levels))
                for one in _ordered(cell, level_of(config))
                if not one.rule and (found := one.against.get(yardstick.policy)) is not None
            ],
        )
        for yardstick in cell.runs.policies
        if yardstick.yardstick
    ]


def _training_rows(cell: BoardCell) -> list[tuple[str, ...]]:
    """Return costs of the trainings of a trained policy, each by itself."""
    return [
        (
            f"{one.policy}, {percent(level)} % late",
            *("–" if cost is None else number(cost) for cost in costs),
        )
        for one in cell.frontiers
        for level, costs in one.trainings.items()
        if len(costs) > 1
    ]


def tables_beside(cell: BoardCell, config: ComparesAtLateness, currency: str) -> list[Table]:
    """Return the tables below that of the costs.

    Args:
        cell: The cell.
        config: Of the board.
        currency: Of the board.

    Returns:
        Those that have rows.
    """
    trained = _training_rows(cell)
    count = max((len(row) for row in trained), default=1)
    tables = [
        _against_rules(cell, level_of(config)),
        *_against_yardsticks(cell, config),
        Table("By price, late time priced in", PRICE_HEAD, _price_rows(cell)),
        Table(f"The frontier of {PLAN}", _priced(KNOWN_HEAD, currency), _known_rows(cell)),
        Table(
            f"Cost of each training, {currency} per day",
            ("policy", *(f"training {n}" for n in range(1, count))),
            [(*row, *["–"] * (count - len(row))) for row in trained],
        ),
    ]
    return [one for one in tables if one.rows]


SHIFT_HEAD = (
    "shift",
    "policy",
    COST,
    "late",
    "rescales per day",
    "price, of the best rule's",
    "rise",
)


def shift_table(board: FrontierBoard) -> Table:
    """List the policies under every shift.

    Returns:
        A table without rows where no shift was played.
    """
    rows = [
        (
            one.shift,
            one.policy,
            number(one.cost),
            f"{percent(one.late)} %",
            number(one.rescales),
            shown(one.ratio, interval=True),
            "–" if one.rise is None else f"{one.rise:+.2f}",
        )
        for one in board.shifts
    ]
    return Table("Shifts", _priced(SHIFT_HEAD, board.currency), rows)
