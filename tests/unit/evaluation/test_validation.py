"""The file of a validation, and its refusals before anything runs."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import load_model
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.validation import ValidationConfig
from dsp_gym.studies.policies_on_flink.runs import planned
from tests.validating import REPORTS, SMALL, config

QUICK = {"scrape_interval_s": 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compression": 7}, "interval_s 60 is 8.57143 real seconds"),
        ({"window": {"window_s": 48}}, "window.window_s 48 is 4 real seconds"),
        ({"window": {"stabilization_s": 30}}, "window.stabilization_s 30 is 2.5 real seconds"),
        ({"seconds": 62}, "seconds 62 is no multiple of the interval, 5 real seconds"),
        ({"policies": ["ds2", "ds2"]}, "policy 'ds2' is listed twice"),
        ({"policies": ["ds2"]}, "policies"),
        ({"jobs": [{"job": "flink-q1"}] * 2}, "job 'flink-q1' is listed twice"),
        ({"loads": SMALL["loads"] * 2}, "load 'flat' is listed twice"),
        ({"loads": [{"name": "a/b", "load": SMALL["loads"][0]["load"]}]}, "a/b"),
        ({"cluster": QUICK | {"prometheus": False}}, "cluster.prometheus is false"),
        (
            {"cluster": {"slots": 20}},
            "cluster.scrape_interval_s 5 is too long for a decision every 5",
        ),
        ({"repetitions": 0}, "repetitions"),
        ({"jobs": [{"job": "flink-q1", "rescaling": "in_place"}]}, "in-place"),
        ({"late_price": -1}, "late_price"),
        ({"policy": "mdp"}, "policies"),
    ],
)
def test_a_wrong_file_is_refused_with_key_and_reason(changes, said):
    with pytest.raises(ConfigError, match=said):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policies": ["ds22", "mdp"]}, "there is no policy 'ds22'"),
        ({"policies": ["ds2", {"policy": "mdp", "guardrails": "strickt"}]}, "strickt"),
        ({"jobs": [{"job": "nexmark-q1"}]}, "'nexmark-q1' can only be simulated"),
        ({"cluster": QUICK | {"slots": 8}}, "flink-q11 takes up to 16 slots, the cluster has 8"),
        ({"jobs": [{"job": "flink-q99"}]}, "flink-q99"),
    ],
)
def test_what_cannot_run_is_refused_before_a_cluster_starts(changes, said):
    with pytest.raises(ConfigError, match=said):
        planned(config(**changes), REPORTS)


def test_a_job_without_calibration_and_a_load_without_recording_are_left_out(tmp_path):
    trace = {"name": "gone", "load": {"form": "trace", "path": "no-such-trace"}}
    jobs = [*SMALL["jobs"], {"job": "flink-q3"}]
    plan = planned(config(loads=[*SMALL["loads"], trace], jobs=jobs), REPORTS)
    assert set(plan.left_out) == {"gone", "flink-q3"}
    assert "no-such-trace" in plan.left_out["gone"]
    assert "dsp-gym calibrate flink-q3" in plan.left_out["flink-q3"]
    assert {run.case.label for run in plan.runs} == {"flink-q11 flat", "flink-q11-in-place flat"}
    with pytest.raises(ConfigError, match=r"every job or load is left out \(gone: .*no-such-trace"):
        planned(config(loads=[trace]), REPORTS)


def test_one_repetition_of_one_load_is_done_before_the_next():
    loads = [{"name": name, "load": {"form": "constant", "rate": 0.5}} for name in "ab"]
    plan = planned(config(loads=loads), REPORTS)
    assert [(run.repetition, run.case.load, run.case.job.rescaling) for run in plan.runs[::2]] == [
        (repetition, load, rescaling)
        for repetition in (0, 1)
        for load in "ab"
        for rescaling in ("savepoint", "in-place")
    ]
    assert [run.policy.name for run in plan.runs[:2]] == ["ds2-local", "mdp"]
    # Sixteen runs of a minute and what is around them, and eight clusters.
    assert plan.seconds(list(plan.runs)) == 16 * (60 + 40) + 8 * 40


def test_the_load_passes_as_much_faster_as_the_file_says():
    day = {"form": "step", "steps": [[0, 0.25], [360, 1.0]]}
    plan = planned(config(loads=[{"name": "step", "load": day}]), REPORTS)
    case = plan.cases[0]
    assert case.rates.tolist() == [750.0] * 30 + [3000.0] * 30
    assert case.spec.source.rate_per_s == 3000.0
    # One task of a millisecond per record carries 1,000/s; 750/s at 70 % busy take two.
    assert case.start.parallelism == {"bids": 1, "session": 2, "sink": 1}


def test_in_place_all_slots_are_alike():
    spec = planned(config(), REPORTS).cases[1].spec
    assert spec.memory.levels == 1
    assert spec.memory.base_mib == 3072 / 16
    assert spec.rescale.mode == "in_place"


def test_the_shipped_validation_is_sound():
    shipped = load_model(ValidationConfig, "validations", "policies")
    assert {one.job for one in shipped.jobs} >= {"flink-q11", "flink-q5", "flink-wordcount"}
    assert sum(one.rescaling == "in-place" for one in shipped.jobs) == 1
    assert {one.rule for one in shipped.policies} == {True, False}
    assert shipped.seconds <= 600
