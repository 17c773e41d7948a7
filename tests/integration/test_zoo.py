"""Jobs of the kinds that people run, read by REST and by six Prometheus servers.

Each job writes down what it really does (flink-jobs/zoo). What is read must agree with it: rates
and selectivities within 3 %, records per busy second within 5 %, parallelism exactly. Beside other
tests a task waits for a processor while it is busy: there, records per busy second within 35 %.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local.distribution import FlinkLibraries, find_libraries
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.studies.validation import releases
from tests.real_flink import REAL_FLINK
from tests.zoo import (
    FAILING,
    READERS,
    REST,
    SCRAPINGS,
    open_zoo,
    rescale,
    wait_until_all_run,
)
from tests.zoo_readers import Difference, Watched

pytestmark = [*REAL_FLINK, pytest.mark.validate]  # test_collectors reads one job elsewhere

WINDOW = WindowConfig(window_s=30, stabilization_s=10)
LOOKS = 3
RESCALED = ("chained-filter", "join", "partitioners")
QUICK = (*RESCALED, "bounded", "same-names", "unicode", "window", FAILING, "sql")
"""Kinds of which each could be read wrong in its own way; below all are read, by each version."""

VERSIONS = ("1.18.1", "1.19.3", "1.20.3", "2.0.1", "2.1.0", "2.2.0", "2.3.0")
MOST_OFF_TRUE, MOST_OFF_TRUE_BESIDE_OTHERS = 0.05, 0.35
MOST_OFF_TRUE_OF = {"1.18.1": 0.35}
"""Until FLINK-35764, a task was idle twice where its metrics were updated meanwhile (every 5 s)."""
VALIDATED = WindowConfig(window_s=60, stabilization_s=10)
WINDOWS, SOME = 100, 10
APART_S = 3.0
"""Seconds from one window to the next, at least; a busy machine takes longer to look."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read wrong, before and after some jobs were rescaled."""

    before: list[Difference]
    after: list[Difference]
    discovered: list[Difference]
    troubles: list[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with (
        open_zoo(tmp_path_factory.mktemp("zoo"), kinds=QUICK) as zoo,
        Watched(zoo, WINDOW, MOST_OFF_TRUE_BESIDE_OTHERS) as watched,
    ):
        wait_until_all_run(zoo)
        watched.discover([REST])
        time.sleep(WINDOW.window_s + WINDOW.stabilization_s)
        watched.discover(SCRAPINGS)
        before = lasting(watched)
        discovered = watched.discovered()
        for kind in RESCALED:
            rescale(zoo, kind, 1)
        time.sleep(WINDOW.window_s + WINDOW.stabilization_s)
        yield Seen(before, lasting(watched, RESCALED), discovered, watched.troubles)


def lasting(watched: Watched, kinds: Sequence[str] | None = None) -> list[Difference]:
    """What is read wrong at every one of several looks.

    Another program can take the processor for a second, which a window then lacks or has twice.
    Where a version is read in every window, every look counts.
    """
    looks = []
    for _ in range(LOOKS):
        looks.append(watched.differences(kinds))
        time.sleep(1.0)
    others = [{one.what for one in look} for look in looks[1:]]
    return [one for one in looks[0] if all(one.what in other for other in others)]


def told(differences: list[Difference], kind: str) -> str:
    return "\n".join(str(one) for one in differences if one.kind == kind)


@pytest.mark.parametrize("kind", QUICK)
def test_every_reader_sees_what_a_job_does(seen, kind):
    assert not told(seen.before, kind)
    assert not [trouble for trouble in seen.troubles if trouble.startswith(f"{kind}, ")]


@pytest.mark.parametrize("kind", RESCALED)
def test_every_reader_sees_what_a_rescaled_job_does(seen, kind):
    assert not told(seen.after, kind)


# One that restarts every minute may have run for some seconds only, too few for a rate.
@pytest.mark.parametrize("kind", sorted({*QUICK} - {FAILING}))
def test_a_discovered_job_file_has_the_rate_of_the_sources(seen, kind):
    assert not told(seen.discovered, kind)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read_right_in_every_window(version, tmp_path):
    """Of true rates some may be wrong: another program can take the processor for long."""
    wrong: list[Difference] = []
    off = MOST_OFF_TRUE_OF.get(version, MOST_OFF_TRUE)
    with open_zoo(tmp_path, libraries(version)) as zoo, Watched(zoo, VALIDATED, off) as watched:
        wait_until_all_run(zoo)
        watched.discover([REST])
        time.sleep(VALIDATED.window_s + VALIDATED.stabilization_s)
        watched.discover(SCRAPINGS)
        for number in range(WINDOWS):
            began = time.monotonic()
            wrong += watched.differences()
            if number == WINDOWS // 2:
                for kind in RESCALED:
                    rescale(zoo, kind, 1)
                time.sleep(VALIDATED.window_s + VALIDATED.stabilization_s)
            time.sleep(max(0.0, began + APART_S - time.monotonic()))
    often = Counter(one.what for one in wrong)
    most_often = max(
        (count for what, count in often.items() if what[3] == releases.TRUE_RATE), default=0
    )
    others = [str(one) for one in wrong if one.metric != releases.TRUE_RATE]
    passed = not others and not watched.troubles and most_often <= SOME
    releases.record_reading(version, reading(watched, passed), releases.figures_file())
    told = [f"{count} of {WINDOWS}: {', '.join(what)}" for what, count in often.most_common()]
    assert passed, "\n".join([*told, *others, *watched.troubles])


def reading(watched: Watched, passed: bool) -> releases.Reading:
    """The figures of a version."""
    compared = {
        name: releases.ReadingErrors.of(errors) for name, errors in sorted(watched.errors.items())
    }
    return releases.Reading(
        passed, releases.today(), releases.machine(), WINDOWS, len(watched.zoo.jobs), len(READERS),
        compared, len(watched.troubles),
    )  # fmt: skip


def libraries(version: str) -> FlinkLibraries:
    """The libraries of a version, installed into a virtual environment of their own, once."""
    installed = find_libraries()
    if installed.version == version:
        return installed
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "dsp-gym" / f"flink-{version}"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        package = f"apache-flink-libraries=={version}"
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, package], check=True)
        (folder / "installed").touch()
    (pyflink,) = folder.glob("lib/python*/site-packages/pyflink")
    return FlinkLibraries(pyflink, version)
