"""Replays that are kept as they come, so that an interrupted backtest can continue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DspGymError
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.kept import KeptResults, file_hashes
from dsp_gym.records.hashes import bytes_sha256
from dsp_gym.whatif.blocks import JobReplay
from dsp_gym.whatif.grid_replay import ReplayShare
from dsp_gym.whatif.history import JobHistory

__all__ = ["KeptReplay", "KeptReplays"]

ARRAYS = ("load_per_s", "parallelism", "memory_level", "late", "lag_s", "outage_s", "t_s")


class KeptReplay(ConfigModel):
    """One replay of one history."""

    schema_: Literal["dsp-gym/kept-replay/1"] = Field(
        "dsp-gym/kept-replay/1", alias="schema", description="schema and version"
    )
    of: str = Field(description="hash of everything the replay depends on")
    result: JobReplay = Field(description="the replay")


@dataclass(frozen=True, slots=True)
class KeptReplays:
    """The replays in the folder of a backtest that has not ended."""

    folder: KeptResults

    def read(self, share: ReplayShare, history: JobHistory) -> JobReplay | None:
        """The kept replay of a history.

        Returns:
            None where there is none, or it is damaged, or of another history, model or policy.
        """
        file = self.folder.folder / _name(share, history)
        try:
            known = parse(KeptReplay, parse_json(file.read_text(encoding="utf-8")), file)
        except (OSError, ValueError, DspGymError):
            return None
        return known.result if known.of == _depends_on(share, history) else None

    def write(self, share: ReplayShare, history: JobHistory, result: JobReplay) -> None:
        """Keep the replay of a history."""
        document = KeptReplay(of=_depends_on(share, history), result=result)
        file = self.folder.folder / _name(share, history)
        write_atomic(file, document.model_dump_json(by_alias=True))


def _name(share: ReplayShare, history: JobHistory) -> str:
    """A file of one result, named by hashes: names of jobs and policies are no paths."""
    parts = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (share.label, history.name))
    return f"{'.'.join(parts)}-0-1.json"


def _depends_on(share: ReplayShare, history: JobHistory) -> str:
    arrays = (np.ascontiguousarray(getattr(history, name)).tobytes() for name in ARRAYS)
    policy, chain = share.policy, share.guardrails
    document = {
        "arrays": [bytes_sha256(one) for one in arrays],
        "interval_s": history.interval_s,
        "policy": None if policy is None else policy.model_dump(mode="json", by_alias=True),
        "files": [] if policy is None else file_hashes(policy),
        "guardrails": None if chain is None else chain.model_dump(mode="json", by_alias=True),
        "window": history.window.model_dump(mode="json"),
        "seed": share.seed,
        "versions": versions((history.spec,)),
    }
    return bytes_sha256(json.dumps(document, sort_keys=True).encode())
