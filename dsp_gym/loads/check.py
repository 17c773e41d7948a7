"""The recorded loads that a configuration names, read before anything runs on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from dsp_gym.errors import LoadError
from dsp_gym.loads.spec import TraceLoad
from dsp_gym.loads.traces import TraceLibrary


def check_traces(config: BaseModel, base_dir: str | Path | None = None) -> None:
    """Read every recorded load that a configuration names.

    A file with the columns `t_seconds` and `rate` may be missing where a configuration is checked,
    such as the shipped loads' traces. One whose `columns` are named has to be there.

    Args:
        config: Of any kind.
        base_dir: Folder in which relative paths start; None: the current directory.

    Raises:
        LoadError: A file is missing, or its header or a row is wrong.
    """
    library = TraceLibrary(base_dir)
    for trace in _traces(config):
        if trace.columns is None:
            try:
                library.find(trace.path)
            except LoadError:
                continue
        library.get(trace.path, trace.columns)


def _traces(part: object) -> Iterator[TraceLoad]:
    if isinstance(part, TraceLoad):
        yield part
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from _traces(getattr(part, name))
    elif isinstance(part, Mapping):
        for one in part.values():
            yield from _traces(one)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _traces(one)
