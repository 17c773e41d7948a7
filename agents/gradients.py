"""The networks of `agents.extractor` forwards and backwards by hand, a piece of rows at a time.

A piece is small enough that its activations stay in a core's cache, its buffers are made once, and
its matrix products write and add in place: that is twice as fast as torch's own gradients, which
tests hold these to. Everything here lets other threads run, so that two cores work on two pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.kernels import Links, hear, hear_backward, pool, pool_backward, through
from agents.network import NetworkShape
from dsp_gym.arrays import Floats32, Ints
from dsp_gym.envs.action import LOGITS

__all__ = ["Piece", "Seen", "Tensors", "piece_of", "piece_rows"]

Tensors = Mapping[str, Tensor]
"""Weights, or their gradients, by the names that NumPy inference knows."""

VERTICES_OF_A_PIECE = 2048
"""Rows times vertices: 512 KiB for each activation of 64 numbers."""


class Seen(NamedTuple):
    """The N observations that pieces are drawn from."""

    inputs: Tensor  # (N, V Fv + Fj + V) normalised
    links: Links  # of the jobs; row n is of job n modulo their number


def piece_rows(vertices: int) -> int:
    """Rows of a piece.

    Returns:
        64 to 512, the fewer, the more vertices there are.
    """
    return min(512, max(64, VERTICES_OF_A_PIECE // vertices))


class Piece:
    """Buffers of R rows, and the way through a network that leads over them.

    Args:
        shape: Of the network.
        rows: R.
    """

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        v = shape.vertices
        self.shape, self.tanh = shape, shape.activation == "tanh"
        self.features = v * shape.vertex_features
        self.inputs = torch.empty(rows, self.features + shape.job_features + v)
        self.logits, self.d_logits = torch.empty(rows, v * LOGITS), torch.empty(rows, v * LOGITS)
        self.values, self.d_values = torch.empty(rows, 1), torch.empty(rows, 1)

    def forward(self, weights: Tensors, seen: Seen, rows: Ints) -> None:
        """Writes `logits` (R, 10 V), those of padding left as they come, and `values` (R, 1)."""
        raise NotImplementedError

    def backward(self, weights: Tensors, gradients: Tensors) -> None:
        """Adds the gradients of the weights, from `d_logits` and `d_values`.

        Both are those of the rows of the last `forward`.
        """
        raise NotImplementedError

    def _take(self, seen: Seen, rows: Ints) -> None:
        torch.index_select(seen.inputs, 0, torch.from_numpy(rows), out=self.inputs)

    def _activate(self, layer: Tensor) -> None:
        if self.tanh:
            layer.tanh_()
        else:
            layer.relu_()

    def _layer(self, weights: Tensors, name: str, x: Tensor, out: Tensor) -> None:
        torch.addmm(weights[f"{name}.bias"], x, weights[f"{name}.weight"].t(), out=out)
        self._activate(out)

    def _through(self, delta: Tensor, out: Tensor, bias: Tensor) -> None:
        through(delta.numpy(), out.numpy(), self.tanh, bias.numpy())


class MlpPiece(Piece):
    """An actor and a critic of plain layers over the whole observation."""

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        super().__init__(shape, rows)
        self.outs = {
            part: [torch.empty(rows, width) for width in shape.hidden]
            for part in ("actor", "critic")
        }
        self.deltas = [torch.empty(rows, width) for width in shape.hidden]

    def forward(self, weights: Tensors, seen: Seen, rows: Ints) -> None:
        self._take(seen, rows)
        for part, result in (("actor", self.logits), ("critic", self.values)):
            x = self.inputs
            for k, out in enumerate(self.outs[part]):
                self._layer(weights, f"{part}.{k}", x, out)
                x = out
            head = f"{part}_out"
            torch.addmm(weights[f"{head}.bias"], x, weights[f"{head}.weight"].t(), out=result)

    def backward(self, weights: Tensors, gradients: Tensors) -> None:
        for part, result in (("actor", self.d_logits), ("critic", self.d_values)):
            xs, delta, name = [self.inputs, *self.outs[part]], result, f"{part}_out"
            gradients[f"{name}.bias"].add_(delta.sum(0))
            for k in range(len(self.deltas) - 1, -1, -1):
                _add_product(gradients[f"{name}.weight"], delta, xs[k + 1])
                torch.mm(delta, weights[f"{name}.weight"], out=self.deltas[k])
                delta, name = self.deltas[k], f"{part}.{k}"
                self._through(delta, xs[k + 1], gradients[f"{name}.bias"])
            _add_product(gradients[f"{name}.weight"], delta, xs[0])


class GraphPiece(Piece):
    """Shared vertex encoder, messages along edges, shared head; critic from the pooled job.

    `flat` buffers have a row per vertex, `whole` ones a row per job.
    """

    def __init__(self, shape: NetworkShape, rows: int) -> None:
        super().__init__(shape, rows)
        v, wide, head = shape.vertices, shape.hidden[0], shape.hidden[-1]
        message = (wide + 1) // 2
        self.rows = np.arange(rows)

        def flat(width: int) -> Tensor:
            return torch.empty(rows * v, width)

        def whole(width: int) -> Tensor:
            return torch.empty(rows, width)

        self.x = flat(shape.vertex_features)
        self.h = [flat(wide) for _ in range(shape.rounds + 1)]
        self.message, self.d_message = flat(message), flat(message)
        self.heard = [flat(2 * message) for _ in range(shape.rounds)]
        self.d_heard = flat(2 * message)
        self.said = [flat(wide) for _ in range(shape.rounds)]
        self.d_h, self.d_said = flat(wide), flat(wide)
        self.to_pool = whole(2 * wide + shape.job_features)
        self.d_to_pool, self.top = whole(2 * wide), np.zeros((rows, wide), np.int32)
        self.pooled, self.d_pooled, self.critic = whole(head), whole(head), whole(head)
        self.d_critic, self.job_term = whole(head), whole(max(wide, head))
        self.head, self.d_head = flat(head), flat(head)

    def forward(self, weights: Tensors, seen: Seen, rows: Ints) -> None:
        self._take(seen, rows)
        self.links, self.rows = seen.links, rows
        v, wide = self.shape.vertices, self.shape.hidden[0]
        self.x.view(len(rows), -1).copy_(self.inputs[:, : self.features])
        self._shared("encode", "encode_job", weights, self.x, self._job, self.h[0])
        for k, (heard, said) in enumerate(zip(self.heard, self.said, strict=True)):
            say = f"say.{k}"
            torch.addmm(
                weights[f"{say}.bias"], self.h[k], weights[f"{say}.weight"].t(), out=self.message
            )
            hear(seen.links, rows, _by_vertex(self.message, v), _by_vertex(heard, v))
            self._layer(weights, f"hear.{k}", heard, said)
            torch.add(self.h[k], said, out=self.h[k + 1])
        pool(_by_vertex(self.h[-1], v), self._mask, self.to_pool.numpy(), self.top)
        self.to_pool[:, 2 * wide :].copy_(self._job)
        self._layer(weights, "pool", self.to_pool, self.pooled)
        self._shared("actor_vertex", "actor_pool", weights, self.h[-1], self.pooled, self.head)
        torch.addmm(
            weights["actor_out.bias"],
            self.head,
            weights["actor_out.weight"].t(),
            out=self.logits.view(-1, LOGITS),
        )
        self._layer(weights, "critic_hidden", self.pooled, self.critic)
        torch.addmm(
            weights["critic_out.bias"],
            self.critic,
            weights["critic_out.weight"].t(),
            out=self.values,
        )

    def backward(self, weights: Tensors, gradients: Tensors) -> None:
        v, wide = self.shape.vertices, self.shape.hidden[0]
        d_logits = self.d_logits.view(-1, LOGITS)
        gradients["actor_out.bias"].add_(d_logits.sum(0))
        _add_product(gradients["actor_out.weight"], d_logits, self.head)
        torch.mm(d_logits, weights["actor_out.weight"], out=self.d_head)
        self._through(self.d_head, self.head, gradients["actor_vertex.bias"])
        _add_product(gradients["actor_vertex.weight"], self.d_head, self.h[-1])
        torch.mm(self.d_head, weights["actor_vertex.weight"], out=self.d_h)
        d_pooled = self._summed(self.d_head)
        _add_product(gradients["actor_pool.weight"], d_pooled, self.pooled)
        torch.mm(d_pooled, weights["actor_pool.weight"], out=self.d_pooled)

        gradients["critic_out.bias"].add_(self.d_values.sum(0))
        _add_product(gradients["critic_out.weight"], self.d_values, self.critic)
        torch.mm(self.d_values, weights["critic_out.weight"], out=self.d_critic)
        self._through(self.d_critic, self.critic, gradients["critic_hidden.bias"])
        _add_product(gradients["critic_hidden.weight"], self.d_critic, self.pooled)
        self.d_pooled.addmm_(self.d_critic, weights["critic_hidden.weight"])

        self._through(self.d_pooled, self.pooled, gradients["pool.bias"])
        _add_product(gradients["pool.weight"], self.d_pooled, self.to_pool)
        torch.mm(self.d_pooled, weights["pool.weight"][:, : 2 * wide], out=self.d_to_pool)
        pool_backward(self.d_to_pool.numpy(), self._mask, self.top, _by_vertex(self.d_h, v))
        for k in range(self.shape.rounds - 1, -1, -1):
            self._unheard(k, weights, gradients)

        self._through(self.d_h, self.h[0], gradients["encode.bias"])
        _add_product(gradients["encode.weight"], self.d_h, self.x)
        _add_product(gradients["encode_job.weight"], self._summed(self.d_h), self._job)

    def _unheard(self, k: int, weights: Tensors, gradients: Tensors) -> None:
        """Takes the gradient of the embeddings back through one round of messages."""
        say, listen, v = f"say.{k}", f"hear.{k}", self.shape.vertices
        self.d_said.copy_(self.d_h)
        self._through(self.d_said, self.said[k], gradients[f"{listen}.bias"])
        _add_product(gradients[f"{listen}.weight"], self.d_said, self.heard[k])
        torch.mm(self.d_said, weights[f"{listen}.weight"], out=self.d_heard)
        d_heard, d_message = _by_vertex(self.d_heard, v), _by_vertex(self.d_message, v)
        hear_backward(self.links, self.rows, d_heard, d_message)
        gradients[f"{say}.bias"].add_(self.d_message.sum(0))
        _add_product(gradients[f"{say}.weight"], self.d_message, self.h[k])
        self.d_h.addmm_(self.d_message, weights[f"{say}.weight"])

    def _shared(
        self, own: str, common: str, weights: Tensors, x: Tensor, job: Tensor, out: Tensor
    ) -> None:
        """A layer over every vertex, and a term of the job that all its vertices share."""
        term = self.job_term[:, : out.shape[1]]
        torch.mm(job, weights[f"{common}.weight"].t(), out=term)
        torch.addmm(weights[f"{own}.bias"], x, weights[f"{own}.weight"].t(), out=out)
        out.view(len(job), self.shape.vertices, -1).add_(term.unsqueeze(1))
        self._activate(out)

    def _summed(self, delta: Tensor) -> Tensor:
        """Sums (R V, width) over the vertices of each job."""
        term = self.job_term[:, : delta.shape[1]]
        return torch.sum(delta.view(len(term), self.shape.vertices, -1), 1, out=term)

    @property
    def _job(self) -> Tensor:
        return self.inputs[:, self.features : self.features + self.shape.job_features]

    @property
    def _mask(self) -> Floats32:
        mask: Floats32 = self.inputs.numpy()[:, self.features + self.shape.job_features :]
        return mask


def piece_of(shape: NetworkShape, rows: int) -> Piece:
    """Buffers for a network's own encoder.

    Returns:
        A piece of that many rows.
    """
    return (GraphPiece if shape.encoder == "graph" else MlpPiece)(shape, rows)


def _add_product(gradient: Tensor, delta: Tensor, x: Tensor) -> None:
    """Adds the gradient of a layer's weight, (out, in)."""
    gradient.addmm_(delta.t(), x)


def _by_vertex(flat: Tensor, vertices: int) -> Floats32:
    array: Floats32 = flat.numpy().reshape(-1, vertices, flat.shape[1])
    return array
