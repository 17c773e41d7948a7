"""A verdict in the few values that the pages and metrics of a fleet show."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dsp_gym.config.model import ConfigModel


class SavingRange(ConfigModel):
    """Money per month of 730 hours, with its 95 % interval."""

    value: float = Field(description="the value")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")


class Block(ConfigModel):
    """One condition of a verdict that does not hold."""

    subject: str = Field(description="what it is about")
    found: str = Field(description="in a few characters")
    needed: str = Field(description="likewise")


class VerdictSummary(ConfigModel):
    """The best policy of one job, and why it may not act yet."""

    policy: str | None = Field(
        None, description="its label; none: lateness forbids every policy, or none was replayed"
    )
    word: Literal["promote", "rescue", "keep watching", "reject"] | None = Field(
        None, description="the verdict; none where there is no policy"
    )
    sentence: str = Field(description="the verdict in one sentence")
    days: float = Field(description="from the first slot to the last")
    cost_per_month: float = Field(description="of what the policy would replace, 730 hours")
    late: float | None = Field(None, description="its late share of the time; none: not measured")
    late_then: float | None = Field(None, description="late share of the time under the policy")
    saving: SavingRange | None = Field(
        None, description="of the policy; none: no policy, or its model is not trusted"
    )
    claimed_per_month: float = Field(0.0, description="money that may be claimed")
    blocks: tuple[Block, ...] = Field((), description="unmet conditions, the gravest first")
