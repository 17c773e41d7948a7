"""Every reader of external input: how it is called, and valid documents for it.

A reader takes the bytes of a file, a request or an answer. It gives a result or one of its errors;
anything else is a fault of ours.
"""

from __future__ import annotations

import atexit
import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DspGymError
from tests.fuzz.cases import Tree, as_json, content

__all__ = ["Reader", "folder", "json_reader"]


@dataclass(frozen=True)
class Reader:
    """One reader.

    Args:
        name: what it reads.
        read: reads the bytes.
        seeds: makes valid documents, as bytes.
        dump: writes a document that was changed; None: it is no tree.
        errors: what it may raise.
        share: of the cases, for readers that are slow or whose cases are.
        reads: how often an input is read: several questions may have the same answer.
        is_bounded: whether the bounds on time and memory hold for it.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    dump: Callable[[Tree], bytes] | None = as_json
    parse: Callable[[bytes], Tree] = json.loads
    errors: tuple[type[Exception], ...] = (DspGymError,)
    share: float = 1.0
    reads: int = 1
    is_bounded: bool = field(default=True)

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def made(self) -> tuple[Sequence[bytes], Sequence[Tree]]:
        """Valid documents, and the same parsed."""
        seeds = self.seeds()
        return seeds, [] if self.dump is None else [self.parse(seed) for seed in seeds]

    def case(self, number: int) -> bytes:
        """The input of a number."""
        seeds, trees = self.made
        return content(seeds, self.dump or as_json, trees, number)

    def takes(self, data: bytes) -> object:
        """What it gives for an input; its own errors are given, too."""
        try:
            return self.read(data)
        except self.errors as error:
            str(error).encode("utf-8", "backslashreplace")
            return error


@functools.cache
def folder() -> Path:
    """A folder of this process, gone with it."""
    made = tempfile.TemporaryDirectory(prefix="dsp-gym-fuzz-")
    atexit.register(made.cleanup)
    return Path(made.name)


def file_of(name: str, data: bytes) -> Path:
    """A file that holds the bytes."""
    file = folder() / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def json_reader(
    name: str, read: Callable[[Any], object], *seeds: Callable[[], Tree], **rest: Any
) -> Reader:
    """A reader of a JSON document that somebody else has parsed."""

    def parsed(data: bytes) -> object:
        try:
            document = parse_json(data)
        except ValueError as error:
            return error
        return read(document)

    return Reader(name, parsed, lambda: [as_json(seed()) for seed in seeds], **rest)
