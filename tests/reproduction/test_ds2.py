"""DS2 (sections 5.2 to 5.4): word count on Heron and Flink, and convergence on Nexmark."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.ds2 import ds2_convergence, ds2_word_count


@pytest.fixture(scope="module")
def word_count():
    return {check.name.removeprefix("ds2-word-count/"): check for check in ds2_word_count()}


@pytest.mark.parametrize("name", ["heron", "flink-phase-1", "flink-phase-2"])
def test_ds2_sections_5_2_and_5_3(name, word_count):
    check = word_count[name]
    assert check.passed, f"{check.claim}: published {check.published}, ours {check.ours}"


@pytest.mark.parametrize("seed", [0, 1])
def test_ds2_section_5_4_table_4(seed):
    checks = ds2_convergence(seed=seed)
    assert len(checks) == 4
    failed = [check for check in checks if not check.passed]
    assert not failed, "\n".join(f"{c.name}: {c.published} against {c.ours}" for c in failed)
