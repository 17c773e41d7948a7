"""Models of Stable-Baselines3 and torch become policy folders that decide the same."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from typer.testing import CliRunner

import dsp_gym.envs.registration as registration
from agents.foreign import plain_layers, read_model
from agents.trained import TrainedConfig, TrainedPolicy
from dsp_gym.cli import app
from dsp_gym.envs.single_move import masks_of, pairs_of
from dsp_gym.envs.wrappers import SingleMove
from dsp_gym.errors import PolicyError
from dsp_gym.evaluation.scorecard import Scorecard

pytestmark = pytest.mark.slow  # importing torch takes seconds

registration.register_all()

Q11 = "dsp_gym/Nexmark-Q11-v1"
CAPACITY = "dsp_gym/Nexmark-Q11-Capacity-v2"
MODELS = {
    "ppo": (stable_baselines3.PPO, Q11, {"activation_fn": torch.nn.ReLU}),
    "a2c": (stable_baselines3.A2C, Q11, {"net_arch": [16]}),
    "trpo": (sb3_contrib.TRPO, CAPACITY, {}),
    "maskable-ppo": (sb3_contrib.MaskablePPO, Q11, {"net_arch": {"pi": [24, 8], "vf": [4]}}),
    "maskable-capacity": (sb3_contrib.MaskablePPO, CAPACITY, {}),
    "dqn-capacity": (stable_baselines3.DQN, CAPACITY, {}),
    "dqn": (stable_baselines3.DQN, "single", {}),
    "qr-dqn": (sb3_contrib.QRDQN, "single", {"n_quantiles": 7}),
    "recurrent": (sb3_contrib.RecurrentPPO, Q11, {"lstm_hidden_size": 9}),
    "recurrent-shared": (
        sb3_contrib.RecurrentPPO,
        CAPACITY,
        {"lstm_hidden_size": 9, "shared_lstm": True, "enable_critic_lstm": False},
    ),
}


def cli(*arguments: object):
    return CliRunner().invoke(app, ["policy", "import", *map(str, arguments)])


def made(name: str):
    env = gymnasium.make(Q11 if name == "single" else name)
    return SingleMove(env) if name == "single" else env


def loud(model) -> None:
    """Weights that decide differently from state to state, and not by a hair."""
    torch.manual_seed(5)
    with torch.no_grad():
        for value in model.policy.parameters():
            value.copy_(torch.randn_like(value))


@pytest.mark.parametrize("name", MODELS)
def test_an_imported_model_decides_as_it_did(name, tmp_path):
    algorithm, env_name, arguments = MODELS[name]
    env = made(env_name)
    kind = "MlpLstmPolicy" if "recurrent" in name else "MlpPolicy"
    model = algorithm(kind, env, policy_kwargs=arguments, device="cpu")
    loud(model)
    model.save(tmp_path / "model.zip")
    action = "capacity" if env_name == CAPACITY else "vertex"
    folder = tmp_path / "mine"
    result = cli(
        tmp_path / "model.zip", "--job", "nexmark-q11", "--action", action, "--out", folder
    )
    assert result.exit_code == 0, result.output
    assert {file.name for file in folder.iterdir()} == {
        "policy.json",
        "weights.safetensors",
        "config.yaml",
        "card.md",
    }
    batch = env.unwrapped.batch
    policy = TrainedPolicy(TrainedConfig(path=str(folder)))
    env.reset(seed=1)
    policy.reset(batch.topology, batch.base_seeds)
    moved, memory = set(), None
    rng = np.random.default_rng(0)
    for _ in range(25):
        observation = batch.observation[0]
        mask = env.get_wrapper_attr("action_masks")()
        masked = {"action_masks": mask} if "maskable" in name else {}
        chosen, memory = model.predict(observation, memory, deterministic=True, **masked)
        pairs = pairs_of(np.array([chosen]), 3) if env_name == "single" else np.atleast_2d(chosen)
        expected = batch.decode_actions(pairs.reshape(1, -1))
        decided = policy.decide(batch.snapshot)
        assert decided.parallelism.tolist() == expected.parallelism.tolist()
        assert decided.memory_level.tolist() == expected.memory_level.tolist()
        moved.add(str(chosen))
        env.step(env.action_space.sample() if rng.random() < 0.5 else chosen)
    assert len(moved) > 1


def test_random_observations_score_as_in_the_model(tmp_path):
    env = gymnasium.make(Q11)
    model = stable_baselines3.PPO("MlpPolicy", env, device="cpu")
    loud(model)
    mean, var = np.random.default_rng(0).normal(size=(2, *env.observation_space.shape))
    np.savez(tmp_path / "norm.npz", mean=mean, var=var**2)
    torch.save(model.policy.state_dict(), tmp_path / "model.pt")
    run = cli(
        tmp_path / "model.pt",
        *("--experiment", "q11", "--normalisation", tmp_path / "norm.npz", "--out", tmp_path / "p"),
    )
    assert run.exit_code == 0, run.output
    seen = np.random.default_rng(1).uniform(-3, 3, (200, 98)).astype(np.float32)
    normalised = np.clip((seen - mean) / np.sqrt(var**2 + 1e-8), -10, 10).astype(np.float32)
    chosen, _ = model.predict(normalised, deterministic=True)
    scores = TrainedPolicy(TrainedConfig(path=str(tmp_path / "p"))).scores(seen, 3)
    pairs = np.stack([scores[..., :7].argmax(2), scores[..., 7:].argmax(2)], axis=2)
    assert (pairs.reshape(200, 6) == chosen).all()


def test_one_move_at_a_time_is_the_move_of_all_vertices_it_stands_for():
    env = SingleMove(gymnasium.make(Q11))
    _, info = env.reset(seed=0)
    assert env.action_space.n == 25
    full = env.unwrapped.action_masks()
    assert (info["action_mask"] == masks_of(full[None])[0]).all()
    for choice in range(25):
        pairs = env.action(choice)
        assert np.count_nonzero(pairs) == (choice > 0)
        allowed = all(full[10 * v + pairs[2 * v]] for v in range(3)) and all(
            full[10 * v + 7 + pairs[2 * v + 1]] for v in range(3)
        )
        assert allowed == info["action_mask"][choice]
    with pytest.raises(ValueError, match=r"outside 0\.\.24"):
        env.step(25)


def test_an_imported_model_is_ranked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = stable_baselines3.PPO("MlpPolicy", gymnasium.make(Q11), device="cpu")
    model.save("mine.zip")
    assert cli("mine.zip", "--job", "nexmark-q11").exit_code == 0
    again = cli("mine.zip", "--job", "nexmark-q11")
    assert again.exit_code == 2
    assert "--overwrite" in again.output
    assert cli("mine.zip", "--job", "nexmark-q11", "--overwrite").exit_code == 0
    Path("small.yaml").write_text(
        "policies: [ds2]\njobs: [nexmark-q11]\nepisode_s: 900\nbootstrap: 100\nseeds: 1\n"
        "loads: {test: {loads: [constant], seeds: {from: 0, to: 2}}}\n"
    )
    run = ["evaluate", "small.yaml", "--policies", "all,policies/mine", "--json", "--track", "none"]
    result = CliRunner().invoke(app, run)
    assert result.exit_code == 0, result.output
    assert "mine" in Scorecard.from_json(result.stdout).policies


def test_cleanrls_actor_is_read_and_other_networks_are_refused_with_what_they_have():
    rng = np.random.default_rng(0)
    layer = {"weight": (8, 98), "bias": (8,)}
    last = {"weight": (30, 8), "bias": (30,)}
    state = {
        f"{net}.{k}.{part}": rng.normal(size=shape).astype(np.float32)
        for net in ("actor", "critic")
        for k, shapes in ((0, layer), (2, last))
        for part, shape in shapes.items()
    }
    plain = plain_layers(state, "x.pt")
    assert [weight.shape for weight, _ in plain.layers] == [(8, 98), (30, 8)]
    with pytest.raises(PolicyError, match=r"remembers what it saw by other means.*lstm_actor"):
        plain_layers({**state, "lstm_actor.weight_ih_l0": state["actor.0.weight"]}, "x.pt")
    with pytest.raises(PolicyError, match=r"other parts than plain layers.*: features"):
        plain_layers({**state, "features_extractor.cnn.0.weight": state["actor.0.weight"]}, "x.pt")
    with pytest.raises(PolicyError, match=r"other parts than plain layers.*: actor\.2"):
        plain_layers({**state, "actor.2.weight": state["actor.0.weight"]}, "x.pt")


class Danger:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def zipped(file: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_pth", ".pth"), content)
    return file


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_pickles_in_a_model_are_never_run(tmp_path):
    mark = tmp_path / "owned"
    danger = pickle.dumps(Danger(mark))
    weights = stable_baselines3.PPO("MlpPolicy", gymnasium.make(Q11), device="cpu").policy
    data = {"policy_class": {":serialized:": base64.b64encode(danger).decode()}}
    good = zipped(
        tmp_path / "good.zip",
        data=json.dumps(data).encode(),
        policy_pth=saved(weights.state_dict()),
    )
    assert cli(good, "--job", "nexmark-q11", "--out", tmp_path / "p").exit_code == 0
    assert not mark.exists()
    hostile = {
        "pickle.pt": danger,
        "pickle.zip": zipped(tmp_path / "x.zip", data=b"{}", policy_pth=danger).read_bytes(),
        "object.pt": saved({"actor.0.weight": Danger(mark)}),
    }
    for name, content in hostile.items():
        (tmp_path / name).write_bytes(content)
        refused = cli(tmp_path / name, "--job", "nexmark-q11", "--out", tmp_path / "no")
        assert refused.exit_code == 2, (name, refused.output)
        assert "cannot be imported as a model" in " ".join(refused.output.split()), name
    assert not mark.exists()
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no zip"),
        (b"PK\x03\x04 and then nothing", "is no zip"),
        (saved([1, 2]), "holds no state_dict"),
        (saved({}), "holds no state_dict"),
        (saved({"actor.0.weight": "a text"}), "something else than weights"),
        (saved({"actor.0.weight": torch.zeros(1).expand(2**20, 2**20)}), "something else than"),
        (saved({"actor.0.weight": torch.zeros(3, 3).to_sparse()}), "something else than weights"),
        (saved({"actor.0.weight": torch.full((3, 3), torch.nan)}), "no finite numbers"),
        (saved({"actor.0.weight": torch.ones(3, 3, dtype=torch.int64)}), "no finite numbers"),
        (saved({"actor.0.weight": torch.zeros(30, 98)}), "cannot hold"),
        (saved({"a.0.weight": torch.zeros(4, 98)}), "other parts than plain layers"),
        (saved({"actor.0.weight": torch.zeros(4, 7), "actor.2.weight": torch.zeros(3, 4)}), "98"),
    ],
    ids=range(12),
)
def test_what_is_no_model_of_these_spaces_is_refused(content, says, tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    refused = cli(file, "--job", "nexmark-q11", "--out", tmp_path / "no")
    assert refused.exit_code == 2, refused.output
    assert says in " ".join(refused.output.split())
    assert not (tmp_path / "no").exists()


def test_a_zip_that_unpacks_to_more_than_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("agents.foreign.LARGEST", 2**20)
    bomb = zipped(tmp_path / "bomb.zip", data=b"{}", policy_pth=bytes(2**22))
    assert bomb.stat().st_size < 2**16
    with pytest.raises(PolicyError, match="unpacks to more than 1 MiB"):
        read_model(bomb)
    inner = zipped(tmp_path / "inner.pt", **{"archive/data.pkl": bytes(2**22)})
    with pytest.raises(PolicyError, match="unpacks to more than 1 MiB"):
        read_model(inner)


def test_the_environment_of_a_model_has_to_be_named_and_to_fit(tmp_path):
    model = stable_baselines3.PPO("MlpPolicy", gymnasium.make(Q11), device="cpu")
    model.save(tmp_path / "model.zip")
    for arguments, says in (
        ([], "is not known"),
        (["--job", "nexmark-q11", "--experiment", "q11"], "either an experiment or a job"),
        (["--job", "nexmark-q3"], "has 6"),
        (["--job", "nexmark-q11", "--action", "capacity"], "decides on vertices"),
        (["--job", "nexmark-q11", "--activation", "gelu"], "tanh or relu"),
        (["--job", "nexmark-q11", "--normalisation", "none.npz"], "no arrays 'mean' and 'var'"),
    ):
        refused = cli(tmp_path / "model.zip", *arguments, "--out", tmp_path / "no")
        assert refused.exit_code == 2, refused.output
        assert says in " ".join(refused.output.split())
