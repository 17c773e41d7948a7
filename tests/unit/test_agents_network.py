"""The network of an agent: NumPy and torch agree, padding is nothing, moves are masked."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")
import torch
from gymnasium import spaces
from torch.distributions import Categorical

from agents.actor_critic import VertexActions
from agents.extractor import network_class
from agents.network import NetworkShape, logits
from dsp_gym.envs.action import LOGITS, MOVES

pytestmark = pytest.mark.slow  # importing torch takes seconds

FEATURES, JOB_FEATURES = 5, 3


def a_shape(encoder: str, vertices: int = 4, activation: str = "tanh") -> NetworkShape:
    return NetworkShape(
        encoder=encoder,
        hidden=(16, 12),
        activation=activation,
        vertices=vertices,
        vertex_features=FEATURES,
        job_features=JOB_FEATURES,
    )


def a_network(shape: NetworkShape, seed: int = 0):
    torch.manual_seed(seed)
    v = shape.vertices
    size = v * shape.vertex_features + shape.job_features + v + v * v
    box = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    network = network_class(shape)(box, shape)
    with torch.no_grad():  # a fresh actor is nearly uniform, which would hide differences
        network.actor_out.weight.mul_(100)
        network.vertex_shift.uniform_(-1, 1)
        network.job_scale.uniform_(0.5, 2)
    return network


def observations(rows: int, vertices: int, padded_to: int, seed: int = 0) -> np.ndarray:
    """Chains of vertices with random features."""
    rng = np.random.default_rng(seed)
    x = np.zeros((rows, padded_to, FEATURES), np.float32)
    x[:, :vertices] = rng.normal(size=(rows, vertices, FEATURES)) * 3
    job = rng.normal(size=(rows, JOB_FEATURES)).astype(np.float32)
    mask = np.zeros((rows, padded_to), np.float32)
    mask[:, :vertices] = 1
    edges = np.zeros((rows, padded_to, padded_to), np.float32)
    for v in range(vertices - 1):
        edges[:, v + 1, v] = 1
    return np.concatenate([x.reshape(rows, -1), job, mask, edges.reshape(rows, -1)], axis=1)


def weights_of(network) -> dict[str, np.ndarray]:
    return {key: value.numpy() for key, value in network.state_dict().items()}


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("encoder", ["graph", "mlp"])
def test_numpy_gives_the_logits_of_torch(encoder, activation):
    shape = a_shape(encoder, activation=activation)
    network = a_network(shape)
    obs = np.concatenate([observations(20, 4, 4), observations(20, 3, 4, seed=1)])
    expected = network(torch.from_numpy(obs))[:, :-1].detach().numpy()
    found = logits(weights_of(network), shape, obs)
    valid = expected > -1e7
    assert np.abs(expected[valid]).max() > 0.1
    np.testing.assert_allclose(found[valid], expected[valid], atol=1e-5)
    np.testing.assert_array_equal(found[~valid], expected[~valid])


def test_padding_changes_nothing():
    small, large = a_shape("graph", 3), a_shape("graph", 8)
    network = a_network(small)
    wide = a_network(large)
    wide.load_state_dict(network.state_dict())
    tight, padded = observations(10, 3, 3), observations(10, 3, 8)
    a = network(torch.from_numpy(tight))
    b = wide(torch.from_numpy(padded))
    np.testing.assert_allclose(a[:, : 3 * LOGITS].detach(), b[:, : 3 * LOGITS].detach(), atol=1e-5)
    np.testing.assert_allclose(a[:, -1].detach(), b[:, -1].detach(), atol=1e-5)


@pytest.mark.parametrize("encoder", ["graph", "mlp"])
def test_what_stands_in_padding_is_never_read(encoder):
    shape = a_shape(encoder, 5)
    network = a_network(shape)
    clean, dirty = observations(10, 3, 5), observations(10, 3, 5)
    dirty[:, 3 * FEATURES : 5 * FEATURES] = 1e6
    np.testing.assert_array_equal(
        network(torch.from_numpy(clean)).detach(), network(torch.from_numpy(dirty)).detach()
    )


def test_the_graph_network_treats_vertices_by_place_in_the_graph_not_by_column():
    shape = a_shape("graph", 3)
    network = a_network(shape)
    obs = observations(6, 3, 3)
    order = [2, 0, 1]
    x = obs[:, : 3 * FEATURES].reshape(6, 3, FEATURES)[:, order]
    rest = obs[:, 3 * FEATURES : 3 * FEATURES + JOB_FEATURES + 3]
    edges = obs[:, -9:].reshape(6, 3, 3)[:, order][:, :, order]
    moved = np.concatenate([x.reshape(6, -1), rest, edges.reshape(6, -1)], axis=1)
    a = logits(weights_of(network), shape, obs).reshape(6, 3, LOGITS)[:, order]
    b = logits(weights_of(network), shape, moved).reshape(6, 3, LOGITS)
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_vertex_hears_of_another_only_along_edges():
    shape = a_shape("graph", 3)
    weights = weights_of(a_network(shape))
    weights["actor_pool.weight"] = np.zeros_like(weights["actor_pool.weight"])
    obs = observations(1, 3, 3)
    obs[:, -9:] = 0
    louder = obs.copy()
    louder[:, :FEATURES] += 1  # vertex 0
    before = logits(weights, shape, obs).reshape(3, LOGITS)
    after = logits(weights, shape, louder).reshape(3, LOGITS)
    np.testing.assert_array_equal(before[1:], after[1:])
    obs[:, -9 + 3] = louder[:, -9 + 3] = 1  # an edge from 0 to 1
    before = logits(weights, shape, obs).reshape(3, LOGITS)
    after = logits(weights, shape, louder).reshape(3, LOGITS)
    assert np.abs(before[1] - after[1]).max() > 1e-3
    np.testing.assert_array_equal(before[2], after[2])


def a_distribution(rows: int = 64, vertices: int = 3) -> tuple[VertexActions, torch.Tensor]:
    torch.manual_seed(0)
    values = torch.randn(rows, vertices * LOGITS)
    return VertexActions(vertices).proba_distribution(values), values


@pytest.mark.slow
def test_log_probability_and_entropy_are_those_of_independent_categoricals():
    actions, values = a_distribution()
    drawn = actions.sample()
    log_prob, entropy = 0.0, 0.0
    for v in range(3):
        block = values[:, v * LOGITS : (v + 1) * LOGITS]
        for i, part in enumerate((block[:, :MOVES], block[:, MOVES:])):
            one = Categorical(logits=part)
            log_prob = log_prob + one.log_prob(drawn[:, 2 * v + i])
            entropy = entropy + one.entropy()
    torch.testing.assert_close(actions.log_prob(drawn), log_prob)
    torch.testing.assert_close(actions.entropy(), entropy)


def test_samples_follow_the_probabilities():
    torch.manual_seed(1)
    values = torch.zeros(40_000, LOGITS)
    values[:, 2] = float(np.log(4.0))  # 4 / (6 + 4)
    drawn = VertexActions(1).proba_distribution(values).sample()[:, 0]
    assert (drawn == 2).float().mean().item() == pytest.approx(0.4, abs=0.01)


def test_a_masked_move_is_never_drawn_and_adds_no_entropy():
    actions, _ = a_distribution(rows=4000)
    masks = np.zeros((4000, 3 * LOGITS), dtype=bool)
    masks[:, 0::LOGITS] = masks[:, 1::LOGITS] = masks[:, MOVES::LOGITS] = True
    actions.apply_masking(masks)
    drawn = actions.sample().view(-1, 3, 2)
    assert set(drawn[:, :, 0].unique().tolist()) == {0, 1}
    assert drawn[:, :, 1].unique().tolist() == [0]
    assert actions.entropy().max().item() <= 3 * np.log(2) + 1e-5
    assert torch.isfinite(actions.log_prob(actions.mode())).all()
