"""The operator's plugin with a running dsp-gym: the target of one is the action of the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.operator_loop import (
    MAP,
    SINK,
    SOURCE,
    Autoscaler,
    autoscaler,
    compiled,
    cycle,
    options,
    vertex,
)
from tests.real_flink import REAL_FLINK

pytestmark = REAL_FLINK

ROOT = Path(__file__).resolve().parents[2]

SLACK_MS = 5000.0


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaler]:
    made = compiled(tmp_path_factory.mktemp("classes"))
    with autoscaler(made, tmp_path_factory.mktemp("operator")) as running:
        yield running


@contextmanager
def served(folder: Path, guardrails: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves decisions, and its address."""
    line = [sys.executable, "-m", "tests.served_gym", str(folder), guardrails]
    process = subprocess.Popen(
        line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


@contextmanager
def frozen(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stop a process; until all its threads have stopped, it could still answer."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    folder = tmp_path_factory.mktemp("gym")
    with served(folder, "none") as (process, url):
        yield process, url, folder / "token"


def graph(tasks: int = 4, busy: float = 0.9) -> list[dict]:
    """A job whose middle is busy and whose end is not."""
    return [
        vertex(SOURCE, rate=8000, busy=0.1),
        vertex(MAP, [SOURCE], rate=8000, out=2000, busy=busy, tasks=tasks),
        vertex(SINK, [MAP], rate=2000, busy=0.05, tasks=4, ship="HASH"),
    ]


def wanted(done: dict, job: str) -> dict[str, float]:
    """What dsp-gym would run, as the plugin's gauges tell."""
    path = f"{job}.AutoScaler.jobVertexID"
    return {
        one: done["gauges"][f"{path}.{one}.DSP_GYM_PARALLELISM.Current"]
        for one in (SOURCE, MAP, SINK)
    }


def warm(loop: Autoscaler, url: str, token: Path, policy: str, job: str) -> None:
    """The first answer of a policy takes longer: it loads, and may have to compile."""
    given = options(url, token, "policy", policy=policy)
    begun_s = int(time.time()) - 20_000.0
    led = 0
    for k in range(200):
        (done,) = loop.run(cycle(given, graph(), job=job, t_s=begun_s + 60 * k))
        led += has_led(done, job)
        if led == 3:
            return
    raise AssertionError("dsp-gym does not answer")


def has_led(done: dict, job: str) -> int:
    """1 where dsp-gym answered; after another answer it has a moment, to compile or to plan."""
    leads: int = done["gauges"][f"{job}.AutoScaler.DspGym.Leads"]
    if not leads:
        time.sleep(0.5)
    return leads


@pytest.mark.parametrize("policy", ["ds2", "planner"])
def test_in_mode_policy_every_vertex_goes_where_dsp_gym_wants_it(loop, unguarded, policy):
    _, url, token = unguarded
    job = f"flink/{policy}"
    warm(loop, url, token, policy, job)
    moved = set()
    now_s = int(time.time()) - 3000.0
    running, since_s = graph(), now_s - 1500
    led = 0
    for k in range(40):
        for one in running:  # the job runs what was asked for
            one["rates"]["ACCUMULATED_BUSY_TIME"] = 1000.0 * one["gauges"]["LOAD"] * 4
        given = options(url, token, "policy", policy=policy)
        (done,) = loop.run(cycle(given, running, job=job, t_s=now_s + 60 * k, since_s=since_s))
        if not has_led(done, job):
            continue
        led += 1
        assert done["recommended"] == wanted(done, job)
        assert done["applied"] == {
            one["id"]: done["recommended"][one["id"]]
            for one in running
            if done["recommended"][one["id"]] != one["parallelism"]
        }
        moved |= set(done["applied"].items())
        since_s = now_s + 60 * k - 120 if done["applied"] else since_s
        tasks = done["recommended"]
        running = graph(busy=min(1.0, 0.9 * 4 / tasks[MAP]))
        for one in running:
            one["parallelism"] = tasks[one["id"]]
        if led == 10:
            break
    assert led == 10
    assert len(moved) >= 2


def test_deployed_guardrails_are_kept(loop, tmp_path):
    with served(tmp_path, "deployed") as (_, url):
        warm(loop, url, tmp_path / "token", "ds2", "flink/guarded")
        given = options(url, tmp_path / "token", "policy", policy="ds2")
        now_s = int(time.time()) - 3000.0
        for k in range(40):
            (done,) = loop.run(cycle(given, graph(), job="flink/guarded", t_s=now_s + 60 * k))
            if has_led(done, "flink/guarded"):
                break
        assert done["recommended"] == wanted(done, "flink/guarded")


def test_a_frozen_dsp_gym_leaves_the_built_in_decision_in_time(loop, unguarded):
    process, url, token = unguarded
    job = "flink/frozen"
    warm(loop, url, token, "ds2", job)
    busy = graph(busy=1.0)
    busy[0]["gauges"]["LAG"] = 1e6
    now_s = int(time.time()) - 3000.0
    given = options(url, token, "policy", policy="ds2", timeout="200 ms")
    (plain,) = loop.run(cycle({k: given[k] for k in given if "evaluator" not in k}, busy, job=job))
    with frozen(process):
        for k in range(5):
            (done,) = loop.run(cycle(given, busy, job=job, t_s=now_s + 60 * k))
            assert done["recommended"] == plain["recommended"]
            assert done["applied"] == plain["applied"]
            assert max(done["took_ms"]) < 200 + SLACK_MS
    warm(loop, url, token, "ds2", "flink/thawed")


def test_the_planner_forecasts_and_counts_once_it_has_been_right(loop, unguarded):
    _, url, token = unguarded
    job = "flink/forecast"
    warm(loop, url, token, "planner", "flink/warm")
    start_s = int(time.time()) - 15_000.0
    given = options(url, token, "forecast", policy="planner")
    path = f"{job}.AutoScaler.jobVertexID.{SOURCE}.DSP_GYM_FORECAST_DATA_RATE.Current"
    seen = []
    for k in range(200):
        now_s = start_s + 60 * k
        (done,) = loop.run(cycle(given, graph(), job=job, t_s=now_s, since_s=start_s - 1500))
        forecast = done["gauges"][path]
        target = done["evaluated"][SOURCE]["TARGET_DATA_RATE"][1]
        if forecast is None:
            time.sleep(0.5)
            continue
        seen.append((forecast, target))
        if target > 8000:
            break
    assert [target for _, target in seen[:-1]] == [8000] * (len(seen) - 1)
    assert len(seen) > 20  # until some were checked
    assert seen[-1][1] == pytest.approx(seen[-1][0], abs=1e-3)
