"""Credentials in text, hidden before anyone reads it.

All text that leaves the process passes here: errors, status, metrics, journal, tags, output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"

_WORD_END = re.compile(r"[\s\"<>]")
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
    if _may_hold_account(text):
        text = _without_accounts(text)
    if _may_hold_parameter(text):
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    if _may_hold_authorization(text):
        text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    return text


def is_plain(text: str) -> bool:
    """Whether a text surely holds no credentials; a matter of microseconds, whatever the text.

    Returns:
        False where `redacted` has to look; it may leave the text as it is.
    """
    return not (
        _may_hold_account(text) or _may_hold_parameter(text) or _may_hold_authorization(text)
    )


def _may_hold_account(text: str) -> bool:
    return "@" in text and "://" in text


def _may_hold_parameter(text: str) -> bool:
    return "=" in text and ("?" in text or "&" in text)


def _may_hold_authorization(text: str) -> bool:
    return "earer" in text or "asic" in text


def _without_accounts(text: str) -> str:
    """Hide what stands in a word from :// to its last @.

    A password may contain an @: hiding too much beats hiding a part. Every letter is looked at
    once. An expression would look at the rest of the word again from each ://.
    """
    parts: list[str] = []
    done = 0
    while (scheme := text.find("://", done)) >= 0:
        begin = scheme + len("://")
        end = _WORD_END.search(text, begin)
        end_of_word = len(text) if end is None else end.start()
        at = text.rfind("@", begin, end_of_word)
        if at < 0:
            parts.append(text[done:end_of_word])
        else:
            parts += [text[done:begin], HIDDEN, text[at:end_of_word]]
        done = end_of_word
    return "".join([*parts, text[done:]])


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
