"""Which releases of Flink are watched, and on which a job may be changed.

`supported.json` beside this file has a row for each. A job is changed where the tests of actuators
run, on Flink 2.1; the tests of readers run there at every change, and `pytest -m validate
tests/integration/test_zoo.py` on all others. A release without a row is refused.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError

_TABLE = Path(__file__).with_name("supported.json")


class Support(NamedTuple):
    """What is allowed on one release of Flink."""

    version: str
    reading: bool
    in_place: bool
    """Rescales by the adaptive scheduler."""
    redeploy: bool
    """Rescales by savepoint and resubmission."""
    memory: bool
    """Memory of each operator."""

    @property
    def acting(self) -> bool:
        """Whether a job may be changed."""
        return self.in_place or self.redeploy


@cache
def supported() -> tuple[Support, ...]:
    """Read the table.

    Returns:
        A row for each release, oldest first.
    """
    rows = json.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(Support(version, **row) for version, row in rows.items())


def support_of(version: str) -> Support | None:
    """Look up a release.

    Args:
        version: as Flink says it.

    Returns:
        Its row; None for a release without one.

    >>> support_of("1.20.1").acting, support_of("2.1-SNAPSHOT").acting, support_of("9.0.0")
    (False, True, None)
    """
    numbers = version.replace("-", ".").split(".")[:2]
    return next((row for row in supported() if row.version.split(".") == numbers), None)


def version_of(rest: FlinkRest) -> str:
    """Ask a cluster for its release.

    Returns:
        Flink's version, such as 2.1.0.

    Raises:
        FlinkError: Flink does not answer.
    """
    with rest.reading():
        return str(rest.overview().get("flink-version", "unknown"))


def check_version(rest: FlinkRest, *, acting: bool) -> None:
    """Refuse a release that was not tested for the purpose.

    Args:
        rest: the cluster.
        acting: whether the job is to be changed.

    Raises:
        FlinkError: The release is not known, or was tested for reading alone.
    """
    version = version_of(rest)
    row = support_of(version)
    known = [one.version for one in supported()]
    if row is None:
        raise FlinkError(
            f"{rest.url} is Flink {version}; this release reads Flink {known[0]} to {known[-1]}",
            reason="Unsupported",
            remedy="Update dsp-gym if that Flink is newer.",
        )
    if acting and not row.acting:
        tested = ", ".join(one.version for one in supported() if one.acting)
        raise FlinkError(
            f"{rest.url} is Flink {version}, whose jobs are watched, not changed: changes were "
            f"tested on Flink {tested}",
            reason="Unsupported",
            remedy="Leave out --apply, or run the job on such a release.",
        )
