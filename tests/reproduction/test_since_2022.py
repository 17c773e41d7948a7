"""Daedalus beside HPA, ContTune beside DS2: sign and order of the papers' headlines."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.since_2022 import conttune, daedalus


@pytest.mark.parametrize("study", [daedalus, conttune])
def test_headlines_hold_in_kind(study):
    checks = study()
    assert any(check.passed for check in checks)
    failed = [check for check in checks if check.failed]
    assert not failed, "\n".join(f"{c.name}: {c.published} against {c.ours}" for c in failed)
