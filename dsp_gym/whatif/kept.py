"""Replays that are kept as they come, so that an interrupted backtest can continue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DspGymError
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.kept import KeptResults, guardrail_facts, policy_facts
from dsp_gym.records.hashes import bytes_sha256
from dsp_gym.whatif.blocks import JobReplay

if TYPE_CHECKING:
    from dsp_gym.whatif.history import JobHistory
    from dsp_gym.whatif.policies import ReplayedPolicy
    from dsp_gym.whatif.replay import JobWork


class KeptReplay(ConfigModel):
    """The replay of one history."""

    schema_: Literal["dsp-gym/kept-replay/1"] = Field(
        "dsp-gym/kept-replay/1", alias="schema", description="schema and version"
    )
    of: str = Field(description="hash of everything the replay depends on")
    result: JobReplay = Field(description="the replay")


@dataclass(frozen=True, slots=True)
class KeptReplays:
    """The replays in the folder of a backtest that has not ended."""

    folder: KeptResults

    def read(self, work: JobWork) -> JobReplay | None:
        """The kept replay of a history.

        Returns:
            None where there is none, or it is damaged, or of another history, model or policy.
        """
        file = self._file(work)
        try:
            known = parse(KeptReplay, parse_json(file.read_text(encoding="utf-8")), file)
        except (OSError, ValueError, DspGymError):
            return None
        return known.result if known.of == _depends_on(work) else None

    def write(self, work: JobWork, result: JobReplay) -> None:
        """Keep the replay of a history."""
        document = KeptReplay(of=_depends_on(work), result=result)
        write_atomic(self._file(work), document.model_dump_json(by_alias=True))

    def _file(self, work: JobWork) -> Path:
        """A file named by a hash: names of jobs are no paths."""
        name = hashlib.sha256(work.history.name.encode()).hexdigest()[:16]
        return self.folder.folder / f"{name}-0-1.json"


def _depends_on(work: JobWork) -> str:
    document = {
        "history": _hashes(work.history),
        "entrants": [_entrant(one) for one in work.entrants],
        "seeds": work.seeds,
        "versions": versions((work.history.spec,)),
    }
    return bytes_sha256(json.dumps(document, sort_keys=True).encode())


def _hashes(history: JobHistory) -> dict[str, str]:
    """Of every field that a replay depends on."""
    found = {}
    for one in fields(history):
        value = getattr(history, one.name)
        if one.name in ("spec", "notes", "watched"):
            continue
        if isinstance(value, np.ndarray):
            found[one.name] = bytes_sha256(np.ascontiguousarray(value).tobytes())
        elif one.name == "arrivals":
            found[one.name] = bytes_sha256(b"".join(part.tobytes() for part in value))
        else:
            found[one.name] = repr(value)
    return found


def _entrant(one: ReplayedPolicy) -> dict[str, object]:
    return {
        "label": one.label,
        "policy": policy_facts(one.policy),
        "guardrails": guardrail_facts(one.guardrails),
    }
