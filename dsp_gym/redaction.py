"""Credentials in text, hidden before anybody reads it.

Whatever leaves the process as words passes here: errors, status, metrics, journal, tags, output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["HIDDEN", "redacted", "redacted_values"]

HIDDEN = "***"

# Up to the last @ of a word, for a password may hold one; rather too much than a part of it.
_ACCOUNT = re.compile(r"://[^\s\"<>]*@")
_PARAMETER = re.compile(
    r"([?&][\w.%-]*(?:passw(?:or)?d|pwd|token|secret|signature|sig|credentials?|auth|key)=)"
    r"[^&#\s\"<>]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/-]{12,}=*", re.IGNORECASE)


def redacted(text: str) -> str:
    """A text without the accounts of its URLs, secret parameters and authorizations.

    Args:
        text: of any length; JSON stays JSON.

    Returns:
        The text with *** in place of each; the same text where there is none.

    >>> redacted("http://me:secret@prometheus:9090/?token=abc did not answer")
    'http://***@prometheus:9090/?token=*** did not answer'
    """
    if "@" in text:
        text = _ACCOUNT.sub(f"://{HIDDEN}@", text)
    if "=" in text and ("?" in text or "&" in text):
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    if "earer" in text or "asic" in text:
        text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    return text


def redacted_values(value: object) -> object:
    """A JSON-able value, every text in it redacted.

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
