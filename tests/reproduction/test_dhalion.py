"""Dhalion on the Heron word count (DS2, section 5.2, Figures 1 and 6)."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.ds2 import dhalion_word_count


@pytest.fixture(scope="module")
def checks():
    return {check.name.removeprefix("dhalion/"): check for check in dhalion_word_count()}


@pytest.mark.parametrize("name", ["one-operator", "steps", "final", "sustained"])
def test_ds2_section_5_2_dhalion_on_the_heron_word_count(name, checks):
    check = checks[name]
    assert check.passed, f"{check.claim}: published {check.published}, ours {check.ours}"
