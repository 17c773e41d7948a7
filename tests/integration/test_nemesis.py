"""A seeded nemesis against a real Flink, a real Prometheus and three processes of dsp-gym.

`make faults` plays it for an hour; any schedule is repeated with its seed.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nemesis.replicas import ROOT
from tests.nemesis.run import nemesis
from tests.nemesis.schedule import KINDS
from tests.real_flink import REAL_FLINK

pytestmark = [
    *REAL_FLINK,
    pytest.mark.skipif(
        not hasattr(resource, "prlimit"), reason="files can be limited on Linux only"
    ),
]

SEED = 370
ROUNDS_S = 45.0
"""No round begins later; all of it, with the cluster's start, takes less than two minutes."""


@pytest.mark.validate  # what it plays, other tests play one by one
def test_whatever_fails_nothing_is_lost_and_no_decision_is_written_twice(tmp_path):
    lines: list[str] = []
    outcome = nemesis(
        SEED, tmp_path / "nemesis", seconds=ROUNDS_S, rounds=len(KINDS), say=lines.append
    )
    assert outcome.trouble is None, "\n".join([*lines, f"everything is in {tmp_path}"])
    assert outcome.counts["records"] > 0
    assert outcome.counts["epochs"] >= 1
    assert outcome.counts["writes to the resource"] + outcome.counts["resubmissions"] > 0


@pytest.mark.validate
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_whatever_was_started_is_ended_with_it(tmp_path, name):
    line = [sys.executable, "-m", "tests.nemesis", "--seed", "1", "--folder", str(tmp_path)]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in process.stdout:
            if said.startswith("up after"):
                assert len(mentioning(tmp_path)) >= 6  # Flink's two, Prometheus, dsp-gym's three
                process.send_signal(signal.Signals[name])
                break
        assert "everything that was started has been ended" in process.stdout.read()
    assert process.returncode == 130
    assert mentioning(tmp_path) == []


def mentioning(folder: Path) -> list[str]:
    """Command lines of living processes in which a folder stands."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            said = file.read_bytes().decode(errors="replace").replace("\0", " ")
            if str(folder) in said and "tests.nemesis --seed" not in said:
                found.append(said)
    return found
