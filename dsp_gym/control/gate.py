"""The bar a policy must pass in shadow mode before it may act."""

from __future__ import annotations

from pydantic import Field

from dsp_gym.config.model import ConfigModel


class RescueConfig(ConfigModel):
    """What counts as a rescue: a policy that costs more because the job needs more."""

    late: float = Field(
        0.05,
        gt=0,
        le=1,
        description="late share of the time from which on the incumbent is in need of one; 1: only "
        "if it is always late",
    )
    cut: float = Field(
        0.5,
        gt=0,
        le=1,
        description="least share of that lateness that the policy takes away; the interval's worse "
        "end counts",
    )
    max_cost: float = Field(
        5.0,
        ge=1,
        description="most that a rescue may cost, multiples of the incumbent's cost; the "
        "interval's upper end counts",
    )


class GateConfig(ConfigModel):
    """Bounds of the promotion gate."""

    min_days: float = Field(
        7.0, gt=0, le=365, description="days observed; a week shows every weekday once"
    )
    min_coverage: float = Field(
        0.95, gt=0, le=1, description="share of the decision slots with a decision"
    )
    max_guard_trips_per_day: float = Field(
        24.0,
        ge=0,
        description="times a day that guardrails step in; the same one counts again after an hour "
        "without; once an hour",
    )
    max_failure_share: float = Field(
        0.001, ge=0, le=1, description="share of decisions that raised, came late or were nonsense"
    )
    min_saving: float = Field(
        0.05,
        ge=-1,
        lt=1,
        description="least saving, share of the incumbent's cost; the interval's lower end counts",
    )
    max_later: float = Field(
        0.005,
        ge=0,
        le=1,
        description="most that the late share of the time may rise; the interval's upper end "
        "counts (0.005: 7 minutes a day)",
    )
    rescue: RescueConfig = Field(
        default_factory=RescueConfig,
        description="when a policy that saves the SLO is no loss, though it costs more",
    )
