"""Algorithms come in by entry points: records that import nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.policies.algorithms import ALGORITHMS, Algorithm, find_algorithm, load_part

BROKEN = Algorithm(learner="tests.unit.test_algorithms:Missing")


@pytest.fixture
def offer(monkeypatch):
    """Offers an object of this module as an algorithm."""

    def offered(name: str, value: str) -> None:
        entry = EntryPoint(name, f"tests.unit.test_algorithms:{value}", ALGORITHMS.group)
        monkeypatch.setitem(ALGORITHMS.__dict__, "entries", {**ALGORITHMS.entries, name: entry})

    return offered


def test_a_configuration_is_checked_without_torch():
    program = (
        "import sys; from dsp_gym.experiments.agent import AgentConfig;"
        "AgentConfig(algorithm='dqn', network={'encoder': 'mlp'});"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_parts_of_the_planner_are_its_own():
    assert load_part("planning", "trainer").__name__ == "PlanningLearner"
    assert load_part("planning", "export").__name__ == "export_planning"


def test_what_is_no_record_is_refused_with_the_guide(offer):
    offer("mine", "offer")
    with pytest.raises(ConfigError, match=r"is no `Algorithm`") as caught:
        find_algorithm("mine")
    assert "add-an-algorithm.md" in str(caught.value)


def test_a_part_that_is_not_there_is_named(offer):
    offer("mine", "BROKEN")
    with pytest.raises(PolicyError, match="the learner of algorithm 'mine' cannot be imported"):
        load_part("mine", "learner")
