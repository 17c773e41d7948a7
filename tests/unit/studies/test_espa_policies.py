"""The six rules of the espa runs, by name and setting."""

from __future__ import annotations

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.policies import make
from dsp_gym.studies.reproduce.espa_policies import RULES, espa_policy, is_known

RECORDED = {
    "hpa": (50.0, 70.0, 90.0),
    "dhalion": (1.0, 5.0, 10.0),
    "ds2-original": (0.0, 33.0, 66.0),
    "ds2-updated": (0.0, 33.0, 66.0),
    "varga1": (0.3, 0.5, 0.7),
    "varga2": (0.3, 0.5, 0.7),
}


@pytest.mark.parametrize("name", RULES)
def test_every_recorded_setting_is_a_policy(name):
    for setting in RECORDED[name]:
        config = make(espa_policy(name, setting)).config
        rule = RULES[name]
        assert getattr(config, rule.parameter) == pytest.approx(setting * rule.unit)


def test_the_second_repeat_spells_two_names_otherwise():
    assert espa_policy("ds2-original-reactive", 33.0) == espa_policy("ds2-original", 33.0)
    assert is_known("ds2-updated-reactive")
    assert not is_known("justin")


def test_an_unknown_rule_is_named():
    with pytest.raises(ConfigError, match=r"no rule 'vagra1'.*'varga1'"):
        espa_policy("vagra1", 0.5)


@pytest.mark.parametrize(
    ("name", "setting"), [("hpa", 60.0), ("dhalion", 2.5), ("ds2-updated", 100.0), ("varga2", 0.9)]
)
def test_a_setting_that_nobody_recorded_is_a_policy(name, setting):
    assert make(espa_policy(name, setting)).config is not None


@pytest.mark.parametrize(("name", "setting"), [("hpa", 110.0), ("varga1", 50.0), ("dhalion", -1.0)])
def test_a_setting_out_of_range_is_named(name, setting):
    with pytest.raises(ConfigError, match=rf"{name} cannot have the setting {setting:g}"):
        espa_policy(name, setting)
