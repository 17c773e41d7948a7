"""The base of every configuration model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def _checked_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("a URL begins with http:// or https://")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(_checked_url)]
"""An address of HTTP, without a slash at its end."""


def refuse_repeated(labels: Sequence[str], said: str) -> None:
    """Refuse a label that stands twice in a list.

    Args:
        labels: The labels.
        said: What is wrong, with a place for the label.

    Raises:
        ValueError: One is repeated.
    """
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise ValueError(said.format(repeated[0]))


class ConfigModel(BaseModel):
    """A frozen model that refuses unknown keys and numbers that are not finite.

    Defaults stand in the model only; YAML holds differences. Each field carries
    ``Field(description=...)`` with its unit and the reason for its default.
    """

    # Most models are only ever parts of others, so each is built when it is first used.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
