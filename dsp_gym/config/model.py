"""The base of every configuration model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["ConfigModel"]


class ConfigModel(BaseModel):
    """A frozen model that refuses unknown keys and numbers that are not finite.

    Defaults stand in the model only; YAML holds differences. Each field carries
    ``Field(description=...)`` with its unit and the reason for its default.
    """

    # Most models are only ever parts of others, so each is built when it is first used.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
