"""The report of a referee."""

from __future__ import annotations

from collections.abc import Iterable

from dsp_gym.evaluation.frontier.board import BoardCell
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.page import drawn as drawn_chart
from dsp_gym.evaluation.frontier.tables import (
    cheapest_sentence,
    cost_table,
    leading_costs,
    level_of,
    short_table,
    shown,
    tables_beside,
)
from dsp_gym.evaluation.referee.board import FamilyResult, RefereeBoard
from dsp_gym.evaluation.referee.ledger import unfinished
from dsp_gym.evaluation.results import Report, ReportPart, Table
from dsp_gym.evaluation.run import PLAN
from dsp_gym.pages import number, percent
from dsp_gym.policies.capabilities import capabilities_of
from dsp_gym.policies.registry import make, resolve

SETS = {
    "development": "the development set, on which rules, planners and networks are chosen: it "
    "confirms nothing",
    "test": "the test set",
    "own": "seeds of one's own",
}


def report_of_referee(board: RefereeBoard, command: str = "") -> Report:
    """Make the report of a board.

    Args:
        board: The board.
        command: The line that made it.

    Returns:
        A part for all triples and for each group of families, then the families singly, the jobs
        below the clairvoyant, the shifts, and the evaluations.
    """
    parts = [_cell_part(board, cell) for cell in board.cells]
    left_out = Table("Left out", ("family of load", "reason"), list(board.left_out.items()))
    beside = (
        _losing_part(board),
        _below_part(board),
        _shift_part(board),
        ReportPart(left_out, left_out),
        _led(_evaluations(board), without=("referee", "families")),
    )
    parts += [one for one in beside if one.table.rows]
    made = f"Made by `{command}`; " if command else ""
    return Report(
        title=f"Costs at equal lateness on fresh triples: {board.name}",
        headline=_headline(board),
        parts=tuple(parts),
        reading=tuple(_explained(board)),
        origin=f"{_origin(board)} {made}[how to read the columns](#how-to-read-this).",
    )


def _headline(board: RefereeBoard) -> str:
    if not board.cells:
        return "Only shifts were played."
    bounds = {one.name for one in board.config.policies if _knows_future(one)}
    return cheapest_sentence(board.cells[0], level_of(board.config), board.currency, bounds)


def _knows_future(one: SweptPolicy) -> bool:
    """Return whether an evaluation tells the policy the load to come, or its law."""
    _, config, _ = resolve(one.policy)
    return capabilities_of(make(config)).know_future is not None


def _origin(board: RefereeBoard) -> str:
    drawn, said = board.drawn, SETS[board.drawn.name]
    if drawn.commit is None:
        return f"These are triples of {said}."
    dropped, ended = _counts(board)
    text = f"These are triples of {said} of commit {drawn.commit[:12]}. "
    text += f"The ledger `{board.config.ledger}` lists {ended} finished evaluation"
    text += f"{'' if ended == 1 else 's'} of test sets"
    return text + (f" and {dropped} that began and did not end." if dropped else ".")


def _counts(board: RefereeBoard) -> tuple[int, int]:
    """Return how many evaluations began and did not end, and how many ended."""
    ended = sum(one.status == "finished" for one in board.evaluations)
    return len(unfinished(board.evaluations)), ended


def _cell_part(board: RefereeBoard, cell: BoardCell) -> ReportPart:
    config, currency = board.config, board.currency
    whole, short = cost_table(cell, config), short_table(cell, config, currency)
    # The last column names the dearest job: a job has one triple or few, which is no comparison.
    table = whole.leading(whole.head[:-1])
    lead, silent = leading_costs(table, config)
    return ReportPart(
        table=table,
        short=short,
        lead=lead,
        notes=(
            *silent,
            f"{currency} per job and day, {len(cell.runs.jobs)} triples for each setting.",
        ),
        charts=(
            "A point for each setting of a policy's knob; tuned rules are dashed. "
            "Dotted: no policy is better in both.",
            drawn_chart(cell, config, currency),
        ),
        more=(*tables_beside(cell, config, currency), _settings(cell, currency)),
    )


def _led(whole: Table, without: Iterable[str]) -> ReportPart:
    """Make a part of a table, led by its columns except some."""
    dropped = set(without)
    return ReportPart(
        whole, whole, lead=whole.leading(one for one in whole.head if one not in dropped)
    )


def _losing_part(board: RefereeBoard) -> ReportPart:
    """Say in how many families each policy loses and wins; where, and by how much, is folded."""
    whole = _losing(board)
    policies = [row[0] for row in whole.rows]
    late = {
        name: all(one.later for one in board.families if one.policy == name) for name in policies
    }
    never = [name for name, is_late in late.items() if is_late]
    level = percent(level_of(board.config))
    said = f"In each family at no setting late at most {level} % of the time: {', '.join(never)}."
    single = ", ".join(dict.fromkeys(one.family for one in board.families if not one.has_spread))
    unknown = (
        f"With one job of each kind there is no interval, so costs count as neither lost nor won: "
        f"{single}."
    )
    return ReportPart(
        whole,
        whole,
        lead=whole.leading(whole.head[:-1], never),
        notes=(*([said] if never else []), *([unknown] if single else [])),
        more=(_families(board),),
    )


def _below_part(board: RefereeBoard) -> ReportPart:
    """List the policies that cost less than the clairvoyant on some job; the others are named."""
    whole = _below(board)
    none = [one.policy for one in board.below if not one.jobs]
    return ReportPart(
        whole,
        whole,
        lead=whole.leading(whole.head, none) if none else None,
        notes=(f"On no job: {', '.join(none)}.",) if none else (),
    )


def _settings(cell: BoardCell, currency: str) -> Table:
    rows = [
        (
            one.policy,
            "–" if point.value is None else f"{point.value:g}",
            f"{percent(point.late)} %",
            number(point.cost),
            f"{percent(point.worst)} %",
            number(point.rescales),
        )
        for one in cell.frontiers
        for point in one.points
    ]
    head = (
        "policy",
        "setting",
        "late",
        f"{currency} per day",
        "worst 5 % late",
        "rescales per day",
    )
    return Table("Every setting", head, rows)


def _families(board: RefereeBoard) -> Table:
    """List cost ratios to the best tuned rule of each family, a column per family."""
    names = list(dict.fromkeys(one.family for one in board.families))
    policies = list(dict.fromkeys(one.policy for one in board.families))
    found = {(one.policy, one.family): one for one in board.families}
    rows = [(policy, *(_ratio(found[policy, name]) for name in names)) for policy in policies]
    level = percent(level_of(board.config))
    return Table(f"By family, cost of the best rule's, {level} % late", ("policy", *names), rows)


def _ratio(one: FamilyResult) -> str:
    if one.ratio is None:
        return "later" if one.later else "–"
    return number(one.ratio.value) + (" (loses)" if one.loses else "")


def _losing(board: RefereeBoard) -> Table:
    rows = []
    for policy in dict.fromkeys(one.policy for one in board.families):
        mine = [one for one in board.families if one.policy == policy]
        lost = [
            f"{one.family} (later)"
            if one.later
            else f"{one.family} {shown(one.ratio, interval=True)}"
            for one in mine
            if one.loses
        ]
        won = sum(one.wins for one in mine)
        rows.append((policy, f"{len(lost)} of {len(mine)}", str(won), ", ".join(lost) or "–"))
    return Table(
        "Families in which a policy loses to the best tuned rule",
        ("policy", "loses in", "wins in", "where it loses"),
        rows,
    )


def _below(board: RefereeBoard) -> Table:
    rows = [
        (
            one.policy,
            f"{len(one.jobs)} of {one.compared}",
            f"{percent(len(one.jobs) / one.compared)} %" if one.compared else "–",
        )
        for one in board.below
    ]
    return Table(
        f"Jobs on which a policy costs less than {PLAN}", ("policy", "jobs", "share"), rows
    )


def _shift_part(board: RefereeBoard) -> ReportPart:
    """Name the best rule, the cheapest policy and the dearer ones under each shift."""
    whole, rows = _shifts(board), []
    for name in dict.fromkeys(one.shift for one in board.shifts):
        here = [one for one in board.shifts if one.shift == name and one.policy != PLAN]
        rule = min((one for one in here if one.rule), key=lambda one: one.ratio.value)
        others = sorted((one for one in here if not one.rule), key=lambda one: one.ratio.value)
        first = f"{others[0].policy} {shown(others[0].ratio, interval=True)}" if others else "–"
        dearer = [
            f"{one.policy} {shown(one.ratio, interval=True)}"
            for one in others
            if one.ratio.low > 1.0
        ]
        rows.append((name, rule.policy, first, ", ".join(dearer) or "–"))
    head = (
        "shift",
        "best tuned rule",
        "cheapest policy: its price over the rule's",
        "policies dearer than the rule",
    )
    return ReportPart(whole, whole, lead=Table(whole.title, head, rows))


def _shifts(board: RefereeBoard) -> Table:
    head = (
        "shift",
        "policy",
        f"{board.currency} per day",
        "late",
        "rescales per day",
        "price, of the best rule's",
        "price, of that without the shift",
    )
    rows = [
        (
            one.shift,
            f"{one.policy} (tuned rule)" if one.rule else one.policy,
            number(one.cost),
            f"{percent(one.late)} %",
            number(one.rescales),
            shown(one.ratio, interval=True),
            shown(one.dearer, interval=True),
        )
        for one in board.shifts
    ]
    return Table("Shifts", head, rows)


def _evaluations(board: RefereeBoard) -> Table:
    """List the evaluations of test sets, the latest first."""
    rows = [
        (
            one.at,
            one.status,
            one.commit[:12],
            one.fingerprint,
            str(one.triples),
            str(len(one.policies)),
            ", ".join(one.families),
        )
        for one in reversed(board.evaluations)
    ]
    head = ("when", "what", "commit", "referee", "triples", "policies", "families")
    return Table("Evaluations of test sets", head, rows if board.drawn.name == "test" else [])


def _explained(board: RefereeBoard) -> list[str]:
    config = board.config
    level, rules = percent(level_of(config)), [one.name for one in config.policies if one.rule]
    families = ", ".join(
        f"{one.name} ({one.triples} triples of {config.episode_of(one) / 3600:g} h)"
        for one in config.loads
    )
    return [
        f"Referee {board.name}, fingerprint {board.fingerprint}, dsp-gym "
        f"{board.versions.get('dsp-gym', '?')}. Every triple of a job, a load and a seed is "
        f"drawn by itself; every policy meets the same triples. Families of load: {families}. "
        "Kinds of jobs, evenly in each family: "
        f"{', '.join(kind.name for kind in config.jobs)}.",
        "The seeds of the test set are the SHA-256 of the referee's fingerprint and the "
        "commit under evaluation, so nobody can look at a test set before the commit is "
        "made, and a change that was chosen on one meets another. Every evaluation is a line "
        "of the ledger when it begins and when it ends. The ledger is a file of the "
        "repository: its history shows what was removed.",
        "What this is: fresh seeds of known generators, of named jobs and of named traces. A "
        "policy may still suit these generators better than it suits the world; other "
        "people's jobs and traces are the stronger test. `--key FILE` takes seeds of one's "
        "own.",
        "A job is late while its p95 latency exceeds its bound, or while it is down. Every "
        "policy ran with each value of its own knob, a parameter that trades cost for "
        "lateness. Its cost at a lateness is interpolated between these settings: "
        f"{board.currency} per job and day, the geometric mean over triples. A dash: the "
        "policy is later at each of its settings.",
        f"The best rule is the cheapest at that lateness of {', '.join(rules)}. The gap "
        f"closed is 0 % at the best rule and 100 % at {PLAN}, which knows the future load. "
        f"The worst 5 % are the latest triples at {level} % mean lateness, or at that of the "
        "best rule where it is more punctual at each of its settings; so are the rescales "
        f"per day. Brackets hold {100 * config.confidence:g} % bootstrap intervals over jobs: "
        "a job is drawn with all its triples, within its kind.",
        "By family, the best rule is that of the family, and the interval of the ratio is "
        "widened for the number of families (Bonferroni). A policy loses where it lies above "
        "1, or where a rule reaches the lateness and the policy does not; it wins where the "
        "interval lies below 1.",
        "Under shifts every policy keeps one setting. The price is money plus "
        f"{config.late_weight:g} times the late share, in units of the cost of the job's "
        "reference configuration, the geometric mean over the same triples with and without "
        "the shift. A policy is dearer than the rule where the interval of their ratio lies "
        "above 1.",
    ]
