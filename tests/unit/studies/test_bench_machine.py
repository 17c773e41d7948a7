"""The description of the machine behind a figure."""

import os
import time

import pytest

from dsp_gym.studies.bench import machine as measured


def test_cores_and_their_work_at_the_moment_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "PROBE_S", 0.05)
    found = measured.machine()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert int(found["hash_mib_per_s"]) > 0
    assert float(found["all_cores_over_one"]) > 0


def test_work_takes_the_asked_time_and_counts_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "PROBE_S", 0.02)
    blocks = measured.hashed_mib_per_s(2) * 0.02
    assert blocks == pytest.approx(round(blocks))
    assert blocks >= 2, "each thread hashes at least one block"


def test_waiting_counts_by_the_clock_and_not_as_processor_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured, "BENCH_WARM_UP_S", 0.0)
    monkeypatch.setattr(measured, "MINIMUM_S", 0.02)

    def once() -> int:
        time.sleep(0.005)
        return 1

    per_s, per_cpu_s = measured.measure_with_processor("naps", "naps/s", once, runs=2, bar=9.0)
    assert (per_s.unit, per_cpu_s.unit) == ("naps/s", "naps/CPU-s")
    assert per_s.median <= 200 < per_cpu_s.median
    assert (per_s.bar, per_cpu_s.bar) == (9.0, None)
