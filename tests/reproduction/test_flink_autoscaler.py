"""Flink's autoscaler 1.15.0 against facts of its unit tests and runs of its real classes."""

from __future__ import annotations

import pytest

from baselines.studies.autoscaler_checks import differences, flink_autoscaler
from dsp_gym.studies.reproduce.registry import STUDIES, data_folder


@pytest.fixture(scope="module")
def checks():
    folder = data_folder()
    if folder is None:
        pytest.skip("no recorded data: DSP_GYM_DATA names no folder")
    return {check.name.partition("/")[2]: check for check in flink_autoscaler(folder)}


@pytest.mark.parametrize(
    ("name", "count"), [("facts", 211), ("main", 9), ("decisions", 14), ("traces", 3)]
)
def test_what_flinks_own_classes_say(name, count, checks):
    check = checks[name]
    assert check.published == count
    assert check.passed, f"{check.ours} of {check.published}: {check.note}"


def test_a_difference_in_any_field_is_seen():
    answer = {"a": [{"rate": 1.0}], "flag": False, "open": 0.7, "events": ["x"]}
    assert not differences(answer, answer)
    assert differences({"a": [{"rate": 1.002}]}, answer)
    assert differences({"flag": 0}, answer)
    assert differences({"a": []}, answer)
    assert differences({"open": {"gt": 0.7, "lt": 0.9}}, answer)
    assert differences({"missing": 1}, answer)
    assert differences({"a": [{"rate": "Infinity"}]}, answer)


def test_without_data_it_says_so():
    (check,) = STUDIES["flink-autoscaler"].checks(None)
    assert check.passed is None
