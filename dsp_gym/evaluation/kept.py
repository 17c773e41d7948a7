"""Results of an evaluation, kept policy by policy, so that an interrupted one can continue.

Each policy's results are one JSON file, written whole or not at all. Numbers are written so that
they are read back to the last bit: the scorecard does not show whether a run was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import DspGymError
from dsp_gym.evaluation.run import Share, ShareResult, versions
from dsp_gym.evaluation.scorecard import RunTimeline, RunValidity, ScorecardCell
from dsp_gym.policies.foresight import Possible
from dsp_gym.policies.registry import resolve
from dsp_gym.records.hashes import bytes_sha256

__all__ = ["KeptResults", "PolicyResult"]

T = TypeVar("T")


class PolicyResult(ConfigModel):
    """All runs of one policy."""

    schema_: Literal["dsp-gym/policy-result/1"] = Field(
        "dsp-gym/policy-result/1", alias="schema", description="schema and version"
    )
    of: str = Field(description="hash of everything the runs depend on")
    cells: tuple[ScorecardCell, ...] = Field(description="every run")
    timelines: tuple[RunTimeline, ...] = Field(description="one run per job")
    validity: tuple[RunValidity, ...] = Field(description="distance from the fit, by part and job")
    possible: tuple[tuple[float, float], ...] | None = Field(
        description="bound and peak cost of each run; none: another policy was asked"
    )


@dataclass(frozen=True, slots=True)
class KeptResults:
    """The folder of the results of an evaluation that has not ended."""

    folder: Path

    def __len__(self) -> int:
        """Policies whose results are there."""
        return len(list(self.folder.glob("*.json")))

    def clear(self) -> None:
        """Remove all results."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, share: Share) -> list[ShareResult] | None:
        """The kept results of a policy.

        Args:
            share: All runs of the policy.

        Returns:
            The results; None where there are none, or where they are of another benchmark, version
            or policy file.
        """
        file = self._file(share)
        if not file.is_file():
            return None
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            found = parse(PolicyResult, document, file)
        except (OSError, ValueError, DspGymError):
            return None  # damaged, or of another version: the policy plays again
        if found.of != _depends_on(share):
            return None
        possible = None
        if found.possible is not None:
            bound, peak = np.array(found.possible).T
            possible = Possible(bound, peak)
        return [ShareResult(found.cells, found.timelines, possible, found.validity)]

    def write(self, share: Share, parts: Sequence[ShareResult]) -> None:
        """Keep the results of a policy.

        Args:
            share: All runs of the policy.
            parts: Their results, in the order of the runs.
        """
        possible = [part.possible for part in parts if part.possible is not None]
        result = PolicyResult(
            of=_depends_on(share),
            cells=tuple(_flat(part.cells for part in parts)),
            timelines=tuple(_flat(part.timelines for part in parts)),
            validity=tuple(_flat(part.validity for part in parts)),
            possible=tuple(
                (float(bound), float(peak))
                for one in possible
                for bound, peak in zip(one.bound, one.peak, strict=True)
            )
            or None,
        )
        write_atomic(self._file(share), result.model_dump_json(by_alias=True))

    def _file(self, share: Share) -> Path:
        name = share.entrant.name
        return self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _flat(parts: Iterable[Iterable[T]]) -> Iterator[T]:
    return (one for part in parts for one in part)


def _depends_on(share: Share) -> str:
    """Hash of the benchmark without its other policies, the policy with its files, and versions."""
    _, policy, _ = resolve(share.entrant.policy)
    path = policy.params.get("path")
    files = sorted(Path(path).rglob("*")) if isinstance(path, str) else []
    document = {
        "config": share.config.model_dump(mode="json", by_alias=True, exclude={"policies"}),
        "entrant": share.entrant.model_dump(mode="json", by_alias=True),
        "policy": policy.model_dump(mode="json", by_alias=True),
        "files": [bytes_sha256(file.read_bytes()) for file in files if file.is_file()],
        "versions": versions(share.runs.specs),
        "bounding": share.bounding,
    }
    return bytes_sha256(json.dumps(document, sort_keys=True).encode())
