"""Credentials in text, hidden before anyone reads it.

All text that leaves the process passes here: errors, status, metrics, journal, tags, output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"

# Up to the last @ of a word, as a password may contain one: hiding too much beats hiding a part.
_ACCOUNT = re.compile(r"://[^\s\"<>]*@")
_PARAMETER = re.compile(
    r"([?&][\w.%-]*(?:passw(?:or)?d|pwd|token|secret|signature|sig|credentials?|auth|key)=)"
    r"[^&#\s\"<>]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/-]{12,}=*", re.IGNORECASE)


def redacted(text: str) -> str:
    """Hide the accounts of URLs, secret parameters and authorizations in a text.

    Args:
        text: Text of any length; JSON stays JSON.

    Returns:
        The text with *** in place of each; the same text where there is none.

    >>> redacted("http://me:secret@prometheus:9090/?token=abc did not answer")
    'http://***@prometheus:9090/?token=*** did not answer'
    """
    # Cheap tests first: nearly all text has no credentials, and patterns are slow.
    if "@" in text:
        text = _ACCOUNT.sub(f"://{HIDDEN}@", text)
    if "=" in text and ("?" in text or "&" in text):
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    if "earer" in text or "asic" in text:
        text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    return text


def redacted_values(value: object) -> object:
    """Redact every text in a JSON-able value.

    Args:
        value: The value.

    Returns:
        A copy; keys, numbers and order stay.
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_values(item) for item in value]
    return value
