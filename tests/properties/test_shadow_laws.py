"""In shadow mode guardrails judge the running configuration: a policy that holds is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.config.files import configs_root, load_model
from dsp_gym.control.gate import GateConfig
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.policies import make
from dsp_gym.policies.registry import available
from dsp_gym.studies.guarding import Stuck, watch_beside

JOBS = ("nexmark-q8", "nexmark-q11", "wordcount-heron", "random-dag-4")
POLICIES = configs_root() / "policies"
TUNED = sorted(
    file.relative_to(POLICIES).with_suffix("").as_posix()
    for file in (POLICIES / "tuned").rglob("*.yaml")
)
APART = ("clairvoyant", "streambed-local", "trained")
"""It knows the load; its testbed is too small for a random graph; it needs a folder."""

SHIPPED = [name for name in available() if name not in APART] + TUNED

GATE = GateConfig().max_guard_trips_per_day


def config(hours: float, jobs: tuple[str, ...] = JOBS, seeds: int = 1) -> BenchmarkConfig:
    """The test loads of core-v1, for some hours."""
    made = load_model(BenchmarkConfig, "benchmarks", "core-v1")
    changes = {"episode_s": int(3600 * hours), "jobs": jobs, "seeds": seeds}
    return made.model_copy(update=changes)


@pytest.mark.parametrize("guardrails", ["floor", "default", "deployed"])
@given(headroom=st.floats(0.3, 0.8), job=st.sampled_from(JOBS))
@settings(max_examples=3)
def test_who_holds_for_ever_beside_a_healthy_job_trips_nothing(guardrails, headroom, job):
    found = watch_beside(Stuck(), guardrails, config(1.0, (job,)), headroom)
    assert {name: float(np.sum(times)) for name, times in found.items()} == dict.fromkeys(found, 0)


def stepped_in(policy: str, hours: float, jobs: tuple[str, ...]) -> np.ndarray:
    """Times that any guardrail of `deployed` stepped in, (J,)."""
    found = watch_beside(make(policy), "deployed", config(hours, jobs))
    return np.sum(list(found.values()), axis=0)


@pytest.mark.parametrize("policy", ["static", "ds2", "justin-artifact", "flink-autoscaler"])
def test_the_gate_is_not_closed_by_guardrails_beside_a_healthy_job(policy):
    assert stepped_in(policy, 3.0, ("nexmark-q11",)).max() <= GATE / 2  # over any three hours


@pytest.mark.validate
@pytest.mark.parametrize("policy", SHIPPED)
def test_a_day_beside_a_healthy_job_stays_within_the_gate(policy):
    assert stepped_in(policy, 24.0, ("nexmark-q11", "random-dag-4")).max() <= GATE
