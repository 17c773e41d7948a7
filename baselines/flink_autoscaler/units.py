"""Durations and memory sizes as Flink's configuration writes them."""

from __future__ import annotations

import re

from dsp_gym.errors import ConfigError

_NS = {"ns": 1, "nano": 1, "nanosecond": 1, "µs": 1000, "micro": 1000, "microsecond": 1000}
_MS = {
    "ms": 1,
    "milli": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_BYTES = {
    1: ("b", "bytes"),
    1 << 10: ("k", "kb", "kibibytes"),
    1 << 20: ("m", "mb", "mebibytes"),
    1 << 30: ("g", "gb", "gibibytes"),
    1 << 40: ("t", "tb", "tebibytes"),
}
_SIZE = {name: size for size, names in _BYTES.items() for name in names}
_PARTS = re.compile(r"(\d+)\s*([^\d\s]*)")


def duration_ms(text: str, key: str) -> int:
    """Read a duration; a number alone is milliseconds.

    >>> duration_ms("15 min", "k"), duration_ms("90s", "k"), duration_ms("100", "k")
    (900000, 90000, 100)

    Returns:
        Milliseconds.

    Raises:
        ConfigError: The text is no duration.
    """
    number, unit = _parsed(text, key, "a duration such as '15 min'")
    if not unit:
        return number
    # Units in singular and plural: "hour" and "hours".
    for plural in (unit, unit.removesuffix("s")):
        if plural in _MS:
            return number * _MS[plural]
        if plural in _NS:
            # Whole milliseconds: Java's Duration.toMillis cuts the rest.
            return number * _NS[plural] // 1_000_000
    raise ConfigError(
        f"'{unit}' is not a unit of time",
        key=key,
        value=text,
        remedy="Use d, h, min, s or ms.",
    )


def memory_bytes(text: str, key: str) -> int:
    """Read a memory size; a number alone is bytes.

    >>> memory_bytes("4 gb", "k"), memory_bytes("512m", "k")
    (4294967296, 536870912)

    Returns:
        Bytes.

    Raises:
        ConfigError: The text is no memory size.
    """
    number, unit = _parsed(text, key, "a memory size such as '4 gb'")
    if not unit:
        return number
    if unit not in _SIZE:
        raise ConfigError(
            f"'{unit}' is not a unit of memory",
            key=key,
            value=text,
            remedy="Use b, kb, mb, gb or tb.",
        )
    return number * _SIZE[unit]


def memory_text(size: int) -> str:
    """Write a size in the largest unit that divides it, as Flink prints it.

    >>> memory_text(376 << 20), memory_text(20399521976), memory_text(0), memory_text(30 << 30)
    ('376 mb', '20399521976 bytes', '0 bytes', '30 gb')

    Returns:
        The text.
    """
    if size == 0:
        return "0 bytes"
    # Flink prints the second name of a unit: kb, mb, gb.
    unit = max(u for u in _BYTES if size % u == 0)
    return f"{size // unit} {_BYTES[unit][1]}"


def _parsed(text: str, key: str, what: str) -> tuple[int, str]:
    # Flink ignores case and surrounding spaces.
    found = _PARTS.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"is not {what}", key=key, value=text)
    return int(found.group(1)), found.group(2)
