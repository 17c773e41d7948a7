from __future__ import annotations

import json

import numpy as np
import pytest

from baselines.clairvoyant import Clairvoyant, ClairvoyantConfig
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import make
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of
from tests.simulating import exact, line
from tests.strategies import blank_snapshot

DAY = np.repeat([500.0, 6500.0, 500.0], 3600)


def told(rates: np.ndarray, config: ClairvoyantConfig | None = None, spec=None) -> Clairvoyant:
    policy = Clairvoyant(config)
    topology = Topology.of([spec or line()], [0] * len(rates))
    policy.know_future(topology, FutureLoad(rates, 60))
    policy.reset(topology, np.arange(len(rates)))
    return policy


def followed(policy, rates: np.ndarray, spec=None, **start: int):
    """What happened to jobs that start as the file says, summed over the load."""
    topology = Topology.of([spec or line()], [0] * len(rates))
    jobs = SimulatedJobs(topology, exact())
    if (know_future := capabilities_of(policy).know_future) is not None:
        know_future(jobs.topology, FutureLoad(rates, 60))
    parallelism = jobs.topology.tables.start_parallelism.repeat(len(rates), axis=0)
    for name, p in start.items():
        parallelism[:, topology.names(0).index(name)] = p
    jobs.reset(np.arange(len(rates)), rates, parallelism=parallelism)
    loop = ControlLoop(jobs, policy)
    loop.reset(np.arange(len(rates)))
    outcomes = [loop.step().outcome for _ in range(rates.shape[1] // 60)]
    return {
        name: np.sum([getattr(outcome, name) for outcome in outcomes], axis=0)
        for name in ("cost", "slo_s", "rescales")
    }


def test_it_scales_before_the_peak_and_back_after_it():
    policy = told(DAY[None, :])
    happened = followed(policy, DAY[None, :], map=1)
    assert happened["rescales"] == 2
    assert happened["slo_s"] < 120  # two outages of 20 s and what they leave behind
    (schedule,) = policy.state()["schedules"]
    assert schedule["parallelism"][1][1] >= 7
    assert schedule["steps"][1] in (58, 59)  # up just before the hour, in the quiet
    assert schedule["steps"][2] in (120, 121)


def test_what_happens_costs_what_was_planned():
    policy = told(DAY[None, :])
    happened = followed(policy, DAY[None, :], map=1)
    terms = policy.terms(0, DAY)
    price = (
        happened["cost"]
        + terms.slo_price * happened["slo_s"]
        + terms.rescale_price * happened["rescales"]
    )
    assert price == pytest.approx(policy.price, rel=0.03)


def test_nothing_that_sees_only_the_past_does_better():
    rng = np.random.default_rng(1)
    rates = 1000 + 5000 * np.repeat(rng.uniform(size=(6, 12)), 600, axis=1)
    plan = told(rates)
    best = followed(plan, rates, map=4)
    terms = plan.terms(0, rates[0])

    def price(happened):
        return (
            happened["cost"]
            + terms.slo_price * happened["slo_s"]
            + terms.rescale_price * happened["rescales"]
        )

    for rival in ("static", "ds2", "hpa-cpu"):
        assert np.all(price(best) <= price(followed(make(rival), rates, map=4))), rival


def test_bound_plan_and_peak_stand_in_that_order():
    policy = told(DAY[None, :])
    possible = policy.cost_bounds()
    cost = followed(policy, DAY[None, :], map=1)["cost"]
    assert possible.bound < cost < possible.peak


def test_a_dear_slo_leaves_the_job_alone():
    rates = np.full((1, 7200), 2500.0)
    careful = told(rates, ClairvoyantConfig(slo_weight=1e6))
    assert followed(careful, rates, map=24)["rescales"] == 0
    assert followed(told(rates), rates, map=24)["rescales"] == 1


def test_its_reasons_say_what_was_known():
    policy = told(DAY[None, :])
    snapshot = blank_snapshot(Topology.of([line()]), 0.0)
    snapshot.parallelism[0, 1] = 24
    assert "map 24 at level 0 -> 1 at no memory (plan for the known load, for" in str(
        policy.decide(snapshot).reasons[0]
    )


def test_it_goes_on_from_its_state_without_being_told_again():
    rates = DAY[None, :]
    policy = told(rates)
    topology = Topology.of([line()])
    policy.decide(blank_snapshot(topology, 0.0))
    other = Clairvoyant()
    other.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    for minute in (0, 30, 62, 130):
        snapshot = blank_snapshot(topology, 60.0 * minute)
        np.testing.assert_array_equal(
            other.decide(snapshot).parallelism, policy.decide(snapshot).parallelism
        )


def test_without_the_load_it_says_who_can_run_it():
    policy = make("clairvoyant")
    topology = Topology.of([line()])
    policy.reset(topology, np.zeros(1, np.int64))
    with pytest.raises(PolicyError, match=r"does not know the load.*dsp-gym evaluate"):
        policy.decide(blank_snapshot(topology))


def test_loads_must_be_one_per_job():
    with pytest.raises(PolicyError, match="2 loads for 1 jobs"):
        Clairvoyant().know_future(Topology.of([line()]), FutureLoad(np.ones((2, 60)), 60))


def test_it_can_be_neither_fallback_nor_floor():
    with pytest.raises(ConfigError, match=r"fallback\.policy.*needs the future load"):
        Shadows().of("clairvoyant", "fallback")


def test_it_declares_what_it_needs():
    assert capabilities_of(Clairvoyant()).cost_bounds is not None
    assert capabilities_of(make("ds2")).know_future is None
