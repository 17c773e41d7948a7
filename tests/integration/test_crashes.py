"""A process that dies while it scales a real job, and its successor, against a run without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from tests.nemesis.replicas import INTERVAL_S
from tests.real_crashes import Crash, Fate, Load, run
from tests.real_flink import REAL_FLINK, SMALL_SEGMENT_KIB, short_lived_jvms

pytestmark = [*REAL_FLINK, pytest.mark.validate]

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures/validation/real-crashes.json"
SEED = 34
LOADS = tuple(Load(per_s, way) for per_s in (260, 330) for way in ("resubmit", "adaptive"))
CRASHES = 5  # of each load
AT_ONCE = 4
LATER = 1.2
"""Most late seconds after a crash, over those of the run without it; its length comes on top."""

STOPPED = ("stopping", "savepoint", "stopped")
"""Steps after which a job stands still until it is submitted again."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        slots=8 * AT_ONCE, managed_mib=16 * 8 * AT_ONCE, task_heap_mib=512, network_mib=128,
        rest_port=0, prometheus_port=0, scrape_interval_s=2, metric_fetch_s=1,
        network_segment_kib=SMALL_SEGMENT_KIB, scheduler="adaptive", checkpoint_interval_s=2,
        restart_delay_s=1,
    )  # fmt: skip
    with short_lived_jvms():
        made = LocalCluster.up(settings, tmp_path_factory.mktemp("crashes"))
        try:
            yield made
        finally:
            made.down()


def drawn(rng: np.random.Generator) -> Crash:
    """Two of three during the rescale, which takes some seconds; the others at any moment."""
    lasts_s = float(rng.choice([2, 5, 10, 20]))
    if rng.random() < 2 / 3:
        return Crash("asked", round(float(rng.uniform(0, 6)), 1), lasts_s)
    return Crash("rise", round(float(rng.uniform(0, 60)), 1), lasts_s)


def test_a_crash_at_any_instant_costs_no_more_than_its_length(cluster, tmp_path):
    rng = np.random.default_rng(SEED)
    asked: list[tuple[Load, Crash | None]] = [
        (load, crash) for load in LOADS for crash in (None, *(drawn(rng) for _ in range(CRASHES)))
    ]

    def played(number: int) -> Fate:
        load, crash = asked[number]
        return run(cluster, tmp_path / str(number), f"crash-{number}", load, crash)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        fates = list(pool.map(played, range(len(asked))))
    rows = judged(asked, fates)
    figures = {"command": "pytest -m validate tests/integration/test_crashes.py", "seed": SEED,
               "runs": rows}  # fmt: skip
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    assert not [row for row in rows if row["late_s"] > row["bar_s"]]
    assert all(row["finished"] for row in rows if row["crashed_in"] in STOPPED)
    assert not [row for row in rows if "rolled_back" in row["steps"]]
    assert not [row for row in rows if row["rests_while_late"]]
    assert all(row["tasks"] >= 2 for row in rows)


def judged(
    asked: Sequence[tuple[Load, Crash | None]], fates: Sequence[Fate]
) -> list[dict[str, Any]]:
    """A row of each run: beside its late seconds what a crash may cost."""
    without = {
        load: fate.late_s for (load, crash), fate in zip(asked, fates, strict=True) if not crash
    }
    rows = []
    for (load, crash), fate in zip(asked, fates, strict=True):
        more_s = crash.lasts_s + INTERVAL_S if crash else 0.0
        before_s = LATER * without[load]
        rows.append({
            **asdict(load), "crash": crash and asdict(crash), **asdict(fate),
            "stopped": fate.crashed_in in STOPPED, "bar_s": round(before_s + more_s, 1),
        })  # fmt: skip
    return rows
