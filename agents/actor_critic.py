"""Stable-Baselines3 policies around the networks of `agents.extractor`.

Stable-Baselines3 keeps one torch distribution per action dimension. With two dimensions per vertex
that is most of the time of an update, so all vertices share two tensors here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sb3_contrib.common.maskable.distributions import MaskableDistribution, MaybeMasks
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from agents.extractor import network_class
from agents.network import FORBIDDEN, NetworkShape
from dsp_gym.envs.action import MEMORY_MOVES, MOVES


class VertexActions(MaskableDistribution):
    """Independent moves of every vertex, as two categorical blocks (B, V, 7) and (B, V, 3).

    A capacity action is one block of choices at a single place (V = 1).
    """

    def __init__(self, places: int, sizes: Sequence[int] = (MOVES, MEMORY_MOVES)) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # theirs has no types
        self.places, self.sizes = places, list(sizes)

    def proba_distribution_net(self, *args: object, **kwargs: object) -> nn.Module:
        return nn.Identity()

    def proba_distribution(self, action_logits: Tensor) -> VertexActions:
        # B: rows of the minibatch; V: places (vertices, or one for a capacity action).
        self.logits = action_logits.view(-1, self.places, sum(self.sizes))
        self._normalise(self.logits)
        return self

    def apply_masking(self, masks: MaybeMasks) -> None:
        if masks is None:
            self._normalise(self.logits)
            return
        allowed = torch.as_tensor(masks).view(self.logits.shape) > 0
        self._normalise(torch.where(allowed, self.logits, float(FORBIDDEN)))

    def _normalise(self, logits: Tensor) -> None:
        self.blocks = tuple(
            torch.log_softmax(block, dim=2) for block in torch.split(logits, self.sizes, dim=2)
        )

    def log_prob(self, actions: Tensor) -> Tensor:
        chosen = actions.view(-1, self.places, len(self.sizes)).long()
        first, *others = (
            block.gather(2, chosen[:, :, i : i + 1]) for i, block in enumerate(self.blocks)
        )
        return sum(others, start=first).sum(dim=(1, 2))

    def entropy(self) -> Tensor:
        # exp(-1e8) is exactly 0 in float32, and 0 * -1e8 is 0: forbidden moves add nothing.
        first, *others = (-(block.exp() * block).sum(dim=(1, 2)) for block in self.blocks)
        return sum(others, start=first)

    def sample(self, draws: torch.Generator | None = None) -> Tensor:
        # Gumbel's trick: the argmax of log-probability plus Gumbel noise is a sample, and minus the
        # logarithm of an exponential variate is Gumbel noise.
        noisy = [
            (block - torch.empty_like(block).exponential_(generator=draws).log_()).argmax(dim=2)
            for block in self.blocks
        ]
        return torch.stack(noisy, dim=2).flatten(1)

    def mode(self) -> Tensor:
        return torch.stack([block.argmax(dim=2) for block in self.blocks], dim=2).flatten(1)

    def actions_from_params(self, action_logits: Tensor, deterministic: bool = False) -> Tensor:
        return self.proba_distribution(action_logits).get_actions(deterministic=deterministic)

    def log_prob_from_params(self, action_logits: Tensor) -> tuple[Tensor, Tensor]:
        actions = self.actions_from_params(action_logits)
        return actions, self.log_prob(actions)


class _Columns(nn.Module):
    """A slice of columns of the network's output."""

    def __init__(self, columns: slice) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, features: Tensor) -> Tensor:
        return features[:, self.columns]


class _VertexPolicy:
    """Code that both policies share: the network extracts all features, heads are columns."""

    def _build(self: Any, lr_schedule: Schedule) -> None:
        # The last column is the critic's value, all others are logits of the actor.
        logits = self.features_dim - 1
        self._build_mlp_extractor()
        shape = self.features_extractor.shape
        self.action_dist = VertexActions(shape.places, shape.blocks)
        self.action_net = _Columns(slice(0, logits))
        self.value_net = _Columns(slice(logits, None))
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),
            **self.optimizer_kwargs,
        )

    def _get_action_dist_from_latent(self: Any, latent_pi: Tensor) -> VertexActions:
        distribution: VertexActions = self.action_dist.proba_distribution(
            self.action_net(latent_pi)
        )
        return distribution


class VertexPolicy(_VertexPolicy, ActorCriticPolicy):  # type: ignore[misc]  # heads replaced
    """A policy for PPO: the environment enforces bounds, the network masks padding."""


class MaskableVertexPolicy(_VertexPolicy, MaskableActorCriticPolicy):  # type: ignore[misc]
    """A policy for MaskablePPO: moves that cannot be made have probability 0."""


def policy_arguments(shape: NetworkShape) -> dict[str, object]:
    """Build the `policy_kwargs` of either policy.

    Args:
        shape: Shape of the network.

    Returns:
        Arguments that Stable-Baselines3 passes to the policy.
    """
    return {
        "features_extractor_class": network_class(shape),
        "features_extractor_kwargs": {"shape": shape},
        "net_arch": [],
        "ortho_init": False,
    }
