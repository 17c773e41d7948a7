"""The actor-critic networks in torch, over the flat observation.

Graph: one encoder shared by all vertices, rounds of messages along the edges in both directions,
and one head shared by all vertices, so that one agent acts on jobs of different shapes (as in
Decima, Mao et al., SIGCOMM 2019, which shares weights over the stages of a DAG). Padding has no
edge and no share in the pooled job. Mlp: the plain network, with a separate actor and critic.

Each is a Stable-Baselines3 features extractor whose features are the finished logits and value.
"""

from __future__ import annotations

import itertools
import math

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.network import FORBIDDEN, OBSERVATION_LIMIT, NetworkShape
from dsp_gym.envs.action import LOGITS, MOVES

SMALL_GAIN = 0.01
"""Gain of the actor's last layer: small, so that the first policy is nearly independent of the

observation (Andrychowicz et al., 2021).
"""


class ActorCriticNetwork(BaseFeaturesExtractor):
    """Common part of the networks: reading the observation, forms of input and output."""

    stay: Tensor
    vertex_shift: Tensor
    vertex_scale: Tensor
    job_shift: Tensor
    job_scale: Tensor

    def __init__(self, observation_space: spaces.Box, shape: NetworkShape) -> None:
        super().__init__(observation_space, features_dim=shape.logits + 1)
        self.shape = shape
        self.sizes = [
            shape.vertices * shape.vertex_features,
            shape.job_features,
            shape.vertices,
            shape.vertices**2,
        ]
        self.act = torch.tanh if shape.activation == "tanh" else torch.relu
        self.register_buffer("vertex_shift", torch.zeros(shape.vertex_features))
        self.register_buffer("vertex_scale", torch.ones(shape.vertex_features))
        self.register_buffer("job_shift", torch.zeros(shape.job_features))
        self.register_buffer("job_scale", torch.ones(shape.job_features))
        # Logits of a padded vertex: only "stay" of parallelism (0) and of memory (MOVES) are
        # allowed.
        stay = torch.full((LOGITS,), float(FORBIDDEN))
        stay[[0, MOVES]] = 0.0
        self.register_buffer("stay", stay, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Compute the logits of all vertices, then the value.

        Returns:
            (B, V * 10 + 1): ten logits per vertex, those of a padded vertex fixed to "stay", then
            the value.
        """
        x, job, mask, edges = torch.split(observation, self.sizes, dim=1)
        v, limit = self.shape.vertices, float(OBSERVATION_LIMIT)
        valid = mask.unsqueeze(2)
        x = x.view(-1, v, self.shape.vertex_features)
        x = ((x - self.vertex_shift) * self.vertex_scale).clamp(-limit, limit) * valid
        job = ((job - self.job_shift) * self.job_scale).clamp(-limit, limit)
        logits, value = self.act_and_judge(x, job, mask, edges)
        logits = torch.where(valid > 0, logits, self.stay)
        return torch.cat([logits.flatten(1), value], dim=1)

    def act_and_judge(
        self, x: Tensor, job: Tensor, mask: Tensor, edges: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute logits and value from a normalised observation.

        Args:
            x: (B, V, vertex features).
            job: (B, job features).
            mask: (B, V), 1 for vertices, 0 for padding.
            edges: (B, V * V), 1 where the column's vertex feeds the row's.

        Returns:
            Logits (B, V, 10) and value (B, 1); both are raw outputs, without mask or clipping.
        """
        raise NotImplementedError

    def initialise(self) -> None:
        """Initialise as usual for PPO: orthogonal weights, small actor output, a bias to hold."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                # The square root of 2 keeps the variance of activations through a relu.
                gain = {"actor_out": SMALL_GAIN, "critic_out": 1.0}.get(name, math.sqrt(2))
                nn.init.orthogonal_(module.weight, gain=gain)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
                if name == "actor_out":
                    blocks = self.shape.blocks
                    stay = [0, *itertools.accumulate(blocks[:-1])]
                    with torch.no_grad():
                        module.bias.view(-1, sum(blocks))[:, stay] = self.shape.hold_bias


class GraphNetwork(ActorCriticNetwork):
    """Shared vertex encoder, message passing, shared vertex head; critic from the pooled job."""

    def __init__(self, observation_space: spaces.Box, shape: NetworkShape) -> None:
        super().__init__(observation_space, shape)
        wide, head = shape.hidden[0], shape.hidden[-1]
        self.encode = nn.Linear(shape.vertex_features, wide)
        self.encode_job = nn.Linear(shape.job_features, wide, bias=False)
        message = (wide + 1) // 2
        self.say = nn.ModuleList(nn.Linear(wide, message) for _ in range(shape.rounds))
        self.hear = nn.ModuleList(nn.Linear(2 * message, wide) for _ in range(shape.rounds))
        self.pool = nn.Linear(2 * wide + shape.job_features, head)
        self.actor_vertex = nn.Linear(wide, head)
        self.actor_pool = nn.Linear(head, head, bias=False)
        self.actor_out = nn.Linear(head, LOGITS)
        self.critic_hidden = nn.Linear(head, head)
        self.critic_out = nn.Linear(head, 1)
        self.initialise()

    def act_and_judge(
        self, x: Tensor, job: Tensor, mask: Tensor, edges: Tensor
    ) -> tuple[Tensor, Tensor]:
        # h: (B, V, wide) embeddings of the vertices; the job's term is the same for all of them.
        h = self.act(self.encode(x) + self.encode_job(job).unsqueeze(1))
        up = edges.view(-1, self.shape.vertices, self.shape.vertices)
        down = up.transpose(1, 2)
        # Means over neighbours, so that the size of messages does not grow with the fan-in.
        up = up / up.sum(2, keepdim=True).clamp(min=1)
        down = down / down.sum(2, keepdim=True).clamp(min=1)
        for say, hear in zip(self.say, self.hear, strict=True):
            message = say(h)
            # Padding touches no edge: it sends no messages and receives zeros.
            heard = torch.cat([torch.bmm(up, message), torch.bmm(down, message)], dim=2)
            h = h + self.act(hear(heard))
        share = (mask / mask.sum(1, keepdim=True).clamp(min=1)).unsqueeze(1)
        mean = torch.bmm(share, h).squeeze(1)
        top = torch.where(mask.unsqueeze(2) > 0, h, float(FORBIDDEN)).amax(1)
        pooled = self.act(self.pool(torch.cat([mean, top, job], dim=1)))
        head = self.act(self.actor_vertex(h) + self.actor_pool(pooled).unsqueeze(1))
        return self.actor_out(head), self.critic_out(self.act(self.critic_hidden(pooled)))


class MlpNetwork(ActorCriticNetwork):
    """An actor and a critic of plain layers over the whole observation."""

    def __init__(self, observation_space: spaces.Box, shape: NetworkShape) -> None:
        super().__init__(observation_space, shape)
        widths = [sum(self.sizes[:3]), *shape.hidden]
        pairs = list(itertools.pairwise(widths))
        self.actor = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.critic = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.actor_out = nn.Linear(widths[-1], shape.vertices * LOGITS)
        self.critic_out = nn.Linear(widths[-1], 1)
        self.initialise()

    def act_and_judge(
        self, x: Tensor, job: Tensor, mask: Tensor, edges: Tensor
    ) -> tuple[Tensor, Tensor]:
        actor = critic = torch.cat([x.flatten(1), job, mask], dim=1)
        for layer in self.actor:
            actor = self.act(layer(actor))
        for layer in self.critic:
            critic = self.act(layer(critic))
        logits = self.actor_out(actor).view(-1, self.shape.vertices, LOGITS)
        return logits, self.critic_out(critic)


class JobNetwork(ActorCriticNetwork):
    """An actor and a critic of plain layers over the job's features, for capacity actions."""

    def __init__(self, observation_space: spaces.Box, shape: NetworkShape) -> None:
        super().__init__(observation_space, shape)
        pairs = list(itertools.pairwise([shape.job_features, *shape.hidden]))
        self.actor = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.critic = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.actor_out = nn.Linear(shape.hidden[-1], shape.logits)
        self.critic_out = nn.Linear(shape.hidden[-1], 1)
        self.initialise()

    def forward(self, observation: Tensor) -> Tensor:
        limit = float(OBSERVATION_LIMIT)
        actor = critic = ((observation - self.job_shift) * self.job_scale).clamp(-limit, limit)
        for layer in self.actor:
            actor = self.act(layer(actor))
        for layer in self.critic:
            critic = self.act(layer(critic))
        return torch.cat([self.actor_out(actor), self.critic_out(critic)], dim=1)


def network_class(shape: NetworkShape) -> type[ActorCriticNetwork]:
    """Return the class of network for a shape.

    Returns:
        `JobNetwork` for capacity actions, `GraphNetwork` for the encoder "graph", else
        `MlpNetwork`.
    """
    if shape.choices is not None:
        return JobNetwork
    return GraphNetwork if shape.encoder == "graph" else MlpNetwork
