"""Which releases of Flink are supported, by the tests that ran on them.

    python -m dsp_gym.studies.validation.releases

The tests write `releases.json` among the figures of the validation: the zoo of jobs what was read
on a release (`pytest -m validate tests/integration/test_zoo.py`), the tests of actuators what they
changed (`pytest tests/integration/test_actuators.py --record-releases`). This command writes the
table `dsp_gym/backends/flink/supported.json` from it. A release is read where parallelism, rates
and selectivities were right in every window, and 99 % of the true rates; it is changed in the ways
of which every test passed.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from dsp_gym.backends.flink.versions import TABLE, WAYS, Way
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import plain
from dsp_gym.studies.runner import keep_figures, run

TRUE_RATE = "true rate"
"""Of what is compared, that which depends on the machine, too: a task that waits for the processor
is busy for Flink."""


@dataclass(frozen=True, slots=True)
class ReadingErrors:
    """Numbers of one kind that were read, beside what the jobs did."""

    numbers: int
    wrong: int
    """Those that are off by more than the bar, and those that were not read."""
    unread: int
    bar: float
    """The largest relative error that is right."""
    p99: float
    """The relative error that 99 % of the numbers that were read are within."""
    worst: float

    @classmethod
    def of(cls, errors: Sequence[tuple[float, float]]) -> ReadingErrors:
        """Sum up relative errors.

        Args:
            errors: each with its bar; infinite where nothing was read.

        Returns:
            The sum.
        """
        seen = sorted(error for error, _ in errors if math.isfinite(error)) or [0.0]
        wrong = sum(error > bar for error, bar in errors)
        bar = max(bar for _, bar in errors)
        p99 = seen[math.ceil(0.99 * len(seen)) - 1]
        unread = sum(not math.isfinite(error) for error, _ in errors)
        return cls(len(errors), wrong, unread, bar, round(p99, 4), round(seen[-1], 4))


@dataclass(frozen=True, slots=True)
class Reading:
    """How a zoo of jobs was read on a release."""

    passed: bool  # the test, whose bar for single true rates a busy machine misses
    on: str  # date
    machine: str
    windows: int
    jobs: int
    readers: int  # REST and Prometheus servers
    compared: Mapping[str, ReadingErrors]  # empty of a run that kept no numbers
    troubles: int = 0  # jobs that could not be looked at

    @property
    def is_right(self) -> bool:
        """Whether the release is read right."""
        if not self.compared:
            return self.passed
        exact = (one for name, one in self.compared.items() if name != TRUE_RATE)
        true_rates = self.compared.get(TRUE_RATE)
        return (
            self.troubles == 0
            and true_rates is not None
            and true_rates.p99 <= true_rates.bar
            and true_rates.unread == 0
            and not any(one.wrong for one in exact)
        )


@dataclass(frozen=True, slots=True)
class Acting:
    """The tests that changed a job in one way."""

    passed: bool
    on: str
    tests: int


@dataclass(frozen=True, slots=True)
class Release:
    """What was tested on a release of Flink."""

    reading: Reading | None = None
    acting: Mapping[Way, Acting] = field(default_factory=dict)


Releases = dict[str, Release]
"""By version, such as 2.1.0."""

_RELEASES = TypeAdapter(Releases)


def figures_file() -> Path:
    """Find the figures in a checkout.

    Returns:
        `docs/figures/validation/releases.json`.
    """
    return Path(__file__).parents[3] / "docs" / "figures" / "validation" / "releases.json"


def read(file: Path) -> Releases:
    """Read what was tested.

    Returns:
        A release by version; none where there is no file.
    """
    return _RELEASES.validate_json(file.read_bytes()) if file.exists() else {}


def today() -> str:
    """Tell the date.

    Returns:
        As 2026-11-26.
    """
    return date.today().isoformat()


def machine() -> str:
    """Describe this machine.

    Returns:
        Cores and architecture.
    """
    return f"{os.cpu_count()} cores, {platform.machine()}"


def record_reading(version: str, reading: Reading, file: Path) -> None:
    """Keep how a release was read, in place of what was known.

    Args:
        version: of Flink.
        reading: what came of it.
        file: the figures.
    """
    found = read(file)
    _write(found | {version: replace(found.get(version, Release()), reading=reading)}, file)


def record_acting(version: str, acting: Mapping[Way, Acting], file: Path) -> None:
    """Keep how jobs on a release were changed, in place of what was known.

    Args:
        version: of Flink.
        acting: what came of it, by way.
        file: the figures.
    """
    found = read(file)
    before = found.get(version, Release())
    _write(found | {version: replace(before, acting={**before.acting, **acting})}, file)


def _write(found: Releases, file: Path) -> None:
    keep_figures(plain({version: found[version] for version in sorted(found, key=_order)}), file)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def table(found: Mapping[str, Release]) -> str:
    """Write the table of supported releases.

    Args:
        found: what was tested.

    Returns:
        JSON: a row for each release that was tested, oldest first. A release is its minor version;
        where several of its patches were tested, the latest counts.
    """
    rows = {}
    for version in sorted(found, key=_order):
        release = found[version]
        row = {"reading": release.reading is not None and release.reading.is_right}
        for way in WAYS:
            done = release.acting.get(way)
            row[way] = done is not None and done.passed
        rows[".".join(version.split(".")[:2])] = row
    lines = [f'  "{version}": {json.dumps(row)}' for version, row in rows.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(
    figures: Annotated[Path | None, typer.Option(help="What was tested.")] = None,
) -> None:
    """Write the table of supported releases of Flink from the tests that ran."""
    content = table(read(figures or figures_file()))
    write_atomic(TABLE, content)
    typer.echo(content, nl=False)


if __name__ == "__main__":
    run(main)
