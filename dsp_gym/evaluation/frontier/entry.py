"""An entry of a frontier: a policy that somebody submits, with its runs and what they depend on.

    entry.json      name, frontier, fingerprint, versions, what was submitted, costs
    card.md         for people
    policy/         the folder of a trained policy, or the one file of a policy in code
    runs/CELL.json  every run

`dsp-gym leaderboard submit` writes it. A frontier with its entries plays them anew, so that nobody
has to believe their figures.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, PolicyError, SchemaError
from dsp_gym.evaluation.batch_of_runs import play, share_of
from dsp_gym.evaluation.frontier.board import FrontierBoard
from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
from dsp_gym.evaluation.frontier.play import CellRuns, PolicyRuns, entrants
from dsp_gym.job.spec import CURRENCY
from dsp_gym.loads.splits import LoadSet, LoadSplit
from dsp_gym.policies.local_module import LocalPolicy, parse_local_policy
from dsp_gym.policies.pins import digest_of

__all__ = [
    "ENTRY_FILE",
    "EntryDocument",
    "read_entries",
    "refuse_chance",
    "unlike",
    "write_entry",
]

ENTRY_FILE, CARD, POLICY, RUNS = "entry.json", "card.md", "policy", "runs"

SCHEMA = "dsp-gym/entry/1"

SMALL_S = 7200
"""Length of the run that is played twice."""


class EntryDocument(ConfigModel):
    """What `entry.json` says."""

    schema_: Literal["dsp-gym/entry/1"] = Field(
        "dsp-gym/entry/1", alias="schema", description="schema and version"
    )
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", description="label on the board")
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

    def swept(self, policy: str) -> SweptPolicy:
        """The policy as one of a frontier.

        Args:
            policy: What the registry knows it by.

        Returns:
            The policy with its label, knob and guardrails.
        """
        return SweptPolicy(
            policy=policy,
            name=self.name,
            knob=() if self.knob is None else (self.knob,),
            values=self.values,
            guardrails=self.guardrails,
        )


def refuse_chance(config: FrontierConfig, policy: SweptPolicy) -> None:
    """Plays one run of a policy twice.

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
    share = share_of(small, small.policies[0])
    first, second = (play(share).cells[0].metrics for _ in range(2))
    for name, value in first.items():
        if repr(value) != repr(second[name]):
            raise PolicyError(
                f"is not deterministic: with the same seed its {name} is {value:.6g}, then "
                f"{second[name]:.6g}",
                value=policy.name,
                remedy="Draw random numbers only from the seeds of reset.",
            )


def write_entry(
    folder: Path, document: EntryDocument, cells: Iterable[CellRuns], source: Path | None, card: str
) -> dict[str, Path]:
    """Writes an entry.

    Args:
        folder: Of the entry.
        document: What `entry.json` says.
        cells: Its runs.
        source: The folder or the file of the policy; None: an installed package.
        card: Text for people.

    Returns:
        What was written, by kind.
    """
    kept = folder / POLICY
    shutil.rmtree(kept, ignore_errors=True)
    if source is not None and source.is_dir():
        for file in sorted(one for one in source.iterdir() if one.is_file()):
            write_atomic(kept / file.name, file.read_bytes())
    elif source is not None:
        write_atomic(kept / source.name, source.read_bytes())
    if source is not None:
        document = document.model_copy(update={"sha256": digest_of(kept)})
    for runs in cells:
        text = runs.model_dump_json(by_alias=True)
        write_atomic(folder / RUNS / f"{runs.cell}.json", text)
    said = json.dumps(document.model_dump(mode="json", by_alias=True), indent=1)
    written = {
        "entry": write_atomic(folder / ENTRY_FILE, f"{said}\n"),
        "card": write_atomic(folder / CARD, card),
    }
    return written if source is None else {**written, "policy": kept}


def read_entries(
    folder: Path, frontier: str, currency: str
) -> list[tuple[Path, EntryDocument, LocalPolicy | None]]:
    """The entries below a folder, by name.

    Args:
        folder: One folder per entry.
        frontier: Name of the frontier they are for.
        currency: Of its costs.

    Returns:
        Folder, document and code of each; no code where the policy is a folder.

    Raises:
        ConfigError: There is none, one is for another frontier, or its costs are in another
            currency.
        SchemaError: A document cannot be read, or the policy is not the one that was submitted.
    """
    found = []
    for file in sorted(folder.glob(f"*/{ENTRY_FILE}")):
        document = _read(file)
        if document.frontier != frontier:
            raise ConfigError(f"is an entry of {document.frontier}, not of {frontier}", file=file)
        if document.currency != currency:
            raise ConfigError(
                f"entry '{document.name}' has its costs in {document.currency}, {frontier} in "
                f"{currency}; costs in two currencies are not compared",
                file=file,
                key="currency",
                remedy=f"Submit it again, on the {frontier} of this board.",
            )
        kept = file.parent / POLICY
        if document.sha256 is not None and (
            not kept.is_dir() or digest_of(kept) != document.sha256
        ):
            raise SchemaError(
                "the policy is not the one that was submitted",
                file=kept,
                key="sha256",
                value=document.sha256,
                remedy="Submit it again: dsp-gym leaderboard submit",
            )
        found.append((file.parent, document, _code(document, file)))
    if not found:
        raise ConfigError(
            "holds no entry",
            file=folder,
            remedy="Name the folder above those that dsp-gym leaderboard submit wrote.",
        )
    return found


def _read(file: Path) -> EntryDocument:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SchemaError(f"is not valid JSON: {error}", file=file) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SchemaError(f"is no entry; this release reads '{SCHEMA}'", file=file, key="schema")
    return parse(EntryDocument, data, file)


def _code(document: EntryDocument, file: Path) -> LocalPolicy | None:
    if document.code is None:
        return None
    code = parse_local_policy(document.code)
    if code is None:
        raise SchemaError("is no module:Policy", file=file, key="code", value=document.code)
    return code


def unlike(folder: Path, document: EntryDocument, board: FrontierBoard) -> Sequence[str]:
    """Cells in which an entry's own runs are not those of a board.

    Args:
        folder: Of the entry.
        document: Of the entry.
        board: Played with the entry's policy.

    Returns:
        Names of cells; empty where the frontier is another one, and nothing can be compared.
    """
    if document.fingerprint != board.fingerprint:
        return []
    wrong = []
    for cell in board.cells:
        file = folder / RUNS / f"{cell.runs.cell}.json"
        if not file.is_file():
            continue
        theirs = CellRuns.model_validate_json(file.read_text(encoding="utf-8"))
        pair = [_runs_of(runs, document.name) for runs in (theirs, cell.runs)]
        if pair[0] != pair[1]:
            wrong.append(cell.runs.cell)
    return wrong


def _runs_of(runs: CellRuns, name: str) -> PolicyRuns | None:
    return next((one for one in runs.policies if one.policy == name), None)
