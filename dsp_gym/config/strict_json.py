r"""JSON from outside, read with bounds: how deep it is nested, and text that can be written again.

Python's own parser raises `RecursionError` where a document is nested too deep for it, and a
document that it can still read may be too deep for a recursive function. It also reads half a
character, such as `"\ud800"`, which no file and no terminal takes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from dsp_gym.errors import SchemaError

Json = Any
"""Any JSON value, parsed."""

Document = dict[str, Json]
"""A JSON object, parsed."""

MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of taking a document of another shape apart."""

MOST_DEPTH = 100
"""Levels of a document; none of ours has more than a dozen."""

_QUOTE, _BACKSLASH = ord('"'), b"\\"
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
"""A half, or two that make a whole."""


def parse_json(content: str | bytes) -> Json:
    r"""Read one JSON document.

    Args:
        content: the document; bytes in UTF-8, UTF-16 or UTF-32.

    Returns:
        Dictionaries, lists, texts, numbers, truth values and None.

    Raises:
        ValueError: It is not JSON, is nested too deep, or holds half a character; says so.

    >>> parse_json(b'{"seq": 7}')
    {'seq': 7}
    """
    # As `json.loads` has it, but for halves of characters.
    text = content.decode(json.detect_encoding(content)) if isinstance(content, bytes) else content
    try:
        document = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > MOST_DEPTH and _depth(text) > MOST_DEPTH:
        raise _too_deep()
    if _HALVES.search(text) is not None:
        refuse_halves(document)
    return document


def read_json(content: str | bytes, file: str | Path | None = None) -> Json:
    """Read one JSON document of a user.

    Args:
        content: the document.
        file: its place, for the error.

    Returns:
        As `parse_json`.

    Raises:
        SchemaError: It is not JSON, is nested too deep, or holds half a character.
    """
    try:
        return parse_json(content)
    except ValueError as error:
        raise SchemaError(f"is not valid JSON: {error}", file=file) from None


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MOST_DEPTH} levels")


def _depth(text: str) -> int:
    """Levels of a document that is known to be JSON; brackets in texts do not count."""
    import numpy as np  # of little documents the brackets are only counted

    steps_of = np.zeros(256, np.int8)
    steps_of[[ord("["), ord("{")]] = 1
    steps_of[[ord("]"), ord("}")]] = -1
    plain = text.encode("utf-8", "replace").replace(_BACKSLASH * 2, b"").replace(b'\\"', b"")
    letters = np.frombuffer(plain, np.uint8)
    steps = steps_of[letters]
    steps[np.logical_xor.accumulate(letters == _QUOTE)] = 0
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def refuse_halves(document: Json) -> None:
    """Refuse text that no file takes: two halves beside each other have become one character.

    Raises:
        ValueError: A text of the document, or a key, holds half a character.
    """
    if isinstance(document, str):
        try:
            document.encode("utf-8")
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise ValueError(f"it holds half a character, {half}") from None
    elif isinstance(document, dict):
        for key, value in document.items():
            refuse_halves(key)
            refuse_halves(value)
    elif isinstance(document, list):
        for value in document:
            refuse_halves(value)


def plain(value: object) -> Any:
    """Convert a value to JSON types: dataclasses, models, arrays and paths are taken apart.

    Returns:
        None, truth values, numbers, texts, lists and dictionaries only; keys become texts, and a
        number that is not finite becomes None.

    Raises:
        TypeError: It holds a value that has no form in JSON.

    >>> plain({"path": Path("a/b"), "rates": (1.0, float("nan"))})
    {'path': 'a/b', 'rates': [1.0, None]}
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:  # most of a snapshot
        return value
    if kind is float:
        return value if math.isfinite(value) else None  # type: ignore[arg-type]  # a float
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"{kind.__name__} cannot be written as JSON")
