"""Numbers in reasons and tables: read by people, so without exponents."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.reasons import amount
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.pages import percent
from dsp_gym.policies import make

CHANGE = ("ds2", "flink-autoscaler", "hpa-varga", "justin-paper", "keda")
SERVICES = ("aws-managed-flink", "dataflow", "beam-flink")


@pytest.mark.parametrize("policy", [*CHANGE, *SERVICES])
def test_a_reason_of_a_change_has_no_exponent(policy):
    jobs = SimulatedJobs(Topology.of([load_job("nexmark-q11")]))
    jobs.reset(np.arange(1), np.full((1, 3600), 50_000.0))
    loop = ControlLoop(jobs, make(policy), None, 60)
    loop.reset(np.arange(1))
    said = [loop.step().decision.reasons[0] for _ in range(59)]
    changes = [reason for reason in said if reason != "hold"]
    assert changes
    assert not [reason for reason in changes if "e+" in reason], changes


def test_thousands_are_written_in_full_and_all_of_the_time_is_a_hundred_percent():
    assert [amount(x) for x in (0.00123456, 12.3456, 999.9, 49_990.0)] == [
        "0.001235",
        "12.35",
        "999.9",
        "49,990",
    ]
    assert [percent(x) for x in (0.0, 0.00123, 0.0451, 0.304, 0.996, 1.0)] == [
        "0",
        "0.12",
        "4.5",
        "30",
        "100",
        "100",
    ]
