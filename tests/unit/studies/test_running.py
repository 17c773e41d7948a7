"""A job of a validation: it is cancelled whatever happens, and decided on in step with its load."""

from __future__ import annotations

import pytest

from dsp_gym.backends.flink.submission import Submission
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import started
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.running import constant_load, on_the_beat, one_task_each, submitted


class Rest:
    """Knows one job, by the id of its newest submission."""

    id = "newest"

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def find_job(self, name: str) -> Rest:
        return self

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


def test_a_job_whose_run_fails_is_cancelled_by_its_newest_id(monkeypatch):
    monkeypatch.setattr(Submission, "submit", lambda *_: "first")
    rest, spec = Rest(), load_job("flink-q11")
    load = constant_load(1e6, seed="1")
    assert (load["rate"], load["seed"]) == ("1000000", "1")
    with pytest.raises(KeyError), submitted(rest, spec, "q11", load, one_task_each(spec)):
        raise KeyError
    assert rest.cancelled == ["newest"]


def test_a_decision_is_due_at_the_end_of_each_interval_of_the_load(tmp_path):
    config = RunConfig(job="flink-wordcount", policy="ds2", guardrails=None, interval_s=30)
    place = Substitute(load="diurnal", duration_s=600)
    with started(config, mode="active", substitute=place, journal=tmp_path) as run:
        turns = list(on_the_beat(run, 0.0, 300))
    assert [turn.number for turn in turns] == list(range(1, 11))
    assert all(turn.outcome is not None for turn in turns)
