"""Justin (section 3, Figure 4): the sustainable rates of Read, Write and Update."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.justin import justin_micro, rates_per_s


def test_justin_section_3():
    checks = justin_micro()
    assert len(checks) > 3
    wrong = [check for check in checks if not check.passed]
    said = [f"{one.claim}: published {one.published}, ours {one.ours}" for one in wrong]
    assert not wrong, said


@pytest.mark.parametrize("workload", ["read", "write", "update"])
def test_more_tasks_and_more_memory_never_hurt(workload):
    rates, _ = rates_per_s(workload)
    for (tasks, mib), rate in rates.items():
        assert rates.get((2 * tasks, mib), rate) >= rate
        assert rates.get((tasks, 2 * mib), rate) >= rate
