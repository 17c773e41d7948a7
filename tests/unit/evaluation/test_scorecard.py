from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from dsp_gym.errors import SchemaError
from dsp_gym.evaluation.scorecard import EPISODE_METRICS, RELATIVE, Scorecard, ScorecardCell, score
from dsp_gym.evaluation.settling import load_changes, overshoot, settling_s


def cell(policy: str, load: str, seed: int, *, job: str = "q11", trips=None, **metrics: float):
    values = dict.fromkeys(EPISODE_METRICS, 1.0) | metrics
    return ScorecardCell(
        policy=policy, job=job, load=load, seed=seed, metrics=values, trips=trips or {}
    )


def scorecard(cells: list[ScorecardCell]) -> Scorecard:
    rows = score(cells, reference="ds2", confidence=0.9, resamples=200)
    return Scorecard(
        reference="ds2", config={"seeds": 2}, versions={"dsp-gym": "1"}, rows=rows,
        cells=tuple(cells),
    )  # fmt: skip


def pair(difference: float = -2.0) -> list[ScorecardCell]:
    """Two policies on two loads of very different cost, one always cheaper by the same amount."""
    return [
        cell(policy, load, seed, cost=base + seed + (difference if policy == "ours" else 0.0))
        for policy in ("ds2", "ours")
        for load, base in (("calm", 10.0), ("wild", 100.0))
        for seed in range(4)
    ]


def test_a_metric_is_the_mean_over_loads_and_seeds():
    cells = [cell("ds2", "calm", seed, cost=float(seed)) for seed in (0, 1, 2, 1000)]
    (row,) = score(cells, reference=None, confidence=0.9, resamples=200)
    assert row.metrics["cost"].value == 250.75
    assert row.metrics["cost"].low <= 1.5 <= row.metrics["cost"].high


def test_what_makes_a_load_hard_for_everyone_cancels_in_a_difference():
    ds2, ours = score(pair(), reference="ds2", confidence=0.9, resamples=500)
    assert ds2.differences == {}
    found = ours.differences["cost"]
    assert (found.estimate, found.low, found.high) == pytest.approx((-2.0, -2.0, -2.0))
    alone = ours.metrics["cost"]
    assert alone.low < alone.value < alone.high  # of one policy alone seeds make a difference


def test_a_relative_difference_is_a_share_of_the_reference():
    _, ours = score(pair(), reference="ds2", confidence=0.9, resamples=200)
    mean_cost = np.mean([c.metrics["cost"] for c in pair() if c.policy == "ds2"])
    assert ours.relative["cost"].estimate == pytest.approx(-2.0 / mean_cost)
    assert set(ours.relative) == set(RELATIVE)


def test_rows_stand_job_by_job_with_policies_side_by_side():
    cells = [cell(p, "calm", 0, job=job) for job in ("q1", "q5") for p in ("ds2", "hpa-cpu")]
    rows = score(cells, reference="ds2", confidence=0.9, resamples=100)
    assert [(row.job, row.policy) for row in rows] == [
        ("q1", "ds2"),
        ("q1", "hpa-cpu"),
        ("q5", "ds2"),
        ("q5", "hpa-cpu"),
    ]


def test_trips_are_counted_per_episode():
    cells = [
        cell("ours", "calm", 0, trips={"cool-down": 3, "bounds": 0}),
        cell("ours", "calm", 1, trips={"cool-down": 1, "bounds": 0}),
    ]
    (row,) = score(cells, reference=None, confidence=0.9, resamples=100)
    assert row.trips == {"bounds": 0.0, "cool-down": 2.0}


def test_a_scorecard_comes_back_from_its_json_as_it_was():
    first = scorecard(pair())
    text = first.to_json()
    again = Scorecard.from_json(text)
    assert again == first
    assert again.to_json() == text
    assert json.loads(text)["schema"] == "dsp-gym/scorecard/1"


def test_the_same_cells_give_the_same_bytes():
    assert scorecard(pair()).to_json() == scorecard(pair()).to_json()


def test_a_scorecard_of_another_version_is_refused():
    with pytest.raises(SchemaError, match="reads 'dsp-gym/scorecard/1'"):
        Scorecard.from_json('{"schema": "dsp-gym/scorecard/9"}', "old.json")
    with pytest.raises(SchemaError, match=r"old\.json.*not valid JSON"):
        Scorecard.from_json("{", "old.json")


def test_the_csv_has_one_exact_line_per_run():
    cells = [cell("ds2", "calm", 3, cost=0.1 + 0.2, trips={"bounds": 2}), cell("ds2", "wild", 3)]
    lines = list(csv.DictReader(io.StringIO(scorecard(cells).to_csv())))
    assert [line["load"] for line in lines] == ["calm", "wild"]
    assert float(lines[0]["cost"]) == 0.1 + 0.2
    assert [line["trips.bounds"] for line in lines] == ["2", "0"]


def test_load_changes_are_counted_from_the_last_change_not_the_last_interval():
    drifting = np.array([100.0, 108.0, 116.0, 124.0, 132.0])  # 8 % a step, 20 % after three
    assert load_changes(drifting) == [0, 3]
    assert load_changes(np.array([100.0, 100.0, 50.0, 50.0])) == [0, 2]


def test_a_load_that_begins_at_zero_changes_when_it_comes():
    assert load_changes(np.array([0.0, 0.0, 10.0, 10.0])) == [0, 2]


def test_settling_ends_with_the_last_rescale_and_the_first_good_interval_after_it():
    rescales = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    slo_s = np.array([60.0, 0.0, 60.0, 30.0, 0.0, 0.0])
    assert settling_s([0], rescales, slo_s, 60) == 4 * 60


def test_a_job_that_never_settles_counts_with_all_the_time_it_had():
    rescales, slo_s = np.zeros(6), np.full(6, 60.0)
    assert settling_s([0], rescales, slo_s, 60) == 6 * 60
    # Two changes of load: the second one is settled at once.
    slo_s[2:] = 0
    assert settling_s([0, 2], rescales, slo_s, 60) == (2 + 0) / 2 * 60


def test_overshoot_compares_what_was_taken_with_what_was_kept():
    subtasks = np.array([4.0, 12.0, 12.0, 8.0, 8.0])
    rescales = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    assert overshoot([0], rescales, subtasks) == 1.5


def test_shrinking_after_the_load_fell_is_no_overshoot():
    subtasks = np.array([12.0, 12.0, 6.0, 6.0])
    rescales = np.array([0.0, 0.0, 1.0, 0.0])
    assert overshoot([0, 1], rescales, subtasks) == 1.0


def test_what_a_restarting_job_still_shows_is_not_what_was_kept():
    subtasks = np.array([2.0, 4.0, 2.0, 4.0])  # the decision of interval 2 holds the old picture
    rescales = np.array([0.0, 1.0, 0.0, 0.0])
    assert overshoot([0, 3], rescales, subtasks) == 1.0


def with_saving(policy: str, load: str, seed: int, cost: float, **given: float) -> ScorecardCell:
    known = {"bound": 2.0, "peak": 10.0} | given
    return cell(policy, load, seed, cost=cost).model_copy(update=known)


def test_the_share_of_the_possible_saving_is_what_was_saved_over_what_could_be():
    cells = [with_saving("ours", "calm", seed, cost) for seed, cost in enumerate((4.0, 8.0))]
    (row,) = score(cells, reference=None, confidence=0.9, resamples=500)
    assert row.saving is not None
    assert row.saving.share == pytest.approx((6 + 2) / (8 + 8))
    assert row.saving.low == pytest.approx(2 / 8)  # both draws the dear seed
    assert row.saving.high == pytest.approx(6 / 8)


def test_loads_count_by_what_there_is_to_save_on_them():
    cells = [
        with_saving("ours", "calm", 0, 5.0, bound=4.0, peak=6.0),  # one of two
        with_saving("ours", "wild", 0, 90.0, bound=10.0, peak=100.0),  # ten of ninety
    ]
    (row,) = score(cells, reference=None, confidence=0.9, resamples=100)
    assert row.saving is not None
    assert row.saving.share == pytest.approx(11 / 92)


def test_where_nothing_can_be_saved_there_is_no_share():
    same = with_saving("ours", "calm", 0, 5.0, bound=5.0, peak=5.0)
    unknown = cell("ours", "calm", 0)
    for one in (same, unknown):
        (row,) = score([one], reference=None, confidence=0.9, resamples=100)
        assert row.saving is None


def test_the_bound_is_a_row_that_knows_its_cost_alone():
    least = ScorecardCell(
        policy="bound", job="q11", load="calm", seed=0, trips={}, bound=2.0, peak=10.0,
        metrics={"cost": 2.0, "slo_s": 0.0, "slo_share": 0.0},
    )  # fmt: skip
    card = scorecard([with_saving("ds2", "calm", 0, 6.0), least])
    row = card.row("bound", "q11")
    assert set(row.metrics) == {"cost", "slo_s", "slo_share"}
    assert row.saving is not None
    assert row.saving.share == 1.0
    assert row.relative["cost"].estimate == pytest.approx(-4 / 6)
    first, second = csv.DictReader(io.StringIO(card.to_csv()))
    assert (first["bound"], first["peak"], first["rescales"]) == ("2.0", "10.0", "1.0")
    assert (second["cost"], second["rescales"]) == ("2.0", "")
    assert Scorecard.from_json(card.to_json()) == card
