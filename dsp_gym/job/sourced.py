"""Numbers of a job file that may name their source."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from dsp_gym.config.model import ConfigModel


class Sourced(ConfigModel):
    """A number with its source."""

    value: float = Field(description="the number itself")
    source: str = Field(description="paper, table, file or fit the number comes from")
    ci: tuple[float, float] | None = Field(None, description="confidence interval, where fitted")


def _bare(value: object) -> object:
    """Return the value of `{value, source, ci}`; anything else unchanged."""
    if isinstance(value, dict) and "value" in value:
        return Sourced.model_validate(value).value
    return value


Number = Annotated[float, BeforeValidator(_bare)]
Count = Annotated[int, BeforeValidator(_bare)]
