"""The ledger of evaluations of a test set: a file of JSON lines that only grows.

An evaluation is written down when it begins and when it ends, so that one that was looked at and
dropped counts as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DspGymError


class RefereeEvaluation(ConfigModel):
    """One line of the ledger."""

    schema_: Literal["dsp-gym/referee-evaluation/1"] = Field(
        "dsp-gym/referee-evaluation/1", alias="schema", description="schema and version"
    )
    status: Literal["begun", "finished"] = Field(description="what is written down")
    at: str = Field(description="date and time, UTC, ISO 8601")
    commit: str = Field(description="the commit under evaluation")
    fingerprint: str = Field(description="of the referee")
    key_sha256: str = Field(description="hash of the key that the triples were drawn from")
    policies: tuple[str, ...] = Field(description="labels of the policies")
    families: tuple[str, ...] = Field(
        description="families of load, and `shifts`, that were played"
    )
    triples: int = Field(ge=0, description="triples, those under shifts not counted again")
    results: dict[str, float] = Field(
        default_factory=dict, description="figures by name; none for an evaluation that began"
    )

    def is_same(self, other: RefereeEvaluation) -> bool:
        """Return whether both lines are of one evaluation.

        Args:
            other: Another line.

        Returns:
            True for the same policies on the same triples.
        """
        keys = ("commit", "key_sha256", "policies", "families", "triples")
        return all(getattr(self, key) == getattr(other, key) for key in keys)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The evaluations of a test set, in a file that only grows.

    Args:
        file: The file; it need not exist.
    """

    file: Path

    def read(self) -> tuple[RefereeEvaluation, ...]:
        """Return all evaluations; a line that is torn or damaged is left out.

        Returns:
            Lines in the order they were written.
        """
        try:
            lines = self.file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return ()
        return tuple(one for line in lines if (one := _read(line, self.file)) is not None)

    def append(self, entry: RefereeEvaluation) -> None:
        """Write a line behind all others, whole or, if the machine stops, torn.

        Args:
            entry: The line.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = entry.model_dump_json(by_alias=True).encode() + b"\n"
        # Unbuffered, so that the line is one write and two processes do not mix theirs.
        with self.file.open("a+b", buffering=0) as stream:
            if stream.tell() > 0:
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # a torn line must not swallow this one
                    line = b"\n" + line
            stream.write(line)
            os.fsync(stream.fileno())

    def begin(self, entry: RefereeEvaluation) -> None:
        """Write down that an evaluation begins, once: one that goes on is not another one.

        Args:
            entry: A line with the status `begun`.
        """
        if not any(one.is_same(entry) for one in unfinished(self.read())):
            self.append(entry)


def unfinished(entries: Iterable[RefereeEvaluation]) -> tuple[RefereeEvaluation, ...]:
    """Return the evaluations that began and have not ended.

    Args:
        entries: Lines of a ledger, in order.

    Returns:
        Those that were dropped, or still run.
    """
    open_: list[RefereeEvaluation] = []
    for entry in entries:
        if entry.status == "begun":
            open_.append(entry)
        else:
            same = next((one for one in open_ if one.is_same(entry)), None)
            if same is not None:
                open_.remove(same)
    return tuple(open_)


def _read(line: bytes, file: Path) -> RefereeEvaluation | None:
    if not line.strip():
        return None
    try:
        return parse(RefereeEvaluation, parse_json(line.decode("utf-8")), file)
    except (ValueError, DspGymError):
        return None
