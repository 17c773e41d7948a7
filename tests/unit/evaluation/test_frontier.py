from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.config.files import load_model, parse
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.frontier.board import (
    FrontierBoard,
    board_of,
    figures_of,
    frontier_fingerprint,
    render_json,
    whole_fingerprint,
)
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.estimate import cost_at, estimate_cell
from dsp_gym.evaluation.frontier.page import report_of
from dsp_gym.evaluation.frontier.play import CellRuns, PlayedFrontier, PolicyRuns, entrants
from dsp_gym.evaluation.frontier.pricing import compare_shifts, price_cell
from dsp_gym.evaluation.frontier.tables import cost_table, headline, leading_costs
from dsp_gym.evaluation.results import render_html, render_markdown
from dsp_gym.experiments.comparison import Chosen, read_comparison, with_choice
from dsp_gym.job.catalog import load_job
from dsp_gym.policies.config import PolicyConfig, with_params

DOCUMENT = {
    "policies": [
        {"policy": "ds2", "rule": True, "knob": "target_utilization", "values": [0.5, 0.8]},
        {"policy": "justin-artifact", "knob": "ds2/target_utilization", "values": [0.5, 0.8]},
    ],
    "jobs": {
        "seen": {"named": ["nexmark-q1"], "random_dags": {"from": 1, "to": 2}},
        "unseen": {"random_dags": {"from": 5, "to": 8}},
    },
    "loads": {
        "seen": {"loads": ["diurnal"], "seeds": {"from": 0, "to": 2}},
        "unseen": {"loads": ["markov", "flash-crowd"], "seeds": {"from": 10, "to": 12}},
    },
    "bootstrap": 200,
}


def config(**changes: object) -> FrontierConfig:
    return parse(FrontierConfig, with_params(DOCUMENT, changes), "frontier")


def played(*cells: CellRuns, left_out: dict[str, str] | None = None) -> PlayedFrontier:
    return PlayedFrontier(cells, (), left_out or {})


def page_of(board: FrontierBoard) -> str:
    return render_markdown(report_of(board, "dsp-gym evaluate small"))


def chosen(name: str, **given: object) -> FrontierConfig:
    found = with_choice(read_comparison(name)[1], Chosen(**given))
    assert isinstance(found, FrontierConfig)
    return found


def runs(
    policies: dict[str, list[tuple[float, float]]],
    rules: tuple[str, ...] = ("rule",),
    jobs: int = 3,
    spread: float = 0.0,
) -> CellRuns:
    """Policies by their points (late share, cost); job j costs 10^j times as much."""
    shape = (jobs, 2, 2)
    hard = 1.0 + spread * np.linspace(-1, 1, 4).reshape(2, 2)  # loads and seeds
    found = []
    for name, points in policies.items():
        factor = (10.0 ** np.arange(jobs))[:, None, None] * hard
        cost = np.stack([cost * factor for _, cost in points])
        late = np.stack([np.full(shape, late) for late, _ in points])
        found.append(
            PolicyRuns(
                policy=name,
                rule=name in rules,
                knob=("x",),
                values=tuple(range(len(points))),
                cost=cost.tolist(),
                late=late.tolist(),
                rescales=np.zeros_like(cost).tolist(),
            )
        )
    return CellRuns(
        cell="seen-jobs-seen-loads",
        jobs=tuple(f"job-{j}" for j in range(jobs)),
        loads=("a", "b"),
        seeds=(0, 1),
        reference_cost=tuple(10.0**j for j in range(jobs)),
        policies=tuple(found),
    )


def test_a_cost_lies_on_the_line_between_two_settings():
    late, cost = np.array([0.04, 0.01, 0.02]), np.array([6.0, 10.0, 8.0])
    assert cost_at(late, cost, 0.01) == 10.0
    assert cost_at(late, cost, 0.015) == pytest.approx(9.0)
    assert cost_at(late, cost, 0.03) == pytest.approx(7.0)
    assert cost_at(late, cost, 0.5) == 6.0
    assert np.isnan(cost_at(late, cost, 0.009))


def test_a_setting_both_later_and_dearer_does_not_count():
    late, cost = np.array([0.01, 0.02, 0.03]), np.array([8.0, 9.0, 6.0])
    assert cost_at(late, cost, 0.02) == 8.0
    assert cost_at(late, cost, 0.025) == pytest.approx(7.0)


points = st.lists(
    st.tuples(st.floats(0.001, 0.2), st.floats(0.1, 100.0)), min_size=1, max_size=6, unique=True
)


@settings(max_examples=50, deadline=None)
@given(points, st.tuples(st.floats(0.001, 0.2), st.floats(0.1, 100.0)), st.floats(0.001, 0.3))
def test_more_settings_and_more_lateness_never_cost_more(found, another, level):
    def cost(settings: list[tuple[float, float]], at: float) -> float:
        late, money = (np.array(part) for part in zip(*settings, strict=True))
        return float(np.nan_to_num(cost_at(late, money, at), nan=np.inf))

    assert cost(found, level + 0.01) <= cost(found, level) * (1 + 1e-12)
    # A further setting between two others can lift the line there by at most its own cost's step,
    # but never above the more punctual setting that was the answer without a line.
    punctual = [one for one in found if one[0] <= level]
    if punctual:
        assert cost([*found, another], level) <= min(one[1] for one in punctual) * (1 + 1e-12)


def test_the_costs_of_jobs_count_alike_whatever_their_size():
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.02, 8.0)], "clairvoyant": [(0.02, 6.0)]})
    found = {one.policy: one for one in estimate_cell(cell, [0.02], resamples=200, confidence=0.95)}
    mine = found["mine"]
    assert mine.cost[0.02].value == pytest.approx(8.0 * 10.0)  # the middle one of 1, 10, 100
    assert mine.ratio[0.02].value == pytest.approx(0.8)
    # Each job's ratio is 0.8, so no resampling gives another.
    assert (mine.ratio[0.02].low, mine.ratio[0.02].high) == pytest.approx((0.8, 0.8))
    assert mine.closed[0.02].value == pytest.approx(0.5)
    assert mine.regret[0.02].value == pytest.approx(8 / 6 - 1)
    assert found["rule"].closed[0.02].value == pytest.approx(0.0)
    assert found["clairvoyant"].closed[0.02].value == pytest.approx(1.0)
    assert mine.by_job["job-2"][0.02] == pytest.approx(800.0)


def test_a_policy_later_at_every_setting_has_no_cost_there():
    cell = runs({"rule": [(0.01, 10.0)], "late": [(0.05, 2.0)]})
    late = estimate_cell(cell, [0.02], resamples=100, confidence=0.95)[1]
    assert late.cost[0.02] is None
    assert late.ratio[0.02] is None
    assert late.closed[0.02] is None
    assert late.worst[0.02] is None


def test_worst_runs_are_compared_where_the_best_rule_is_late_as_often():
    settings = [(0.01, 9.0), (0.03, 8.0)]
    cell = runs({"rule": [(0.01, 10.0)], "dear": [(0.005, 11.0)], "mine": settings})
    cell = cell.model_copy(
        update={
            "policies": tuple(
                p.model_copy(update={"rule": p.policy != "mine"}) for p in cell.policies
            )
        }
    )
    found = {one.policy: one for one in estimate_cell(cell, [0.02], resamples=100, confidence=0.95)}
    assert found["mine"].worst[0.02] == pytest.approx(0.01)
    assert found["rule"].worst[0.02] == pytest.approx(0.01)


def test_the_best_rule_is_chosen_at_each_lateness():
    cell = runs(
        {"calm": [(0.01, 10.0)], "lax": [(0.02, 5.0)], "mine": [(0.005, 4.0)]},
        rules=("calm", "lax"),
    )
    mine = estimate_cell(cell, [0.01, 0.02], resamples=100, confidence=0.95)[2]
    assert mine.ratio[0.01].value == pytest.approx(0.4)
    assert mine.ratio[0.02].value == pytest.approx(0.8)


def test_an_interval_holds_its_estimate_and_widens_with_the_spread_over_loads():
    widths = []
    for spread in (0.0, 0.05, 0.4):
        cell = runs({"rule": [(0.02, 10.0)]}, jobs=1, spread=spread)
        found = estimate_cell(cell, [0.02], resamples=400, confidence=0.95)[0].cost[0.02]
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)
        widths.append(np.log(found.high / found.low))
    assert widths[0] == pytest.approx(0.0)
    assert widths[0] < widths[1] < widths[2]


def test_by_price_each_policy_runs_at_the_setting_chosen_elsewhere():
    cell = runs({"rule": [(0.00, 2.0), (0.10, 1.0)], "mine": [(0.01, 1.0)]})
    priced = price_cell(
        cell, {"rule": 1, "mine": 0}, late_weight=4.0, resamples=100, confidence=0.95
    )
    assert [one.policy for one in priced] == ["mine", "rule"]
    assert [one.price.value for one in priced] == pytest.approx([1.04, 1.4])
    assert priced[0].better.value == pytest.approx(1.0)
    assert priced[1].better is None


def test_runs_as_cheap_as_the_best_rules_count_half_of_an_improvement():
    cell = runs({"rule": [(0.01, 2.0)], "mine": [(0.01, 2.0)]})
    priced = price_cell(
        cell, {"rule": 0, "mine": 0}, late_weight=4.0, resamples=100, confidence=0.95
    )
    assert [one.better.value for one in priced if one.better is not None] == pytest.approx([0.5])


def test_a_learned_policy_is_compared_with_its_own_fallback_run_by_run():
    cell = runs({"rule": [(0.01, 2.0)], "mine": [(0.02, 1.5)]}, spread=0.4)
    mine = cell.policies[1].model_copy(update={"fallback": "rule"})
    cell = cell.model_copy(update={"policies": (cell.policies[0], mine)})
    priced = price_cell(
        cell, {"rule": 0, "mine": 0}, late_weight=4.0, resamples=400, confidence=0.95
    )
    found = {one.policy: one.over_fallback for one in priced}
    assert found["rule"] is None
    assert found["mine"].value == pytest.approx(-0.5 + 4 * 0.01)
    # What makes a load dear for both cancels: a quarter of the cost varies, not all of it.
    width = found["mine"].high - found["mine"].low
    alone = next(one.price for one in priced if one.policy == "rule")
    assert width == pytest.approx((alone.high - alone.low) / 4, rel=1e-6)


def several(points: list[tuple[float, float]]) -> CellRuns:
    """A policy trained once per point, (late share, cost), beside a rule."""
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.0, 1.0)]})
    alone = [runs({"mine": [point]}, rules=()).policies[0] for point in points]

    def joined(table: str) -> list:
        return np.concatenate([np.array(getattr(one, table)) for one in alone], axis=3).tolist()

    mine = cell.policies[1].model_copy(
        update={"cost": joined("cost"), "late": joined("late"), "rescales": joined("rescales")}
    )
    mine = mine.model_copy(update={"trainings": len(points)})
    return cell.model_copy(update={"policies": (cell.policies[0], mine)})


def test_trainings_are_one_policy_whose_interval_holds_their_spread():
    same, apart = (
        estimate_cell(several(points), [0.02], resamples=400, confidence=0.95)[1]
        for points in ([(0.01, 8.0)] * 5, [(0.01, cost) for cost in (4.0, 6.0, 8.0, 10.0, 12.0)])
    )
    assert same.cost[0.02].value == pytest.approx(apart.cost[0.02].value)
    assert same.ratio[0.02].high == pytest.approx(same.ratio[0.02].low)
    assert apart.ratio[0.02].low < 0.7 < 0.9 < apart.ratio[0.02].high
    assert apart.trainings[0.02] == pytest.approx([40.0, 60.0, 80.0, 100.0, 120.0])


def test_policies_with_different_numbers_of_trainings_are_compared_with_the_mean_of_the_other():
    cell = several([(0.01, cost) for cost in (4.0, 6.0, 8.0)])
    rule = cell.policies[0]
    twice = {key: np.repeat(getattr(rule, key), 2, axis=3).tolist() for key in ("cost", "late")}
    rule = rule.model_copy(
        update={**twice, "rescales": twice["cost"], "trainings": 2},
    )
    mine = cell.policies[1].model_copy(update={"fallback": "rule"})
    cell = cell.model_copy(update={"policies": (rule, mine)})
    priced = price_cell(
        cell, {"rule": 0, "mine": 0}, late_weight=0.0, resamples=100, confidence=0.95
    )
    (found,) = (one for one in priced if one.policy == "mine")
    assert found.over_fallback.value == pytest.approx((4 + 6 + 8) / 3 - 10)
    assert found.better.value == pytest.approx(1.0)


def changed(cell: CellRuns, policy: str, **tables: np.ndarray) -> CellRuns:
    """Runs with other tables of one policy."""
    update = {name: table.tolist() for name, table in tables.items()}
    found = (
        one.model_copy(update=update) if one.policy == policy else one for one in cell.policies
    )
    return cell.model_copy(update={"policies": tuple(found)})


def test_the_dearest_job_is_held_against_the_rule_that_is_cheapest_on_that_job():
    points = {"rule": [(0.02, 10.0)], "other": [(0.02, 11.0)], "mine": [(0.01, 8.0)]}
    cell = runs(points, rules=("rule", "other"))
    late, cost = (np.array(getattr(cell.policies[2], table)) for table in ("late", "cost"))
    late[:, 2] = 0.5
    cheap = np.array(cell.policies[1].cost)
    cheap[:, 1] *= 6.0 / 11.0
    cell = changed(changed(cell, "mine", late=late, cost=cost), "other", cost=cheap)
    found = estimate_cell(cell, [0.2], resamples=100, confidence=0.95)
    assert found[2].dearest_job[0.2] == ("job-1", pytest.approx(8 / 6), ("job-2",), 2)
    assert found[0].dearest_job[0.2] == ("job-1", pytest.approx(10 / 6), (), 3)
    board = board_of("small", config(), played(cell), {})
    assert "| 1.33 (job-1); later on job-2 |" in page_of(board)


def test_a_policy_is_compared_with_every_tuned_rule_at_the_same_lateness():
    points = {
        "calm": [(0.01, 10.0), (0.005, 12.0)],
        "lax": [(0.02, 20.0), (0.03, 8.0)],
        "mine": [(0.01, 5.0), (0.03, 5.0)],
    }
    cell = runs(points, rules=("calm", "lax"))
    for policy, each in {"calm": (4.0, 2.0), "lax": (4.0, 5.0), "mine": (6.0, 2.0)}.items():
        rescales = np.array(each)[:, None, None, None] * np.ones((2, 3, 2, 2))
        cell = changed(cell, policy, rescales=rescales)
    found = {one.policy: one for one in estimate_cell(cell, [0.02], resamples=100, confidence=0.95)}
    calm, lax = (found["mine"].against[rule][0.02] for rule in ("calm", "lax"))
    assert (calm.cost.value, calm.late) == pytest.approx((0.5, 0.01))
    assert calm.rescales == pytest.approx(6 / 4)  # where the calm rule is laxest
    assert (lax.cost.value, lax.late) == pytest.approx((5 / 20, 0.02))
    assert lax.rescales == pytest.approx(4 / 4)
    assert list(found["calm"].against) == ["lax"]
    # The best rule is the calm one, at its own lateness.
    assert [one.rescales[0.02] for one in found.values()] == [pytest.approx(4.0), None, 6.0]
    page = page_of(board_of("small", config(), played(cell), {}))
    assert "| cost, of calm | cost, of lax | rescales, of calm | rescales, of lax |" in page
    assert "| mine | 0.5 | 0.25 | 1.5 | 1 |" in page


def test_a_yardstick_is_compared_with_and_is_no_rule():
    points = {"rule": [(0.01, 10.0)], "base": [(0.01, 8.0)], "mine": [(0.01, 6.0)]}
    cell = changed(runs(points, rules=("rule",)), "base", yardstick=np.array(True))
    found = {one.policy: one for one in estimate_cell(cell, [0.02], resamples=100, confidence=0.95)}
    assert found["mine"].against["base"][0.02].cost.value == pytest.approx(6 / 8)
    assert found["mine"].ratio[0.02].value == pytest.approx(6 / 10)  # of the rule
    assert list(found["base"].against) == ["rule"]
    page = page_of(board_of("small", config(), played(cell), {}))
    part = page[page.index("Cost, of that of base") :]
    rows = [line for line in part.splitlines() if line.startswith("| mine") or "| rule" in line]
    assert rows[0].startswith("| mine | 0.75")
    assert "| cost, of base" not in page  # the table of rules has none


def test_a_board_of_some_seeds_is_told_as_a_part_of_the_shipped_frontier():
    core = load_model(FrontierConfig, "frontiers", "core-v2")
    whole = frontier_fingerprint(core)
    part = board_of("core-v2", core.with_seeds(1), played(), {})
    page = page_of(part)
    assert f"(fingerprint {whole}) with 1 seed of each load" in page
    told = json.loads(render_json(part, "dsp-gym evaluate core-v2 --seeds 1"))
    assert (told["part_of"], told["fingerprint"]) == (whole, "fde90137279b06cb")
    assert told["command"] == "dsp-gym evaluate core-v2 --seeds 1"
    assert whole_fingerprint(board_of("core-v2", core, played(), {})) is None
    assert whole_fingerprint(board_of("core-v2", config(), played(), {})) is None
    assert whole_fingerprint(board_of("small", config(), played(), {})) is None


def test_a_part_with_the_rules_alone_keeps_the_fallback_of_the_agents():
    found = chosen("core-v2", policies=("planner",), seeds=1)
    named = {one.name: one.fallback for one in found.policies}
    assert named["planner"] == "justin-artifact-tuned"
    assert frontier_fingerprint(found) == "fde90137279b06cb"


def test_under_a_shift_prices_are_compared_with_the_best_rule_there():
    def shifted(name: str, **points: list[tuple[float, float]]) -> CellRuns:
        return runs(points, rules=("calm", "lax")).model_copy(update={"cell": name})

    shifts = [
        shifted("none", calm=[(0.0, 2.0)], lax=[(0.0, 1.0)], mine=[(0.0, 0.8)]),
        shifted("worse", calm=[(0.0, 2.0)], lax=[(0.5, 1.0)], mine=[(0.25, 0.8)]),
    ]
    found = compare_shifts(shifts, 4.0, resamples=100, confidence=0.95)
    by = {(one.shift, one.policy): one for one in found}
    assert by["none", "mine"].ratio.value == pytest.approx(0.8)
    assert by["none", "mine"].rise is None
    assert by["worse", "mine"].ratio.value == pytest.approx(1.8 / 2.0)  # the calm rule is best
    assert by["worse", "mine"].rise == pytest.approx(0.1)
    assert by["worse", "mine"].late == pytest.approx(0.25)
    board = board_of("small", config(), PlayedFrontier((), tuple(shifts), {}), {})
    assert headline(board) == (
        "Against the best tuned rule, mine loses most under the shift 'worse': its price is 0.9 of "
        "the rule's, +0.10 against no shift."
    )
    assert "| worse | mine | 8 | 25 % | 0 | 0.9 | +0.10 |" in page_of(board)


def test_the_board_says_its_result_in_a_sentence_and_leaves_no_number_undefined():
    cell = runs(
        {"rule": [(0.02, 10.0)], "mine": [(0.01, 8.0)], "late": [(0.9, 1.0)]}, rules=("rule",)
    )
    board = board_of(
        "small", config(), played(cell, left_out={"unseen-jobs-recorded-loads": "no file"}), {}
    )
    assert headline(board) == (
        "On seen jobs, seen families of load, mine is the cheapest at 2 % late: 80 USD per day, "
        "20 % less than the best tuned rule."
    )
    assert '"schema": "dsp-gym/frontier/1"' in render_json(board)
    assert "| 0.8 (job-0) |" in page_of(board)


def test_figures_are_named_by_cell_policy_and_lateness_and_hold_what_was_reached_alone():
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.01, 8.0)], "late": [(0.9, 1.0)]})
    figures = dict(figures_of(board_of("small", config(), played(cell), {})))
    place = "seen-jobs-seen-loads"
    assert figures[f"{place}/mine/cost_at_2_percent_late"] == pytest.approx(80.0)
    assert figures[f"{place}/mine/ratio_at_2_percent_late"] == pytest.approx(0.8)
    assert f"{place}/rule/cost_at_1_percent_late" not in figures
    assert not any(f"{place}/late/cost" in name for name in figures)


def test_the_page_shows_what_the_policy_that_knows_the_load_pays_at_each_setting():
    cell = runs({"rule": [(0.02, 10.0)], "clairvoyant": [(0.04, 3.0), (0.01, 4.0)]})
    page = page_of(board_of("small", config(), played(cell), {}))
    assert "<summary>The frontier of clairvoyant</summary>" in page
    assert "| 0 | 4 % | 30 | 4 % | 0 |\n| 1 | 1 % | 40 | 1 % | 0 |" in page


def test_a_page_leads_with_four_columns_and_names_policies_that_reach_no_level_in_one_sentence():
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.01, 8.0)], "late": [(0.9, 1.0)]})
    found = report_of(board_of("small", config(), played(cell), {}))
    first, *folded = render_markdown(found).split('<details markdown="1">\n')
    assert "| policy | 1 % late | 2 % late | 3 % late | of the best rule, 2 % |" in first
    assert re.search(r"\| mine \| 80 \| 80 \[[^]]*\] \| 80 \| 0.8 \|", first)
    assert "| late |" not in first
    assert "At no setting late at most 3 % of the time: late." in first
    assert folded[0].startswith("<summary>The whole table</summary>\n\n| policy | 1 % late |")
    assert "| late | – | – | – | – | – | – | – | – | – |\n\n</details>" in folded[0]
    html = render_html(found)
    visible, _, rest = html.partition("<details>\n<summary>The whole table</summary>")
    assert "<td>late</td>" not in visible
    assert "<td>late</td>" in rest


def test_where_no_policy_reaches_a_level_a_page_has_the_sentence_alone():
    cell = runs({"rule": [(0.5, 10.0)], "late": [(0.9, 1.0)]})
    found = report_of(board_of("small", config(), played(cell), {}))
    first = render_markdown(found).partition("<details")[0]
    assert "At no setting late at most 3 % of the time: rule (tuned rule), late." in first
    assert "| policy |" not in first


@pytest.mark.parametrize(
    ("levels", "led", "middle"),
    [((0.02,), "2", 2), ((0.01, 0.02), "12", 2), ((0.01, 0.02, 0.03, 0.04), "234", 3)],
)
def test_a_page_leads_with_the_levels_of_lateness_around_the_middle_one(levels, led, middle):
    asked = config(lateness=levels)
    whole = cost_table(
        board_of("small", asked, played(runs({"rule": [(0.01, 1.0)]})), {}).cells[0], asked
    )
    lead, _ = leading_costs(whole, asked)
    costs = [f"{level} % late" for level in led]
    assert lead.head == ["policy", *costs, f"of the best rule, {middle} %"]


def test_the_ranking_by_price_shows_how_late_the_chosen_setting_is():
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.30, 9.0), (0.01, 8.0)]})
    page = page_of(board_of("small", config(), played(cell), {}))
    rows = [line for line in page.splitlines() if line.startswith(("| 1 |", "| 2 |"))]
    assert [row.split(" | ")[1:3] + row.split(" | ")[4:6] for row in rows] == [
        ["mine", "1", "1 %", "1 %"],
        ["rule", "0", "2 %", "2 %"],
    ]


def test_a_knob_turns_its_parameter_and_the_others_with_it():
    plain, tuned = (
        parse(FrontierConfig, {**DOCUMENT, "policies": [policy]}, "frontier").policies[0]
        for policy in (
            {"policy": "ds2", "rule": True, "knob": "target_utilization", "values": [0.5, 0.8]},
            {
                "policy": "tuned/core-v1/flink-autoscaler-tuned",
                "rule": True,
                "knob": [
                    "flink_configuration/job.autoscaler.utilization.target",
                    "flink_configuration/job.autoscaler.utilization.min",
                    "flink_configuration/job.autoscaler.utilization.max",
                ],
                "values": [0.46],
            },
        )
    )
    assert [one.name for one in entrants(plain)] == ["ds2@0.5", "ds2@0.8"]
    assert entrants(plain)[1].policy.params == {"target_utilization": 0.8}
    turned = entrants(tuned)[0].policy.params["flink_configuration"]
    before = load_tuned()
    share = 0.46 / before["job.autoscaler.utilization.target"]
    assert turned["job.autoscaler.utilization.target"] == 0.46
    for other in ("job.autoscaler.utilization.min", "job.autoscaler.utilization.max"):
        assert turned[other] == pytest.approx(share * before[other])
    window = "job.autoscaler.metrics.window"
    assert turned[window] == before[window]


def load_tuned() -> dict[str, float]:
    found = load_model(PolicyConfig, "policies", "tuned/core-v1/flink-autoscaler-tuned")
    return found.params["flink_configuration"]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"policy": "ds2", "rule": True, "knob": "targets", "values": [0.5]}, "targets"),
        ({"policy": "ds2", "rule": True, "knob": "target_utilization", "values": [7]}, "7"),
        ({"policy": "ds2", "rule": True, "knob": ["a", "b"], "values": [7]}, "gives no number"),
    ],
)
def test_a_wrong_knob_is_refused_before_anything_is_played(policy, said):
    found = parse(FrontierConfig, {**DOCUMENT, "policies": [policy]}, "frontier")
    with pytest.raises(ConfigError, match=said):
        entrants(found.policies[0])


SHIFTS = {"policies": {"ds2": 0.5}, "shifts": [{"name": "late", "metric_delay_s": 60}]}


def test_every_training_of_a_policy_plays_at_every_setting():
    policy = {"policy": "tuned/q11/ds2-tuned", "rule": True, "trainings": ["ds2"]}
    swept = {**policy, "knob": "target_utilization", "values": [0.5, 0.8]}
    found = parse(FrontierConfig, {**DOCUMENT, "policies": [swept]}, "frontier")
    assert [one.name for one in entrants(found.policies[0])] == [
        "ds2-tuned@0.5",
        "ds2-tuned@0.8",
        "ds2-tuned#2@0.5",
        "ds2-tuned#2@0.8",
    ]


def test_further_trainings_join_the_policy_with_their_label(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    for seed in (1, 2):
        (tmp_path / f"trained/seed-{seed}/policy").mkdir(parents=True)
    trained = f"ds2={tmp_path}/trained"
    found = chosen(str(file), trainings=(trained,))
    named = {one.name: one.trainings for one in found.policies}
    assert named["ds2"] == tuple(f"{tmp_path}/trained/seed-{seed}/policy" for seed in (1, 2))
    assert not any(trainings for name, trainings in named.items() if name != "ds2")


def test_folders_of_one_label_add_their_trainings_to_those_it_has(tmp_path):
    own, *given = (f"{tmp_path}/of-{place}/seed-{place}/policy" for place in range(3))
    for folder in (own, *given):
        Path(folder).mkdir(parents=True)
    policies = [{"policy": "ds2", "rule": True, "trainings": [own]}, *DOCUMENT["policies"][1:]]
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps({**DOCUMENT, "policies": policies}), encoding="utf-8")
    found = chosen(str(file), trainings=tuple(f"ds2={tmp_path}/of-{place}" for place in (1, 2)))
    (ds2,) = (one for one in found.policies if one.name == "ds2")
    assert ds2.trainings == (own, *given)


def test_results_of_a_frontier_are_played_again_with_the_trainings_recorded_beside_them(tmp_path):
    gone = [f"gone/seed-{seed}/policy" for seed in (0, 1)]
    mine = {"policy": gone[0], "name": "mine", "trainings": gone[1:]}
    started = {"policy": "planner", "trainings": gone[:1]}
    document = {**DOCUMENT, "policies": [*DOCUMENT["policies"], mine, started]}
    file = tmp_path / "results.json"
    file.write_text(
        json.dumps(
            {
                "config": parse(FrontierConfig, document, "frontier").model_dump(
                    mode="json", by_alias=True
                )
            }
        )
    )
    recorded = [str(tmp_path / "policies" / label) for label in ("mine-1", "mine-2", "planner-2")]
    for folder in recorded:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "policy.json").write_text("{}")
    found = {
        one.name: (one.policy, *one.trainings) for one in read_comparison(str(file))[1].policies
    }
    assert found["mine"] == tuple(recorded[:2])
    assert found["planner"] == ("planner", recorded[2])  # the first ships with the package
    assert found["ds2"] == ("ds2",)


def test_a_policy_of_a_frontier_may_be_given_in_place():
    policy = {"policy": "ds2", "params": {"min_down": 2}, "rule": True}
    swept = {**policy, "knob": "target_utilization", "values": [0.5]}
    (found,) = entrants(
        parse(FrontierConfig, {**DOCUMENT, "policies": [swept]}, "frontier").policies[0]
    )
    assert found.policy.params == {"min_down": 2, "target_utilization": 0.5}


def test_tuning_takes_seen_jobs_and_seen_families_with_seeds_of_their_own():
    found = config(loads={"tuning_seeds": {"from": 50, "to": 52}}).tuning_benchmark()
    assert found.jobs == ("nexmark-q1", "random-dag:1")
    assert [name for name, _ in found.loads.splits()] == ["train"]
    assert (found.loads.train.seeds.from_, found.loads.train.seeds.to) == (50, 52)
    assert found.max_slo_share == 0.02  # the lateness of the table's middle column
    with pytest.raises(ConfigError, match="no loads to tune on"):
        config().tuning_benchmark()


def test_a_shift_or_a_tuning_seed_is_another_frontier_and_a_policy_under_it_is_not():
    plain = config()
    shifted = config(shifts=SHIFTS)
    tuned = config(loads={"tuning_seeds": {"from": 50, "to": 52}})
    other = config(shifts={**SHIFTS, "policies": {"ds2": 0.8, "justin-artifact": 0.5}})
    found = [frontier_fingerprint(one) for one in (plain, shifted, tuned)]
    assert len(set(found)) == 3
    assert frontier_fingerprint(other) == found[1]
    assert [policy.values for policy in other.shifted()] == [(0.8,), (0.5,)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shifts": {**SHIFTS, "policies": {"ds3": 0.5}}}, "'ds3' is none of the policies"),
        ({"shifts": {**SHIFTS, "policies": {"ds2": None}}}, "'ds2' needs a value of its knob"),
        ({"shifts": {**SHIFTS, "policies": {"justin-artifact": 0.5}}}, "holds no tuned rule"),
        ({"shifts": {**SHIFTS, "shifts": [{"name": "as they are"}]}}, "two shifts are named"),
        (
            {"shifts": {**SHIFTS, "shifts": [{"name": "x", "scheduler": "adaptive", "outage": 2}]}},
            "its own outages",
        ),
        ({"loads": {"tuning_seeds": {"from": 1, "to": 3}}}, "overlap"),
        ({"policies": [{"policy": "ds2", "rule": True, "fallback": "x"}]}, "fallback 'x'"),
        ({"policies": [{"policy": "ds2", "rule": True, "trainings": ["ds2"]}]}, "listed twice"),
        ({"policies": ["ds2"]}, "no policy is a tuned rule"),
        ({"policies": [{"policy": "ds2", "rule": True, "knob": "x"}]}, "belong together"),
        ({"jobs": {"unseen": {"random_dags": {"from": 1, "to": 3}}}}, "seen and the unseen"),
        ({"jobs": {"unseen": {"random_dags": None}}}, "names no job"),
        ({"loads": {"unseen": {"seeds": {"from": 1, "to": 3}}}}, "overlap"),
        ({"lateness": [0.02, 2.0]}, "expected less than 1"),
    ],
)
def test_a_frontier_that_would_deceive_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        config(**changes)


def test_a_random_graph_is_named_by_its_seed():
    job = load_job("random-dag:7")
    assert job.job == "random-dag-7"
    assert load_job("random-dag:7") == job
    for wrong in ("random-dag:", "random-dag:-1", "random-dag:x"):
        with pytest.raises(ConfigError, match="has no seed"):
            load_job(wrong)


def test_core_v2_keeps_apart_what_it_tests_and_measures_what_it_measured():
    core = load_model(FrontierConfig, "frontiers", "core-v2")
    assert not set(core.jobs.seen.names()) & set(core.jobs.unseen.names())
    assert len(core.jobs.unseen.names()) == 30
    assert len(core.cells()) == 6
    rules = [policy for policy in core.policies if policy.rule]
    assert [policy.name for policy in rules] == [
        "ds2-tuned",
        "justin-artifact-tuned",
        "flink-autoscaler-tuned",
    ]
    assert [len(entrants(policy)) for policy in rules] == [5, 5, 5]  # none of the values is refused
    for policy in rules:  # tuned on its own training part, each with as many trials
        provenance = load_model(PolicyConfig, "policies", policy.policy).provenance
        assert provenance["fingerprint"] == frontier_fingerprint(core)
        assert (provenance["trials"], provenance["within_bound"]) == (40, True)
    assert [policy.name for policy in core.shifted()] == [
        "justin-artifact-tuned",
        "flink-autoscaler-tuned",
        "planner-no-file",
        "planner",
        "learned-ppo",
    ]
    assert frontier_fingerprint(core) == "9b995f590e683e38"


def test_the_results_of_a_frontier_can_be_played_again(tmp_path):
    cell = runs({"rule": [(0.02, 10.0)], "mine": [(0.01, 8.0)]})
    file = tmp_path / "small/results.json"
    file.parent.mkdir()
    file.write_text(render_json(board_of("small", config(), played(cell), {})))
    assert read_comparison(str(file)) == ("small", config())
