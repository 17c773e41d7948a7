"""Guardrails in a configuration file: a list, each named by its `kind`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from pydantic import (
    Field,
    SerializeAsAny,
    WrapValidator,
    model_validator,
)

from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.plugins import InstalledPart, Plugins
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuotaConfig
from dsp_gym.guardrails.capacity_floor import CapacityFloorConfig
from dsp_gym.guardrails.cool_down import CoolDownConfig
from dsp_gym.guardrails.excess_budget import ExcessBudgetConfig
from dsp_gym.guardrails.fallback import FallbackConfig
from dsp_gym.guardrails.freeze import FreezeConfig
from dsp_gym.guardrails.out_of_distribution import OutOfDistributionConfig
from dsp_gym.guardrails.settle import SettleConfig
from dsp_gym.guardrails.stale_metrics import StaleMetricsConfig
from dsp_gym.guardrails.step_limit import StepLimitConfig
from dsp_gym.policies import PolicyConfig

GROUP = "dsp_gym.guardrails"
"""Entry-point group under which a distribution offers guardrails."""

INSTALLED = Plugins(GROUP, "guardrail", "docs/guides/add-a-guardrail.md")
"""Guardrails that other distributions offer."""

_Shipped = (
    BoundsAndQuotaConfig
    | CapacityFloorConfig
    | CoolDownConfig
    | ExcessBudgetConfig
    | FallbackConfig
    | FreezeConfig
    | OutOfDistributionConfig
    | SettleConfig
    | StaleMetricsConfig
    | StepLimitConfig
)

SHIPPED = tuple(str(member.model_fields["kind"].default) for member in get_args(_Shipped))
"""Kinds that ship with the library."""


class InstalledGuardrail(InstalledPart):
    """A guardrail that another distribution offers."""

    kind: str = Field(description="name of its entry point in the group `dsp_gym.guardrails`")


_installed = INSTALLED.beside(
    "kind",
    SHIPPED,
    lambda kind, keys: InstalledGuardrail(kind=kind, config=INSTALLED.config(kind, keys)),
)


if TYPE_CHECKING:
    GuardrailConfig = _Shipped | InstalledGuardrail
else:
    GuardrailConfig = Annotated[
        _Shipped, Field(discriminator="kind"), WrapValidator(_installed), SerializeAsAny()
    ]


class GuardrailsConfig(ConfigModel):
    """A chain of guardrails; the order they act in is fixed, whatever the order here."""

    guardrails: tuple[GuardrailConfig, ...] = Field((), description="the guardrails, any order")

    @model_validator(mode="after")
    def _each_once(self) -> GuardrailsConfig:
        kinds = [guardrail.kind for guardrail in self.guardrails]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"'{twice[0]}' is given twice; each guardrail stands once in a chain")
        asking = [
            guardrail.kind
            for guardrail in self.guardrails
            if isinstance(guardrail, OutOfDistributionConfig | StaleMetricsConfig)
            and guardrail.action == "fallback"
        ]
        if asking and "fallback" not in kinds:
            raise ValueError(
                f"'{asking[0]}' asks for a fallback, but there is no guardrail of kind 'fallback'"
            )
        return self


def policies_of(
    config: GuardrailsConfig | str | Path | None,
) -> list[tuple[str, str | PolicyConfig]]:
    """List the policies that guardrails ask, or hand over to.

    Args:
        config: the guardrails, their name or their file; None: there are none.

    Returns:
        Kind of the guardrail and its policy, as configured.
    """
    if config is None:
        return []
    if not isinstance(config, GuardrailsConfig):
        config = files.load_model(GuardrailsConfig, "guardrails", config)
    found = []
    for part in config.guardrails:
        own = part.config if isinstance(part, InstalledGuardrail) else part
        policy: object = getattr(own, "policy", None)
        if isinstance(policy, str | PolicyConfig):
            found.append((part.kind, policy))
    return found
