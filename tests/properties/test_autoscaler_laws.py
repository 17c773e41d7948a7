"""Laws of Flink's autoscaler: its collector and its memory, for any samples."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from baselines.flink_autoscaler.answers import Trace
from baselines.flink_autoscaler.numbers import ceil2, ceiling_text, round3
from baselines.flink_autoscaler.scaler import align, delay
from baselines.flink_autoscaler.settings import (
    BALANCED,
    EVENLY,
    LEGACY_EVENLY,
    LEGACY_MAXIMIZE,
)
from baselines.flink_autoscaler.state import Memory
from baselines.flink_autoscaler.window import average, observed_rate

WINDOW_MS, STABLE_MS = 180_000, 60_000
CONF = {
    "job.autoscaler.enabled": "true",
    "job.autoscaler.metrics.window": "3 min",
    "job.autoscaler.stabilization.interval": "1 min",
    "job.autoscaler.scale-down.interval": "0 s",
}


def tick(now: int, running: int, read: float, *, lag: float = 0.0, parallelism: int = 4) -> dict:
    """What Flink reports of one source at a moment."""
    per_s = {"sum": 100.0}
    return {
        "now_ms": now,
        "job_running_ts_ms": running,
        "vertices": [
            {
                "name": "s", "parallelism": parallelism, "max_parallelism": 128,
                "io_metrics": {"num_records_in": 0, "num_records_out": read,
                               "accumulated_busy_time_ms": read},
            }
        ],
        "flink_metrics": {
            "s": {
                "busyTimeMsPerSecond": {"max": 500.0, "avg": 500.0, "min": 500.0},
                "backPressuredTimeMsPerSecond": {"avg": 0.0},
                "Source__s.numRecordsIn": {"sum": read},
                "Source__s.numRecordsInPerSecond": per_s,
                "Source__s.pendingRecords": {"sum": lag},
            }
        },
    }  # fmt: skip


@given(
    gaps=st.lists(st.integers(5_000, 90_000), min_size=3, max_size=40),
    restart=st.integers(0, 39),
)
def test_the_window_refills_after_a_restart(gaps, restart):
    run, now, running = Trace({"conf": CONF, "ticks": gaps}), 0, 0
    samples: list[int] = []
    for i, gap in enumerate(gaps):
        now += gap
        if i == restart:
            running = now - gap // 2
            samples = []
        fresh = [t for t in samples if t >= running + STABLE_MS]
        full = now >= (fresh[0] if fresh else now) + WINDOW_MS
        samples.append(now)
        if full:
            samples = [t for t in samples if t >= now - WINDOW_MS]
        out = run.tick(tick(now, running, 0.1 * (now - running)))
        assert out["window_samples"] == len(samples)
        assert (out["scaled"] or out["balanced"]) == full
        if full:
            # Nothing is decided before the stabilisation and a whole window have passed.
            assert now - running >= STABLE_MS + WINDOW_MS


@given(before=st.floats(1e3, 1e6), rate=st.floats(1.0, 1e4), steps=st.integers(2, 12))
def test_counters_that_start_at_zero_after_a_restart_do_not_become_rates(before, rate, steps):
    run = Trace({"conf": CONF, "ticks": [0] * 40})
    for i in range(1, 6):
        run.tick(tick(30_000 * i, 0, before * i))
    running = 165_000
    for i in range(1, steps + 1):
        now = running + 30_000 * i
        out = run.tick(tick(now, running, rate * 30.0 * i))
        assert not out["error"]
        if i >= 2:
            target = out["evaluated"]["s"]["TARGET_DATA_RATE"]["average"]
            assert target == pytest.approx(rate, rel=1e-6, abs=1e-3)


@given(
    lags=st.lists(st.sampled_from([0.0, 2999.0, 3000.0, 1e6]), min_size=1, max_size=25),
    per_s=st.just(100.0),
)
def test_an_observed_rate_is_carried_as_the_average_of_the_window(lags, per_s):
    """100/s with 30 s of lag or more is catching up; otherwise the past's average stands."""
    seen: list[float] = []
    run = Trace({"conf": CONF, "ticks": lags})
    for i, lag in enumerate(lags):
        past = np.array(seen).reshape(-1, 1, 1)
        catching_up = lag >= 30.0 * per_s
        expected = per_s if catching_up else average(past, 0, 0, 2)
        run.tick(tick(1_000 * (i + 1), 0, 100.0 * i, lag=lag))
        assert run.job is not None
        found = run.job.last_sample()["s"]["OBSERVED_TPR"]
        assert found == pytest.approx(expected, nan_ok=True)
        seen.append(found)


@given(
    rate=st.floats(0.1, 1e6), back=st.floats(0, 1200), lag=st.floats(0, 1e9), past=st.floats(1, 1e6)
)
def test_an_observed_rate_is_never_below_what_was_read(rate, back, lag, past):
    found = observed_rate(rate, lag, back, 30.0, past)
    if lag >= 30.0 * rate and back < 1000:
        assert found >= rate
    else:
        assert found == past


@given(
    wanted=st.lists(st.tuples(st.integers(1, 50_000), st.integers(1, 40)), max_size=60),
    interval=st.integers(1, 400_000),
)
def test_a_delayed_scale_down_takes_the_largest_of_its_interval(wanted, interval):
    delayed = Memory(1, 1, 4, 64).delayed
    now, told = 0, []
    for gap, parallelism in wanted:
        now += gap
        told.append((now, parallelism, bool(parallelism % 2)))
        found, outside = delay(delayed, 0, 0, now, interval, parallelism, bool(parallelism % 2))
        inside = [t for t in told if t[0] >= now - interval]
        if now - interval < told[0][0]:
            assert found == 0
        else:
            largest = max(t[1] for t in inside)
            assert found == largest
            assert outside == next(t[2] for t in reversed(inside) if t[1] == largest)


@given(
    p=st.integers(1, 60), new=st.integers(1, 60), groups=st.integers(1, 400),
    partitions=st.integers(0, 80),
    mode=st.sampled_from([LEGACY_EVENLY, LEGACY_MAXIMIZE, BALANCED, EVENLY]),
)  # fmt: skip
def test_alignment_never_turns_a_direction_around(p, new, groups, partitions, mode):
    new = min(new, groups)
    found, limited = align(p, new, partitions, groups, 1, 200, mode)
    assert 1 <= found <= max(p, groups)
    if new > p:
        assert found >= p
    elif new < p:
        assert found <= p
    else:
        assert found == p
    assert not (limited and mode in (BALANCED, EVENLY))
    spread = partitions or groups
    if found not in (p, new) and not limited:
        assert spread % found == 0 or spread // found < spread // new


def text_rounded(x: float) -> float:
    """Half up on the shortest decimal text, as Java rounds."""
    rounded = float(Decimal(repr(x)).quantize(Decimal("0.001"), ROUND_HALF_UP))
    return x if rounded == 0 else rounded


@given(st.floats(-1e11, 1e11) | st.integers(-(10**8), 10**8).map(lambda n: n / 10_000))
@example(1.0005)
@example(0.0005)
@example(-2.0015)
@example(123456.7895)
def test_rounding_equals_rounding_of_the_decimal_text(x):
    assert round3(x) == text_rounded(x)


@given(st.floats(0.001, 1.0) | st.integers(1, 10_000).map(lambda n: n / 10_000))
def test_rounding_up_equals_rounding_up_of_the_decimal_text(x):
    text = Decimal(repr(x))
    assert ceil2(x) == float(text.quantize(Decimal("0.01"), ROUND_CEILING))
    assert float(ceiling_text(x)) == float(text.quantize(Decimal("0.001"), ROUND_CEILING))
