"""Results of an evaluation, kept as they come, so that an interrupted one can continue.

The results of each batch of runs are one JSON file, written whole or not at all. How the runs are
cut into batches may differ from call to call. Numbers are written so that
they are read back to the last bit: the scorecard does not show whether a run was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, DspGymError, StorageError
from dsp_gym.evaluation.batch_of_runs import BatchResult, RunBatch, versions
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import resolve
from dsp_gym.records.hashes import bytes_sha256


class PolicyResult(BatchResult):
    """Runs of one policy that were played together."""

    schema_: Literal["dsp-gym/policy-result/1"] = Field(
        "dsp-gym/policy-result/1", alias="schema", description="schema and version"
    )
    of: str = Field(description="hash of everything the runs depend on")


@dataclass(frozen=True, slots=True)
class KeptResults:
    """The folder of the results of an evaluation that has not ended."""

    folder: Path

    def __len__(self) -> int:
        """Count the runs whose results are there, in the folder and below it."""
        return sum(int(file.stem.rpartition("-")[2]) for file in self.folder.rglob("*-*-*.json"))

    @classmethod
    def beside(cls, folder: Path, *, resume: bool, overwrite: bool) -> KeptResults:
        """Return the results that an interrupted run kept beside where its report will stand.

        Args:
            folder: Of the report.
            resume: Take them.
            overwrite: Remove them.

        Returns:
            Results to continue with; none unless `resume`.

        Raises:
            ConfigError: Both are asked for.
            StorageError: There are results, and neither is asked for.
        """
        kept = cls(folder / "unfinished")
        if resume and overwrite:
            raise ConfigError(
                "--resume continues what --overwrite removes",
                file=kept.folder,
                remedy="Give one of them.",
            )
        if resume:
            return kept
        if len(kept) and not overwrite:
            raise StorageError(
                f"an interrupted run kept {len(kept)} results",
                file=kept.folder,
                remedy="Continue it with --resume, remove them with --overwrite, or choose another "
                "folder: --out FOLDER",
            )
        kept.clear()
        return kept

    def clear(self) -> None:
        """Remove all results."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, batch: RunBatch) -> list[BatchResult]:
        """Return the kept results of a policy.

        Args:
            batch: All runs of the policy.

        Returns:
            Results that do not overlap, by the place of their first run. Damaged ones, and those of
            another benchmark, version or policy file, are left out.
        """
        of = _depends_on(batch)
        files = self.folder.glob(f"{_name(batch)}*.json")
        known = [one for one in map(_read, files) if one is not None and one.of == of]
        found: list[BatchResult] = []
        following = 0
        for one in sorted(known, key=lambda one: one.first):
            if one.first < following:
                continue
            following = one.first + len(one.cells)
            found.append(one)
        return found

    def write(self, batch: RunBatch, result: BatchResult) -> None:
        """Keep the results of runs of a policy.

        Args:
            batch: The runs.
            result: Their results.
        """
        document = PolicyResult(of=_depends_on(batch), **dict(result))
        file = self.folder / f"{_name(batch)}-{batch.first}-{len(batch)}.json"
        write_atomic(file, document.model_dump_json(by_alias=True))


def file_hashes(policy: PolicyConfig) -> list[str]:
    """Hash the files of a trained policy.

    Returns:
        sha256 of each, by path; none for a policy without a folder.
    """
    path = policy.params.get("path")
    files = sorted(Path(path).rglob("*")) if isinstance(path, str) else []
    return [bytes_sha256(file.read_bytes()) for file in files if file.is_file()]


def _name(batch: RunBatch) -> str:
    return hashlib.sha256(batch.entrant.name.encode()).hexdigest()[:16]


def _read(file: Path) -> PolicyResult | None:
    """Read a kept result; None where it is damaged or of another version: it is played again."""
    try:
        return parse(PolicyResult, parse_json(file.read_text(encoding="utf-8")), file)
    except (OSError, ValueError, DspGymError):
        return None


def _depends_on(batch: RunBatch) -> str:
    """Hash the benchmark without its other policies, the policy with its files, and versions."""
    _, policy, _ = resolve(batch.entrant.policy)
    document = {
        "config": batch.config.model_dump(mode="json", by_alias=True, exclude={"policies"}),
        "entrant": batch.entrant.model_dump(mode="json", by_alias=True),
        "policy": policy.model_dump(mode="json", by_alias=True),
        "files": file_hashes(policy),
        "versions": versions(batch.runs.specs),
        "bounding": batch.bounding,
    }
    return bytes_sha256(json.dumps(document, sort_keys=True).encode())
