"""Loads with numbers that are drawn: `{between: [0.4, 0.7]}` in place of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter

from dsp_gym.config.files import parse
from dsp_gym.job.draw import Draw
from dsp_gym.loads.spec import LoadConfig, LoadSpec, TraceLoad, nodes

Between = Callable[[float, float], float]

LINEAR, LOGARITHMIC, CHOICE = "between", "log_between", "one_of"
"""Keys that stand for a draw: evenly, evenly on a logarithmic scale, and one of several values."""

LoadTemplate = dict[str, object]
"""A load as a document, whose numbers and texts may be draws."""


DRAWS = (
    "in place of a value {between: [low, high]}, {log_between: [low, high]} or {one_of: [...]} "
    "draws one"
)
"""What a template may hold, for descriptions of keys."""


def filled(template: Mapping[str, object], draw: Draw) -> LoadSpec:
    """Draw a load.

    Args:
        template: The load with draws in it.
        draw: Where numbers come from; draws are taken in the order of the document.

    Returns:
        A load without draws.

    Raises:
        ConfigError: The document is no load, whatever is drawn.
    """
    return parse(LoadConfig, {"load": _drawn(template, draw)}, "loads").load


def _checked(template: LoadTemplate) -> LoadTemplate:
    # Not every draw can be tried; a few show a form without a key, or ranges that contradict.
    for seed in range(4):
        filled(template, Draw(seed))
    return template


DrawnLoad = Annotated[LoadTemplate, AfterValidator(_checked)]
"""A template in a configuration, refused where it gives no load."""


def _drawn(part: object, draw: Draw) -> object:
    if isinstance(part, Mapping):
        if len(part) == 1:
            (kind, values), *_ = part.items()
            if kind == LINEAR:
                return draw.real(*_ends(kind, values))
            if kind == LOGARITHMIC:
                return draw.log(*_ends(kind, values))
            if kind == CHOICE and isinstance(values, list | tuple) and values:
                return draw.one(values)
        return {key: _drawn(value, draw) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_drawn(value, draw) for value in part]
    return part


_NUMBERS = TypeAdapter(tuple[float, float])


def _ends(kind: str, values: object) -> tuple[float, float]:
    low, high = _NUMBERS.validate_python(values)
    if not low < high or (kind == LOGARITHMIC and low <= 0):
        raise ValueError(f"{kind}: [{low:g}, {high:g}] is no range to draw from")
    return low, high


def traces_of(template: object) -> list[str]:
    """List the traces that a template may name.

    Args:
        template: A load with draws in it, or a part of one.

    Returns:
        Their paths or names, each once.
    """
    found: list[str] = []
    if isinstance(template, Mapping):
        if template.get("form") == "trace":
            path = template.get("path")
            chosen = path.get(CHOICE, ()) if isinstance(path, Mapping) else (path,)
            found += [str(one) for one in chosen]
        else:
            found += [name for part in template.values() for name in traces_of(part)]
    elif isinstance(template, list | tuple):
        found += [name for part in template for name in traces_of(part)]
    return list(dict.fromkeys(found))


def trace_of(load: LoadSpec) -> str | None:
    """Return the trace that a load is read from.

    Args:
        load: A load without draws.

    Returns:
        Its path or name; None for a generated load.
    """
    return next((one.path for one in nodes(load) if isinstance(one, TraceLoad)), None)
