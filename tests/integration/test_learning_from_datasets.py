"""From rollouts to a dataset to agents, and to Minari and back."""

from __future__ import annotations

import os
import re

import gymnasium
import numpy as np
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

pytest.importorskip("pyspark")
pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

from agents.learner import Learner  # noqa: E402
from agents.offline import demonstrated, read_transitions  # noqa: E402
from dsp_gym.cli import app  # noqa: E402
from dsp_gym.config.files import parse  # noqa: E402
from dsp_gym.datasets.minari import export_minari, reference_scores, unpadded  # noqa: E402
from dsp_gym.datasets.reader import Dataset  # noqa: E402
from dsp_gym.datasets.rollouts.plan import RolloutConfig  # noqa: E402
from dsp_gym.datasets.rollouts.run import rollout  # noqa: E402
from dsp_gym.envs.observation import ObservationEncoder  # noqa: E402
from dsp_gym.envs.reward import reward  # noqa: E402
from dsp_gym.errors import DatasetError  # noqa: E402
from dsp_gym.experiments.experiment import ExperimentConfig  # noqa: E402
from dsp_gym.job.catalog import load_job  # noqa: E402
from dsp_gym.loop.topology import Topology  # noqa: E402
from spark_pipelines.build import build  # noqa: E402
from spark_pipelines.config import DatasetConfig  # noqa: E402

LOADS = {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 6}}
ENV = {"ds2_utilization": 0.4918, "start": "random", "episode_s": 2400}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Twelve episodes of two policies."""
    root = tmp_path_factory.mktemp("datasets")
    played = {
        "policies": ["justin-paper", "ds2"], "jobs": ["nexmark-q11"], "loads": {"train": LOADS},
        "env": ENV, "epsilon": 0.1,
    }  # fmt: skip
    rollout(parse(RolloutConfig, played, "test"), root / "rollouts")
    made = {
        "name": "small",
        "sources": [{"kind": "rollouts", "folder": str(root / "rollouts")}],
        "tables": ["transitions"],
        "transitions": {"env": {"ds2_utilization": 0.4918, "reward": {"cost": 5}}},
    }
    build(parse(DatasetConfig, made, "test"), root / "dataset", engine="polars")
    return root / "dataset"


def an_experiment(dataset, env=None, jobs=("nexmark-q11",), **agent) -> ExperimentConfig:
    document = {
        "name": "small",
        "jobs": list(jobs),
        "loads": {
            "train": LOADS,
            "validation": {"loads": ["diurnal-bursts"], "seeds": {"from": 100, "to": 104}},
        },
        "env": ENV | (env or {}),
        "agent": {
            "network": {"encoder": "mlp", "hidden": [16]},
            "n_envs": 4, "n_steps": 8, "batch_size": 32, "eval_episodes": 2, **agent,
        },
    }  # fmt: skip
    return parse(ExperimentConfig, document, "test")


def test_an_agent_imitates_a_dataset_without_a_step_of_its_own(dataset, tmp_path):
    from agents.export import export
    from agents.trained import TrainedConfig, TrainedPolicy

    warm = {"dataset": str(dataset), "policies": ["justin-*"], "epochs": 40, "batch_size": 64}
    config = an_experiment(dataset, total_steps=0, warm_start={**warm, "learning_rate": 3e-3})
    told = {}
    learner = Learner(config, 0, tmp_path, record=lambda figures, step: told.update(figures))
    best = learner.run()
    assert best.steps == 0
    assert told["warm_start/agreement"] > 0.93
    shown = read_transitions(config, config.agent.warm_start)
    assert set(shown.policy) == {"justin-paper"}
    meant = demonstrated(shown, config, 0.5)
    assert len(meant.actions) == (shown.propensity >= 0.5).sum() < len(shown)
    held = (meant.actions == 0).all(axis=1).mean()
    assert 0.5 < held < 1  # there was more to learn than holding
    folder = export(learner, tmp_path / "policy")
    policy = TrainedPolicy(TrainedConfig(path=str(folder)))
    assert policy.training_box["busy"][1] > policy.training_box["busy"][0]
    content = Dataset.open(dataset).manifest.content_sha256[:16]
    assert policy.document.data == {str(dataset): content}
    assert f"dataset {dataset} ({content})" in (folder / "card.md").read_text(encoding="utf-8")


@pytest.mark.validate
def test_learning_offline_comes_before_the_first_step_and_resumes_after_it(dataset, tmp_path):
    offline = {"dataset": str(dataset), "epochs": 3, "batch_size": 128}
    config = an_experiment(dataset, total_steps=32, offline=offline)
    stages, losses, told = [], [], {}

    def progress(stage, done, of, figures):
        stages.append(stage)
        if stage == "offline":
            losses.append(figures["offline_loss"])

    learner = Learner(
        config, 0, tmp_path, progress=progress,
        record=lambda figures, step: told.update(figures),
    )  # fmt: skip
    learner.run()
    assert [*dict.fromkeys(stages)] == ["offline", "learn"]
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    assert told["offline/loss"] == losses[-1]
    again = Learner(config, 0, tmp_path)
    again.run(resume=True)
    for name, weights in learner.weights().items():
        np.testing.assert_array_equal(again.weights()[name], weights)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"env": {"ds2_utilization": 0.7}}, "what DS2 says.*0.7"),
        ({"jobs": ("nexmark-q5",)}, "no decision of the job 'nexmark-q5'"),
        ({"jobs": ("nexmark-q3",)}, "room for 3 vertices.*6"),
    ],
)
def test_a_dataset_that_does_not_fit_is_refused_with_what_differs(dataset, changes, says):
    config = an_experiment(dataset, **changes, warm_start={"dataset": str(dataset)})
    with pytest.raises(DatasetError, match=says):
        read_transitions(config, config.agent.warm_start)


def test_a_dataset_is_learned_from_by_its_address(dataset):
    config = an_experiment(dataset, warm_start={"dataset": f"file://{dataset}"})
    found = read_transitions(config, config.agent.warm_start)
    assert len(found) == len(Dataset.open(dataset).transitions("train"))


def test_a_dataset_of_other_features_or_another_job_file_is_refused(dataset):
    found = Dataset.open(dataset).encoding
    env, specs = an_experiment(dataset).env, [load_job("nexmark-q11")]
    other = found.model_copy(update={"vertex_features": found.vertex_features[:-1]})
    with pytest.raises(DatasetError, match="it lacks cost_share"):
        other.refuse_other(env, specs, dataset)
    changed = specs[0].model_copy(update={"buffer_records": 1.0})
    with pytest.raises(DatasetError, match="files differ"):
        found.refuse_other(env, [changed], dataset)


@pytest.fixture(scope="module")
def capacities(tmp_path_factory):
    """Six episodes in which capacities were explored, for agents that decide on them."""
    root = tmp_path_factory.mktemp("capacities")
    env = {"action": "capacity", "start": "random", "episode_s": 2400}
    played = {
        "policies": ["ds2"], "jobs": ["nexmark-q11"], "loads": {"train": LOADS},
        "env": env, "epsilon": 0.1,
    }  # fmt: skip
    rollout(parse(RolloutConfig, played, "test"), root / "rollouts")
    made = {
        "name": "capacities",
        "sources": [{"kind": "rollouts", "folder": str(root / "rollouts")}],
        "tables": ["transitions"],
        "transitions": {"env": {"action": "capacity", "reward": {"slo": 5}}},
    }
    build(parse(DatasetConfig, made, "test"), root / "dataset", engine="polars")
    return root / "dataset"


def test_an_agent_of_capacities_is_cloned_and_learns_offline_from_a_dataset(capacities, tmp_path):
    from agents.export import export
    from agents.folder import read_folder

    env = {"action": "capacity", "randomise": {"late_price": [1, 8]}}
    config = an_experiment(
        capacities, env, total_steps=0,
        warm_start={"dataset": str(capacities), "epochs": 60, "batch_size": 64,
                    "learning_rate": 1e-2},
        offline={"dataset": str(capacities), "epochs": 2, "batch_size": 64},
    )  # fmt: skip
    told = {}
    learner = Learner(config, 0, tmp_path, record=lambda figures, step: told.update(figures))
    learner.run()
    shown = read_transitions(config, config.agent.warm_start)
    assert shown.action.shape == (len(shown), 1)
    assert (shown.valid_action() > 0).any()
    meant = demonstrated(shown, config, 0.5).actions
    # The rare decisions to act are learned, too.
    assert told["warm_start/agreement"] > (meant == 0).mean() < 1
    assert np.isfinite(told["offline/loss"])
    document, _ = read_folder(export(learner, tmp_path / "policy"))
    assert document.action.space == "capacity"
    assert document.action.late_prices == (1, 8)
    assert document.data == {str(capacities): Dataset.open(capacities).manifest.content_sha256[:16]}


def test_a_dataset_of_the_other_action_is_refused_and_so_is_another_service_model(
    dataset, capacities
):
    for folder, env, says in (
        (dataset, {"action": "capacity"}, "moves of vertices.*decides on the capacity of the job"),
        (capacities, {}, "capacity actions.*decides on vertices"),
        (
            capacities,
            {"action": "capacity", "capacity": {"prior": "none"}},
            "service model behind its actions",
        ),
    ):
        config = an_experiment(folder, env, warm_start={"dataset": str(folder)})
        with pytest.raises(DatasetError, match=says):
            read_transitions(config, config.agent.warm_start)


def test_capacities_are_read_back_from_minari(capacities, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    (export,) = export_minari(capacities, tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    back, seen = minari.load_dataset(export.id), Dataset.open(capacities).transitions()
    episodes = sorted(back.iterate_episodes(), key=lambda episode: episode.id)
    joined = np.concatenate([episode.observations[:-1] for episode in episodes])
    np.testing.assert_array_equal(joined, seen.observation)
    actions = np.concatenate([episode.actions for episode in episodes])
    np.testing.assert_array_equal(actions, seen.action[:, 0])
    env = back.recover_environment()
    assert env.action_space == back.action_space == gymnasium.spaces.Discrete(11)
    assert env.observation_space.shape == joined.shape[1:]
    assert env.unwrapped.batch.config.reward.slo == 5
    env.close()


def test_training_says_where_no_dataset_is(tmp_path):
    config = tmp_path / "experiment.yaml"
    config.write_text(
        "name: none\njobs: [nexmark-q11]\nloads:\n"
        "  train: {loads: [diurnal-bursts], seeds: {from: 0, to: 2}}\n"
        "  validation: {loads: [diurnal-bursts], seeds: {from: 2, to: 4}}\n"
        "agent: {warm_start: {dataset: nowhere}}\n"
    )
    result = CliRunner().invoke(app, ["train", str(config), "--track=none", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "nowhere: is not a dataset" in " ".join(result.stderr.split())


def test_minari_reads_back_what_was_exported(dataset, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    made = export_minari(dataset, tmp_path)
    assert [export.id for export in made] == [
        "dsp_gym/nexmark-q11/ds2-v0",
        "dsp_gym/nexmark-q11/justin-paper-v0",
    ]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    seen = Dataset.open(dataset).transitions()
    for export in made:
        back = minari.load_dataset(export.id)
        policy = back.storage.metadata["algorithm_name"]
        rows = seen.take(np.flatnonzero(seen.policy == policy))
        assert back.total_steps == len(rows) == export.steps
        assert back.total_episodes == rows.ends.sum() == export.episodes == 6
        episodes = sorted(back.iterate_episodes(), key=lambda episode: episode.id)
        joined = np.concatenate([episode.observations[:-1] for episode in episodes])
        np.testing.assert_array_equal(joined, rows.observation)
        after = np.concatenate([episode.observations[1:] for episode in episodes])
        np.testing.assert_array_equal(after, rows.next_observation)
        actions = np.concatenate([episode.actions for episode in episodes])
        np.testing.assert_array_equal(actions, rows.action)
        rewards = np.concatenate([episode.rewards for episode in episodes])
        weights = Dataset.open(dataset).encoding.reward
        np.testing.assert_array_equal(
            rewards.astype(np.float32), reward(rows.terms, weights).astype(np.float32)
        )
        propensity = np.concatenate([episode.infos["propensity"][:-1, 0] for episode in episodes])
        np.testing.assert_array_equal(propensity, rows.propensity)
        env, evaluated = back.recover_environment(), back.recover_environment(eval_env=True)
        assert env.observation_space.shape == (rows.observation.shape[1],)
        assert env.unwrapped.batch.config.reward == weights
        assert (env.spec.kwargs["split"], evaluated.spec.kwargs["split"]) == ("train", "test")
        normalised = minari.get_normalized_score(
            back, np.array([export.random_score, export.expert_score])
        )
        assert normalised == pytest.approx([0, 1])
        assert export.random_score < export.expert_score
        assert reference_scores(env.spec) == (export.random_score, export.expert_score)
        env.close()
        evaluated.close()
    with pytest.raises(DatasetError, match=re.escape("dsp_gym/nexmark-q11/ds2-v0")):
        export_minari(dataset, tmp_path)
    assert "MINARI_DATASETS_PATH" in os.environ


def test_padding_of_larger_jobs_is_taken_off_again():
    topology = Topology.of([load_job("nexmark-q11")])
    env = gymnasium.make("dsp_gym/Nexmark-Q11-v1")
    env.reset(seed=1)
    snapshot = env.unwrapped.batch.snapshot
    plain, padded = (ObservationEncoder(topology, v).encode(snapshot) for v in (3, 7))
    np.testing.assert_array_equal(unpadded(padded, 7, 3), plain)
    env.close()
