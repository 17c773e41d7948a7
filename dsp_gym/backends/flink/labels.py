"""What a Prometheus calls the labels that Flink's reporter gives its series.

A relabelling, or a reporter that goes through another system, gives them other names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["Labels"]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Labels:
    """The label of this Prometheus by Flink's name of it."""

    job_name: str = "job_name"
    job_id: str = "job_id"
    task_name: str = "task_name"
    task_id: str = "task_id"
    subtask_index: str = "subtask_index"
    tm_id: str = "tm_id"

    @classmethod
    def parse(cls, text: str | None) -> Labels:
        """Read labels as the command line takes them.

        Args:
            text: `FLINKS=THEIRS`, several with commas between; None: Flink's own.

        Returns:
            The labels; those that are not named keep Flink's name.

        Raises:
            ConfigError: A part is no such pair, or Flink has no such label.

        >>> Labels.parse("job_name=flink_job, tm_id=pod").tm_id
        'pod'
        """
        found: dict[str, str] = {}
        known = [field.name for field in fields(cls)]
        for part in (text or "").split(",") if text else ():
            flinks, equals, theirs = (side.strip() for side in part.partition("="))
            if not equals or _NAME.fullmatch(theirs) is None:
                raise ConfigError(
                    "is not a pair of labels",
                    key="--labels",
                    value=part.strip(),
                    remedy="Write Flink's label and your Prometheus's label: job_name=flink_job",
                )
            if flinks not in known:
                raise ConfigError(
                    f"'{flinks}' is no label of Flink's that is read",
                    key="--labels",
                    value=part.strip(),
                    remedy=did_you_mean(flinks, known),
                )
            found[flinks] = theirs
        return cls(**found)
