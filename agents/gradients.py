"""Forward and backward passes of `agents.extractor`'s networks by hand, in pieces of rows.

A piece is small enough that its activations stay in a core's cache; its buffers are allocated once,
and its matrix products write and add in place. Tests compare the gradients with torch's. The work
releases the interpreter lock, so that several cores work on several pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.kernels import Links, hear, hear_backward, pool, pool_backward, through
from agents.network import NetworkShape
from dsp_gym.arrays import Floats32, Ints
from dsp_gym.envs.action import LOGITS

VERTICES_OF_A_PIECE = 2048
"""Rows times vertices of a piece: 512 KiB for each activation of 64 float32 numbers."""


class Linear(NamedTuple):
    """Weights of one layer, or their gradients."""

    weight: Tensor  # (out, in)
    turned: Tensor  # (in, out), the same numbers
    bias: Tensor  # (out,), empty where the layer has none
    bias_array: Floats32  # the same numbers


Layers = Mapping[str, Linear]


class Flat:
    """All weights of a network in one vector, or their gradients.

    Args:
        vector: The numbers, one tensor after the other.
        shapes: Tensors of the same shapes, by the names that NumPy inference uses.
    """

    def __init__(self, vector: Tensor, shapes: Iterable[tuple[str, Tensor]]) -> None:
        self.vector, self.by_name, start = vector, dict[str, Tensor](), 0
        for name, tensor in shapes:
            # Views, not copies: an optimiser steps the vector, and every layer sees the new
            # numbers.
            self.by_name[name] = vector[start : start + tensor.numel()].view(tensor.shape)
            start += tensor.numel()

    @cached_property
    def layers(self) -> Layers:
        """The layers by name, for the CPU's passes: NumPy reads none of a card's."""
        names = [one.removesuffix(".weight") for one in self.by_name if one.endswith(".weight")]
        return {name: self._layer(name) for name in names}

    def _layer(self, name: str) -> Linear:
        weight = self.by_name[f"{name}.weight"]
        bias = self.by_name.get(f"{name}.bias", torch.zeros(0))
        return Linear(weight, weight.t(), bias, bias.numpy())


class RolloutInputs(NamedTuple):
    """The N observations that pieces are drawn from."""

    inputs: Tensor  # (N, V Fv + Fj + V) normalised
    links: Links  # of the jobs; row n is of job n modulo their number


class Buffer:
    """An array that torch multiplies and compiled loops iterate over.

    Args:
        rows: Number of rows, R.
        shape: Shape of a row, the width last; with vertices before it, each vertex has a row in
            `flat` and `tensor`.
    """

    def __init__(self, rows: int, *shape: int) -> None:
        self.array: Floats32 = np.zeros((rows, *shape), np.float32)
        count = rows * (shape[0] if len(shape) > 1 else 1)
        self.flat: Floats32 = self.array.reshape(count, -1)
        self.tensor = torch.from_numpy(self.flat)


def piece_rows(vertices: int) -> int:
    """Return the number of rows of a piece.

    Returns:
        64 to 512; fewer, the more vertices there are.
    """
    return min(512, max(64, VERTICES_OF_A_PIECE // max(vertices, 1)))


class RowPiece:
    """Buffers of R rows, and a network's passes over them.

    Args:
        shape: Shape of the network.
        rows: Number of rows, R.
    """

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        v = shape.vertices
        self.shape, self.tanh = shape, shape.activation == "tanh"
        self.features = v * shape.vertex_features
        self.inputs = Buffer(rows, self.features + shape.job_features + v)
        self.logits, self.d_logits = Buffer(rows, shape.logits), Buffer(rows, shape.logits)
        self.values, self.d_values = Buffer(rows, 1), Buffer(rows, 1)

    def forward(self, weights: Layers, seen: RolloutInputs, rows: Ints) -> None:
        """Write `logits` (R, K), without a mask for padding, and `values` (R, 1).

        Args:
            weights: Weights of the network.
            seen: The observations.
            rows: (R,) indices into them.
        """
        raise NotImplementedError

    def backward(self, weights: Layers, gradients: Layers) -> None:
        """Add the weights' gradients, computed from `d_logits` and `d_values`.

        Both belong to the rows of the last `forward`.

        Args:
            weights: Weights of the network.
            gradients: Sums so far; changed in place.
        """
        raise NotImplementedError

    def _take(self, seen: RolloutInputs, rows: Ints) -> None:
        torch.index_select(seen.inputs, 0, torch.from_numpy(rows), out=self.inputs.tensor)

    def _activate(self, out: Tensor) -> None:
        if self.tanh:
            out.tanh_()
        else:
            out.relu_()

    def _layer(self, layer: Linear, x: Tensor, out: Buffer) -> None:
        torch.addmm(layer.bias, x, layer.turned, out=out.tensor)
        self._activate(out.tensor)

    def _through(self, delta: Buffer, out: Buffer, gradient: Linear) -> None:
        through(delta.flat, out.flat, self.tanh, gradient.bias_array)


class MlpPiece(RowPiece):
    """An actor and a critic of plain layers over the whole observation."""

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        super().__init__(shape, rows)
        self.outs = {
            part: [Buffer(rows, width) for width in shape.hidden] for part in ("actor", "critic")
        }
        self.deltas = [Buffer(rows, width) for width in shape.hidden]

    def forward(self, weights: Layers, seen: RolloutInputs, rows: Ints) -> None:
        self._take(seen, rows)
        for part, result in (("actor", self.logits), ("critic", self.values)):
            x = self.inputs
            for k, out in enumerate(self.outs[part]):
                self._layer(weights[f"{part}.{k}"], x.tensor, out)
                x = out
            head = weights[f"{part}_out"]
            torch.addmm(head.bias, x.tensor, head.turned, out=result.tensor)

    def backward(self, weights: Layers, gradients: Layers) -> None:
        for part, delta in (("actor", self.d_logits), ("critic", self.d_values)):
            xs, name = [self.inputs, *self.outs[part]], f"{part}_out"
            gradients[name].bias.add_(delta.tensor.sum(0))
            # Backpropagation, layer by layer from the head: delta is the loss by a layer's input
            # sum; the gradient of its weight is delta' x, and delta W is the loss by its input x.
            for k in range(len(self.deltas) - 1, -1, -1):
                _add_product(gradients[name], delta.tensor, xs[k + 1].tensor)
                torch.mm(delta.tensor, weights[name].weight, out=self.deltas[k].tensor)
                delta, name = self.deltas[k], f"{part}.{k}"
                self._through(delta, xs[k + 1], gradients[name])
            _add_product(gradients[name], delta.tensor, xs[0].tensor)


class GraphPiece(RowPiece):
    """Shared vertex encoder, messages along edges, shared head; critic from the pooled job."""

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        super().__init__(shape, rows)
        v, wide, head = shape.vertices, shape.hidden[0], shape.hidden[-1]
        message = (wide + 1) // 2
        job = slice(self.features, self.features + shape.job_features)
        self.job, self.mask = self.inputs.tensor[:, job], self.inputs.array[:, job.stop :]
        self.of_vertices = self.inputs.tensor[:, : self.features]
        self.rows = np.arange(rows)
        # One row per vertex:
        self.x = Buffer(rows, v, shape.vertex_features)
        self.x_by_job = self.x.tensor.view(rows, -1)
        self.h = [Buffer(rows, v, wide) for _ in range(shape.rounds + 1)]
        self.said = [Buffer(rows, v, wide) for _ in range(shape.rounds)]
        self.d_h, self.d_said = Buffer(rows, v, wide), Buffer(rows, v, wide)
        self.message, self.d_message = Buffer(rows, v, message), Buffer(rows, v, message)
        self.heard = [Buffer(rows, v, 2, message) for _ in range(shape.rounds)]
        self.d_heard = Buffer(rows, v, 2, message)
        self.head, self.d_head = Buffer(rows, v, head), Buffer(rows, v, head)
        self.moves, self.d_moves = (
            part.tensor.view(-1, LOGITS) for part in (self.logits, self.d_logits)
        )
        # One row per job:
        self.mean, self.largest = Buffer(rows, wide), Buffer(rows, wide)
        self.top = np.zeros((rows, wide), np.int32)
        self.to_pool = Buffer(rows, 2 * wide + shape.job_features)
        self.d_to_pool = np.zeros((rows, 2, wide), np.float32)
        self.pooled, self.d_pooled = Buffer(rows, head), Buffer(rows, head)
        self.critic, self.d_critic = Buffer(rows, head), Buffer(rows, head)
        self.terms = {width: torch.zeros(rows, width) for width in (wide, head)}

    def forward(self, weights: Layers, seen: RolloutInputs, rows: Ints) -> None:
        self._take(seen, rows)
        self.links, self.rows = seen.links, rows
        self.x_by_job.copy_(self.of_vertices)
        self._shared(weights["encode"], self.x, weights["encode_job"], self.job, self.h[0])
        for k, (heard, said) in enumerate(zip(self.heard, self.said, strict=True)):
            say, h = weights[f"say.{k}"], self.h[k].tensor
            torch.addmm(say.bias, h, say.turned, out=self.message.tensor)
            hear(seen.links, rows, self.message.array, heard.array)
            self._layer(weights[f"hear.{k}"], heard.tensor, said)
            torch.add(h, said.tensor, out=self.h[k + 1].tensor)
        last = self.h[-1]
        pool(last.array, self.mask, self.mean.array, self.largest.array, self.top)
        parts = [self.mean.tensor, self.largest.tensor, self.job]
        torch.cat(parts, 1, out=self.to_pool.tensor)
        self._layer(weights["pool"], self.to_pool.tensor, self.pooled)
        pooled = self.pooled.tensor
        self._shared(weights["actor_vertex"], last, weights["actor_pool"], pooled, self.head)
        out = weights["actor_out"]
        torch.addmm(out.bias, self.head.tensor, out.turned, out=self.moves)
        self._layer(weights["critic_hidden"], pooled, self.critic)
        out = weights["critic_out"]
        torch.addmm(out.bias, self.critic.tensor, out.turned, out=self.values.tensor)

    def backward(self, weights: Layers, gradients: Layers) -> None:
        # d_x is the derivative of the loss by x. The order of the parts is the reverse of
        # `forward`.
        wide, d_head, d_h = self.shape.hidden[0], self.d_head.tensor, self.d_h.tensor
        d_values, d_critic = self.d_values.tensor, self.d_critic.tensor
        d_pooled = self.d_pooled.tensor

        gradients["actor_out"].bias.add_(self.d_moves.sum(0))
        _add_product(gradients["actor_out"], self.d_moves, self.head.tensor)
        torch.mm(self.d_moves, weights["actor_out"].weight, out=d_head)
        self._through(self.d_head, self.head, gradients["actor_vertex"])
        _add_product(gradients["actor_vertex"], d_head, self.h[-1].tensor)
        torch.mm(d_head, weights["actor_vertex"].weight, out=d_h)
        # The job's term is the same for all its vertices: its derivative is the sum over them.
        summed = self._summed(d_head)
        _add_product(gradients["actor_pool"], summed, self.pooled.tensor)
        torch.mm(summed, weights["actor_pool"].weight, out=d_pooled)

        gradients["critic_out"].bias.add_(d_values.sum(0))
        _add_product(gradients["critic_out"], d_values, self.critic.tensor)
        torch.mm(d_values, weights["critic_out"].weight, out=d_critic)
        self._through(self.d_critic, self.critic, gradients["critic_hidden"])
        _add_product(gradients["critic_hidden"], d_critic, self.pooled.tensor)
        d_pooled.addmm_(d_critic, weights["critic_hidden"].weight)

        # Pooled feeds the actor and the critic; both have been added by now.
        self._through(self.d_pooled, self.pooled, gradients["pool"])
        _add_product(gradients["pool"], d_pooled, self.to_pool.tensor)
        d_to_pool = torch.from_numpy(self.d_to_pool).view(len(d_pooled), -1)
        torch.mm(d_pooled, weights["pool"].weight[:, : 2 * wide], out=d_to_pool)
        pool_backward(self.d_to_pool, self.mask, self.top, self.d_h.array)
        for k in range(self.shape.rounds - 1, -1, -1):
            self._unheard(k, weights, gradients)

        self._through(self.d_h, self.h[0], gradients["encode"])
        _add_product(gradients["encode"], d_h, self.x.tensor)
        _add_product(gradients["encode_job"], self._summed(d_h), self.job)

    def _unheard(self, k: int, weights: Layers, gradients: Layers) -> None:
        """Take the gradient of the embeddings back through one round of messages."""
        say, listen = f"say.{k}", f"hear.{k}"
        d_said, d_message = self.d_said.tensor, self.d_message.tensor
        # The residual h[k + 1] = h[k] + said passes d_h on unchanged; the round adds to it below.
        d_said.copy_(self.d_h.tensor)
        self._through(self.d_said, self.said[k], gradients[listen])
        _add_product(gradients[listen], d_said, self.heard[k].tensor)
        torch.mm(d_said, weights[listen].weight, out=self.d_heard.tensor)
        hear_backward(self.links, self.rows, self.d_heard.array, self.d_message.array)
        gradients[say].bias.add_(d_message.sum(0))
        _add_product(gradients[say], d_message, self.h[k].tensor)
        self.d_h.tensor.addmm_(d_message, weights[say].weight)

    def _shared(self, own: Linear, x: Buffer, common: Linear, job: Tensor, out: Buffer) -> None:
        """Apply a layer to every vertex, with a term of the job that all its vertices share."""
        term = self.terms[len(own.bias)]
        torch.addmm(own.bias, job, common.turned, out=term)
        torch.mm(x.tensor, own.turned, out=out.tensor)
        out.tensor.view(len(job), self.shape.vertices, -1).add_(term.unsqueeze(1))
        self._activate(out.tensor)

    def _summed(self, delta: Tensor) -> Tensor:
        """Sum (R V, width) over the vertices of each job."""
        term = self.terms[delta.shape[1]]
        return torch.sum(delta.view(len(term), self.shape.vertices, -1), 1, out=term)


def piece_of(shape: NetworkShape, rows: int) -> RowPiece:
    """Allocate buffers for a network's encoder.

    Returns:
        A piece of that many rows.
    """
    return (GraphPiece if shape.encoder == "graph" else MlpPiece)(shape, rows)


def _add_product(gradient: Linear, delta: Tensor, x: Tensor) -> None:
    """Add the gradient of a layer's weight."""
    gradient.weight.addmm_(delta.t(), x)
