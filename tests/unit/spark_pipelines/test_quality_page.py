"""The page of a dataset: coverage, gaps, splits, leaks, features and actions."""

from __future__ import annotations

import json

import pytest

from spark_pipelines.quality.distributions import (
    actions_of,
    coverage_of,
    features_of,
    shared_rows,
    splits_apart,
)
from spark_pipelines.quality.parts import headline, leaks
from spark_pipelines.quality.report import quality_of, report_html
from tests.unit.spark_pipelines.quality_datasets import DAY_S, made


def test_hours_and_gaps_are_told_by_day():
    covered = coverage_of(made())
    assert covered["step_s"] == 60
    assert [day["day"] for day in covered["days"]] == ["2026-06-01", "2026-06-02"]
    assert [day["hours"] for day in covered["days"]] == [pytest.approx(20 / 60)] * 2
    assert [day["gaps"] for day in covered["days"]] == [1, 1]
    assert [day["longest_gap_s"] for day in covered["days"]] == [240, 240]  # four rows are missing
    first = min(covered["gaps"], key=lambda gap: gap["from_s"])
    assert (first["from_s"], first["to_s"]) == (DAY_S + 600 + 540, DAY_S + 600 + 840)


def test_a_boundary_of_splits_is_no_gap():
    dataset = made()
    for part in dataset.rows["windows"]:
        part["split"] = ["train"] * 10 + ["validation"] * 10
    assert coverage_of(dataset)["gap_count"] == 0


def test_rows_of_two_splits_in_one_run_that_are_too_near_are_a_leak():
    dataset = made()
    assert splits_apart(dataset, "windows") == {"runs_in_several": 0, "apart_s": None}
    dataset.rows["windows"][0]["split"] = ["train"] * 5 + ["validation"] * 15
    assert splits_apart(dataset, "windows") == {"runs_in_several": 1, "apart_s": 60.0}
    found = quality_of(dataset)
    assert [text for _, text, how in leaks(found) if how == "bad"] == [
        "windows of two splits are 60 s apart"
    ]
    assert headline(found).endswith("to be looked at: windows of two splits are 60 s apart.")


def test_rows_of_validation_that_stand_in_training_are_counted():
    dataset = made()
    assert shared_rows(dataset) == {"rows": 20, "shared": 0}
    train, validation = dataset.rows["transitions"]
    for name in ("observation", "action"):
        validation[name][3:6] = train[name][7:10]
    assert shared_rows(dataset) == {"rows": 20, "shared": 3}
    validation["action"][3] = train["action"][0]  # the same observation, another action
    assert shared_rows(dataset) == {"rows": 20, "shared": 2}


def test_features_and_actions_have_their_distributions():
    dataset = made()
    features = {one["name"]: one for one in features_of(dataset)}
    encoding = dataset.encoding
    assert list(features)[: len(encoding.vertex_features)] == list(encoding.vertex_features)
    assert len(features) == len(encoding.vertex_features) + len(encoding.job_features)
    still = features[f"job: {encoding.job_features[0]}"]
    assert (still["low"], still["middle"], still["high"]) == (3, 3, 3)
    assert sum(still["bins"]) == 40
    of_vertices = features[encoding.vertex_features[0]]
    assert sum(of_vertices["bins"]) == 40 * encoding.vertices
    counts = {(one["kind"], one["name"]): one["count"] for one in actions_of(dataset)}
    assert counts["tasks", "+1"] == 10
    assert counts["tasks", "hold"] == 40 * encoding.vertices - 10
    assert counts["memory", "keep"] == 40 * encoding.vertices


def test_padding_is_no_feature():
    dataset = made()
    encoding = dataset.encoding
    place = encoding.vertices * len(encoding.vertex_features) + len(encoding.job_features)
    for part in dataset.rows["transitions"]:
        for row in part["observation"]:
            row[place] = 0.0
    found = features_of(dataset)[0]
    assert sum(found["bins"]) == 40 * (encoding.vertices - 1)


def test_the_page_says_it_all_in_its_first_line_and_needs_nothing_else():
    dataset = made()
    found = quality_of(dataset)
    json.dumps(found, allow_nan=False)
    assert headline(found) == (
        "40 transitions of 1 job in 2 runs, 0.667 hours in all; 2 gaps, the longest 240 s; "
        "train 50 %, validation 50 %; no leak found."
    )
    text = report_html(dataset, found)
    for said in ("Coverage", "Leaks looked for", "Features", "Actions", "never changes"):
        assert said in text
    assert "0 of 20 rows" in text
    assert "0000-00" not in text
    assert "<svg" not in text
    assert "<link" not in text
    assert "src=" not in text


def test_a_run_with_a_clock_of_its_own_has_days_that_are_counted():
    dataset = made()
    for name in dataset.rows:
        dataset.rows[name][0]["day"] = ["0000-00-00"] * 20
    text = report_html(dataset, quality_of(dataset))
    assert "day 1" in text
    assert "0000-00" not in text.split("<script")[0]
