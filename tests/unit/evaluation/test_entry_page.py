"""What an entry of the leaderboard says of itself."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.config.files import load_model, parse
from dsp_gym.evaluation.frontier.board import FrontierBoard, board_of
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.entry_page import entry_report
from dsp_gym.evaluation.frontier.estimate import FrontierPoint
from dsp_gym.evaluation.frontier.play import CellRuns, PlayedFrontier, PolicyRuns
from dsp_gym.evaluation.frontier.published import (
    PublishedCell,
    PublishedPolicy,
    place,
    published_cells,
    published_file,
)
from dsp_gym.evaluation.frontier.sketch import sketch
from dsp_gym.evaluation.results import render_html
from dsp_gym.evaluation.run import PLAN
from tests.frontiers import FRONTIER

CELL = "unseen-jobs-unseen-loads"


def published() -> PublishedCell:
    def policy(name: str, *points: tuple[float, float], rule: bool = False) -> PublishedPolicy:
        late, cost = np.array(points).T
        return PublishedPolicy(name, rule, late, cost)

    policies = (
        policy(PLAN, (0.01, 1.0)),
        policy("planner", (0.01, 4.0), (0.05, 2.0)),
        policy("ds2-tuned", (0.02, 8.0), (0.10, 5.0), rule=True),
        policy("justin-tuned", (0.03, 6.0), rule=True),
    )
    return PublishedCell(CELL, ("a",), ("b",), (1,), policies)


def point(late: float, cost: float) -> FrontierPoint:
    return FrontierPoint(None, late, cost, late, 0.0)


def board(*points: tuple[float, float]) -> FrontierBoard:
    """A board that an entry played alone, by its points (late share, cost)."""
    runs = PolicyRuns(
        policy="mine",
        rule=False,
        knob=("x",),
        values=tuple(range(len(points))),
        late=[[[[late, late]]] for late, _ in points],
        cost=[[[[cost, cost]]] for _, cost in points],
        rescales=[[[[1.0, 1.0]]] for _ in points],
    )
    cell = CellRuns(
        cell=CELL,
        jobs=("nexmark-q11",),
        loads=("markov",),
        seeds=(10, 11),
        reference_cost=(1.0,),
        policies=(runs,),
    )
    import yaml

    config = parse(FrontierConfig, {**yaml.safe_load(FRONTIER), "lateness": [0.01, 0.02, 0.03]}, "")
    return board_of("tiny", config, PlayedFrontier((cell,), (), {}), {})


def test_a_setting_is_ranked_among_those_that_can_be_as_punctual():
    # At 1.5 % late only the planner and the entry can run: both rules are later at each setting.
    (early,) = place([point(0.015, 9.0)], published())
    assert (early.rank, early.of, early.rule, early.ratio) == (2, 4, None, None)
    # At 4 % the planner costs less, justin-tuned 6, ds2-tuned exp of the line between log 8 and 5.
    (later,) = place([point(0.04, 5.0)], published())
    assert (later.rank, later.rule, later.ratio) == (2, "justin-tuned", pytest.approx(5 / 6))
    # Beyond every setting, each policy costs what its laxest one costs.
    (last,) = place([point(0.5, 5.5)], published())
    assert (last.rank, last.rule, last.ratio) == (3, "ds2-tuned", pytest.approx(1.1))
    (best,) = place([point(0.5, 1.5)], published())
    assert best.rank == 1, "the one that knows the load is not ranked"


def test_an_entry_that_reaches_no_level_is_ranked_and_drawn_all_the_same():
    report = entry_report(board((0.2, 5.5), (0.1, 7.0)), {CELL: published()}, "dsp-gym evaluate x")
    assert report.headline == (
        "On unseen jobs, unseen generated loads, mine costs 7 USD per day at 10 % late, its most "
        "punctual setting; it never reaches 2 %: rank 4 of 4."
    )
    costs, part = report.parts
    assert [tuple(row) for row in costs.table.rows] == [
        ("Unseen jobs, unseen generated loads", "–", "–", "–")
    ]
    assert [tuple(row) for row in part.table.rows] == [
        ("1", "10 %", "7", "4 of 4", "ds2-tuned", "1.4"),
        ("0", "20 %", "5.5", "3 of 4", "ds2-tuned", "1.1"),
    ]
    assert part.sketch.count("O") == 3, "two settings and the legend"
    assert part.sketch.endswith("O mine   . published policies   r tuned rules   c clairvoyant")
    assert all(len(line) <= 80 for line in part.sketch.splitlines())
    page = render_html(report)
    assert "mine: 7 USD per day, 10 % late" in page
    assert "planner: 2 USD per day, 5 % late" in page


def test_an_entry_that_reaches_the_middle_level_is_ranked_there():
    report = entry_report(board((0.01, 9.0), (0.03, 4.0)), {CELL: published()}, "x")
    assert "costs 6 USD per day at 2 % late: rank 2 of 4." in report.headline


def test_without_published_results_settings_are_shown_and_no_rank():
    report = entry_report(board((0.2, 5.5)), {}, "x")
    assert "rank" not in report.headline
    assert report.headline.endswith("it never reaches 2 %.")
    part = report.parts[1]
    assert list(part.table.head) == ["setting", "late", "USD per day"]
    assert "no rank" in part.notes[0]
    assert part.sketch.count("O") == 2


def test_the_shipped_results_are_of_the_shipped_frontier_and_of_no_other():
    config = load_model(FrontierConfig, "frontiers", "core-v2")
    cells = published_cells("core-v2", config)
    assert CELL in cells
    cell = cells[CELL]
    assert any(one.rule for one in cell.policies)
    assert any(one.policy == PLAN for one in cell.policies)
    assert published_cells("core-v2", config.with_seeds(1)).keys() == cells.keys()
    longer = config.model_copy(update={"episode_s": 2 * config.episode_s})
    assert published_cells("core-v2", longer) == {}
    assert published_cells("nobody", config) == {}
    assert not published_file("nobody").exists()


def test_the_corners_of_a_sketch_hold_the_extremes():
    lines = sketch({"a": [(0.0, 2.0)], "b": [(0.4, 6.0)]}, "EUR", width=20, height=5).splitlines()
    assert lines[0] == "EUR per day"
    assert lines[1].endswith("b")
    assert lines[1].startswith("    6 |")
    assert lines[5] == "    2 |a"
    assert lines[7].endswith("40 %")
    assert len(lines[7]) == len(lines[1])


@pytest.mark.parametrize("points", [[(0.0, 3.0)], [(0.2, 3.0), (0.2, 3.0)]])
def test_one_place_alone_can_be_drawn(points):
    assert "x" in sketch({"x": points}, "USD")


def test_a_sketch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no setting"):
        sketch({"x": []}, "USD")
