"""Values of options that take a notation: durations, and configurations of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsp_gym.errors import ConfigError

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def seconds(text: str, option: str = "--duration") -> int:
    """Read a duration.

    Args:
        text: A number with its unit.
        option: The option, for errors.

    Returns:
        Whole seconds, rounded.

    Raises:
        ConfigError: It is no duration.

    >>> seconds("90"), seconds("90s"), seconds("1.5h")
    (90, 90, 5400)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise ConfigError(
            "is not a duration",
            key=option,
            value=text,
            remedy="Write a number with s, m, h or d, such as 90s.",
        )
    return round(float(match[1]) * _UNITS[match[2]])


def names_of(text: str, option: str) -> list[str]:
    """Read several names with commas between.

    Args:
        text: The value of the option.
        option: The option, for errors.

    Returns:
        At least one name, each once, in the order given.

    Raises:
        ConfigError: A name is empty, or given twice.

    >>> names_of("ds2, learned", "--policies")
    ['ds2', 'learned']
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            "takes different names with commas between",
            key=option,
            value=text,
            remedy=f"For instance: {option} ds2,learned",
        )
    return names


def refuse_given(options: Mapping[str, object], why: str, remedy: str = "Leave it out.") -> None:
    """Refuse options that do not apply to what a command was asked for.

    Args:
        options: Value by option; None or False: it was not given.
        why: The reason, for the error.
        remedy: The next step.

    Raises:
        ConfigError: One of them was given.
    """
    for option, value in options.items():
        if value is not None and value is not False:
            shown = None if value is True else str(value)
            raise ConfigError(why, key=option, value=shown, remedy=remedy)


def assignments(text: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """Read `VERTEX[=P][@X],...`.

    Args:
        text: The value of `--configuration`, or None.

    Returns:
        Parallelism and memory level by vertex name; empty without a text.

    Raises:
        ConfigError: A pair is none, or names a vertex twice.

    >>> assignments("map=3,state=8@2,sink@-1")
    ({'map': 3, 'state': 8}, {'state': 2, 'sink': -1})
    """
    tasks: dict[str, int] = {}
    levels: dict[str, int] = {}
    for pair in text.split(",") if text else ():
        match = re.fullmatch(r"\s*([^=@]+?)\s*(?:=\s*(\d+)\s*)?(?:@\s*(-?\d+)\s*)?", pair)
        if match is None or match[2] is match[3] is None:
            raise ConfigError(
                "--configuration takes VERTEX=PARALLELISM, VERTEX@LEVEL or both",
                value=pair,
                remedy="For instance: --configuration map=3,state=8@2,sink@-1",
            )
        name = match[1]
        if name in tasks or name in levels:
            raise ConfigError(
                f"--configuration names '{name}' twice", remedy="Keep one of the two."
            )
        if match[2] is not None:
            tasks[name] = int(match[2])
        if match[3] is not None:
            levels[name] = int(match[3])
    return tasks, levels
