"""What the commands of studies have in common: options, figures, and calls of `dsp-gym`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dsp_gym.config.files import write_atomic

Options = Mapping[str, Mapping[str, Any]]
"""Arguments of `ArgumentParser.add_argument` by name of the option."""

DSP_GYM = "from dsp_gym.cli import main\nmain()"
"""The command line in a process of its own, whichever environment this one runs in."""


def dsp_gym(*words: object) -> list[str]:
    """Write a call of `dsp-gym` as words for `subprocess`.

    Returns:
        The command line.
    """
    return [sys.executable, "-c", DSP_GYM, *map(str, words)]


def options_of(
    study: str | None,
    options: Options,
    line: Sequence[str] | None,
    one_of: Options = MappingProxyType({}),
) -> argparse.Namespace:
    """Read the command line of a study.

    Args:
        study: Docstring of its module; the first line is its description.
        options: Arguments of `ArgumentParser.add_argument` by name.
        line: The words; None: those of this process.
        one_of: Options of which exactly one is given.

    Returns:
        The values by name.
    """
    parser = argparse.ArgumentParser(description=(study or "").partition("\n")[0])
    for name, option in options.items():
        parser.add_argument(name, **option)
    if one_of:
        group = parser.add_mutually_exclusive_group(required=True)
        for name, option in one_of.items():
            group.add_argument(name, **option)
    return parser.parse_args(line)


def keep(figures: object, out: Path | None, indent: int = 1) -> None:
    """Write figures to a file as JSON, if one is named."""
    if out is not None:
        write_atomic(out, json.dumps(figures, indent=indent) + "\n")


def report(figures: object, out: Path | None = None, indent: int | None = None) -> None:
    """Print figures as JSON, and write them to a file where one is named.

    Args:
        figures: JSON values.
        out: The file; it is indented in any case.
        indent: Of what is printed; None: one line.
    """
    keep(figures, out, indent or 1)
    sys.stdout.write(json.dumps(figures, indent=indent) + "\n")
    sys.stdout.flush()
