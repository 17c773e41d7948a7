"""A day of shadow mode with all kinds of faults: no crash, flat memory, nothing unexplained."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsp_gym.backends.simulated.connection import connect
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.incumbent import Incumbent
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.permission import Permission
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.exporter import Exporter
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.turn import Turn
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.registry import make
from dsp_gym.records.journal import Journal, read
from tests.fakes.troubled import TROUBLES, Troubled, TroubledPolicy

pytestmark = pytest.mark.slow

INTERVAL_S = 30
SLOTS_PER_H = 3600 // INTERVAL_S
SHARE = 0.15
"""Of the decisions something happens to."""


def resident_mib() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize(
    ("hours", "full_disks_per_h"), [(3, 4.0), pytest.param(24, 0.24, marks=pytest.mark.validate)]
)
def test_a_day_of_troubles_is_outlived_and_every_slot_decided_or_explained(
    tmp_path, limited_files, hours, full_disks_per_h
):
    slots = hours * SLOTS_PER_H
    rng = np.random.default_rng(0)
    spec = load_job("flink-wordcount")
    jobs = Troubled(
        connect(
            spec, "diurnal", WindowConfig(window_s=30, stabilization_s=20), apply=False, seed=1
        ),
        rng,
        SHARE,
    )
    troubled = TroubledPolicy(rng, SHARE)
    policies = [make("planner"), make("ds2-local"), make("flink-autoscaler"), troubled]
    seats = [GuardedPolicy(p, build_for(p, "deployed"), timeout_s=30.0) for p in policies]
    seats.append(GuardedPolicy(Incumbent()))
    turns: list[Turn] = []
    memory_mib: list[float] = []
    with Journal(tmp_path, segment_mib=1, max_mib=8) as journal:
        writer = JournalWriter(journal, "wordcount", None, jobs.now_s)
        run = JobAutoscaler(
            jobs, seats, writer, acting="troubled", interval_s=INTERVAL_S,
            permission=Permission("shadow"),
        )  # fmt: skip
        board = StatusBoard(run)
        exporter = Exporter(Boards(board))
        full_until = -1
        for slot in range(slots):
            if (
                slot > full_until and rng.random() < full_disks_per_h / SLOTS_PER_H
            ):  # a disk that is full for a while
                limited_files(1000)
                full_until = slot + int(rng.integers(1, 20))
            if slot == full_until:
                limited_files(None)
            turn = run.turn()
            board.decided(turn)
            turns.append(explained(turn))
            json.dumps(board.document())
            if (slot + 1) % (slots // 3) == 0:
                list(text_string_to_metric_families(exporter.text().decode()))
                memory_mib.append(resident_mib())
        limited_files(None)
    assert len(turns) == slots
    assert all(count > 0 for count in jobs.met.values()), jobs.met
    assert set(jobs.met) == set(TROUBLES)
    assert troubled.failures > slots / 28
    counted = sum(n for (name, _), n in board.counts.failures.items() if name == "troubled")
    assert counted == troubled.failures
    assert sum(board.counts.decisions.values()) > 0.8 * 4 * slots
    errors = board.counts.api_errors
    assert errors["prometheus", "Unreachable"] == jobs.met["prometheus is down"]
    assert errors["prometheus", "Timeout"] >= jobs.met["prometheus is slow"]
    assert errors["prometheus", "NoMetrics"] == jobs.met["metrics are stale"]
    assert errors["kubernetes", "Unreachable"] == jobs.met["the api server is down"]
    assert errors["flink", "NotFound"] == jobs.met["the job has failed"]
    # The first third loads what is loaded once.
    assert memory_mib[-1] - memory_mib[0] < 20, memory_mib
    size_mib = sum(f.stat().st_size for f in tmp_path.glob("*.jsonl")) / 2**20
    assert size_mib <= 8
    kept = list(read(tmp_path))
    assert len(kept) > 1000
    assert [e.seq for e in kept] == list(range(kept[0].seq, kept[0].seq + len(kept)))
    assert writer.lost > 0  # the disk was full


def explained(turn: Turn) -> Turn:
    """Asserts that a slot was decided for every policy, or that somebody says why not.

    A snapshot is large; of the turn only what is counted later is kept.
    """
    if turn.snapshot is None:
        assert turn.held
        assert turn.failures
    else:
        assert len(turn.judgements) == 5
        for one in turn.judgements:
            assert one.guarded.parallelism.min() >= 1
            if one.failure is not None:
                assert one.failure.reason
    assert not turn.asked
    return Turn(turn.number, turn.t_s, None, None, turn.held, turn.applied, None)
