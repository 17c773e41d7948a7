"""An entry of a frontier: a policy that somebody submits, with its runs and what they depend on.

    entry.json      name, frontier, fingerprint, versions, what was submitted, costs
    card.md         for people
    policy/         the folder of a trained policy, or the one file of a policy in code
    runs/CELL.json  every run

`dsp-gym evaluate FRONTIER --entry POLICY` writes it. With `--entries`, a frontier plays the entries
again, so that nobody has to believe their figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import read_json
from dsp_gym.errors import ConfigError, PolicyError, SchemaError
from dsp_gym.evaluation.batch_of_runs import batch_of, play
from dsp_gym.evaluation.frontier.board import FrontierBoard
from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
from dsp_gym.evaluation.frontier.play import CellRuns, PolicyRuns, entrants
from dsp_gym.job.spec import CURRENCY
from dsp_gym.loads.splits import LoadSet, LoadSplit
from dsp_gym.policies.local_module import LocalPolicy, offer_local, parse_local_policy
from dsp_gym.policies.pins import digest_of
from dsp_gym.records.hashes import document_sha256, file_sha256

ENTRY_FILE, CARD, POLICY, RUNS = "entry.json", "card.md", "policy", "runs"

SCHEMA = "dsp-gym/entry/1"

ENTRY_NAME = r"^[a-z0-9][a-z0-9.-]*$"
"""Names of entries, which are names of folders and of policies."""

SMALL_S = 7200
"""Length of the run that is played twice."""


class EntryDocument(ConfigModel):
    """What `entry.json` says."""

    schema_: Literal["dsp-gym/entry/1"] = Field(
        "dsp-gym/entry/1", alias="schema", description="schema and version"
    )
    name: str = Field(pattern=ENTRY_NAME, description="label on the board")
    frontier: str = Field(min_length=1, description="name of the frontier")
    fingerprint: str = Field(description="of the frontier that was played; policies left out")
    code: str | None = Field(None, description="module:Policy; none: the folder policy/")
    sha256: str | None = Field(
        None, description="digest of policy/; none: the code is an installed package"
    )
    guardrails: str | None = Field(None, description="guardrails around it; none: none")
    knob: str | None = Field(None, description="parameter that was swept; none: one setting")
    values: tuple[float, ...] = Field((), description="its values")
    costs: dict[str, dict[str, float | None]] = Field(
        description="cost per day by cell and share of the time late; null: it is always later"
    )
    currency: str = Field(CURRENCY, description="of the costs, an ISO 4217 code")
    left_out: dict[str, str] = Field(description="reason for each cell that was not played")
    versions: dict[str, str] = Field(description="what the figures depend on beside the frontier")


@dataclass(frozen=True, slots=True)
class SubmittedEntry:
    """An entry that somebody submitted."""

    folder: Path
    document: EntryDocument
    code: LocalPolicy | None  # none: the policy is a folder, of which nothing is executed
    is_named: bool  # its own folder was named, so its code may run

    def swept(self) -> SweptPolicy:
        """Return the policy as one of a frontier."""
        document = self.document
        return SweptPolicy(
            policy=str(self.folder / POLICY) if self.code is None else document.name,
            name=document.name,
            knob=() if document.knob is None else (document.knob,),
            values=document.values,
            guardrails=document.guardrails,
        )


def refuse_chance(config: FrontierConfig, policy: SweptPolicy) -> None:
    """Play one run of a policy twice.

    Args:
        config: The frontier; the first job and load of its first cell are played.
        policy: The policy, at its first setting.

    Raises:
        PolicyError: The same seed gave other results.
    """
    cell = config.cells()[0]
    whole = config.benchmark(cell, entrants(policy)[:1])
    test = whole.loads.test
    assert test is not None  # a cell is played on it
    small = whole.model_copy(
        update={
            "jobs": whole.jobs[:1],
            "loads": LoadSet(test=LoadSplit(loads=test.loads[:1], seeds=test.seeds)),
            "seeds": 1,
            "episode_s": min(whole.episode_s, SMALL_S // whole.interval_s * whole.interval_s),
        }
    )
    batch = batch_of(small, small.policies[0])
    first, second = (play(batch).cells[0].metrics for _ in range(2))
    for name, value in first.items():
        if repr(value) != repr(second[name]):
            raise PolicyError(
                f"is not deterministic: with the same seed its {name} is {value:.6g}, then "
                f"{second[name]:.6g}",
                value=policy.name,
                remedy="Draw random numbers only from the seeds of reset.",
            )


def files_of(
    document: EntryDocument, cells: Iterable[CellRuns], source: Path | None, card: str
) -> dict[str, str | bytes]:
    """List the files of an entry.

    Args:
        document: What `entry.json` says.
        cells: Its runs.
        source: The folder or the file of the policy; None: an installed package.
        card: Text for people.

    Returns:
        Content by path below the entry's folder.
    """
    kept: dict[str, bytes] = {}
    if source is not None and source.is_dir():
        kept = {
            file.relative_to(source).as_posix(): file.read_bytes()
            for file in sorted(source.rglob("*"))
            if file.is_file() and not file.name.startswith(".")
        }
        document = document.model_copy(update={"sha256": digest_of(source)})
    elif source is not None:
        kept = {source.name: source.read_bytes()}
        digest = document_sha256({source.name: file_sha256(source)})
        document = document.model_copy(update={"sha256": f"sha256:{digest}"})
    said = json.dumps(document.model_dump(mode="json", by_alias=True), indent=1)
    return {
        **{f"{POLICY}/{name}": content for name, content in kept.items()},
        **{f"{RUNS}/{one.cell}.json": one.model_dump_json(by_alias=True) for one in cells},
        CARD: card,
        ENTRY_FILE: f"{said}\n",
    }


def read_entries(folders: Sequence[Path], frontier: str, currency: str) -> list[SubmittedEntry]:
    """Read entries.

    Args:
        folders: Each of one entry, or with a folder per entry.
        frontier: Name of the frontier they are for.
        currency: Currency of its costs.

    Returns:
        The entries, in the order of the folders, then by name.

    Raises:
        ConfigError: A folder holds none, or an entry does not belong to this frontier.
        SchemaError: A document cannot be read, or the policy is not the one that was submitted.
    """
    found = []
    for folder in folders:
        named = (folder / ENTRY_FILE).is_file()
        files = [folder / ENTRY_FILE] if named else sorted(folder.glob(f"*/{ENTRY_FILE}"))
        if not files:
            raise ConfigError(
                "holds no entry",
                file=folder,
                remedy="Name the folder of one, or the one above those of several.",
            )
        for file in files:
            document = _read(file)
            _refuse_foreign(document, file, frontier, currency)
            code = None if document.code is None else parse_local_policy(document.code)
            if document.code is not None and code is None:
                raise SchemaError("is no module:Policy", file=file, key="code", value=document.code)
            found.append(SubmittedEntry(file.parent, document, code, named))
    return found


def _refuse_foreign(document: EntryDocument, file: Path, frontier: str, currency: str) -> None:
    """Refuse an entry of another frontier or currency, and one whose policy was changed."""
    again = "Submit it again: dsp-gym evaluate FRONTIER --entry POLICY"
    if document.frontier != frontier:
        raise ConfigError(f"is an entry of {document.frontier}, not of {frontier}", file=file)
    if document.currency != currency:
        raise ConfigError(
            f"entry '{document.name}' has its costs in {document.currency}, {frontier} in "
            f"{currency}; costs in two currencies are not compared",
            file=file,
            key="currency",
            remedy=again,
        )
    kept = file.parent / POLICY
    if document.sha256 is not None and (not kept.is_dir() or digest_of(kept) != document.sha256):
        raise SchemaError(
            "the policy is not the one that was submitted",
            file=kept,
            key="sha256",
            value=document.sha256,
            remedy=again,
        )


@contextmanager
def entered(
    config: FrontierConfig, entries: Sequence[SubmittedEntry]
) -> Iterator[tuple[FrontierConfig, tuple[SubmittedEntry, ...]]]:
    """Add entries to a frontier; those in code only where their own folder was named.

    Args:
        config: The frontier.
        entries: The entries.

    Yields:
        The frontier with a policy per entry, which the registry knows within the block, and the
        entries that take part.

    Raises:
        ConfigError: Two entries, or an entry and a policy of the frontier, share a name.
    """
    playing = tuple(one for one in entries if one.code is None or one.is_named)
    codes: dict[str, LocalPolicy] = {}
    for one in playing:
        if one.code is None:
            continue
        if one.code.module in {other.module for other in codes.values()}:
            raise ConfigError(
                f"another entry has a module '{one.code.module}', too",
                file=one.folder,
                remedy="Rename one of them: Python identifies a module by its name.",
            )
        codes[one.document.name] = one.code
    if not playing:
        yield config, ()
        return
    document = config.model_dump(mode="json", by_alias=True)
    document["policies"] += [one.swept().model_dump(mode="json", by_alias=True) for one in playing]
    with offer_local(codes, [one.folder / POLICY for one in playing if one.code is not None]):
        yield parse(FrontierConfig, document, "the frontier with its entries"), playing


def _read(file: Path) -> EntryDocument:
    data = read_json(file.read_text(encoding="utf-8"), file)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SchemaError(f"is no entry; this release reads '{SCHEMA}'", file=file, key="schema")
    return parse(EntryDocument, data, file)


def unlike(entries: Iterable[SubmittedEntry], board: FrontierBoard) -> list[str]:
    """Say which entries gave other runs on a board than they hold themselves.

    Args:
        entries: Entries that were played.
        board: Played with them.

    Returns:
        A sentence for each; none for entries of a frontier with another fingerprint, with which
        nothing can be compared.
    """
    said = []
    for one in entries:
        if one.document.fingerprint != board.fingerprint:
            continue
        name, wrong = one.document.name, []
        for cell in board.cells:
            file = one.folder / RUNS / f"{cell.runs.cell}.json"
            if file.is_file():
                theirs = CellRuns.model_validate_json(file.read_text(encoding="utf-8"))
                if _runs_of(theirs, name) != _runs_of(cell.runs, name):
                    wrong.append(cell.runs.cell)
        if wrong:
            said.append(f"{name} gave other runs than its entry in {', '.join(wrong)}")
    return said


def _runs_of(runs: CellRuns, name: str) -> PolicyRuns | None:
    return next((one for one in runs.policies if one.policy == name), None)
