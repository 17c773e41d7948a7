"""The single and the vector environment report the same interventions of guardrails."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv

ENVS, STEPS, SEED = 3, 8, 5


def moves(env: AutoscaleVectorEnv) -> np.ndarray:
    """Actions that guardrails do not leave alone: everything is doubled, or cut by a quarter."""
    rng = np.random.default_rng(0)
    pairs = rng.choice([1, 5], size=(STEPS, ENVS, env.batch.vertices))
    return np.stack([pairs, np.zeros_like(pairs)], axis=-1).reshape(STEPS, ENVS, -1)


def told_by_the_vector(explain: bool | None) -> list[list[dict[str, object]]]:
    env = AutoscaleVectorEnv(ENVS, "nexmark-q11", guardrails="default", explain=explain)
    env.reset(seed=SEED)
    seen = []
    for actions in moves(env):
        info = env.step(actions)[-1]
        seen.append(
            [
                {name: info[name][i] for name in ("interventions", "trips", "enacted")}
                for i in range(ENVS)
            ]
        )
    return seen


@pytest.fixture(scope="module")
def told_by_singles() -> list[list[dict[str, object]]]:
    every = AutoscaleVectorEnv(ENVS, "nexmark-q11")
    columns = []
    for i in range(ENVS):
        env = AutoscaleEnv("nexmark-q11", guardrails="default")
        env.reset(seed=SEED + i)
        infos = [env.step(actions[i])[-1] for actions in moves(every)]
        columns.append(
            [{name: info[name] for name in ("interventions", "trips", "enacted")} for info in infos]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def test_both_environments_give_the_same_records(told_by_singles):
    for many, singles in zip(told_by_the_vector(explain=True), told_by_singles, strict=True):
        for one, single in zip(many, singles, strict=True):
            assert one["interventions"] == single["interventions"]
            np.testing.assert_array_equal(one["trips"], single["trips"])
            assert one["enacted"] == single["enacted"]


def test_a_batch_leaves_out_the_words_and_nothing_else(told_by_singles):
    changed = 0
    for many, singles in zip(told_by_the_vector(explain=None), told_by_singles, strict=True):
        for one, single in zip(many, singles, strict=True):
            expected = tuple(record | {"reason": ""} for record in single["interventions"])
            assert one["interventions"] == expected
            assert len(expected) == np.sum(single["trips"])
            changed += len(expected)
    assert changed >= STEPS


def test_a_record_names_the_guardrail_and_says_why(told_by_singles):
    records = [r for row in told_by_singles for one in row for r in one["interventions"]]
    assert {frozenset(record) for record in records} == {
        frozenset({"guardrail", "kind", "by", "reason"})
    }
    held = [record for record in records if record["guardrail"] == "stale_metrics"]
    assert held
    assert {record["kind"] for record in held} == {"held"}
    assert all("metrics window" in str(record["reason"]) for record in held)


def test_without_guardrails_nothing_is_told():
    env = AutoscaleVectorEnv(ENVS, "nexmark-q11")
    env.reset(seed=SEED)
    info = env.step(moves(env)[0])[-1]
    assert info["interventions"].tolist() == [()] * ENVS
    assert info["trips"].shape == (ENVS, 0)
