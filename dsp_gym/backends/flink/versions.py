"""Which releases of Flink are watched, and on which a job may be changed.

`supported.json` beside this file has a row for each, which
`python -m dsp_gym.studies.validation.releases` writes from the tests that ran on it. The tests of
readers and of actuators run on Flink 2.1 at every change; `pytest -m validate
tests/integration/test_zoo.py` reads all others. A release without a row is refused.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError

TABLE = Path(__file__).with_name("supported.json")
"""Written by `python -m dsp_gym.studies.validation.releases` from the tests that ran."""

Way = Literal["in_place", "redeploy", "memory"]
"""How a job is changed."""

WAYS: tuple[Way, ...] = ("in_place", "redeploy", "memory")


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

    def allows(self, way: Way) -> bool:
        """Find out whether a job may be changed in a way.

        Returns:
            True where the tests of that way ran on the release and passed.
        """
        return bool(getattr(self, way))


@cache
def supported() -> tuple[Support, ...]:
    """Read the table.

    Returns:
        A row for each release, oldest first.
    """
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(Support(version, **row) for version, row in rows.items())


def support_of(version: str) -> Support | None:
    """Look up a release.

    Args:
        version: as Flink says it.

    Returns:
        Its row; None for a release without one.

    >>> support_of("1.20.1").redeploy, support_of("2.1-SNAPSHOT").redeploy, support_of("9.0.0")
    (False, True, None)
    """
    numbers = version.replace("-", ".").split(".")[:2]
    return next((row for row in supported() if row.version.split(".") == numbers), None)


_UNKNOWN = "unknown"


def version_of(rest: FlinkRest) -> str:
    """Ask a cluster for its release.

    Returns:
        Flink's version, such as 2.1.0; "unknown": it does not tell.

    Raises:
        FlinkError: Flink does not answer.
    """
    with rest.reading():
        return str(rest.overview().get("flink-version", _UNKNOWN))


def check_version(rest: FlinkRest, way: Way | None = None) -> None:
    """Refuse a release that was not tested for the purpose.

    Args:
        rest: the cluster.
        way: how the job is to be changed; None: it is only read.

    Raises:
        FlinkError: The release is not known, or was not tested for that.
    """
    version = version_of(rest)
    row = support_of(version)
    if row is None or not row.reading:
        raise unread(rest.url, version)
    if way is not None and not row.allows(way):
        raise FlinkError(
            f"{rest.url} is Flink {version}, whose jobs are watched, not changed: changes were "
            f"tested on Flink {', '.join(allowing(way)) or 'none'}",
            reason="Unsupported",
            remedy="Leave out --apply, or run the job on such a release.",
        )


def check_told_version(rest: FlinkRest) -> None:
    """Refuse a release that is not read, where the cluster tells its release.

    Args:
        rest: the cluster; behind a proxy it may tell less than its jobs.

    Raises:
        FlinkError: The release is not known.
    """
    try:
        version = version_of(rest)
    except FlinkError:
        return
    row = support_of(version)
    if version != _UNKNOWN and (row is None or not row.reading):
        raise unread(rest.url, version)


def unread(url: str, version: str) -> FlinkError:
    """Say that a release is not read.

    Args:
        url: the cluster.
        version: of its Flink.

    Returns:
        The error.
    """
    known = [one.version for one in supported() if one.reading]
    return FlinkError(
        f"{url} is Flink {version}; this release reads Flink {known[0]} to {known[-1]}",
        reason="Unsupported",
        remedy="Update dsp-gym if that Flink is newer.",
    )


def allowing(way: Way) -> list[str]:
    """List the releases on which a job may be changed in a way.

    Returns:
        Minor versions, oldest first.
    """
    return [one.version for one in supported() if one.allows(way)]
