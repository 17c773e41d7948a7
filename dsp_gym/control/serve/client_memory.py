"""What guardrails remember of clients' jobs, kept where a history is given up and over a restart.

A history in memory is large, for it holds a policy. What must not be lost of it is small: the time
of the last snapshot, so that nothing is replayed, and the guardrails, so that a cool-down lasts.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.errors import StorageError
from dsp_gym.loop.protocols import State

CLIENTS = "clients.json"
"""Name of the file beside the journal."""

CLIENTS_SCHEMA = "dsp-gym/clients/1"

_LOG = logging.getLogger(__name__)


class Key(NamedTuple):
    """Whose history it is."""

    client: str
    policy: str
    job: str


class KeptClient(NamedTuple):
    """What is kept of one history."""

    t_s: float  # of its last snapshot
    vertices: tuple[str, ...]
    guardrails: str | None  # their state, JSON; None: they could not be asked


class ClientMemory:
    """The newest of each history, bounded in bytes; the client that has most loses its oldest.

    Args:
        file: where it outlives a restart; None: nowhere.
        most_bytes: of the guardrails' states together.
    """

    def __init__(self, file: Path | None, most_bytes: int) -> None:
        self._file, self._most_bytes = file, most_bytes
        self._kept: OrderedDict[Key, KeptClient] = OrderedDict()  # the newest comes last
        self._bytes: Counter[str] = Counter()  # by client
        self._gone_s: dict[str, float] = {}  # newest snapshot of what was dropped, by client
        self._is_written, self._lock, self._writing = True, threading.Lock(), threading.Lock()
        if file is not None and file.exists():
            self._read(file)

    def find(self, key: Key, vertices: Sequence[str]) -> KeptClient | None:
        """What is kept of a history, where the job has the same vertices.

        Returns:
            It; None where nothing is kept.
        """
        with self._lock:
            found = self._kept.get(key)
        return found if found is not None and found.vertices == tuple(vertices) else None

    def gone_s(self, client: str) -> float:
        """Time of the newest snapshot of which nothing is kept any more; minus infinity: none."""
        with self._lock:
            return self._gone_s.get(client, -math.inf)

    def keep(self, key: Key, kept: KeptClient) -> None:
        """Take in the newest of a history; `write` puts it on disk."""
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self._bytes[key.client] += _size(kept)
            self._is_written = False
            while self._bytes.total() > self._most_bytes and len(self._kept) > 1:
                (most, _), *_ = self._bytes.most_common(1)
                oldest = next(one for one in self._kept if one.client == most)
                self._gone_s[most] = max(self._gone_s.get(most, -math.inf), self._kept[oldest].t_s)
                self._drop(oldest)

    def write(self) -> None:
        """Put what is new on disk; a disk that takes nothing is told, and tried again."""
        with self._writing:
            with self._lock:
                if self._is_written or self._file is None:
                    return
                entries = [[*key, *kept] for key, kept in self._kept.items()]
                self._is_written = True
            body = {"schema": CLIENTS_SCHEMA, "histories": entries}
            text = json.dumps({**body, "crc32": _sum(body)}, allow_nan=False)
            try:
                write_atomic(self._file, text, private=True)
            except StorageError as error:
                self._is_written = False
                _LOG.warning("cool-downs of clients are not kept over a restart: %s", error)

    def _drop(self, key: Key) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes[key.client] -= _size(old)

    def _read(self, file: Path) -> None:
        try:
            body = parse_json(file.read_bytes())
            if body.get("schema") != CLIENTS_SCHEMA or body.pop("crc32") != _sum(body):
                raise ValueError("it is damaged, or of another release")
            for client, policy, job, t_s, vertices, guardrails in body["histories"]:
                self.keep(
                    Key(client, policy, job), KeptClient(float(t_s), tuple(vertices), guardrails)
                )
        except (OSError, AttributeError, *MISFITS) as error:
            _LOG.warning("cool-downs of clients start over: %s: %s", file, error)
        self._is_written = True


def _size(kept: KeptClient) -> int:
    return 200 + len(kept.guardrails or "") + sum(map(len, kept.vertices))


def _sum(body: State) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
