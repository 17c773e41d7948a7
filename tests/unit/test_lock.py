"""A folder has one writer; a killed writer blocks no other."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agents.seeds import stopped_by_interrupt
from dsp_gym.cli.errors import terminated_as_interrupted
from dsp_gym.config.temporary import only_writer
from dsp_gym.errors import DatasetError, StorageError

TAKEN = DatasetError("is taken")
HOLDER = """
import sys, time
from pathlib import Path
from dsp_gym.config.temporary import only_writer
with only_writer(Path(sys.argv[1]), RuntimeError("taken")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path):
    line = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(DatasetError, match="is taken"), only_writer(tmp_path, TAKEN):
            pytest.fail("two writers")
        first.kill()
        first.wait()
    with only_writer(tmp_path, TAKEN):
        pass


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with only_writer(tmp_path, TAKEN):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"), only_writer(tmp_path / "file" / "in", TAKEN):
        pytest.fail("written to")


def test_sigterm_lets_the_update_under_way_finish_as_ctrl_c_does():
    learner = SimpleNamespace(stop=False)
    with terminated_as_interrupted(), stopped_by_interrupt(learner):
        signal.raise_signal(signal.SIGTERM)
        assert learner.stop
        with pytest.raises(KeyboardInterrupt):  # the second one does not wait
            signal.raise_signal(signal.SIGTERM)
