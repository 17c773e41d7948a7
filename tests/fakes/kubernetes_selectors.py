"""Label and field selectors, and merge patches, as an API server reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["BadSelector", "matcher", "merged"]

Document = dict[str, Any]
_Test = Callable[[Mapping[str, str]], bool]


class BadSelector(ValueError):
    """A selector that cannot be read."""


def matcher(query: Mapping[str, str]) -> Callable[[Document], bool]:
    """Whether an object is meant by the selectors of a query."""
    parts = [p for p in re.split(r",(?![^(]*\))", query.get("labelSelector", "")) if p.strip()]
    tests = [_test(part.strip()) for part in parts]
    wanted = dict(p.split("=", 1) for p in query.get("fieldSelector", "").split(",") if p)

    def matches(body: Document) -> bool:
        meta = body["metadata"]
        if any(meta.get(key.removeprefix("metadata.")) != value for key, value in wanted.items()):
            return False
        return all(test(meta.get("labels") or {}) for test in tests)

    return matches


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _test(part: str) -> _Test:
    found = re.fullmatch(r"([\w./-]+)\s+(in|notin)\s*\(([^)]*)\)", part)
    if found:
        key, how, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if how == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    found = re.fullmatch(r"([\w./-]+)\s*(==|=|!=)\s*([\w.-]*)", part)
    if found:
        key, how, value = found.groups()
        if how == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if re.fullmatch(r"!\s*[\w./-]+", part):
        return lambda labels: part[1:].strip() not in labels
    if re.fullmatch(r"[\w./-]+", part):
        return lambda labels: part in labels
    raise BadSelector(f"unable to parse requirement: {part!r}")
