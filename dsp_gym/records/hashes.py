"""SHA-256 of files, bytes and JSON documents, as hexadecimal text."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def file_sha256(file: Path) -> str:
    """Hash of a file's content.

    Returns:
        64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def bytes_sha256(content: bytes) -> str:
    """Hash of what a file is going to hold.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256(content).hexdigest()


def document_sha256(document: object) -> str:
    """Hash of a document as canonical JSON: sorted keys, no spaces.

    Returns:
        64 hexadecimal digits.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
