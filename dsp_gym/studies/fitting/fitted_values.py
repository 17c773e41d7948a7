"""The numbers of a job file that a fit may set: lines that end with `# fit: NAME`.

Everything else of the file, its comments above all, stays as it was written by hand. Fits read the
text of a shipped job file, search for its numbers, and keep the new text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import typer

from dsp_gym.arrays import Floats
from dsp_gym.calibration.evidence import with_section
from dsp_gym.config import files
from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean
from dsp_gym.job.evidence import Evidence

_LINE = re.compile(
    r"^(?P<head>.*\bvalue: )(?P<number>[-+.0-9eE]+)(?P<tail>.*# fit: (?P<name>\w+))$", re.MULTILINE
)


def fitted_values(text: str) -> dict[str, float]:
    """Value by name of every fitted number of a job file.

    Returns:
        Numbers in the unit of their line, by the name after `# fit:`.

    >>> fitted_values("cpu_us_per_record: {value: 0.5, source: fit} # fit: map_us")
    {'map_us': 0.5}
    """
    return {match["name"]: float(match["number"]) for match in _LINE.finditer(text)}


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

    def replaced(line: re.Match[str]) -> str:
        if line["name"] not in values:
            return line[0]
        return f"{line['head']}{values[line['name']]:.4g}{line['tail']}"

    return _LINE.sub(replaced, text)


def text_of(job: str) -> str:
    """Read a shipped job file.

    Returns:
        Its text.
    """
    return files.find("jobs", job).read_text(encoding="utf-8")


def keep(job: str, text: str, evidence: Evidence, *, write: bool) -> None:
    """Print the fitted numbers of a job file and what they rest on, and write it where asked."""
    fitted = ", ".join(f"{name} {value:g}" for name, value in fitted_values(text).items())
    typer.echo(f"{job}: {fitted}")
    for sentence in evidence.sentences():
        typer.echo(f"  {sentence}")
    if write:
        path = files.find("jobs", job)
        typer.echo(f"  written: {files.write_atomic(path, with_section(text, evidence))}")


def searched(
    loss: Callable[[dict[str, float]], float],
    start: Mapping[str, float],
    step: float,
    **stops: float,
) -> dict[str, float]:
    """Find the numbers of least loss by the simplex method, on a logarithmic scale.

    Args:
        loss: of numbers by name.
        start: where the search begins.
        step: of the first simplex, in each number.
        stops: when the search ends, as SciPy's Nelder-Mead has it.

    Returns:
        The numbers by name.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    try:
        from scipy.optimize import minimize
    except ModuleNotFoundError:
        raise MissingExtraError("dev", "fitting a job file") from None
    first, zeros = np.array(list(start.values())), np.zeros(len(start))

    def values_of(scale: Floats) -> dict[str, float]:
        return dict(zip(start, (first * np.exp(scale)).tolist(), strict=True))

    simplex = np.vstack([zeros, step * np.eye(len(start))])
    options = {"initial_simplex": simplex, **stops}
    found = minimize(lambda x: loss(values_of(x)), zeros, method="Nelder-Mead", options=options)
    return values_of(found.x)
