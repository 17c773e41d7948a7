"""Guardrails in a configuration file: a list, each told by its `kind`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuotaConfig
from dsp_gym.guardrails.capacity_floor import CapacityFloorConfig
from dsp_gym.guardrails.cool_down import CoolDownConfig
from dsp_gym.guardrails.excess_budget import ExcessBudgetConfig
from dsp_gym.guardrails.fallback import FallbackConfig
from dsp_gym.guardrails.freeze import FreezeConfig
from dsp_gym.guardrails.out_of_distribution import OutOfDistributionConfig
from dsp_gym.guardrails.stale_metrics import StaleMetricsConfig
from dsp_gym.guardrails.step_limit import StepLimitConfig

__all__ = ["GuardrailConfig", "GuardrailsConfig"]

GuardrailConfig = Annotated[
    BoundsAndQuotaConfig
    | CapacityFloorConfig
    | CoolDownConfig
    | ExcessBudgetConfig
    | FallbackConfig
    | FreezeConfig
    | OutOfDistributionConfig
    | StaleMetricsConfig
    | StepLimitConfig,
    Field(discriminator="kind"),
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
