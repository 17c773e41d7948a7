"""Checkpoints and policy folders: exact, whole, and refused when they are not ours."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

from agents.checkpoint import checkpoint_steps, read_checkpoint, write_checkpoint
from agents.folder import POLICY, WEIGHTS, PolicyDocument, read_folder, write_folder
from agents.network import NetworkShape, parameters
from agents.trained import TrainedConfig, TrainedPolicy
from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.observation import FJ, FV, JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.errors import PolicyError, SchemaError, StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.pins import digest_of
from tests.dataset_inputs import simulated


def a_document(encoder: str = "graph", vertices: int = 3) -> PolicyDocument:
    return PolicyDocument(
        schema="dsp-gym/policy/1",
        name="q11",
        algorithm="ppo",
        network=NetworkShape(
            encoder=encoder,
            hidden=(8,),
            vertices=vertices,
            vertex_features=FV,
            job_features=FJ,
        ),
        observation={
            "vertex_features": tuple(VERTEX_FEATURES),
            "job_features": tuple(JOB_FEATURES),
            "quantiles": {"busy": (0.0, 1.0)},
        },
        action={"moves": MOVE_NAMES, "memory_moves": MEMORY_NAMES, "masked": True},
        interval_s=60,
        ds2_utilization=0.8,
        jobs={"nexmark-q11": "0" * 16},
        data={},
        seed=0,
        seeds=(0,),
        steps=1,
        validation={"return": -1.0},
        versions={},
        weights_sha256="",
    )


def a_folder(path, document=None, seed: int = 0):
    document = document or a_document()
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in parameters(document.network).items()
    }
    return write_folder(path / "policy", document, weights, "name: q11\n", "# q11\n"), weights


def test_a_checkpoint_is_read_back_bit_for_bit(tmp_path):
    tree = {
        "steps": 12,
        "env": {"x": np.array([np.nan, 1e-300]), "none": None, "empty": np.zeros((0, 3))},
        "list": [np.arange(3), {"deep": np.array(True)}, "text"],
        "scalar": np.float64(0.1),
    }
    write_checkpoint(tmp_path / "c", tree)
    found = read_checkpoint(tmp_path / "c")
    np.testing.assert_array_equal(found["env"]["x"], tree["env"]["x"])
    assert found["env"]["empty"].shape == (0, 3)
    assert found["list"][0].dtype == np.int64
    assert found["list"][1]["deep"].shape == ()
    assert found["scalar"] == 0.1
    assert checkpoint_steps(tmp_path / "c") == 12
    assert checkpoint_steps(tmp_path / "none") == -1


def test_a_damaged_checkpoint_is_refused(tmp_path):
    write_checkpoint(tmp_path / "c", {"x": np.arange(100)})
    file = tmp_path / "c" / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(SchemaError, match="cannot be read"):
        read_checkpoint(tmp_path / "c")


def test_a_policy_folder_is_read_back_and_replaces_an_older_one_whole(tmp_path):
    folder, _ = a_folder(tmp_path, seed=1)
    (folder / "stray").write_text("from before")
    folder, weights = a_folder(tmp_path, seed=2)
    document, found = read_folder(folder)
    assert document.network == a_document().network
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["policy"]
    assert not (folder / "stray").exists()


def test_nothing_is_half_written_where_writing_fails(tmp_path):
    (tmp_path / "policy").write_text("a file is in the way of the folder's parent")
    with pytest.raises(StorageError, match="half-written"):
        a_folder(tmp_path / "policy")
    assert [file.name for file in tmp_path.iterdir()] == ["policy"]


def edit(folder, **changes):
    file = folder / POLICY
    document = json.loads(file.read_text())
    for key, value in changes.items():
        inner = document
        *path, last = key.split("__")
        for step in path:
            inner = inner[step]
        inner[last] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": "dsp-gym/policy/2"}, "dsp-gym/policy/2.*expected 'dsp-gym/policy/1'"),
        (
            {"observation__vertex_features": ["busy", "mood"]},
            "observation.vertex_features.*it alone has mood",
        ),
        ({"action__moves": [*MOVE_NAMES][::-1]}, "action.moves.*another order"),
        ({"network__hidden": [16]}, "weights do not fit"),
        ({"seed": "zero"}, "seed.*zero"),
        ({"weights_sha256": "0" * 64}, "weights_sha256 differs"),
    ],
)
def test_a_policy_of_other_spaces_or_schema_is_refused_with_what_is_wrong(tmp_path, changes, says):
    folder, _ = a_folder(tmp_path)
    edit(folder, **changes)
    with pytest.raises(PolicyError, match=says):
        TrainedPolicy(TrainedConfig(path=str(folder)))


def test_a_folder_without_weights_is_refused_by_name(tmp_path):
    folder, _ = a_folder(tmp_path)
    (folder / WEIGHTS).unlink()
    with pytest.raises(PolicyError, match=r"weights\.safetensors.*cannot be read"):
        TrainedPolicy(TrainedConfig(path=str(folder)))


def test_weights_are_read_without_pickle_even_when_the_hash_fits(tmp_path):
    folder, _ = a_folder(tmp_path)
    packed = b"\x80\x04K\x01."  # a pickle
    (folder / WEIGHTS).write_bytes(packed)
    edit(folder, weights_sha256=hashlib.sha256(packed).hexdigest())
    with pytest.raises(PolicyError, match="not a safetensors file"):
        TrainedPolicy(TrainedConfig(path=str(folder)))


def test_weights_of_another_network_are_refused(tmp_path):
    folder, weights = a_folder(tmp_path)
    weights["actor_out.weight"] = weights["actor_out.weight"][:, :4]
    packed = save_tensors({k: np.ascontiguousarray(v) for k, v in weights.items()})
    (folder / WEIGHTS).write_bytes(packed)
    edit(folder, weights_sha256=hashlib.sha256(packed).hexdigest())
    with pytest.raises(PolicyError, match=r"actor_out\.weight"):
        TrainedPolicy(TrainedConfig(path=str(folder)))


def test_a_plain_network_refuses_a_larger_job_and_a_graph_network_takes_it(tmp_path):
    jobs = Topology.of([load_job("nexmark-q5"), load_job("nexmark-q8")])
    assert jobs.max_vertices > 3
    seeds = np.zeros(2, np.int64)
    plain, _ = a_folder(tmp_path / "plain", a_document("mlp", 3))
    with pytest.raises(PolicyError, match="at most 3 vertices"):
        TrainedPolicy(TrainedConfig(path=str(plain))).reset(jobs, seeds)
    graph, _ = a_folder(tmp_path / "graph", a_document("graph", 3))
    TrainedPolicy(TrainedConfig(path=str(graph))).reset(jobs, seeds)


def repacked(folder, weights):
    packed = save_tensors({k: np.ascontiguousarray(v) for k, v in weights.items()})
    (folder / WEIGHTS).write_bytes(packed)
    edit(folder, weights_sha256=hashlib.sha256(packed).hexdigest())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_numbers_are_refused_with_file_and_array(tmp_path, value):
    folder, weights = a_folder(tmp_path / "read")
    weights["actor_out.bias"] = weights["actor_out.bias"].copy()
    weights["actor_out.bias"][:2] = value
    said = r"weights\.safetensors.*2 of \d+ values of the array 'actor_out\.bias' are NaN or inf"
    with pytest.raises(PolicyError, match=said):
        write_folder(tmp_path / "written", a_document(), weights, "", "")
    assert not (tmp_path / "written").exists()
    repacked(folder, weights)
    with pytest.raises(PolicyError, match=said):
        TrainedPolicy(TrainedConfig(path=str(folder)))


def header(**tensors):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"", "header says 0 bytes"),
        ((2**62).to_bytes(8, "little") + b"{}", "header says 4,611,686,018,427,387,904 bytes"),
        (header(**{f"a{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
                   for i in range(5000)}), "5,000 arrays"),
        (header(a={"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}) + b"abcd", "axes"),
        (header(a={"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}), "safetensors"),
        (header(a={"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}) + b"a", "safetensor"),
        (header(a=[]), "no shape"),
    ],
)  # fmt: skip
def test_weights_are_read_within_bounds(tmp_path, packed, says):
    folder, _ = a_folder(tmp_path)
    (folder / WEIGHTS).write_bytes(packed)
    edit(folder, weights_sha256=hashlib.sha256(packed).hexdigest())
    with pytest.raises(PolicyError, match=says):
        read_folder(folder)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    folder, _ = a_folder(tmp_path)
    monkeypatch.setattr("agents.folder.MOST_WEIGHTS_BYTES", 100)
    with pytest.raises(PolicyError, match=r"weights\.safetensors.* 100 are the most"):
        read_folder(folder)


@pytest.mark.parametrize("name", [POLICY, WEIGHTS])
def test_only_regular_files_of_the_folder_are_read(tmp_path, name):
    folder, _ = a_folder(tmp_path / "policy")
    content = (folder / name).read_bytes()
    outside = tmp_path / "outside"
    outside.write_bytes(content)

    def put(make):
        (folder / name).unlink()
        make(folder / name)

    put(lambda file: file.symlink_to(outside))
    with pytest.raises(PolicyError, match="is a link out of its folder"):
        read_folder(folder)
    with pytest.raises(PolicyError, match="is a link out of its folder"):
        digest_of(folder)
    put(lambda file: os.mkfifo(file))
    with pytest.raises(PolicyError, match="is a FIFO"):
        read_folder(folder)
    put(lambda file: file.symlink_to("/dev/zero"))
    with pytest.raises(PolicyError, match="is a link out of its folder, to /dev/zero"):
        read_folder(folder)
    (folder / "..data").mkdir()  # as Kubernetes lays a volume
    (folder / "..data" / name).write_bytes(content)
    put(lambda file: file.symlink_to(f"..data/{name}"))
    read_folder(folder)


@pytest.mark.parametrize("fails", [1, 2])
def test_an_interruption_while_a_folder_is_replaced_leaves_the_older_one(
    tmp_path, monkeypatch, fails
):
    target, renamed, rename = tmp_path / "checkpoint", [], Path.rename
    write_checkpoint(target, {"steps": 1})

    def interrupted(self, to):
        renamed.append(to)
        if len(renamed) == fails:
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(target, {"steps": 2})
    assert checkpoint_steps(target) == 1
    assert list(tmp_path.iterdir()) == [target]


def test_an_output_that_is_no_number_holds_and_says_so(tmp_path):
    folder, weights = a_folder(tmp_path)
    repacked(folder, {name: np.full_like(value, 3e38) for name, value in weights.items()})
    policy, spec = TrainedPolicy(TrainedConfig(path=str(folder))), load_job("nexmark-q5")
    jobs = simulated(spec)
    policy.reset(jobs.topology, np.zeros(1, np.int64))
    seen = jobs.snapshot()
    decision = policy.decide(seen)
    assert decision.reasons[0].startswith("hold: the network's output is NaN or infinite")
    assert decision.parallelism.tolist() == seen.parallelism.tolist()
