"""The file by which the process of the twins shows its figures to the process of the loop.

It lies beside the journal and is written whole: nobody waits for anybody, there is no port and no
second place that asks for a token, and a process that ends leaves its last figures with their age.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.control.verdict_summary import VerdictSummary

TWINS_SCHEMA = "dsp-gym/twins/1"

TWINS_FILE = "twins.json"
"""Its name in the folder of the journal."""

LARGEST = 4 * 2**20
"""Bytes of the largest file that is read."""


def write_twins(folder: Path, document: dict[str, Any]) -> None:
    """Put a document beside a journal.

    Args:
        folder: the journal's.
        document: `dsp-gym/twins/1`, JSON-able; numbers that are not finite are not.

    Raises:
        StorageError: It cannot be written; the one before stands.
    """
    write_atomic(folder / TWINS_FILE, json.dumps(document, allow_nan=False) + "\n")


class TwinsFile:
    """Reads the file beside a journal, again when it has changed.

    Args:
        folder: the journal's; None: there is no journal.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / TWINS_FILE
        self._known: tuple[int, int] | None = None
        self._document: dict[str, Any] | None = None

    def verdict(self) -> VerdictSummary | None:
        """Read the verdict in that document.

        Returns:
            The verdict; None where there is none, or a release wrote it that this one cannot read.
        """
        found = (self.document() or {}).get("verdict")
        if not isinstance(found, dict):
            return None
        try:
            known = {key: found[key] for key in VerdictSummary.model_fields if key in found}
            return VerdictSummary.model_validate(known)
        except ValueError:
            return None

    def document(self) -> dict[str, Any] | None:
        """Read what the process of the twins wrote last.

        Returns:
            A `dsp-gym/twins/1` document; None where there is none that can be read.
        """
        if self._file is None:
            return None
        try:
            found = self._file.stat()
            stamp = found.st_mtime_ns, found.st_ino
            if stamp != self._known:
                self._known = stamp
                self._document = _read(self._file) if found.st_size <= LARGEST else None
        except (OSError, ValueError):
            self._known = self._document = None
        return self._document


def _read(file: Path) -> dict[str, Any] | None:
    found = parse_json(file.read_bytes())
    return found if isinstance(found, dict) and found.get("schema") == TWINS_SCHEMA else None
