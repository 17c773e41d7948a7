"""What a run carries over a restart: rests, canary counts, the roll-back's memory, guardrails.

It stands beside the journal in one small file that is replaced whole after every decision of a mode
that acts. The journal says what was done; this says what must still be remembered of it.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.control.permission import Permission, RollBack
from dsp_gym.control.seat import Seat
from dsp_gym.errors import SchemaError
from dsp_gym.loop.protocols import State
from dsp_gym.loop.topology import Topology

__all__ = ["MEMORY", "MEMORY_SCHEMA", "RunMemory", "problem_of"]

MEMORY = "memory.json"
MEMORY_SCHEMA = "dsp-gym/memory/1"

_OF_THE_POLICY = "policy"
"""Key under which a guardrail keeps the state of a policy, which may grow."""


class RunMemory:
    """Keeps and gives back the memory of a run.

    Args:
        folder: of the journal.
        topology: the job.
        permission: its counts and its rest.
        roll_back: the change that it watches.
        seats: the policies, whose guardrails remember.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        permission: Permission,
        roll_back: RollBack,
        seats: tuple[Seat, ...],
    ) -> None:
        self.file = folder / MEMORY
        self._vertices = list(topology.names(0))
        self._permission, self._roll_back, self._seats = permission, roll_back, seats

    def keep(self, t_s: float) -> None:
        """Write the memory down.

        Args:
            t_s: the time of the decision, Unix seconds.

        Raises:
            StorageError: The file cannot be written; the one before is unchanged.
        """
        body: State = {
            "schema": MEMORY_SCHEMA,
            "t_s": t_s,
            "vertices": self._vertices,
            "permission": self._permission.state(),
            "roll_back": self._roll_back.state(),
            "guardrails": {
                seat.name: seat.chain.state() for seat in self._seats if seat.chain is not None
            },
        }
        write_atomic(self.file, json.dumps({**body, "crc32": _sum(body)}, sort_keys=True) + "\n")

    def give_back(self, now_s: float) -> list[str]:
        """Continue from what was kept.

        Args:
            now_s: the time of the job, Unix seconds.

        Returns:
            What starts anew, and why, a sentence each; empty where everything continues, and where
            nothing was kept.
        """
        try:
            body = _read(self.file)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, SchemaError) as error:
            return [f"rests, counts and guardrails start anew: {self.file}: {error}"]
        if float(body["t_s"]) > now_s:
            return ["rests, counts and guardrails start anew: the clock went back since"]
        if body["vertices"] != self._vertices:
            return ["rests, counts and guardrails start anew: the job has other vertices"]
        self._permission.restore(body["permission"])
        self._roll_back.restore(body["roll_back"])
        kept = body["guardrails"]
        return [
            said
            for seat in self._seats
            if seat.name in kept and (said := _restored(seat, kept[seat.name])) is not None
        ]


def problem_of(folder: Path) -> str | None:
    """Say why a restart would not continue from the memory beside a journal.

    Args:
        folder: of the journal.

    Returns:
        A sentence; None where nothing is wrong, or nothing was kept.
    """
    file = folder / MEMORY
    try:
        _read(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, SchemaError) as error:
        return f"{file}: {error}; rests, counts and guardrails start anew"
    return None


def _read(file: Path) -> State:
    body: State = json.loads(file.read_bytes())
    if not isinstance(body, dict) or body.get("schema") != MEMORY_SCHEMA:
        raise SchemaError(f"is no document {MEMORY_SCHEMA}")
    if body.pop("crc32", None) != _sum(body):
        raise SchemaError("its crc32 does not match")
    return body


def _restored(seat: Seat, state: State) -> str | None:
    """Why the guardrails of a seat start anew; None where they continue."""
    if seat.chain is None:
        return None
    fresh = seat.chain.state()
    if not _fits(fresh, state):
        return f"the guardrails of {seat.name} start anew: they are configured otherwise now"
    seat.chain.restore(state)
    return None


def _fits(fresh: object, kept: object) -> bool:
    """Whether a state has the shape of another: compiled code reads arrays of a known size."""
    if isinstance(fresh, dict) and isinstance(kept, dict):
        same = fresh.keys() == kept.keys()
        return same and all(key == _OF_THE_POLICY or _fits(fresh[key], kept[key]) for key in fresh)
    if isinstance(fresh, list) and isinstance(kept, list):
        pairs = zip(fresh, kept, strict=False)
        return len(fresh) == len(kept) and all(_fits(one, other) for one, other in pairs)
    return not isinstance(fresh, dict | list) and not isinstance(kept, dict | list)


def _sum(body: State) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
