"""Transitions equal the environment's output to the last bit."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest

from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import EnvConfig
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.splits import LoadSet
from dsp_gym.policies import make
from tests.deciding import decisions_table, run_decisions
from tests.guarding import chain
from tests.simulating import FAULTY

pytestmark = [pytest.mark.spark, pytest.mark.slow]

pytest.importorskip("pyspark")

from dsp_gym.datasets.encoding import EncodingConfig  # noqa: E402
from spark_pipelines.steps.transitions import segments, transitions  # noqa: E402

LOADS = LoadSet.model_validate(
    {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}}
)
ENV = EnvConfig(
    episode_s=2400,
    start="random",
    ds2_utilization=0.6,
    reward={"cost": 5},
    simulation=FAULTY,
    give_up_backlog_s=300,
)
JOBS = ("nexmark-q3", "nexmark-q11", "nexmark-q8")


def made(spark, rows, specs, config):
    """The transitions of shuffled rows, by job and run."""
    random.Random(0).shuffle(rows)
    frame = spark.createDataFrame(decisions_table(rows))
    found = frame.transform(segments).transform(transitions, specs, config).toArrow()
    by_run: dict[tuple[str, str], list] = {}
    for row in sorted(found.to_pylist(), key=lambda row: row["step"]):
        by_run.setdefault((row["job"], row["run"]), []).append(row)
    return by_run


def assert_same(found, given):
    assert len(found) == len(given)
    for row, expected in zip(found, given, strict=True):
        for name, value in expected.items():
            assert np.array_equal(np.asarray(row[name], np.asarray(value).dtype), value), (
                name,
                row["step"],
            )


@pytest.fixture(scope="module")
def batch():
    """Nine jobs of three kinds under strict guardrails, where much goes wrong."""
    specs = [load_job(name) for name in JOBS]
    env = AutoscaleBatch(specs, [0, 1, 2] * 3, LOADS, "train", ENV, chain("strict"), vertices=7)
    env.seed(np.arange(len(env)))
    env.reset()
    policy = make("ds2")
    policy.reset(env.topology, env.base_seeds)
    return env, *run_decisions(
        env, lambda e: (policy.decide(e.snapshot), None), policy="ds2", begun=True
    )


@pytest.fixture(scope="module")
def specs():
    return {spec.job: spec for spec in map(load_job, JOBS)}


def test_a_policy_under_guardrails_gives_what_the_batched_environment_gave(spark, batch, specs):
    env, rows, given = batch
    config = EncodingConfig(env=ENV, gamma=0.9, vertices=7)
    found = made(spark, list(rows), specs, config)
    assert any(run[-1]["terminated"] for run in given)
    assert not any(row["terminated"] for run in given for row in run[:-1])
    assert any(
        step["parallelism"] != step["proposed_parallelism"] for step in rows if "cost" in step
    )
    for j in range(len(env)):
        run = found[env.topology.spec(j).job, f"run-{j}"]
        assert_same(run, given[j])
        assert {(row["policy"], row["propensity"]) for row in run} == {("ds2", 1.0)}
        future = 0.0
        for row, expected in reversed(list(zip(run, given[j], strict=True))):
            future = float(expected["reward"]) + 0.9 * future
            assert row["return_to_go"] == np.float32(future)


def test_random_actions_come_back_as_the_single_environment_took_them(spark):
    made_env = gymnasium.make("dsp_gym/Nexmark-Q5-v1")
    env = made_env.unwrapped
    env.action_space.seed(3)
    env.reset(seed=3)

    def act(core):
        actions = env.action_space.sample()[None, :]
        return core.decode_actions(actions), actions

    rows, given = run_decisions(env.batch, act, policy="random", begun=True)
    spec = env.batch.topology.spec(0)
    config = EncodingConfig(env=env.batch.config)
    found = made(spark, rows, {spec.job: spec}, config)
    assert_same(found[spec.job, "run-0"], given[0])
    made_env.close()


@pytest.fixture(scope="module")
def capacities():
    """Six jobs of three kinds under capacity actions, most of them holding."""
    specs, rng = [load_job(name) for name in JOBS], np.random.default_rng(4)
    config = ENV.model_copy(update={"action": "capacity", "give_up_backlog_s": 3600.0})
    env = AutoscaleBatch(specs, [0, 1, 2] * 2, LOADS, "train", config)
    env.seed(np.arange(len(env)))
    env.reset()

    def act(core):
        drawn = (rng.random(core.action_masks().shape) * core.action_masks()).argmax(axis=1)
        actions = np.where(rng.random(len(core)) < 0.4, drawn, 0)[:, None]
        return core.decode_actions(actions), actions

    return env, *run_decisions(env, act, policy="random", begun=True)


def test_capacity_actions_come_back_to_the_last_bit_told_or_not(spark, capacities, specs):
    env, rows, given = capacities
    assert sum(step["action"][0] > 0 for run in given for step in run) > 8
    config = EncodingConfig(env=env.config)
    rows = list(rows)
    rows += [row | {"run": f"untold-{row['run']}", "action": None} for row in rows]
    for row in rows[: len(rows) // 2]:  # actions of the other kind: what was proposed counts
        moved = [0] * 2 * len(row["parallelism"]) if "action" in row else None
        rows.append(row | {"run": f"vertices-{row['run']}", "action": moved})
    found = made(spark, rows, specs, config)
    for j in range(len(env)):
        for run in (f"run-{j}", f"untold-run-{j}", f"vertices-run-{j}"):
            assert_same(found[env.topology.spec(j).job, run], given[j])


def test_decisions_on_capacities_can_be_encoded_as_moves_of_vertices(spark, capacities, specs):
    env, rows, given = capacities
    found = made(spark, list(rows), specs, EncodingConfig(env=ENV, vertices=7))
    for j in range(len(env)):
        run = found[env.topology.spec(j).job, f"run-{j}"]
        assert {len(row["action"]) for row in run} == {14}
        for row, was in zip(run, given[j], strict=True):
            if was["action"][0] == 0:
                assert not any(row["action"])


def test_nothing_is_carried_across_a_gap_and_every_row_is_accounted_for(spark, batch, specs):
    _, rows, given = batch
    run = sorted((dict(row) for row in rows if row["run"] == "run-0"), key=lambda row: row["step"])
    assert len(run) > 20
    del run[4]  # a decision is missing
    unknown = next(i for i, row in enumerate(run) if row["step"] == 9)
    run[unknown]["snapshot"] = None
    run.append(dict(run[1]))  # step 1 twice
    frame = spark.createDataFrame(decisions_table(run)).transform(segments)
    uses = {row["use"]: row["count"] for row in frame.groupBy("use").count().collect()}
    assert uses == {
        "transition": len(run) - 5,
        "final": 1,
        "no_next": 2,  # before the missing one, and before the unknown one
        "no_snapshot": 1,
        "duplicate": 1,
    }
    config = EncodingConfig(env=ENV, vertices=7)
    found = {row["step"]: row for row in made(spark, run, specs, config)["nexmark-q3", "run-0"]}
    assert sorted(found) == [s for s in range(len(given[0])) if s not in (3, 4, 8, 9)]
    cuts = [s for s, row in found.items() if row["truncated"]]
    assert sorted(cuts)[:2] == [2, 7]
    assert_same([found[s] | {"truncated": False} for s in (0, 1, 2)], given[0][:3])
    # Features without memory are those of the run; the history begins anew.
    before, now = given[0][10]["observation"], np.float32(found[10]["observation"])
    assert np.array_equal(before[:18], now[:18])
    assert found[10]["return_to_go"] == pytest.approx(
        sum(0.97 ** (s - 10) * found[s]["reward"] for s in found if s >= 10), rel=1e-6
    )


def test_a_decision_of_another_job_file_is_refused_with_its_run(spark, batch, specs):
    _, rows, _ = batch
    run = [row for row in rows if row["run"] == "run-0"]
    other = {"nexmark-q3": specs["nexmark-q11"].model_copy(update={"job": "nexmark-q3"})}
    with pytest.raises(Exception, match=r"nexmark-q3.*run-0") as caught:
        made(spark, run, other, EncodingConfig(env=ENV))
    assert "values where its job has 3" in str(caught.value)


def test_room_for_fewer_vertices_than_a_job_has_is_refused(specs):
    with pytest.raises(DatasetError, match=r"nexmark-q3.*vertices"):
        EncodingConfig(vertices=2).columns(specs)
