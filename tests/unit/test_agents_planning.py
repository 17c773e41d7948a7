"""Planning by value iteration: values by hand, and decisions on a job of one map."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import yaml

from agents.planning.chain import (
    RARE,
    LoadChain,
    counted,
    pooled,
    read_counts,
    sparse,
    write_counts,
)
from agents.planning.laws import chain_of, laws_of
from agents.planning.load import BIN, HISTORY, MOODS, PEAKS, STATES, level_of, levels, state_of
from agents.planning.policy import MdpConfig, MdpPolicy
from agents.planning.recall import noise_of
from agents.planning.value import Offer, StepPrices, minute_price, move_price, solve
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.sizing.prior import Prior
from tests.simulating import keyed, line
from tests.strategies import blank_snapshot

REFERENCE = 6000.0
SPEC = line(source={"rate_per_s": REFERENCE})  # a task of the map carries 1,000/s
DAY = 0.5 + 0.35 * np.sin(np.arange(240) / 48)


class Plant:
    """A job of one map under a load per minute: decisions take effect at once."""

    def __init__(
        self, spec=SPEC, scale=1.0, tasks=4, counters=True, rates=True, busy=True, cpu_s=1e-3
    ):
        self.jobs, self.scale, self.tasks = Topology.of([spec]), scale, tasks
        self.counters, self.rates, self.busy, self.cpu_s = counters, rates, busy, cpu_s
        self.t_s, self.since_s, self.total, self.pending = 600.0, 0.0, 0.0, 0.0

    def snapshot(self, load, **values):
        arrived = load * REFERENCE * self.scale
        capacity = self.tasks / self.cpu_s * self.scale
        rate = min(capacity, arrived + self.pending / 60.0)
        busy = 1000.0 * rate / capacity
        self.t_s += 60.0
        self.total += 60.0 * rate
        self.pending += 60.0 * (arrived - rate)
        seen = {"parallelism": [[4, self.tasks, 1]], "memory_level": -1}
        if self.rates:
            seen |= {
                "records_in_per_s": rate,
                "busy_ms_per_s": [[1.0, busy, 1.0]] if self.busy else np.nan,
                "busy_max_ms_per_s": [[1.0, busy, 1.0]] if self.busy else np.nan,
                "pending_growth_per_s": [[arrived - rate, np.nan, np.nan]],
            }
        if self.counters:
            waiting = [[self.pending, np.nan, np.nan]]
            seen |= {"records_in_total": self.total, "pending_records": waiting}
        seen |= {"running_since_s": self.since_s} | values
        return blank_snapshot(self.jobs, self.t_s, **seen)

    def run(self, policy, loads, **values):
        """Tasks of the map and the reason, minute by minute."""
        policy.reset(self.jobs, np.zeros(1, np.int64))
        found = []
        for load in loads:
            decision = policy.decide(self.snapshot(load, **values))
            wanted = int(decision.parallelism[0, 1])
            if wanted != self.tasks:
                self.tasks, self.since_s, self.total = wanted, self.t_s, 0.0
            found.append((wanted, decision.reasons[0]))
        return found


def played(loads, plant=None, **config):
    return (plant or Plant()).run(MdpPolicy(MdpConfig(**config)), loads)


def tasks(found):
    return [one for one, _ in found]


# -- the load


def test_a_steady_load_has_no_trend_and_no_peak():
    assert state_of(np.full(HISTORY, 0.5)) == int(0.5 / BIN) * MOODS + 2 * PEAKS


def test_a_load_that_fell_from_a_peak_says_so():
    minutes = np.r_[np.full(60, 0.8), np.full(40, 0.3)]
    assert state_of(minutes) == int(0.3 / BIN) * MOODS + 0 * PEAKS + 2


def test_the_level_smooths_noise_and_follows_a_jump_of_two_minutes():
    assert level_of(np.array([1.0] * 6)) == pytest.approx(1.0)
    assert level_of(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.05])) == pytest.approx(1.02)
    assert level_of(np.array([1.0] * 6 + [2.0])) == pytest.approx(2.0)
    assert level_of(np.array([1.0] * 6 + [2.0, 2.1])) == pytest.approx(2.05)


def test_a_load_is_learned_at_all_levels_from_one():
    up = np.tile(np.r_[np.full(30, 0.5), np.full(30, 0.58)], 40)
    chain = sparse(pooled(counted([up]), 40.0))
    calm = 25 * MOODS + 2 * PEAKS  # level 1.0, never seen
    following = chain.state[calm, : chain.size[calm]] // MOODS
    assert following.max() > 25


def test_probabilities_sum_to_one_and_heed_the_jobs_own_history():
    laws = laws_of([pooled(counted([DAY]), 40.0)], RARE)
    own = np.tile(np.array([7, 400]), 500)
    general, of_job = (chain_of(laws, np.ones(1), past, 1.0, RARE) for past in (own[:0], own))
    for chain in (general, of_job):
        for s in range(STATES):
            assert chain.probability[s, : chain.size[s]].sum() == pytest.approx(1.0)
    after = of_job.state[7, : of_job.size[7]].tolist().index(400)
    assert of_job.probability[7, after] > 0.9


@pytest.mark.parametrize("minutes", [0, 1, 2, 500, 2880])
def test_own_history_on_top_of_a_law_is_the_chain_of_both_counts(minutes):
    weights = pooled(counted([DAY]), 40.0)
    weights[weights < 2 * RARE * weights.sum(axis=1, keepdims=True)] = 0.0  # nothing to drop
    own = np.full(2880, -1)
    own[2880 - minutes :] = np.random.default_rng(minutes).choice([3, 40, 41, 42, 599], minutes)
    both = weights.copy()
    for before, after in pairwise(own.tolist()):
        if before >= 0 and after >= 0:
            both[before, after] += 0.7
    expected = sparse(both)
    found = chain_of(laws_of([weights], RARE), np.ones(1), own, 0.7, RARE)
    np.testing.assert_array_equal(found.size, expected.size)
    for s, size in enumerate(expected.size):
        order = np.argsort(found.state[s, :size])  # own successors come last
        np.testing.assert_array_equal(found.state[s, order], expected.state[s, :size])
        np.testing.assert_allclose(
            found.probability[s, order], expected.probability[s, :size], rtol=1e-12
        )


def test_the_shipped_table_is_what_was_counted(tmp_path):
    counts = counted([DAY])
    write_counts(tmp_path / "table.safetensors", counts)
    np.testing.assert_array_equal(read_counts(tmp_path / "table.safetensors"), counts)


@pytest.mark.parametrize("content", [b"", b"not a table"])
def test_a_table_that_cannot_be_read_is_refused_with_the_command_that_makes_one(tmp_path, content):
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(PolicyError, match=r"cannot be read.*python -m agents\.studies\.planning"):
        MdpPolicy(MdpConfig(transitions=str(tmp_path / "table")))


# -- the values

TERMS = StepPrices(
    late_price=2.5,
    rescale_price=6.0,
    outage_s=60.0,
    lost_s=0.0,
    in_time_s=1.6,
    noise=0.03,
    discount=np.exp(-1 / 60),
    tolerance=1e-9,
)
STEADY = LoadChain(np.ones(1, np.int64), np.zeros((1, 1), np.int64), np.ones((1, 1)))


def values(*offers, terms=TERMS):
    offer = Offer(*np.array(offers).T.copy())
    return solve(STEADY, np.array([0.5]), offer, terms)[0]


def test_what_is_too_dear_is_left_when_that_pays():
    """Against the two ways there are, by hand: keep paying for ever, or move once."""
    for dearer, moves in ((0.003, False), (1.0, True)):
        found = values((1.0, 1.0), (1.01, 1.0 + dearer))
        for_ever = 60.0 * dearer / (1 - TERMS.discount)
        move = move_price(0.5, 1.0, 1.0, 0.0, TERMS) + (1.0 + dearer) * TERMS.outage_s
        once = move - minute_price(0.5, 1.0, 1.0, TERMS)
        assert bool(once < for_ever) is moves
        assert found[1] - found[0] == pytest.approx(min(once, for_ever), rel=1e-6)


def test_values_are_those_of_one_update_after_another_however_they_are_found():
    """Two sticky levels of load and three configurations, against updates of all states by turn."""
    stay = np.array([0.98, 0.9])
    chain = LoadChain(
        np.full(2, 2), np.array([[0, 1], [0, 1]]), np.array([[0.98, 0.02], [0.1, 0.9]])
    )
    load, offer = np.array([0.4, 0.8]), Offer(np.array([0.5, 0.9, 1.2]), np.array([0.5, 0.9, 1.2]))
    found = solve(chain, load, offer, TERMS)

    of = range(3)
    keep, move = (
        np.array(
            [[price(x, offer.capacity[a], offer.cost[a], *more, TERMS) for a in of] for x in load]
        )
        for price, more in ((minute_price, ()), (move_price, (0.0,)))
    )
    plain = np.zeros((2, 3))
    for _ in range(5000):
        after = TERMS.discount * np.array([[p, 1 - p] @ plain for p in (stay[0], 1 - stay[1])])
        moved = (move + after).min(axis=1, keepdims=True) + offer.cost * TERMS.outage_s
        plain = np.minimum(keep + after, moved)
        plain -= plain.min(axis=1, keepdims=True)
    assert found == pytest.approx(plain, abs=1e-4)
    assert plain[0].argmin() != plain[1].argmin()  # the load decides


def test_a_rescale_to_what_is_barely_enough_is_late_for_longer():
    wide, narrow = (move_price(0.5, capacity, 1.0, 0.0, TERMS) for capacity in (1.0, 0.6))
    # 30 s of the reference wait after the outage; all but 1.6 s of capacity are worked off.
    assert wide == pytest.approx(6.0 + 2.5 * (60 + (30 - 1.6) / 0.5))
    assert narrow == pytest.approx(6.0 + 2.5 * (60 + (30 - 1.6 * 0.6) / 0.1))


def test_cold_caches_make_a_rescale_late_for_longer():
    cold = move_price(0.5, 1.0, 1.0, 0.0, TERMS._replace(lost_s=40.0))
    # 40 s of the capacity more are worked off by the half that is spare.
    assert cold == pytest.approx(move_price(0.5, 1.0, 1.0, 0.0, TERMS) + 2.5 * 40 / 0.5)


def test_levels_lie_in_the_middle_of_their_bins():
    assert levels()[:: 3 * 5 * 10] == pytest.approx([0.02, 0.42, 0.82, 1.22])


# -- the decisions


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_it_carries_the_load_and_lets_go_of_what_is_not_needed(prior):
    # Four tasks are busy enough to be seen, and too few for what comes.
    found = tasks(played(np.r_[np.full(30, 0.5), np.full(60, 0.9), np.full(150, 0.2)], prior=prior))
    assert 6 <= found[60] <= 8
    assert 2 <= found[-1] <= 3
    assert sum(before != after for before, after in pairwise(found)) <= 6


def test_a_dearer_late_minute_buys_more_capacity():
    found = [np.mean(tasks(played(DAY, late_price=price))) for price in (0.5, 2.5, 40.0)]
    assert found == sorted(found)
    assert found[2] > found[0] + 0.5


def test_it_never_moves_when_a_move_is_infinitely_dear():
    assert set(tasks(played(DAY[:100], rescale_price=1e15))) == {4}


def test_it_lets_go_of_less_where_restarts_have_cost_more():
    def last(lost_s):
        policy, plant = MdpPolicy(MdpConfig()), Plant(tasks=6)
        policy.reset(plant.jobs, np.zeros(1, np.int64))
        for load in np.r_[np.full(30, 0.6), np.full(60, 0.45)]:
            policy._warming.arrays.lost_s[:] = lost_s
            wanted = int(policy.decide(plant.snapshot(load)).parallelism[0, 1])
            if wanted != plant.tasks:
                plant.tasks, plant.since_s, plant.total = wanted, plant.t_s, 0.0
        return plant.tasks

    assert last(0.0) < last(600.0) == 6


def test_a_price_of_zero_is_refused_with_a_sentence():
    with pytest.raises(ConfigError, match=r"here: key 'late_price': value 0: .*greater than 0"):
        parse(MdpConfig, {"late_price": 0}, "here")


def test_an_infinite_price_is_refused_with_a_sentence():
    with pytest.raises(ConfigError, match=r"late_price.*finite"):
        parse(MdpConfig, {"late_price": float("inf")}, "here")


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_no_load_for_hours_ends_with_one_task(prior):
    found = played(np.r_[np.full(5, 0.5), np.zeros(180)], prior=prior)
    assert found[-1] == (1, "hold")


def test_a_job_that_was_never_busy_is_held_where_nothing_else_tells():
    found = played(np.zeros(60), prior="none")
    assert set(tasks(found)) == {4}
    assert "has not been seen busy" in found[-1][1]


def test_without_counters_it_follows_the_rates():
    with_counters = tasks(played(DAY))
    without = tasks(played(DAY, Plant(counters=False)))
    assert np.mean(np.abs(np.subtract(without, with_counters))) < 0.5


def test_without_a_busy_metric_it_goes_by_the_job_file_or_holds():
    with_busy = tasks(played(DAY[:100]))
    without = tasks(played(DAY[:100], Plant(busy=False)))
    assert np.mean(np.abs(np.subtract(without, with_busy))) < 0.5
    found = played(DAY[:30], Plant(busy=False), prior="none")
    assert set(tasks(found)) == {4}
    assert "has not been seen busy" in found[-1][1]


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_tasks_that_never_ran_alone_are_sized_as_they_run_together(prior):
    """Four slots of each TaskManager are in use throughout: each task is slower by 30 %."""
    shared = SPEC.model_copy(
        update={"taskmanager": SPEC.taskmanager.model_copy(update={"contention": 0.1})}
    )
    alone = line(cpu_us=1000.0 / 0.7, source={"rate_per_s": REFERENCE})
    found, wanted = (
        tasks(played(DAY[:100], Plant(spec, cpu_s=1e-3 / 0.7), prior=prior))
        for spec in (shared, alone)
    )
    assert np.mean(np.abs(np.subtract(found, wanted))) < 0.5
    assert len(set(found)) > 2


def test_who_knows_the_law_plans_as_with_a_table_of_it_and_without_loads_is_refused(tmp_path):
    loads = np.array([0.3 + 0.3 * (np.arange(600) // 60 % 2), np.full(600, 0.5)])
    write_counts(tmp_path / "table", counted(loads))
    of_table = MdpPolicy(MdpConfig(transitions=str(tmp_path / "table")))
    plant, knowing = Plant(), MdpPolicy(MdpConfig(known_law=True))
    with pytest.raises(PolicyError, match="given no loads of that law"):
        capabilities_of(knowing).know_future(plant.jobs, FutureLoad(np.ones((1, 60)), 60))
    capabilities_of(knowing).know_future(plant.jobs, FutureLoad(np.ones((1, 60)), 60, loads))
    assert plant.run(knowing, DAY) == Plant().run(of_table, DAY) != Plant().run(MdpPolicy(), DAY)


def test_another_price_of_lateness_decides_as_that_price_does_until_the_row_begins_again():
    dear, told = MdpPolicy(MdpConfig(late_price=40.0)), MdpPolicy(MdpConfig(late_price=1.0))

    class Priced(MdpPolicy):
        def reset(self, jobs, seeds, mask=None):
            super().reset(jobs, seeds, mask)
            capabilities_of(self).price_lateness(np.array([40.0]))

    found = Plant().run(Priced(MdpConfig(late_price=1.0)), DAY)
    assert found == Plant().run(dear, DAY) != Plant().run(told, DAY)
    assert any("worth 40 minutes" in why for _, why in found)
    capabilities_of(told).price_lateness(np.array([40.0]))
    assert Plant().run(told, DAY) != found


def test_two_laws_of_one_load_are_refused():
    with pytest.raises(ConfigError, match="known_law stands in for transitions and walk"):
        parse(MdpConfig, {"known_law": True, "walk": {}}, "params")


def test_a_load_above_all_that_was_counted_is_named():
    policy = MdpPolicy(MdpConfig(), counted([np.full(60, 0.5)])[None])
    reasons = [
        why for _, why in Plant(tasks=8).run(policy, np.r_[np.full(5, 0.5), np.full(20, 1.1)])
    ]
    assert not any("training" in why for why in reasons[:5])
    assert (
        "the load is 1.10 of the reference rate, above all that training counted (0.52)"
        in (reasons[-1])
    )


def test_times_that_are_hardly_known_are_named():
    sizing = {"file_error": 0.8}
    known = [why for _, why in played(DAY[:30], sizing=sizing)]
    unknown = [why for _, why in played(DAY[:30], Plant(busy=False), sizing=sizing)]
    assert "the time per record of map is known to" not in known[-1]
    assert "the time per record of map is known to 80 % only" in unknown[-1]


def test_without_any_measurement_it_holds_and_says_so():
    found = played(np.full(30, 0.5), Plant(counters=False, rates=False))
    assert set(tasks(found)) == {4}
    assert found[-1][1] == "hold: no measurement of the load for ten minutes"


def test_a_job_that_is_down_is_held():
    plant = Plant()
    found = plant.run(MdpPolicy(), np.full(5, 0.9), status=Status.RESTARTING)
    assert found[-1] == (4, "hold: the job is not running")


def test_a_run_too_young_to_show_a_backlog_is_held():
    policy, plant = MdpPolicy(), Plant(tasks=8)
    plant.run(policy, np.full(30, 0.3))
    plant.tasks, plant.counters = 8, False
    decision = policy.decide(plant.snapshot(0.3, window_fill=0.1, pending_records=np.nan))
    assert decision.reasons == ("hold: the job has no metrics since its restart yet",)
    assert int(decision.parallelism[0, 1]) == 8


def test_a_job_that_catches_up_moves_only_to_be_in_time_sooner():
    def asked(pending, size):
        policy, plant = MdpPolicy(), Plant(tasks=size)
        policy.reset(plant.jobs, np.zeros(1, np.int64))
        plant.pending = pending
        decisions = [policy.decide(plant.snapshot(0.3)) for _ in range(4)]
        return int(decisions[-1].parallelism[0, 1])

    assert asked(0.0, size=8) < 8
    assert asked(1.6e6, size=8) == 8  # in time within 20 s
    assert asked(1.6e6, size=2) > 2  # gains 200 records/s: an hour


def test_a_job_whose_restarts_are_dear_is_restarted_rarely():
    spec = load_job("other-dag:835949824")
    jobs = Topology.of([spec])
    assert Prior.of_files(jobs).lost_s[0] > 600.0  # ten minutes of its capacity
    wave = 0.5 + 0.25 * np.sin(np.arange(6 * 3600) / 2500)
    simulated = SimulatedJobs(jobs, SimulationOptions())
    simulated.reset(np.zeros(1, np.int64), wave[None] * spec.source.rate_per_s)
    policy = MdpPolicy()
    policy.reset(jobs, np.zeros(1, np.int64))
    late = 0.0
    for minute in range(len(wave) // 60):
        simulated.advance(60)
        snapshot = simulated.collector.snapshot()
        late += bool(snapshot.latency_p95_s[0] > spec.slo.latency_s) if minute >= 60 else 0
        simulated.actuator.apply(GuardedDecision.unchanged(policy.decide(snapshot)))
    assert int(simulated.state.rescales[0]) <= 5
    assert late / (len(wave) // 60 - 60) < 0.25


@pytest.mark.parametrize("prior", ["job-file", "none"])
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_job_of_other_speed_gets_the_same_decisions(factor, prior):
    other = line(
        cpu_us=1000.0 / factor,
        source={"rate_per_s": REFERENCE * factor},
        vertices=[
            vertex.model_dump(by_alias=True, exclude_unset=True)
            | {"cpu_us_per_record": vertex.cpu_us_per_record / factor}
            for vertex in SPEC.vertices
        ],
    )
    loads = DAY[:150]
    one = tasks(played(loads, prior=prior))
    assert tasks(played(loads, Plant(other, scale=factor), prior=prior)) == one
    assert len(set(one)) > 2


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_a_wrong_job_file_is_corrected_by_what_is_seen(factor, tmp_path):
    wrong = SPEC.model_dump(by_alias=True, exclude_unset=True, mode="json")
    wrong["vertices"][1]["cpu_us_per_record"] *= factor
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    right = tasks(played(DAY))
    found = tasks(played(DAY, job_files=[str(tmp_path / "wrong.yaml")]))
    assert np.mean(np.abs(np.subtract(found, right))[60:]) < 0.35


def test_a_job_file_of_another_graph_is_refused_with_a_sentence(tmp_path):
    other = keyed().model_dump(by_alias=True, exclude_unset=True, mode="json") | {"job": "line"}
    other["vertices"][1]["name"] = other["vertices"][2]["inputs"][0]["from"] = "filter"
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    policy = MdpPolicy(MdpConfig(job_files=(str(tmp_path / "other.yaml"),)))
    with pytest.raises(PolicyError, match="describes another job"):
        policy.reset(Topology.of([SPEC]), np.zeros(1, np.int64))


def test_a_job_without_prices_is_refused_with_a_sentence():
    free = line(prices={"core_hour": 0.0, "gib_hour": 0.0})
    with pytest.raises(PolicyError, match="prices of zero"):
        MdpPolicy().reset(Topology.of([free]), np.zeros(1, np.int64))


def test_a_load_far_above_the_reference_is_carried_and_named():
    found = played(np.r_[np.full(10, 0.5), np.full(60, 3.1)])
    assert found[-1][0] >= 19
    assert any("outgrown the job file's reference rate" in why for _, why in found)


def test_a_move_says_what_it_is_for():
    reasons = [why for _, why in played(np.full(20, 0.9)) if why != "hold"]
    assert reasons[0].startswith("load 5,400/s: from 4,000/s to a configuration that carries ")


def test_a_snapshot_every_five_minutes_fills_the_minutes_between():
    plant, policy = Plant(), MdpPolicy()
    policy.reset(plant.jobs, np.zeros(1, np.int64))
    for _ in range(4):
        plant.t_s += 240.0
        plant.total += 240.0 * 0.5 * REFERENCE
        policy.decide(plant.snapshot(0.5))
    assert policy.state()["watch"]["minutes"] == [15]


def test_a_first_outage_is_expected_to_restore_the_state_as_it_is_known():
    """Right after a start, and while the job is down, nobody knows the state."""
    spec = keyed(rescale={"outage_s": [20, 20, 20], "restore_mib_per_s": 100.0})
    plant, policy = Plant(spec), MdpPolicy()
    policy.reset(plant.jobs, np.array([0]))
    expected = []
    for state_mib, values in (
        (np.nan, {}),
        (1000.0, {}),
        (3000.0, {}),
        (np.nan, {"status": Status.RESTARTING}),
        (np.nan, {"running_since_s": 800.0, "outage_s": 40.0}),
    ):
        state = {"state_mib": [[np.nan, state_mib, np.nan]]}
        policy.decide(plant.snapshot(0.5, **({"outage_s": np.nan} | state | values)))
        expected += policy.state()["watch"]["outage_s"]
    assert expected == pytest.approx([20, 30, 50, 50, 50 - 0.3 * 10])


def test_an_outage_begins_with_the_savepoint_and_not_with_an_old_checkpoint():
    plant, policy = Plant(), MdpPolicy()
    policy.reset(plant.jobs, np.array([0]))
    policy.decide(plant.snapshot(0.5, outage_s=20.0))
    known = policy.state()["watch"]["outage_s"][0]
    for since_s, resumed_from_s, seconds in ((800.0, 765.0, 35.0), (900.0, 300.0, 20.0)):
        seen = {"running_since_s": since_s, "resumed_from_s": resumed_from_s, "outage_s": 20.0}
        policy.decide(plant.snapshot(0.5, **seen))
        known += 0.3 * (seconds - known)
        assert policy.state()["watch"]["outage_s"] == pytest.approx([known])


class Drifting(Plant):
    """A job whose tasks are now a little faster, now a little slower."""

    def snapshot(self, load, **values):
        self.cpu_s = 1e-3 * (1.0 + 0.02 * np.sin(self.t_s / 400.0))
        return super().snapshot(load, **values)


def test_beside_its_frontier_it_moves_no_more_than_on_it():
    """Slots of one size show memory that nobody asked for: what runs is never on the frontier."""
    memory = SPEC.memory.model_copy(update={"levels": 1, "start_level": 0, "uniform": True})
    moves = []
    for level in (-1, 0):
        plant = Drifting(SPEC.model_copy(update={"memory": memory}))
        found = tasks(plant.run(MdpPolicy(), DAY, memory_level=level))
        moves.append(sum(before != after for before, after in pairwise(found)))
    assert moves[1] <= moves[0]


def test_a_plan_that_was_put_off_is_the_plan_of_the_next_decision():
    """Planning after the answer decides as planning in it, but at the moment a plan is renewed."""
    now, after = (MdpPolicy(MdpConfig()) for _ in range(2))
    after.plans_after = True
    plant, due = Plant(), []
    for policy in (now, after):
        policy.reset(plant.jobs, np.zeros(1, np.int64))
    for load in DAY[:70]:
        seen = plant.snapshot(load)
        wanted, other = now.decide(seen), after.decide(seen)
        due.append(after.is_due)
        if not after.is_due:
            np.testing.assert_array_equal(wanted.parallelism, other.parallelism)
            assert not now.is_due
        after.plan(seen)
        assert now.state() == after.state()
    assert 1 <= sum(due) <= 7  # every ten minutes at most
    assert not due[0]  # without any plan there is nothing to answer with


def noisy(cv, minutes=240, level=0.5, seed=3):
    return level * (1.0 + cv * np.random.default_rng(seed).standard_normal(minutes))


@pytest.mark.parametrize("cv", [0.02, 0.05, 0.1])
def test_the_noise_of_a_load_is_measured_on_its_own_minutes(cv):
    # The level that a minute is compared with is itself a mean of noisy minutes: 11 % more.
    found = [noise_of(noisy(cv, seed=seed), 0.03) for seed in range(20)]
    assert np.mean(found) == pytest.approx(1.11 * cv, rel=0.15)


def test_a_jump_of_the_load_is_no_noise():
    quiet, jump = noisy(0.02), noisy(0.02)
    jump[-30:] *= 1.8
    assert noise_of(jump, 0.03) == pytest.approx(noise_of(quiet, 0.03), rel=0.2)


def test_the_noise_is_assumed_before_any_minute_and_counts_for_ten():
    assert noise_of(np.array([0.5, 0.5]), 0.07) == 0.07
    assert noise_of(np.full(13, 0.5), 0.07) == pytest.approx(0.07 / np.sqrt(2.0))
    assert noise_of(np.zeros(100), 0.03) < 0.03  # a load of nothing has none


def test_the_noise_does_not_depend_on_the_unit_of_a_load_far_from_zero():
    assert noise_of(2.0 * noisy(0.05), 0.03) == pytest.approx(noise_of(noisy(0.05), 0.03), rel=0.05)


def test_a_noisier_load_of_the_same_mean_is_given_more_tasks():
    quiet, loud = (played(noisy(cv, minutes=200, level=0.55))[-1][0] for cv in (0.005, 0.12))
    assert loud > quiet
