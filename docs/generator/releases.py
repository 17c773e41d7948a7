"""The page about releases of Flink: what was tested on each."""

from __future__ import annotations

from collections.abc import Iterator

from dsp_gym.backends.flink.versions import Way, support_of
from dsp_gym.studies.validation import acting
from dsp_gym.studies.validation.releases import ReadingErrors, Release, figures_file, read
from generator.markdown import Row, page, table

WAYS: dict[Way, str] = {"in_place": "in place", "redeploy": "by redeploying"}
SHOWN = ("outage, s", "records")
METRICS = ("records/s", "selectivity", "true rate")


INTRODUCTION = """
Which releases of Flink dsp-gym reads, and on which it changes a job. The table is written from the
tests that ran on each; `dsp-gym doctor --flink URL` shows the row of a cluster. A release without
a row is refused.
"""

CHANGES = """
*In place* needs the adaptive scheduler, *memory per operator* the default one. Jobs of the Flink
Kubernetes Operator are changed by the operator, on the releases that it supports.
"""

READING = """
A job of each kind that people run, read by REST and by Prometheus servers with different
relabelling, beside the records that the jobs counted themselves: every window of a minute, before
and after a rescale. Errors are relative, without the records that are in a window or not by less
than a second. Shown are the error that 99 % of the numbers are within, and the largest.
"""

TRUE_RATES = """
A release counts as read where parallelism, rates and selectivities were right within 3 % in every
window, and 99 % of the true rates within 5 %: a task that waits for the processor is busy for
Flink, so true rates depend on what else the machine does. Before FLINK-35764 was mended, which no
1.18 has, Flink counted idle time twice where its metrics were updated meanwhile
([pull request](https://github.com/apache/flink/pull/25351)): tasks seem up to a third faster than
they are, and the bound is 35 %. Fewer than 100 windows are of a run that was
cut short, a dash of one that kept no numbers.
"""


ACTING = """
A job of each kind (`flink-jobs/README.md`), discovered on a plain Flink, was scaled up by a task
for every vertex but its sources, and back: in place under the adaptive scheduler, or by redeploying
under the default one, with its owner's jar and arguments. Its sinks write each record by Flink's
exactly-once file sink: none was lost, none was there twice. Shown are the outages of both changes,
as the journal has them, and the records. `pytest -m acting --record-releases
tests/integration/test_zoo_acting.py` writes the figures.
"""


LOADED = "Outages depend on what else the machine does."


def flink_releases() -> str:
    """Releases of Flink that are read, and on which a job may be changed."""
    found = read(figures_file())
    return page(
        "Releases of Flink",
        INTRODUCTION.strip(),
        table(
            ["Flink", "read", "changed in place", "changed by redeploying", "memory per operator"],
            [_support(version) for version in found],
        ),
        CHANGES.strip(),
        "## How they were read",
        READING.strip(),
        table(
            ["Flink", "windows", "jobs", "readers", "numbers", *METRICS, "tested"],
            [_read(version, one) for version, one in found.items() if one.reading is not None],
        ),
        TRUE_RATES.strip(),
        "## How they were changed",
        ACTING.strip(),
        table(
            ["Flink", "job", *(f"{name}: {what}" for name in WAYS.values() for what in SHOWN)],
            list(_acted()),
        ),
        *_tested(),
    )


def _tested() -> Iterator[str]:
    for version, found in acting.read(acting.figures_file()).items():
        yield f"{version} was tested on {found.on} ({found.machine}). {LOADED}"


def _acted() -> Iterator[Row]:
    for version, found in acting.read(acting.figures_file()).items():
        for kind, ways in acting.by_kind(found.rows).items():
            cells = [cell for way in WAYS for cell in _outages(ways.get(way))]
            yield [version, kind, *cells]


def _outages(row: acting.Acted | None) -> tuple[str, str]:
    if row is None:
        return "–", "–"
    if row.records is None:
        return f"refused: {row.refused}", "–"
    return f"{row.up_s:.1f}, {row.back_s:.1f}", f"{row.records:,}"


def _support(version: str) -> Row:
    row = support_of(version)
    assert row is not None, f"run python -m dsp_gym.studies.validation.releases: {version}"
    ways = (row.allows("in_place"), row.allows("redeploy"), row.allows("memory"))
    return [version, *("yes" if one else "–" for one in (row.reading, *ways))]


def _read(version: str, release: Release) -> Row:
    reading = release.reading
    assert reading is not None
    numbers = sum(one.numbers for one in reading.compared.values())
    errors = [_error(reading.compared.get(name)) for name in METRICS]
    where = f"{reading.on}, {reading.machine}"
    counts = [reading.windows, reading.jobs, reading.readers, f"{numbers:,}" if numbers else "–"]
    return [version, *counts, *errors, where]


def _error(one: ReadingErrors | None) -> str:
    if one is None:
        return "–"
    return f"{100 * one.p99:.1f} %, {100 * one.worst:.1f} %"
