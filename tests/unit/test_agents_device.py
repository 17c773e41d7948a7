"""Learning on a GPU, without one: refusals, and whole updates in numba's simulator.

Numba reads its environment variable when it is imported. So the tests of the simulator run in a
process of their own, which `test_under_the_simulator_everything_is_learned` starts. The script
that `test_gpu` runs has a part for learning, too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")
import torch
from pydantic import ValidationError

from agents.device import is_of_card, lost
from agents.device_jobs import DeviceJobs
from agents.environment import training_batch
from agents.learner import Learner, _due
from agents.training import train
from dsp_gym.cli.train import _processes
from dsp_gym.errors import ConfigError, DeviceError
from dsp_gym.experiments.agent import AgentConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.simulation.cuda.card import SIMULATED, find_card, is_simulated
from dsp_gym.studies.bench.device_learning import FULL_LEARNING, _Curve, family
from tests.learning import small_experiment

pytestmark = [
    pytest.mark.slow,  # importing torch takes seconds
    pytest.mark.skipif(
        importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"
    ),
]
simulated = pytest.mark.skipif(not is_simulated(), reason="runs in the simulator's process")
without_a_card = pytest.mark.skipif(
    is_simulated() or Path("/dev/nvidia0").exists(), reason="there is a card"
)


def an_experiment(device: str = "cuda", **agent: Any) -> ExperimentConfig:
    """Two jobs, of which one has padding, and an episode that ends within a rollout."""
    usual = {
        "device": device,
        "network": {"hidden": [8], "hold_bias": 1},
        "n_envs": 4,
        "n_steps": 6,
        "batch_size": 12,
        "total_steps": 48,
        "checkpoint_every": 24,
        "eval_every": 10_000,
        "eval_episodes": 2,
    }
    return small_experiment(usual | agent, env={"episode_s": 300})


def a_learner(folder: Path, device: str = "cuda", **agent: Any) -> Any:
    return Learner(an_experiment(device, **agent), 0, folder)


def a_family(device: str = "cuda", **agent: Any) -> ExperimentConfig:
    """Capacity actions over random graphs, another one in every episode."""
    network = {"hidden": [8], "encoder": "mlp", "hold_bias": 1}
    config = an_experiment(device, **{"network": network} | agent).model_dump(by_alias=True)
    env = {
        "action": "capacity",
        "episode_s": 300,
        "start": "random",
        "randomise": {"job": True, "late_price": [0.75, 8], "load_start": "any", "stagger": True},
    }
    family = {"graphs": 3, "vertices": [2, 4], "validation_graphs": 2, "rate": [0.5, 2]}
    return ExperimentConfig.model_validate(config | {"env": env, "family": family})


def test_the_device_is_left_out_where_it_is_the_cpu() -> None:
    assert "device" not in an_experiment("cpu").model_dump()["agent"]
    assert an_experiment("cuda").model_dump()["agent"]["device"] == "cuda"


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"learner": "sb3"}, "learner: sb3 learns on the CPU"),
        ({"algorithm": "a2c", "network": {"encoder": "mlp"}}, "a2c learns on the CPU"),
        ({"curriculum": {}}, "drawn ahead"),
    ],
)
def test_what_learns_on_the_cpu_alone_is_refused(agent: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AgentConfig(device="cuda", **agent)


@without_a_card
def test_without_a_card_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no NVIDIA GPU can be used"):
        train(an_experiment(), tmp_path / "out")
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_seeds_on_a_card_are_trained_one_after_the_other_unless_asked() -> None:
    card, cpu = (an_experiment(one, seeds=[0, 1], total_steps=10**7) for one in ("cuda", "cpu"))
    assert _processes(card, None, None) == 1
    assert _processes(card, 2, None) == 2
    assert _processes(card, None, "local[2]") is None  # Spark's executors have cards of their own
    assert _processes(cpu, None, None) is None  # as many as the decisions pay for


def test_only_the_cards_errors_are_the_cards() -> None:
    assert is_of_card(RuntimeError("CUDA error: unspecified launch failure"))
    assert is_of_card(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_of_card(RuntimeError("shapes do not fit"))
    assert not is_of_card(KeyError("CUDA error"))


@pytest.mark.skipif(is_simulated(), reason="the simulator launches nothing")
def test_an_error_of_a_kernels_launch_is_the_cards() -> None:
    assert is_of_card(launch_error("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal address was used"))
    assert is_of_card(launch_error("CUDA_ERROR_OUT_OF_MEMORY: too little memory"))


@pytest.mark.skipif(is_simulated(), reason="the simulator launches nothing")
def test_too_little_memory_is_told_from_a_lost_card(tmp_path: Path) -> None:
    from numba.cuda.cudadrv.driver import CudaAPIError

    text = "CUDA_ERROR_OUT_OF_MEMORY"
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        launch_error(f"{text}: too little memory"),
        CudaAPIError(2, f"Call to cuMemAlloc results in {text}"),
    ):
        said = str(lost(error, "a card", 8, tmp_path, kept=4))
        assert "a card has too little memory" in said
        assert "agent.n_envs lower" in said
    said = str(lost(launch_error("CUDA_ERROR_ILLEGAL_ADDRESS"), "a card", 8, tmp_path, kept=4))
    assert "a card was lost after 8 decisions" in said


def launch_error(text: str) -> Exception:
    """Make the error with which numba-cuda reports a launch that failed."""
    from cuda.core._utils.cuda_utils import CUDAError

    made: Exception = CUDAError(text)
    return made


def test_a_learning_curve_takes_six_validations_and_the_last_one_once() -> None:
    decisions = 200_000_000
    agent = family(FULL_LEARNING, 4, decisions).ppo
    rollout = agent.n_envs * agent.n_steps
    steps = range(0, decisions + rollout, rollout)
    between = [step for step in steps if _due(step, rollout, agent.evaluated_every)]
    # The training validates once more after its last update.
    assert len(between) + 1 == 6
    assert steps[-1] not in between


def test_every_point_of_a_learning_curve_is_written_at_once(tmp_path: Path) -> None:
    out = tmp_path / "learned.json"
    curve = _Curve(out, "a card", 16, kept=-1)
    for step in (0, 4):
        curve.add({"validation/return": -1.0}, step)
        told = json.loads(out.read_text("utf-8"))
        assert told["points"][-1] == {"decisions": step, "return of validation": -1.0}
        assert [one["decisions"] for one in told["commands"]] == [step]


@pytest.mark.validate
@pytest.mark.skipif(is_simulated(), reason="this is the simulator's process")
def test_under_the_simulator_everything_is_learned() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "simulated", __file__],
        env={**os.environ, SIMULATED: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@simulated
@pytest.mark.parametrize("encoder", ["graph", "mlp"])
@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo"])
def test_simulated_an_update_is_that_of_the_cpu(
    tmp_path: Path, encoder: str, algorithm: str
) -> None:
    agent: dict[str, Any] = {
        "algorithm": algorithm,
        "network": {"hidden": [8, 6], "encoder": encoder, "hold_bias": 1},
        "ent_coef": 0.01,
        "n_epochs": 1,
        "batch_size": 24,  # one minibatch: the devices draw other orders
    }
    cpu, card = a_learner(tmp_path, "cpu", **agent), a_learner(tmp_path, **agent)
    _compare_updates(card, cpu)


@simulated
@pytest.mark.parametrize("algorithm", ["ppo", "maskable-ppo"])
def test_simulated_an_update_of_capacity_actions_is_that_of_the_cpu(
    tmp_path: Path, algorithm: str
) -> None:
    agent: dict[str, Any] = {"algorithm": algorithm, "n_epochs": 1, "batch_size": 24}
    cpu, card = (Learner(a_family(one, **agent), 0, tmp_path) for one in ("cpu", "cuda"))
    _compare_updates(card, cpu)


def _compare_updates(card: Any, cpu: Any) -> None:
    """Learn from the same rollout on both devices."""
    card.model.begin()
    card.model.collect()
    _give_rollout(card, cpu)

    found, wanted = card.model.update(1e-3), cpu.model.update(1e-3)

    for name in ("policy_gradient_loss", "value_loss", "entropy_loss", "clip_fraction"):
        assert found[f"train/{name}"] == pytest.approx(wanted[f"train/{name}"], abs=1e-5), name
    for name, expected in cpu.weights().items():
        np.testing.assert_allclose(card.weights()[name], expected, atol=2e-5, err_msg=name)


def _give_rollout(card: Any, cpu: Any) -> None:
    """Give the CPU's learner the weights and the rollout of the card's."""
    from agents.kernels import advantages, links_of, normalise
    from agents.network import OBSERVATION_LIMIT

    network = cpu.model.policy.features_extractor
    network.load_state_dict(card.model.policy.features_extractor.state_dict())
    cpu.model.begin()
    theirs, ours = card.model.rollout, cpu.model.rollout
    shift, scale = cpu.model._normalisation()
    v = cpu.shape.vertices
    for t, seen in enumerate(theirs.observations.numpy()):
        features = cpu.shape.vertex_features
        normalise(seen, shift, scale, features, OBSERVATION_LIMIT, ours.inputs[t])
    size = theirs.observations.shape[2]
    edges = (
        theirs.observations[0, :, size - v * v :]
        .numpy()
        .reshape(-1 if v else len(ours.ends[0]), v, v)
    )
    cpu.model.seen = cpu.model.seen._replace(links=links_of(edges))
    for name in ("actions", "rewards", "log_prob", "values", "ends"):
        getattr(ours, name)[:] = getattr(theirs, name).numpy()
    ours.masks[:] = theirs.masks[:-1].numpy() if cpu.masked else True
    agent = cpu.config.ppo
    advantages(ours.rewards, ours.values, ours.ends, agent.gamma, agent.gae_lambda, ours.advantage)
    np.testing.assert_allclose(theirs.advantage.numpy(), ours.advantage, rtol=1e-6)
    np.add(ours.advantage, ours.values[:-1], out=ours.target)
    for t in range(len(ours.masks)):
        if v:  # a padded vertex can only hold
            job, vertex = np.nonzero(ours.inputs[t][:, -v:] == 0)
            by_vertex = ours.masks[t].reshape(len(ours.masks[t]), v, -1)
            by_vertex[job, vertex] = np.isin(np.arange(by_vertex.shape[2]), (0, 7))


def one_job(device: str = "cuda", **agent: Any) -> ExperimentConfig:
    """With one job, the order of rows is the same on both devices."""
    config = an_experiment(device, **agent)
    return config.model_copy(update={"jobs": config.jobs[:1]})


@simulated
@pytest.mark.parametrize("of", [one_job, a_family])
def test_simulated_episodes_are_those_of_the_cpu(tmp_path: Path, of: Any) -> None:
    card: Any = Learner(of(), 0, tmp_path).model
    card.begin()
    first = card.rollout.observations[-1].numpy().copy()
    cpu: Any = Learner(of("cpu"), 0, tmp_path).model
    cpu.begin()
    np.testing.assert_array_equal(first, cpu.observation)
    with torch.no_grad():
        card.collect()
    for t in range(card.agent.n_steps):
        np.testing.assert_array_equal(card.rollout.observations[t].numpy(), cpu.observation)
        seen, rewards, ends, infos = cpu.env.step(card.rollout.actions[t].numpy())
        cut = [j for j in np.flatnonzero(ends) if infos[j]["TimeLimit.truncated"]]
        if cut:
            last = np.stack([infos[j]["terminal_observation"] for j in cut])
            rewards[cut] += np.float32(card.agent.gamma) * cpu._values(last)
        np.testing.assert_allclose(card.rollout.rewards[t].numpy(), rewards, rtol=1e-5)
        np.testing.assert_array_equal(card.rollout.ends[t].numpy(), ends)
        cpu.observation = seen
    assert card.rollout.ends.any()
    assert len(card.episodes) >= 4


@simulated
@pytest.mark.parametrize("of", [an_experiment, a_family])
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_simulated_a_checkpoint_moves_to_the_other_device(
    tmp_path: Path, first: str, second: str, of: Any
) -> None:
    begun: Any = Learner(of(first, total_steps=24), 0, tmp_path)
    begun.run()
    resumed: Any = Learner(of(second), 0, tmp_path)
    resumed._restore()
    assert resumed.model.num_timesteps == 24
    for name, value in begun.weights().items():
        np.testing.assert_array_equal(resumed.weights()[name], value, err_msg=name)
    np.testing.assert_array_equal(resumed.model.moments.numpy(), begun.model.moments.numpy())
    resumed.run(resume=True)
    assert resumed.model.num_timesteps == 48
    assert any((resumed.weights()[k] != v).any() for k, v in begun.weights().items())


@simulated
def test_simulated_a_lost_card_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    learner = a_learner(tmp_path)
    step, taken = learner.model.jobs.step, []

    def lose(*given: Any) -> Any:
        taken.append(1)
        if len(taken) > 8:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return step(*given)

    learner.model.jobs.step = lose
    with pytest.raises(DeviceError, match="was lost after 32 decisions") as raised:
        learner.run()
    assert "The checkpoint at 24 decisions is kept: continue with --resume" in str(raised.value)
    again = a_learner(tmp_path)
    again.run(resume=True)
    assert again.model.num_timesteps == 48


@simulated
def test_simulated_two_trainings_of_a_seed_are_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        learner = a_learner(tmp_path / name, total_steps=96)
        learner.run()  # new episodes are drawn after two of them
        assert learner.model.jobs.taken < 24
        found.append(learner.weights())
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


@simulated
def test_simulated_the_exported_policy_reads_no_device(tmp_path: Path) -> None:
    result = train(an_experiment(total_steps=24), tmp_path / "out")
    assert (result.policy / "policy.json").is_file()
    assert result.validation["return"] < 0


@simulated
def test_simulated_what_the_card_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    config = an_experiment().model_copy(update={"guardrails": "deployed"})
    with pytest.raises(ConfigError, match="the guardrail excess_budget is not compiled"):
        Learner(config, 0, tmp_path)


@simulated
def test_simulated_too_many_environments_are_refused_with_the_number_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = find_card()._replace(free_bytes=2**16)
    monkeypatch.setattr("agents.device_ppo.find_card", lambda: small)
    with pytest.raises(DeviceError, match="environments and their rollout need"):
        a_learner(tmp_path)


@simulated
@pytest.mark.parametrize("of", [one_job, a_family])
@pytest.mark.parametrize("trained", ["cuda", "cpu"])
def test_simulated_a_policy_has_the_same_returns_on_the_other_device(
    tmp_path: Path, trained: str, of: Any
) -> None:
    # The seeds are others than in training, and no episode begins in the middle.
    config = of(trained, total_steps=72)
    whole = config.env.randomise.model_copy(update={"stagger": False})
    env = config.env.model_copy(update={"randomise": whole})
    config = config.model_copy(update={"env": env})
    learner = Learner(config, 0, tmp_path)
    learner.run()
    policy: Any = learner.model.policy
    steps = config.env.episode_s // config.env.interval_s
    jobs = DeviceJobs(config, torch.device("cpu"))
    batch = training_batch(config, len(jobs))
    batch.seed(7 * len(jobs) + np.arange(len(jobs)))
    (on_card, mask), on_cpu = jobs.begin(7), batch.reset()
    ended: list[dict[str, Any]] = []
    total = np.zeros(len(jobs))
    for _ in range(steps):
        moves, _ = policy.predict(on_cpu, deterministic=True, action_masks=batch.action_masks())
        step = batch.step(moves)
        total, on_cpu = total + step.reward, step.observation
        moves, _ = policy.predict(on_card.numpy(), deterministic=True, action_masks=mask.numpy())
        on_card, mask = jobs.step(torch.from_numpy(moves), ended)[:2]
    assert [one["r"] for one in ended] == total.tolist()


@simulated
def test_simulated_a_learning_curve_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    from dsp_gym.studies.bench.device import main

    out = tmp_path / "learned.json"
    for seconds, decisions in (("0", 4), ("100", 16)):
        assert main(["--learn", "16", "--seconds", seconds, "--out", str(out)]) == 0
        told = json.loads(out.read_text("utf-8"))
        assert told["commands"][-1]["decisions"] == decisions
    assert len(told["commands"]) == 2
    shown = [one["decisions"] for one in told["points"]]
    assert shown == sorted(shown)
    assert shown[0] == 0
    assert shown[-1] == 16


@simulated
def test_simulated_a_learning_curve_goes_on_after_a_command_that_was_killed(tmp_path: Path) -> None:
    from dsp_gym.studies.bench.device import main

    out = tmp_path / "learned.json"
    command = ["--learn", "16", "--seconds", "0", "--out", str(out)]
    assert main(command) == 0
    out.unlink()  # killed after its checkpoint and before any point of the curve
    assert main(command) == 0
    told = json.loads(out.read_text("utf-8"))
    assert told["commands"][-1]["decisions"] == 8
    # Killed after a later validation, of which no checkpoint was left.
    told["points"].append({"decisions": 14, "return of validation": 0.0})
    out.write_text(json.dumps(told), "utf-8")
    assert main(command) == 0
    told = json.loads(out.read_text("utf-8"))
    assert told["commands"][-1]["decisions"] == 12
    assert max(one["decisions"] for one in told["points"]) == 12


@simulated
def test_simulated_an_error_of_the_card_keeps_checkpoint_and_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dsp_gym.studies.bench.device import main

    out = tmp_path / "learned.json"
    command = ["--learn", "16", "--seconds", "0", "--out", str(out)]
    assert main(command) == 0
    curve = out.read_text("utf-8")
    with monkeypatch.context() as changed:
        small = find_card()._replace(free_bytes=2**12)
        changed.setattr("agents.device_ppo.find_card", lambda: small)
        assert main(command) == 3
    assert "The training ended: " in capsys.readouterr().err
    assert out.read_text("utf-8") == curve
    assert main(command) == 0
    assert json.loads(out.read_text("utf-8"))["commands"][-1]["decisions"] == 8


@simulated
def test_simulated_jax_reads_results_by_dlpack() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jobs = DeviceJobs(an_experiment(), torch.device("cpu"))
    seen, _ = jobs.begin(0)
    np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(seen)), seen.numpy())
