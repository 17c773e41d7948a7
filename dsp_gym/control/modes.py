"""How far a policy may go on a real job, and what takes it back."""

from __future__ import annotations

import re
from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.policies.config import PolicyConfig

Mode = Literal["off", "shadow", "advise", "canary", "active"]
"""off: watch; shadow: also decide; advise: also say so on the job; canary, active: also act."""

MODES: tuple[Mode, ...] = get_args(Mode)
ACTING: tuple[Mode, ...] = ("canary", "active")
"""Modes that rescale the job."""

WRITING: tuple[Mode, ...] = ("advise", *ACTING)
"""Modes that write anything at all outside the journal; without --apply they are shadow."""

INCUMBENT = "incumbent"
"""Name of the running configuration among the policies, whichever controller decided it."""

_TIME = r"([01]\d|2[0-3]):[0-5]\d"
_WINDOW = re.compile(rf"({_TIME})-({_TIME}|24:00)")


class NamedPolicyConfig(ConfigModel):
    """One of several policies that are asked side by side."""

    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=63,
        description="name in journal, status and metrics; none: the policy's name",
    )
    policy: str | PolicyConfig = Field(
        description="a policy's name, its folder or YAML file, or {policy, params}; incumbent: "
        "the running configuration"
    )
    guardrails: str | GuardrailsConfig | None = Field(
        None, description="its own guardrails; left out: those of the run; null: none"
    )

    @property
    def has_own_guardrails(self) -> bool:
        """Whether its guardrails are given here."""
        return "guardrails" in self.model_fields_set


class CanaryConfig(ConfigModel):
    """Which decisions are enacted in mode canary."""

    share: float = Field(
        1.0, gt=0, le=1, description="share of the decisions to change something that are enacted"
    )
    windows: tuple[str, ...] = Field(
        (),
        description="times of day, UTC, at which decisions are enacted, such as 09:00-17:30 or "
        "22:00-02:00; none: all day",
    )

    @field_validator("windows")
    @classmethod
    def _are_times(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for window in windows:
            if _WINDOW.fullmatch(window) is None:
                raise ValueError(f"{window!r} is no time of day; write HH:MM-HH:MM, in UTC")
        return windows

    @model_validator(mode="after")
    def _is_some(self) -> CanaryConfig:
        if self.share == 1.0 and not self.windows:
            raise ValueError("a canary has a share below 1, or windows; mode: active enacts all")
        return self

    def spans_s(self) -> list[tuple[int, int]]:
        """Convert the windows to seconds since midnight; one over midnight ends before it begins.

        Returns:
            (begin, end) per window, seconds since midnight UTC; no window: an empty list.
        """
        return [
            (_seconds(begin), _seconds(end))
            for begin, end in (window.split("-") for window in self.windows)
        ]


class RollBackConfig(ConfigModel):
    """When the numbers from before a change are asked for again."""

    return_s: float = Field(
        300.0,
        gt=0,
        le=7200,
        description="a job that does not run so long after a change was asked for does not come "
        "back (an outage of a redeployment: 56 to 93 s)",
    )
    watch_s: float = Field(
        900.0, gt=0, le=86400, description="how long a change is watched, and the time before it, s"
    )
    slo_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="by how much the share of seconds outside the objective may rise after a "
        "change that took tasks or memory away",
    )
    cool_down_s: float = Field(
        3600.0, ge=0, le=604800, description="for how long nothing is enacted after a roll-back, s"
    )


class RestraintConfig(ConfigModel):
    """How many changes a policy may ask for, and how many increases without any gain."""

    changes_per_hour: int = Field(
        12, ge=1, le=3600, description="most changes within any hour, whatever they are for"
    )
    vain_increases: int = Field(
        3,
        ge=1,
        le=100,
        description="increases in a row without gain, of a job whose backlog grows, after which "
        "it gets no more",
    )
    gain: float = Field(
        0.05,
        ge=0,
        le=1,
        description="least rise of the records read that is a gain, as a share",
    )
    pause_s: float = Field(
        3600.0, gt=0, le=604800, description="for how long it gets no more then, s"
    )


def _seconds(time: str) -> int:
    hours, minutes = time.split(":")
    return 3600 * int(hours) + 60 * int(minutes)
