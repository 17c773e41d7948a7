"""Each decision of a day is timed, once."""

from __future__ import annotations

import pytest

from agents.studies.decisions import FAMILY, decision_times
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs

pytestmark = pytest.mark.slow


def test_every_decision_of_a_day_takes_some_time():
    config = load_model(RefereeConfig, "referees", "core-v3")
    (part,) = development_runs(config, each=1, families=(FAMILY,))
    found = decision_times("ds2", part.batch.take(2, 3))
    assert len(found) == part.batch.config.episode_s // part.batch.config.interval_s
    assert (found >= 0).all()
    assert found.sum() > 0
