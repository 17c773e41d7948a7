"""The autoscaler for Beam on Flink of Palo Alto Networks, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.beam_flink import BeamFlink, BeamFlinkConfig
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64, slot_sharing=True)])
NAN = np.nan


def decided(policy=None, p=(4, 4), *, t_s=600.0, cpu=0.5, backlog_s=0.0, growth=0.0, **values):
    """A decision at a throughput of 1000 records/s."""
    if policy is None:
        policy = beam()
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "parallelism": [[2, *p, 1]],
            "tm_cpu_load": [cpu],
            "busy_ms_per_s": [[100.0] * 4],
            "records_in_per_s": [[1000.0] * 4],
            "pending_records": [[1000.0 * backlog_s, NAN, NAN, NAN]],
            "pending_growth_per_s": [[1000.0 * growth, NAN, NAN, NAN]],
        }
        | values,
    )
    return policy.decide(snapshot)


def beam(**params):
    policy = BeamFlink(BeamFlinkConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def tasks(policy=None, p=(4, 4), **seen):
    """Tasks of map and window; source and sink are fixed."""
    found = decided(policy, p, **seen).parallelism[0].tolist()
    assert (found[0], found[3]) == (2, 1)
    return tuple(found[1:3])


def test_a_backlog_of_more_than_120_s_is_to_be_read_in_60_s():
    # Required 4, extra 4 * 150 / 60 = 10.
    assert tasks(backlog_s=150.0) == (14, 14)
    assert tasks(backlog_s=120.0) == (4, 4)


def test_growth_adds_what_keeps_up():
    # Required 4 * (500 + 1000) / 1000 = 6, extra 10.
    assert tasks(backlog_s=150.0, growth=0.5) == (16, 16)


def test_a_backlog_that_shrinks_counts_as_constant():
    assert tasks(backlog_s=150.0, growth=-0.5) == (14, 14)


def test_a_load_above_90_percent_adds_what_backlog_and_growth_ask_for():
    assert tasks(cpu=0.91, growth=0.5) == (6, 6)
    assert tasks(cpu=0.91, backlog_s=30.0) == (6, 6)
    assert tasks(cpu=0.9, growth=0.5) == (4, 4)


def test_a_load_above_90_percent_alone_adds_nothing_by_the_formula():
    assert tasks(cpu=1.0) == (4, 4)


def test_workers_are_at_most_the_maximum_which_takes_none_away():
    assert tasks(beam(max_workers=10), backlog_s=150.0) == (10, 10)
    assert tasks(beam(max_workers=3), backlog_s=150.0) == (4, 4)
    assert tasks(p=(40, 40), backlog_s=150.0) == (64, 64)


def test_a_job_that_keeps_up_gets_so_few_that_the_load_is_the_wanted_one():
    # 10 * 0.42 / 0.7 = 6.
    assert tasks(p=(10, 10), cpu=0.42) == (6, 6)
    assert tasks(beam(wanted_cpu=0.5), p=(10, 10), cpu=0.42) == (9, 9)
    assert tasks(beam(min_workers=8), p=(10, 10), cpu=0.42) == (8, 8)


@pytest.mark.parametrize("seen", [{"cpu": 0.7}, {"backlog_s": 10.0}, {"growth": 0.01}])
def test_load_backlog_and_growth_each_forbid_a_scale_down(seen):
    assert tasks(p=(10, 10), **{"cpu": 0.42} | seen) == (10, 10)


def test_all_vertices_have_as_many_tasks_as_in_reactive_mode():
    assert tasks(p=(2, 8), backlog_s=150.0) == (28, 28)
    assert tasks(p=(2, 10), cpu=0.42) == (6, 6)
    assert tasks(p=(2, 10), cpu=0.8) == (2, 10)


def test_it_rests_after_a_restart_and_after_a_rescale_in_place():
    assert tasks(t_s=119.0 - 2.0, backlog_s=150.0) == (4, 4)
    policy = beam()
    assert tasks(policy, t_s=120.0, backlog_s=150.0) == (14, 14)
    assert tasks(policy, (14, 14), t_s=180.0, backlog_s=150.0) == (14, 14)
    assert tasks(policy, (14, 14), t_s=300.0, backlog_s=150.0) == (49, 49)


def test_an_unknown_load_or_backlog_changes_nothing():
    lost = {"cpu": NAN, "busy_ms_per_s": [[NAN] * 4]}
    assert tasks(p=(10, 10), **lost) == (10, 10)
    assert tasks(p=(10, 10), cpu=0.42, pending_records=[[NAN] * 4]) == (10, 10)
    assert tasks(backlog_s=150.0, pending_growth_per_s=[[NAN] * 4]) == (4, 4)


def test_a_known_backlog_needs_no_load():
    lost = {"cpu": NAN, "busy_ms_per_s": [[NAN] * 4]}
    assert tasks(backlog_s=150.0, **lost) == (14, 14)


def test_the_reason_names_load_backlog_and_growth():
    (reason,) = decided(backlog_s=150.0, growth=0.5).reasons
    assert "(CPU 50%, backlog 150 s, growing by 50% of the throughput)" in reason
    (reason,) = decided(backlog_s=150.0, growth=-0.1).reasons
    assert "shrinking by 10% of the throughput)" in reason
    (reason,) = decided(p=(10, 10), cpu=0.42).reasons
    assert "(CPU 42%, backlog 0 s: 6 workers for 70%)" in reason


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"low_cpu": 0.95}, "low_cpu, high_cpu: 0.95 is above 0.9"),
        ({"wanted_cpu": 0.95}, "wanted_cpu, high_cpu: 0.95 is above 0.9"),
        ({"caught_up_s": 130}, "caught_up_s, backlog_s: 130 is above 120"),
        ({"min_workers": 9, "max_workers": 8}, "min_workers, max_workers: 9 is above 8"),
    ],
)
def test_options_that_contradict_each_other_are_refused(params, said):
    with pytest.raises(ConfigError, match=said):
        make(PolicyConfig(policy="beam-flink", params=params))
