"""The numbers of a job file that a fit may set: lines that end with `# fit: NAME`.

Everything else of the file, its comments above all, stays as it was written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsp_gym.errors import ConfigError, did_you_mean

_LINE = re.compile(
    r"^(?P<head>.*\bvalue: )(?P<number>[-+.0-9eE]+)(?P<tail>.*# fit: (?P<name>\w+))$"
)


def fitted_values(text: str) -> dict[str, float]:
    """Value by name of every fitted number of a job file.

    Returns:
        Numbers in the unit of their line, by the name after `# fit:`.

    >>> fitted_values("cpu_us_per_record: {value: 0.5, source: fit} # fit: map_us")
    {'map_us': 0.5}
    """
    found = (_LINE.match(line) for line in text.splitlines())
    return {match["name"]: float(match["number"]) for match in found if match}


def with_values(text: str, values: Mapping[str, float]) -> str:
    """The job file with fitted numbers replaced, four significant digits each.

    Returns:
        The text with the numbers replaced.

    Raises:
        ConfigError: A value has no line of its name.
    """
    known = fitted_values(text)
    for name in values:
        if name not in known:
            raise ConfigError(f"no fitted number '{name}'", remedy=did_you_mean(name, known))
    lines = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and match["name"] in values:
            line = f"{match['head']}{values[match['name']]:.4g}{match['tail']}"
        lines.append(line)
    return "\n".join(lines) + "\n"
