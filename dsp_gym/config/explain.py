"""Turning pydantic's findings into one readable error."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["explain"]

_SHOWN = 5
"""Findings shown at once: what fits on a screen together with their remedies."""

Location = tuple[int | str, ...]


class _Finding(NamedTuple):
    key: str | None
    value: object
    message: str
    remedy: str | None


def explain(error: ValidationError, model: type[BaseModel], data: object, file: str) -> ConfigError:
    """One `ConfigError` that says file, key, value and remedy for what pydantic found.

    Returns:
        The error to raise; of several findings it lists the first ones.
    """
    findings = [_finding(detail, model, data) for detail in error.errors(include_url=False)]
    if len(findings) == 1:
        key, value, message, remedy = findings[0]
        return ConfigError(message, file=file, key=key, value=value, remedy=remedy)
    lines = [
        f"  {ConfigError(message, key=key, value=value, remedy=remedy)}"
        for key, value, message, remedy in findings[:_SHOWN]
    ]
    if len(findings) > _SHOWN:
        lines.append(f"  and {len(findings) - _SHOWN} more")
    return ConfigError("\n".join([f"{len(findings)} things are wrong:", *lines]), file=file)


def _finding(detail: ErrorDetails, model: type[BaseModel], data: object) -> _Finding:
    location, kind = detail["loc"], detail["type"]
    key = _dotted(location, data, missing=kind == "missing") or None
    if kind == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        return _Finding(None, None, f"unknown key '{key}'", did_you_mean(str(location[-1]), known))
    if kind == "missing":
        parent, _, name = (key or "").rpartition(".")
        remedy = _description(model, location)
        return _Finding(parent or None, None, f"the key '{name}' is missing", remedy)
    message = detail["msg"]
    if kind in {"value_error", "assertion_error"}:
        # The message of our own validator; pydantic puts its kind before it.
        message = message.partition(", ")[2] or message
        whole = isinstance(detail["input"], dict | list | BaseModel)
        return _Finding(key, None if whole else detail["input"], message, None)
    expected = message.removeprefix("Input should be ")
    text = f"expected {expected}" if expected != message else message[:1].lower() + message[1:]
    return _Finding(key, _shown(detail["input"]), text, _description(model, location))


def _shown(value: object) -> object:
    return "null" if value is None else value


def _dotted(location: Location, data: object, *, missing: bool) -> str:
    """The location as a reader of the file would write it.

    Pydantic puts the tag of a union's member into a location; the data does not have it.
    """
    text, here = "", data
    for position, step in enumerate(location):
        if isinstance(step, int) and isinstance(here, list) and step < len(here):
            text, here = f"{text}[{step}]", here[step]
        elif isinstance(here, dict) and step in here:
            text, here = f"{text}.{step}", here[step]
        elif missing and position == len(location) - 1:
            text = f"{text}.{step}"
    return text.removeprefix(".")


def _fields_at(model: type[BaseModel], location: Location) -> set[str]:
    return {
        name
        for found in _models(_walk(model, location))
        for name, field in found.model_fields.items()
        for name in (name, field.alias or name)
    }


def _description(model: type[BaseModel], location: Location) -> str | None:
    """What the model says about the field, as a hint."""
    for found in _models(_walk(model, location[:-1])):
        for name, field in found.model_fields.items():
            if location[-1] in (name, field.alias) and field.description:
                return f"It is: {field.description.rstrip('.')}."
    return None


def _walk(annotation: object, location: Location) -> list[object]:
    """The types found at a location, starting from a type."""
    here = list(_members(annotation))
    for step in location:
        here = [member for found in _step(here, step) for member in _members(found)]
    return here


def _step(here: Sequence[object], step: int | str) -> Sequence[object]:
    fields = [
        field
        for model in _models(here)
        for name, field in model.model_fields.items()
        if step in (name, field.alias)
    ]
    if fields:
        return [field.annotation for field in fields]
    items: list[object] = []
    for found in here:
        origin, args = get_origin(found), get_args(found)
        if isinstance(origin, type) and issubclass(origin, dict) and len(args) == 2:
            items.append(args[1])
        elif isinstance(step, int) and args and args[0] is not Ellipsis and origin is not Literal:
            items.append(args[0])
    if items:
        return items
    # A union's tag: the class name, or the value of the field that tells the members apart.
    return [m for m in _models(here) if m.__name__ == step or _has_tag(m, step)] or here


def _has_tag(model: type[BaseModel], tag: int | str) -> bool:
    return any(
        get_origin(field.annotation) is Literal and tag in get_args(field.annotation)
        for field in model.model_fields.values()
    )


def _members(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin is Union or origin is types.UnionType:
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _models(found: Iterable[object]) -> list[type[BaseModel]]:
    return [m for m in found if isinstance(m, type) and issubclass(m, BaseModel)]
