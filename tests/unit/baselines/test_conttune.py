"""ContTune by hand: Big, Small, the Gaussian process, and DS2 where it knows too little."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from baselines.conttune import ContTune, ContTuneConfig
from baselines.conttune.gaussian_process import correlation, fit_length, mean_at, weigh
from baselines.conttune.policy import AVERAGED, OBSERVED
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, spec_of

SPEC = spec_of(
    "chain",
    {"name": "source", "kind": "source", "parallelism": 2, "scalable": False},
    {"name": "map", "inputs": [{"from": "source"}]},
    {"name": "count", "inputs": [{"from": "map"}]},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "count"}], "scalable": False},
    max_parallelism_per_vertex=64,
)
TOPOLOGY = Topology.of([SPEC])
DS2_MIN_DOWN = {"ds2": {"min_down": 1}}
"""A single task less is worth a rescale, so that every answer shows."""


def conttune(**params):
    policy = ContTune(ContTuneConfig.model_validate(DS2_MIN_DOWN | params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def decided(policy, running, busy, t_s, *, rate=1000.0, back=(0.0, 0.0, 0.0), **values):
    """The decision for map and count; `back` of source, map and count."""
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "parallelism": [[2, *running, 1]],
            "busy_ms_per_s": [[500.0, *busy, 100.0]],
            "backpressured_ms_per_s": [[*back, 0.0]],
            "records_in_per_s": rate,
            "records_out_per_s": rate,
            "pending_growth_per_s": [[0.0] + [np.nan] * 3],
            "pending_records": [[0.0] + [np.nan] * 3],
        }
        | values,
    )
    return policy.decide(snapshot)


def tasks(*args, **values):
    return tuple(decided(*args, **values).parallelism[0, 1:3].tolist())


def learned(policy, *points):
    """Show map's ability at some parallelisms: half busy, so it processes twice what arrives."""
    for i, (count, ability) in enumerate(points):
        tasks(policy, (count, 4), (500.0, 500.0), 600.0 + 60 * i, rate=ability / 2)
    return policy


def test_the_process_is_the_textbooks():
    at, ability = np.array([2.0, 4.0]), np.array([200.0, 300.0])
    c = math.exp(-0.5)  # two tasks apart, of a length of two
    assert correlation(2.0, 2.0) == pytest.approx(c)
    weights, _ = weigh(at, ability, 2.0)
    # [[1, c], [c, 1]] weights = ability
    assert weights == pytest.approx(np.array([200 - 300 * c, 300 - 200 * c]) / (1 - c * c))
    assert mean_at(2.0, at, weights, 2.0) == pytest.approx(200.0)
    middle = math.exp(-1 / 8) * weights.sum()
    assert mean_at(3.0, at, weights, 2.0) == pytest.approx(middle)
    assert mean_at(400.0, at, weights, 2.0) == 0.0


def test_the_likelihood_is_that_of_the_best_scale():
    at, ability = np.array([1.0, 2.0, 5.0]), np.array([3.0, 5.0, 9.0])
    _, found = weigh(at, ability, 1.5)
    k = np.exp(-0.5 * (at[:, None] - at) ** 2 / 1.5**2)
    scale = ability @ np.linalg.solve(k, ability) / 3  # sigma_f^2
    normal = -0.5 * (3 + np.linalg.slogdet(scale * k)[1])
    assert found - 1.5 == pytest.approx(normal, rel=1e-6)


def test_a_length_is_fitted_from_three_observations_on():
    at = np.arange(1.0, 12.0)
    assert fit_length(at[:2], at[:2], 4.37) == 4.37
    smooth = fit_length(at, 100 * at**0.8, 4.37)
    rough = fit_length(at, 100 + 50 * (-1.0) ** at, 4.37)
    assert rough < 2.0 < smooth


def test_big_raises_all_vertices_until_nothing_is_backpressured():
    policy = conttune()
    found = decided(policy, (4, 3), (1000.0, 300.0), 600.0, back=(900.0, 0.0, 0.0))
    assert found.parallelism[0].tolist() == [2, 8, 6, 1]
    assert "Big: a vertex is backpressured 900 ms/s" in found.reasons[0]
    assert tasks(policy, (40, 3), (1000.0, 300.0), 660.0, back=(501.0, 0.0, 0.0)) == (64, 6)
    assert tasks(conttune(big_factor=1.5), (4, 3), (1e3, 300.0), 600.0, back=(900.0, 0, 0)) == (
        6,
        5,
    )
    # Half of the time does not count. Half busy with 1,000/s, four tasks process 2,000/s, and
    # without other observations DS2 answers: 1,000/s over 500/s a task.
    quiet = tasks(conttune(), (4, 3), (500.0, 500.0), 600.0, back=(500.0, 0.0, 0.0))
    assert quiet == (2, 2)


def test_a_job_that_works_off_a_backlog_is_not_raised_for_the_backpressure_of_that():
    # 700/s are offered of 1,000/s that four busy tasks process: three suffice. 1,300/s are more.
    for growth, wanted in ((-300.0, 3), (300.0, 8)):
        backlog = {
            "pending_records": [[5000.0] + [np.nan] * 3],
            "pending_growth_per_s": [[growth] + [np.nan] * 3],
        }
        found = tasks(conttune(), (4, 4), (1e3, 1e3), 600.0, back=(900.0, 0.0, 0.0), **backlog)
        assert found[0] == wanted


def test_nothing_is_observed_under_backpressure():
    policy = conttune()
    decided(policy, (4, 3), (900.0, 300.0), 600.0, back=(900.0, 0.0, 0.0))
    assert np.sum(policy.state()["abilities"]["tasks"]) == 0
    decided(policy, (4, 3), (900.0, 300.0), 660.0)
    assert np.array(policy.state()["abilities"]["tasks"])[0, 1:3, 0].tolist() == [4, 3]


def test_small_takes_the_smallest_parallelism_that_is_expected_to_cover_the_load():
    # Ability grows less than linearly: 2, 3 and 4 tasks process 1,000, 1,400 and 1,700.
    policy = learned(conttune(), (2, 1000.0), (3, 1400.0), (4, 1700.0))
    for i, (load, wanted) in enumerate([(1650.0, 4), (1390.0, 3), (990.0, 2)]):
        found = decided(policy, (8, 8), (250.0, 250.0), 1200.0 + 60 * i, rate=load)
        assert found.parallelism[0, 1] == wanted
    assert "by observations these tasks process 1,000/s" in found.reasons[0]


def test_far_from_what_was_observed_ds2_answers():
    policy = learned(conttune(), (8, 4000.0))
    # Seen at 8 tasks alone: 4,000 exp(-d^2 / 38.2) are expected at a distance of d.
    assert tasks(policy, (8, 4), (950.0, 500.0), 1200.0, rate=3800.0)[0] == 7  # 3,897
    # 2,079 at three tasks, too far away; DS2: 1,900/s over 500/s a task.
    assert tasks(policy, (8, 4), (475.0, 500.0), 1260.0, rate=1900.0)[0] == 4
    trusting = learned(conttune(alpha=5.0), (8, 4000.0))
    assert tasks(trusting, (8, 4), (475.0, 500.0), 1200.0, rate=1900.0)[0] == 3


def test_more_than_anything_observed_is_ds2s_answer():
    policy = learned(conttune(), (2, 1000.0))
    assert tasks(policy, (2, 4), (1000.0, 500.0), 1200.0, rate=5000.0)[0] == 2
    found = tasks(
        policy, (2, 4), (1000.0, 500.0), 1260.0, rate=1000.0,
        pending_growth_per_s=[[4000.0] + [np.nan] * 3],
    )  # fmt: skip
    assert found[0] == 10  # 5,000/s offered, 500/s a task


def test_an_ability_is_the_mean_of_the_last_observations():
    policy = learned(conttune(), (4, 1000.0), (4, 2000.0))
    kept = policy.state()["abilities"]
    assert kept["ability"][0][1][0] == pytest.approx(1500.0)
    learned(policy, *[(4, 1500.0)] * 10)
    assert policy.state()["abilities"]["averaged"][0][1][0] == AVERAGED


def test_the_parallelism_seen_longest_ago_is_forgotten():
    policy = learned(conttune(), *[(count, 100.0 * count) for count in range(1, OBSERVED + 3)])
    kept = policy.state()["abilities"]["tasks"][0][1]
    assert set(kept) == set(range(3, OBSERVED + 3))


def test_ds2s_manager_decides_when_to_act():
    policy = conttune(ds2={"warm_up_s": 30.0, "activation": 2})
    assert tasks(policy, (8, 8), (250.0, 250.0), 600.0) == (8, 8)
    assert tasks(policy, (8, 8), (250.0, 250.0), 630.0) == (8, 8)
    # 500/s a task over the whole vertex: 1,000 of 4,000.
    assert tasks(policy, (8, 8), (250.0, 250.0), 660.0) == (2, 2)
    assert tasks(policy, (8, 8), (250.0, 250.0), 720.0, running_since_s=[700.0]) == (8, 8)


def test_headroom_of_the_ds2_inside_is_that_of_the_process():
    plain = learned(conttune(), (4, 1700.0), (5, 2000.0))
    roomy = learned(
        conttune(ds2={"min_down": 1, "target_utilization": 0.85}), (4, 1700.0), (5, 2e3)
    )
    for policy, wanted in ((plain, 4), (roomy, 5)):
        assert tasks(policy, (8, 8), (400.0, 250.0), 1200.0, rate=1690.0)[0] == wanted


def measured(data_folder):
    """Parallelisms and mean abilities of the map of Nexmark Q1, as ContTune's authors measured."""
    trials = {}
    with (data_folder / "nexmark_q1_mapper_scaling.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            ability = float(row["processing_ability_events_per_s"])
            trials.setdefault(float(row["parallelism"]), []).append(ability)
    at = np.array(sorted(trials))
    return at, np.array([np.mean(trials[tasks]) for tasks in at])


def test_for_four_million_records_it_recommends_the_published_eleven_tasks(data_folder):
    points = list(zip(*measured(data_folder), strict=True))
    policy = learned(conttune(), *((int(count), ability) for count, ability in points))
    busy = 1000.0 * 4e6 / points[-1][1]
    found = decided(policy, (26, 4), (busy, 500.0), 1800.0, rate=4e6)
    assert found.parallelism[0, 1] == 11  # one task from ten, so trusted for any alpha from 1 on
    assert "by observations" in found.reasons[0]
    strict = learned(conttune(alpha=0.5), *((int(count), ability) for count, ability in points))
    found = decided(strict, (26, 4), (busy, 500.0), 1800.0, rate=4e6)
    assert found.parallelism[0, 1] == math.ceil(4e6 / (points[-1][1] / 26))  # DS2: 14


def test_next_to_what_was_observed_the_process_is_closer_than_a_line_from_one_task(data_folder):
    """Each measured parallelism beside another one is left out in turn, and predicted."""
    at, ability = measured(data_folder)
    errors = []
    for i in range(1, len(at) - 1):
        rest = np.delete(at, i)
        if np.abs(rest - at[i]).min() > 1:
            continue
        known = np.delete(ability, i)
        length = fit_length(rest, known, 4.37)
        found = mean_at(at[i], rest, weigh(rest, known, length)[0], length)
        errors.append([abs(expected / ability[i] - 1) for expected in (found, at[i] * ability[0])])
    process, line = np.mean(errors, axis=0)
    assert process < 0.16  # 15 %
    assert line > 0.45  # 49 %
