"""Capacity actions: one choice a minute for the whole job, and an observation without a scale."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS, CapacityCodec
from dsp_gym.envs.capacity.action import CHOICES, HOLD
from dsp_gym.envs.config import CapacityConfig, EnvConfig, Randomisation
from dsp_gym.envs.observation import LIMIT
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.deployment import adaptive
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import LoadSet
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import VERTEX, SnapshotArrays, snapshot_of_arrays
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.sizing import ServiceModel
from tests.simulating import FAULTY, begun, exact, line, random_jobs
from tests.stepping import assert_vector_equals_single
from tests.strategies import chain_spec

LOADS = {"train": {"loads": ["diurnal-bursts", "flash-crowd"], "seeds": {"from": 0, "to": 50}}}
NAMES = list(CAPACITY_FEATURES)


def config(*jobs: str, **env) -> dict:
    env = {"action": "capacity", "episode_s": 1200, "start": "random", **env}
    return {"name": "test", "jobs": list(jobs) or ["nexmark-q11"], "loads": LOADS, "env": env}


def valid_choice(rng: np.random.Generator, masks: np.ndarray, act: float = 0.3) -> np.ndarray:
    """A random valid choice of each environment, (J,); most hold."""
    drawn = rng.random(masks.shape) * masks
    return np.where(rng.random(len(masks)) < act, drawn.argmax(axis=1), HOLD)


def watching(spec, rate_per_s, minutes=6, prior="job-file", options=None, **given):
    """An environment of one job under constant load that held for some minutes."""
    env_config = EnvConfig(
        action="capacity",
        episode_s=86400,
        start="sized",
        capacity=CapacityConfig(prior=prior),
        simulation=options or exact(),
    )
    env = AutoscaleBatch([spec], [0], LoadSet.model_validate(LOADS), config=env_config)
    begun(env, np.array([3]), np.full((1, 7200), rate_per_s))
    for _ in range(minutes):
        env.step(np.zeros((1, 1), np.int64))
    return env


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_a_multiple_of_the_load_becomes_the_tasks_that_carry_it(prior):
    # One task of the map carries 1,000/s.
    env = watching(line(), 3000.0, prior=prior)
    tasks = env.codec.targets(env.snapshot).parallelism[0, :, 1]
    for kappa, p in zip(KAPPAS, tasks.tolist(), strict=True):
        exactly = 3.0 * kappa
        slack = 0.02 if prior == "job-file" else 0.1  # the exponent is not known without a file
        assert np.ceil(exactly * (1 - slack)) <= p <= np.ceil(exactly * (1 + slack) + 1e-9)


def test_the_targets_of_the_service_model_carry_what_they_should():
    env = watching(load_job("nexmark-q8"), 40_000.0, minutes=12)
    to, codec = env.codec.targets(env.snapshot), env.codec
    model = codec._model
    assert isinstance(model, ServiceModel)
    present = codec.present_per_s()[0]
    for i, kappa in enumerate(KAPPAS):
        carried = model.capacity_per_s(env.topology, to.parallelism[:, i], to.level[:, i])[0]
        assert carried >= present * kappa * (1 - 1e-9)
    assert (np.diff(to.cost[0]) >= 0).all()


def test_choices_that_change_nothing_are_masked():
    env = watching(line(), 3000.0)
    masks, to = env.action_masks()[0], env.codec.targets(env.snapshot)
    assert masks[HOLD]
    running = [env.snapshot.parallelism[0].tolist(), env.snapshot.memory_level[0].tolist()]
    seen = [running]
    for i in range(len(KAPPAS)):
        led = [to.parallelism[0, i].tolist(), to.level[0, i].tolist()]
        assert masks[1 + i] == (led not in seen)
        seen.append(led)
    assert not masks.all()


def test_beyond_the_bounds_only_the_largest_configuration_is_left():
    env = watching(line(max_parallelism_per_vertex=5), 3500.0)
    masks, to = env.action_masks()[0], env.codec.targets(env.snapshot)
    assert to.parallelism[0, :, 1].max() == 5
    first = int(np.flatnonzero(np.array(KAPPAS) * 3.5 > 5)[0])  # out of reach: five tasks at most
    assert not masks[1 + first + 1 :].any()


def test_nothing_but_holding_is_valid_before_anything_was_measured_or_while_the_job_is_down():
    env = AutoscaleEnv(config=config())
    _, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [True] + [False] * len(KAPPAS)
    for _ in range(3):
        *_, info = env.step(HOLD)
    choice = int(np.flatnonzero(info["action_mask"])[-1])
    *_, info = env.step(choice)
    assert info["action_mask"].tolist() == [True] + [False] * len(KAPPAS)


def test_without_a_job_file_nothing_is_valid_until_every_vertex_was_seen_busy():
    spec = chain_spec()
    env = watching(spec, 0.0, prior="none")
    assert env.action_masks()[0].tolist() == [True] + [False] * len(KAPPAS)


def test_an_invalid_choice_holds_and_one_outside_the_space_is_refused():
    env = AutoscaleEnv(config=config(start="job"))
    env.reset(seed=0)
    before = env.batch.snapshot.parallelism.copy()
    *_, info = env.step(CHOICES - 1)
    np.testing.assert_array_equal(env.batch.snapshot.parallelism, before)
    assert info["down_s"] == 0
    with pytest.raises(ValueError, match="outside its space"):
        env.step(CHOICES)


def test_a_teachers_decision_becomes_the_nearest_choice():
    env = watching(line(), 3000.0)
    to = env.codec.targets(env.snapshot)
    for i in np.flatnonzero(env.action_masks()[0, 1:]).tolist():
        wanted = ScalingDecision(to.parallelism[:, i], to.level[:, i], ("",))
        assert env.encode_decision(wanted).tolist() == [[1 + i]]
    running = ScalingDecision(env.snapshot.parallelism, env.snapshot.memory_level, ("",))
    assert env.encode_decision(running).tolist() == [[HOLD]]


def test_a_teacher_that_balances_vertices_otherwise_is_understood_by_what_it_carries():
    env = watching(load_job("nexmark-q8"), 40_000.0, minutes=12)
    to, masks = env.codec.targets(env.snapshot), env.action_masks()[0]
    choice = int(np.flatnonzero(masks[1:])[-1])
    carries = env.codec._model.capacity_per_s
    wanted, level = to.parallelism[:, choice].copy(), to.level[:, choice].copy()
    before = carries(env.topology, wanted, level)
    for v in range(wanted.shape[1]):  # three times the tasks wherever that carries no more
        more = wanted.copy()
        more[0, v] *= 3
        if carries(env.topology, more, level) <= before:
            wanted = more
    assert wanted.sum() > 1.5 * to.parallelism[:, choice].sum()
    # By tasks, that is nearer to the largest choice than to this one.
    found = env.encode_decision(ScalingDecision(wanted, level, ("",)))[0, 0]
    carried = carries(env.topology, to.parallelism[:, found - 1], to.level[:, found - 1])
    np.testing.assert_allclose(carried, before)


@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_where_all_slots_have_one_size_no_choice_and_no_plan_moves_memory(prior):
    spec = adaptive(load_job("nexmark-q8"), 0)
    env = watching(spec, 20_000.0, prior=prior)
    policy = make(PolicyConfig(policy="mdp", params={"prior": prior}))
    policy.reset(env.topology, env.base_seeds)
    stateful = env.topology.tables.stateful[0] == 1
    moved = 0
    for minute in range(40):
        masks, to = env.action_masks()[0], env.codec.targets(env.snapshot)
        decision = policy.decide(env.snapshot)
        assert (to.level[0][:, stateful] == 0).all()
        assert (decision.memory_level[0, stateful] == 0).all()
        moved += int((decision.parallelism != env.snapshot.parallelism).any())
        choice = int(np.flatnonzero(masks)[-1]) if minute % 8 == 0 else HOLD
        env.step(np.array([[choice]]))
    assert moved > 0


def test_two_codecs_that_look_at_one_snapshot_do_not_mix():
    env = watching(line(), 3000.0)
    before = env.codec.targets(env.snapshot)
    other = CapacityCodec(env.topology, CapacityConfig(prior="none"))
    other.look(env.snapshot, env.late_price)
    assert env.codec.targets(env.snapshot) is before
    assert other.targets(env.snapshot) is not before


def test_guardrails_see_the_decision_by_vertex():
    made = config(start="job", episode_s=3600)
    env = AutoscaleEnv(config=made, guardrails="default")
    _, info = env.reset(seed=3)
    changed = []
    rng = np.random.default_rng(0)
    for _ in range(30):
        choice = valid_choice(rng, info["action_mask"][None], act=1.0)[0]
        *_, info = env.step(int(choice))
        changed += [one["guardrail"] for one in info["interventions"]]
    assert "cool_down" in changed or "step_limit" in changed


@pytest.mark.slow
@pytest.mark.parametrize("guardrails", [None, "default"])
@pytest.mark.parametrize("prior", ["job-file", "none"])
def test_environment_i_of_a_vector_is_the_single_one_with_seed_plus_i(guardrails, prior):
    varied = {"service_factor": [0.7, 1.4], "late_price": [0.5, 8.0], "load_start": "any"}
    experiment = config(simulation=FAULTY.model_dump(), capacity={"prior": prior}, randomise=varied)
    rng, acted = np.random.default_rng(0), 0

    def choose(masks: np.ndarray) -> np.ndarray:
        nonlocal acted
        actions = valid_choice(rng, masks, act=1.0)
        acted += int((actions > 0).sum())
        return actions

    assert_vector_equals_single(experiment, guardrails, choose)
    assert acted >= 6


def test_a_saved_state_continues_exactly():
    varied = {"late_price": [0.5, 8.0], "job": True, "stagger": True, "load_start": "any"}
    jobs = ("nexmark-q11", "nexmark-q1", "nexmark-q8")
    many = AutoscaleVectorEnv(4, config=config(*jobs, randomise=varied))
    _, info = many.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(8):
        *_, info = many.step(valid_choice(rng, info["action_mask"]))
    state = many.batch.save()
    actions = [valid_choice(rng, info["action_mask"]) for _ in range(15)]
    first = [many.step(one)[:2] for one in actions]
    other = AutoscaleVectorEnv(4, config=config(*jobs, randomise=varied))
    other.reset(seed=9)
    other.batch.load(state)
    for one, (seen, reward) in zip(actions, first, strict=True):
        np.testing.assert_array_equal(other.action_masks(), other.batch.action_masks())
        again = other.step(one)
        np.testing.assert_array_equal(again[0], seen)
        np.testing.assert_array_equal(again[1], reward)


def test_every_episode_takes_another_job_and_price_and_the_first_ones_end_apart():
    varied = {"late_price": [0.5, 8.0], "job": True, "stagger": True, "load_start": "any"}
    jobs = ("nexmark-q11", "nexmark-q1", "nexmark-q8", "nexmark-q5")
    many = AutoscaleVectorEnv(16, config=config(*jobs, randomise=varied))
    many.reset(seed=1)
    batch, hold = many.batch, np.zeros(16, np.int64)
    rows, prices = batch.topology.row.copy(), batch.late_price.copy()
    unit = batch.reference_cost_per_s.copy()
    ends = np.array([many.step(hold)[3] for _ in range(20)])
    assert len(set(ends.argmax(axis=0).tolist())) > 4  # 20 decisions, 16 rows
    assert ends.any(axis=0).all()
    assert (batch.topology.row != rows).any()
    assert (batch.late_price != prices).all()
    assert (batch.late_price >= 0.5).all()
    assert (batch.late_price <= 8.0).all()
    by_job = {k: batch.reference_cost_per_s[batch.topology.row == k] for k in range(4)}
    assert all(len(set(found.tolist())) <= 1 for found in by_job.values())
    assert (batch.reference_cost_per_s != unit).any()


def test_the_price_of_lateness_is_the_weight_of_late_seconds_and_part_of_the_observation():
    many = AutoscaleVectorEnv(3, config=config(randomise={"late_price": [0.5, 8.0]}))
    many.reset(seed=1)
    seen, reward, _, _, info = many.step(np.zeros(3, np.int64))
    terms, weights = info["reward_terms"], many.batch.config.reward
    price = many.batch.late_price
    expected = -(
        weights.cost * terms["cost"]
        + price * terms["slo"]
        + weights.backlog * terms["backlog"]
        + weights.rescale * terms["rescale"]
    )
    np.testing.assert_allclose(reward, expected)
    np.testing.assert_allclose(seen[:, NAMES.index("late_price")], np.log(price), rtol=1e-6)


def shifted(spec: JobSpec, factor: float) -> JobSpec:
    """The job with `factor` times the rate and its times per record divided by it.

    A window is so much shorter: it holds the records that it held.
    """
    vertices = []
    for vertex in spec.vertices:
        changed = {"cpu_us_per_record": vertex.cpu_us_per_record / factor}
        if vertex.state is not None:
            times = ("read_hit_us", "read_miss_us", "write_us")
            state = {name: getattr(vertex.state, name) / factor for name in times}
            if (window := vertex.state.window) is not None:
                slide_s = None if window.slide_s is None else window.slide_s / factor
                shorter = {"length_s": window.length_s / factor, "slide_s": slide_s}
                state["window"] = window.model_copy(update=shorter)
            changed["state"] = vertex.state.model_copy(update=state)
        vertices.append(vertex.model_copy(update=changed))
    source = spec.source.model_copy(update={"rate_per_s": spec.source.rate_per_s * factor})
    return spec.model_copy(update={"vertices": tuple(vertices), "source": source})


COUNTS = (
    *("records_in_total", "records_out_total", "pending_records", "pending_records_max_subtask"),
    *("records_in_per_s", "records_out_per_s", "pending_growth_per_s"),
    *("cache_hits_total", "cache_misses_total"),
)
"""Metrics that count records."""


WATCHED = (
    *("random-dag:7", "random-dag:12", "random-dag:31"),
    *("nexmark-q8", "wordcount-flink"),
)


@pytest.fixture(scope="module", params=WATCHED)
def watched(request):
    """Half an hour of a job, rescaled on the way: its file and snapshots."""
    jobs = SimulatedJobs(Topology.of([load_job(request.param)]))
    rate = float(jobs.topology.tables.rate_per_s[0])
    load = rate * (0.5 + 0.3 * np.sin(np.arange(3600) / 600.0))
    jobs.reset(np.array([1]), load[None])
    seen = []
    for minute in range(30):
        jobs.advance(60)
        seen.append(jobs.snapshot())
        if minute in (8, 20):
            more = seen[-1].parallelism + (2 if minute == 8 else -1)
            low = jobs.topology.tables.min_parallelism
            wanted = ScalingDecision(np.maximum(more, low), seen[-1].memory_level, ("",))
            jobs.apply(GuardedDecision.unchanged(wanted))
    return jobs.topology.specs[0], seen


@pytest.mark.parametrize("prior", ["job-file", "none"])
@settings(max_examples=40)
@given(log_factor=st.floats(-2, 2))
def test_a_job_shifted_in_rate_and_service_time_looks_the_same(watched, prior, log_factor):
    spec, snapshots = watched
    factor = 10.0**log_factor
    price = np.array([2.0])
    plain, moved = Topology.of([spec]), Topology.of([shifted(spec, factor)])
    one, other = (CapacityCodec(t, CapacityConfig(prior=prior)) for t in (plain, moved))
    acted = 0
    for snapshot in snapshots:
        arrays = snapshot.arrays
        vertex = arrays.vertex.copy()
        for name in COUNTS:
            vertex[getattr(VERTEX, name)] *= factor
        scaled = snapshot_of_arrays(moved, SnapshotArrays(*arrays[:-1], vertex))
        same = snapshot_of_arrays(plain, arrays)
        np.testing.assert_allclose(
            other.look(scaled, price), one.look(same, price), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_array_equal(other.masks(scaled), one.masks(same))
        acted += int(one.masks(same)[0, 1:].any())
    assert acted > 15


def test_a_faster_job_under_more_load_is_simulated_seen_and_re_targeted_alike():
    def course(factor):
        env = watching(shifted(line(), factor), 3000.0 * factor, minutes=4)
        steady, targets = env.observation[0], []
        for choice in (CHOICES - 1, *[HOLD] * 4, 1, *[HOLD] * 4):
            env.step(np.array([[choice]]))
            targets.append(env.codec.targets(env.snapshot).parallelism[0])
        return steady, np.array(targets)

    steady, targets = course(1.0)
    for factor in (100.0, 0.1):
        seen, led = course(factor)
        np.testing.assert_allclose(seen, steady, rtol=1e-3, atol=1e-3)
        assert np.abs(led - targets).max() <= 1  # while it catches up, from full buffers


@given(st.integers(0, 2**31))
def test_any_job_under_faults_gives_finite_observations_and_decisions_within_bounds(seed):
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, 3, SimulationOptions(faults=FAULTY.faults), seconds=300)
    prior = "none" if seed % 2 else "job-file"
    codec = CapacityCodec(jobs.topology, CapacityConfig(prior=prior))
    tables, row = jobs.topology.tables, jobs.topology.row
    for _ in range(8):
        snapshot = jobs.snapshot()
        seen = codec.look(snapshot, np.full(3, 2.0))
        assert np.isfinite(seen).all()
        assert np.abs(seen).max() <= LIMIT
        choices = valid_choice(rng, codec.masks(snapshot), act=0.8)
        decision = codec.decode(snapshot, choices[:, None])
        there = tables.kind[row] >= 0
        low, high = tables.min_parallelism[row], tables.max_parallelism[row]
        assert (decision.parallelism >= low)[there].all()
        assert (decision.parallelism <= high)[there].all()
        assert (decision.memory_level < tables.levels[row][:, None])[there].all()
        jobs.apply(GuardedDecision.unchanged(decision))
        jobs.advance(60)


def test_the_memory_of_a_codec_survives_json():
    env = watching(line(), 3000.0)
    codec, again = env.codec, CapacityCodec(env.topology, CapacityConfig())
    assert isinstance(codec, CapacityCodec)
    again.restore(json.loads(json.dumps(codec.state())))
    env.step(np.zeros((1, 1), np.int64))
    # `again` has not seen the minute that has just passed.
    np.testing.assert_array_equal(again.look(env.snapshot, env.late_price), env.observation)


def test_a_job_without_load_for_hours_is_held_and_a_job_without_prices_is_sized_by_tasks():
    free = Topology.of([line(prices={"core_hour": 0.0, "gib_hour": 0.0})])
    env, codec = watching(line(), 2500.0), CapacityCodec(free, CapacityConfig())
    assert np.isfinite(codec.look(env.snapshot, env.late_price)).all()
    env.step(np.zeros((1, 1), np.int64))
    assert np.isfinite(codec.look(env.snapshot, env.late_price)).all()
    assert codec.targets(env.snapshot).parallelism[0, 0, 1] == 3
    env = watching(line(), 0.0, minutes=60)
    assert np.isfinite(env.observation).all()
    assert env.action_masks()[0].tolist() == [True] + [False] * len(KAPPAS)


def test_what_needs_capacity_actions_and_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="needs action: capacity"):
        EnvConfig(randomise=Randomisation(job=True))
    with pytest.raises(ValueError, match=r"reward\.slo is 0.*randomise\.late_price a range"):
        EnvConfig(action="capacity", reward={"slo": 0})
    with pytest.raises(ConfigError, match=r"reward\.slo is 0"):
        AutoscaleEnv(job="nexmark-q1", action="capacity", reward={"slo": 0})
    with pytest.raises(ConfigError, match=r"reward\.slo is 0"):
        AutoscaleEnv(config=config(action="vertex", reward={"slo": 0}), action="capacity")
    drawn = {"late_price": [0.5, 8.0]}
    EnvConfig(action="capacity", reward={"slo": 0}, randomise=drawn)
    with pytest.raises(ConfigError, match=r"no action space 'capacty'.*capacity"):
        AutoscaleEnv(job="nexmark-q1", action="capacty")
