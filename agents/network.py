"""The policy network in NumPy, as deployed policies run it.

`agents.extractor` has the same two networks in torch, with the same parameter names; a test
compares their logits. Padding contributes exactly zero: a job's logits do not depend on the number
of columns its batch is padded to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from pydantic import Field, model_validator

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.envs.action import LOGITS, MEMORY_MOVES, MOVES
from dsp_gym.envs.single_move import choices_of
from dsp_gym.experiments.agent import NetworkConfig

Weights = Mapping[str, Floats32]

FORBIDDEN = np.float32(-1e8)
"""Logit of a forbidden move; its probability is exactly 0 in float32."""

OBSERVATION_LIMIT = np.float32(10.0)
"""Bound of normalised observations, so that one wild metric cannot drown the others."""


class NetworkShape(NetworkConfig):
    """Facts needed to rebuild a network from its weights."""

    vertices: int = Field(
        ge=0,
        description="columns it was trained with; only mlp is bound to it; 0 of capacity actions",
    )
    vertex_features: int = Field(ge=0, description="features per vertex")
    job_features: int = Field(ge=1, description="features per job")
    choices: int | None = Field(
        None, ge=2, description="choices of a capacity action; none: moves of every vertex"
    )

    whole: bool = Field(
        False,
        # Omitted from dumps at its default, so that other networks stay readable by earlier
        # releases.
        exclude_if=lambda value: not value,
        description="plain layers over the observation as it stands, edges included, as other "
        "libraries' networks read it; an invalid choice holds unless they were masked",
    )
    single: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="one move of one vertex per decision, or none",
    )
    lstm: int | None = Field(
        None,
        ge=1,
        le=1024,
        exclude_if=lambda value: value is None,
        description="width of an LSTM between the observation and the layers; none: no memory",
    )

    members: int | None = Field(
        None,
        ge=2,
        exclude_if=lambda value: value is None,
        description="networks of an ensemble, over capacity actions; every weight has a first axis "
        "over them; none: one network",
    )

    @model_validator(mode="after")
    def _check_members(self) -> NetworkShape:
        if self.members is not None and (self.choices is None or self.whole):
            raise ValueError("an ensemble decides on capacities")
        return self

    @model_validator(mode="after")
    def _check_lstm(self) -> NetworkShape:
        if self.lstm is not None and not self.whole:
            raise ValueError("an LSTM stands before plain layers over the whole observation")
        return self

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        v = self.vertices
        return v * self.vertex_features + self.job_features + v + v**2

    @property
    def places(self) -> int:
        """Number of places decided about separately: the vertices, or 1 for the whole job."""
        return self.vertices if self.choices is None else 1

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of choices of each part of a decision at one place."""
        return (MOVES, MEMORY_MOVES) if self.choices is None else (self.choices,)

    @property
    def logits(self) -> int:
        """Number of logits of all places."""
        if self.single:
            return choices_of(self.vertices)
        return self.places * sum(self.blocks)

    @property
    def starts(self) -> Ints:
        """Index of the first logit of every part of an action, then the number of logits."""
        return np.cumsum([0, *self.blocks * self.places])

    def for_vertices(self, vertices: int) -> NetworkShape:
        """Return the same network over a batch with another number of columns.

        Returns:
            The shape with that number of columns; the weights stay the same.
        """
        return self.model_copy(update={"vertices": vertices})


def split_observation(
    shape: NetworkShape, observation: Floats32
) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """Split observations of a batch of B rows.

    `adjacency[b, d, u]` is 1 where vertex `d` reads from vertex `u`.

    Returns:
        Vertex features (B, V, Fv), job features (B, Fj), mask (B, V), adjacency (B, V, V).
    """
    # The order of `ObservationLayout`: vertices, job, mask, edges.
    b, v = len(observation), shape.vertices
    job = v * shape.vertex_features
    mask = job + shape.job_features
    edges = mask + v
    return (
        observation[:, :job].reshape(b, v, shape.vertex_features),
        observation[:, job:mask],
        observation[:, mask:edges],
        observation[:, edges:].reshape(b, v, v),
    )


def logits(
    weights: Weights,
    shape: NetworkShape,
    observation: Floats32,
    remembered: Floats32 | None = None,
) -> Floats32:
    """Run the actor; padded vertices can only stay.

    Args:
        weights: Weights of the actor.
        shape: Shape of the network.
        observation: (B, size) observations.
        remembered: (B, width) output of its LSTM for the observation; None: it has no LSTM.

    Returns:
        Logits of all moves of all vertices, (B, V * 10), or of the choices of a capacity action or
        of a single move.
    """
    if remembered is not None:
        return _plain(weights, shape, remembered)
    seen = observation.astype(np.float32)
    if shape.whole:
        return _plain(weights, shape, _normalised(weights, "observation", seen))
    if shape.choices is not None:
        return _plain(weights, shape, _normalised(weights, "job", seen))
    x, job, mask, adjacency = split_observation(shape, seen)
    x = _normalised(weights, "vertex", x) * mask[..., None]
    job = _normalised(weights, "job", job)
    if shape.encoder == "graph":
        values = _graph(weights, shape, x, job, mask, adjacency)
    else:
        h = np.concatenate([x.reshape(len(x), -1), job, mask], axis=1)
        values = _plain(weights, shape, h).reshape(len(x), shape.vertices, LOGITS)
    # Two moves remain for padding: holding parallelism (0) and holding memory (MOVES).
    stay = np.full(LOGITS, FORBIDDEN, dtype=np.float32)
    stay[[0, MOVES]] = 0.0
    values = np.where(mask[..., None] > 0, values, stay)
    flat: Floats32 = values.reshape(len(observation), -1)
    return flat


def lstm_step(weights: Weights, observation: Floats32, memory: Floats32) -> Floats32:
    """Advance an LSTM cell by one step, with torch's order of its gates.

    Args:
        weights: Weights of the actor.
        observation: (B, size) observations.
        memory: (B, 2, width), hidden and cell state; zeros at the start of an episode.

    Returns:
        The new memory, (B, 2, width); its hidden state is the cell's output.
    """
    seen = _normalised(weights, "observation", observation.astype(np.float32))
    gates = _linear(weights, "lstm_seen", seen) + _linear(weights, "lstm_hidden", memory[:, 0])
    # Input, forget, cell and output gate (Hochreiter & Schmidhuber, 1997; Gers et al., 2000): c' =
    # f c + i tanh(g), h' = o tanh(c').
    enters, stays, new, answers = np.split(gates, 4, axis=1)
    cell = _sigmoid(stays) * memory[:, 1] + _sigmoid(enters) * np.tanh(new)
    return np.stack([_sigmoid(answers) * np.tanh(cell), cell], axis=1)


def members_of(weights: Weights, shape: NetworkShape) -> list[Weights]:
    """Split an ensemble into its members.

    Returns:
        Weights of each member, as views; a single network's weights unchanged.
    """
    if shape.members is None:
        return [weights]
    return [{name: w[m] for name, w in weights.items()} for m in range(shape.members)]


def not_finite(values: Floats32) -> Bools:
    """Return the rows of a network's output with a value that is NaN or infinite, (J,)."""
    return np.asarray(~np.isfinite(values).reshape(len(values), -1).all(axis=1))


def parameters(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
    """List the actor's weights.

    Returns:
        Shapes by name.
    """
    # An ensemble's weights have a first axis over its members.
    if shape.members is not None:
        one = parameters(shape.model_copy(update={"members": None}))
        return {name: (shape.members, *size) for name, size in one.items()}
    found: dict[str, tuple[int, ...]]
    if shape.whole:
        size = shape.observation_size
        found = {"observation_shift": (size,), "observation_scale": (size,)}
        if shape.lstm is not None:
            found |= _dense("lstm_seen", size, 4 * shape.lstm)
            found |= _dense("lstm_hidden", shape.lstm, 4 * shape.lstm)
        return found | _layers([shape.lstm or size, *shape.hidden], shape.logits)
    fv, fj = shape.vertex_features, shape.job_features
    wide, head = shape.hidden[0], shape.hidden[-1]
    found = {
        "vertex_shift": (fv,),
        "vertex_scale": (fv,),
        "job_shift": (fj,),
        "job_scale": (fj,),
    }
    if shape.encoder == "mlp":
        return found | _layers([shape.vertices * (fv + 1) + fj, *shape.hidden], shape.logits)
    # Names of torch modules: `say.0` is the first entry of the ModuleList.
    message = (wide + 1) // 2
    found |= _dense("encode", fv, wide) | {"encode_job.weight": (wide, fj)}
    for k in range(shape.rounds):
        found |= _dense(f"say.{k}", wide, message) | _dense(f"hear.{k}", 2 * message, wide)
    found |= _dense("pool", 2 * wide + fj, head) | _dense("actor_vertex", wide, head)
    return found | {"actor_pool.weight": (head, head)} | _dense("actor_out", head, LOGITS)


def _layers(widths: Sequence[int], outputs: int) -> dict[str, tuple[int, ...]]:
    """List plain layers of these widths, and the last one."""
    found: dict[str, tuple[int, ...]] = {}
    for k, (a, b) in enumerate(itertools.pairwise(widths)):
        found |= _dense(f"actor.{k}", a, b)
    return found | _dense("actor_out", widths[-1], outputs)


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _graph(
    w: Weights,
    shape: NetworkShape,
    x: Floats32,
    job: Floats32,
    mask: Floats32,
    adjacency: Floats32,
) -> Floats32:
    act = _activation(shape)
    # As `agents.extractor.GraphNetwork`, line by line.
    h = act(_linear(w, "encode", x) + _linear(w, "encode_job", job)[:, None])
    upstream = adjacency / np.maximum(adjacency.sum(axis=2, keepdims=True), 1)
    downstream = adjacency.transpose(0, 2, 1)
    downstream = downstream / np.maximum(downstream.sum(axis=2, keepdims=True), 1)
    for k in range(shape.rounds):
        message = _linear(w, f"say.{k}", h)
        heard = np.concatenate([upstream @ message, downstream @ message], axis=2)
        h = h + act(_linear(w, f"hear.{k}", heard))
    # Mean and maximum over vertices only: padding has share 0, and FORBIDDEN below any maximum.
    share = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    mean = (share[:, None] @ h)[:, 0]
    top = np.where(mask[..., None] > 0, h, FORBIDDEN).max(axis=1)
    pooled = act(_linear(w, "pool", np.concatenate([mean, top, job], axis=1)))
    head = act(_linear(w, "actor_vertex", h) + _linear(w, "actor_pool", pooled)[:, None])
    return _linear(w, "actor_out", head)


def _plain(w: Weights, shape: NetworkShape, h: Floats32) -> Floats32:
    act = _activation(shape)
    for k in range(len(shape.hidden)):
        h = act(_linear(w, f"actor.{k}", h))
    return _linear(w, "actor_out", h)


def _linear(weights: Weights, name: str, x: Floats32) -> Floats32:
    y: Floats32 = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias


def _normalised(weights: Weights, name: str, x: Floats32) -> Floats32:
    """Shift and scale features by the weights of their kind, and cut them."""
    shift, scale = weights[f"{name}_shift"], weights[f"{name}_scale"]
    return np.asarray(np.clip((x - shift) * scale, -OBSERVATION_LIMIT, OBSERVATION_LIMIT))


def _activation(shape: NetworkShape) -> Callable[[Floats32], Floats32]:
    return np.tanh if shape.activation == "tanh" else _relu


def _sigmoid(x: Floats32) -> Floats32:
    # The logistic function through tanh: no `exp`, hence no overflow.
    y: Floats32 = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1))
    return y


def _relu(x: Floats32) -> Floats32:
    return np.maximum(x, np.float32(0))
