"""Results of an evaluation, kept as they come, so that an interrupted one can continue.

The results of each batch of runs are one JSON file, written whole or not at all. How the runs are
cut into batches may differ from call to call. Numbers are written so that
they are read back to the last bit: the scorecard does not show whether a run was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.config.files import load_model, parse, write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, DspGymError, StorageError
from dsp_gym.evaluation.batch_of_runs import BatchResult, RunBatch, versions
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import job_hash, load_job
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import load_module, resolve
from dsp_gym.records.hashes import bytes_sha256, file_sha256


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
            another benchmark, version, load, policy, code or guardrails, are left out.
        """
        facts = _facts(batch)
        files = self.folder.glob(f"{_name(batch)}*.json")
        known = [
            one
            for one in map(_read, files)
            if one is not None
            and one.of == _depends_on(batch.take(one.first, one.first + len(one.cells)), facts)
        ]
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
        document = PolicyResult(of=_depends_on(batch, _facts(batch)), **dict(result))
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


def policy_facts(named: str | PolicyConfig) -> dict[str, object]:
    """Describe a policy by its parameters, and by hashes of its files and its code.

    Args:
        named: Name, file, folder or configuration of the policy.

    Returns:
        A JSON document. Of the code it covers the policy's module, as it was when this process
        first asked, not the modules that this one imports.
    """
    _, policy, _ = resolve(named)
    table, jobs = policy.params.get("transitions"), policy.params.get("job_files")
    tables = [Path(table)] if isinstance(table, str) else []
    specs = [load_job(str(name)) for name in jobs] if isinstance(jobs, list | tuple) else []
    return {
        "policy": policy.model_dump(mode="json", by_alias=True),
        "files": file_hashes(policy),
        "tables": [bytes_sha256(file.read_bytes()) for file in tables if file.is_file()],
        "job_files": [job_hash(spec) for spec in specs],
        "code": _code_hash(load_module(policy.policy)),
    }


@cache
def _code_hash(module: ModuleType) -> str | None:
    """Hash the file of a module once: it may be edited while its code runs."""
    file = module.__file__
    return None if file is None or not Path(file).is_file() else file_sha256(Path(file))


def guardrail_facts(named: str | GuardrailsConfig | None) -> dict[str, object] | None:
    """Describe a chain of guardrails by its content, and the policies in it by theirs.

    Args:
        named: Name, file or configuration of the chain.

    Returns:
        A JSON document; None where there is no chain.
    """
    if named is None:
        return None
    chain = (
        named
        if isinstance(named, GuardrailsConfig)
        else load_model(GuardrailsConfig, "guardrails", named)
    )
    asked = [getattr(part, "policy", None) for part in chain.guardrails]
    return {
        "chain": chain.model_dump(mode="json", by_alias=True),
        "policies": [policy_facts(one) for one in asked if isinstance(one, str | PolicyConfig)],
    }


def _facts(batch: RunBatch) -> dict[str, object]:
    """Describe the benchmark without its other policies, the policy, its guardrails, versions."""
    return {
        "config": batch.config.model_dump(mode="json", by_alias=True, exclude={"policies"}),
        "entrant": batch.entrant.model_dump(mode="json", by_alias=True),
        "policy": policy_facts(batch.entrant.policy),
        "guardrails": guardrail_facts(batch.entrant.guardrails),
        "versions": versions(batch.runs.specs),
        "bounding": batch.bounding,
    }


def _depends_on(batch: RunBatch, facts: Mapping[str, object]) -> str:
    """Hash the facts of a batch and its runs; their rates hold what recordings contain."""
    runs = batch.runs
    seen = [runs.job, runs.seeds, runs.rates, *([] if runs.same_law is None else [runs.same_law])]
    hashes = [bytes_sha256(np.ascontiguousarray(array).tobytes()) for array in seen]
    return bytes_sha256(json.dumps({**facts, "runs": hashes}, sort_keys=True).encode())
