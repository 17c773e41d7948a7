"""`dsp-gym twins`: to the end of a journal, and beside the process that writes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.records.journal import Journal, read

REAL = "flink-q11-day"


def invoke(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def copied(entries, folder: Path) -> Journal:
    journal = Journal(folder)
    for entry in entries:
        journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
    return journal


def test_the_terminal_shows_every_policy_beside_the_incumbent_and_the_error():
    said = invoke("twins", REAL, "--seeds", 2)
    for name in ("incumbent", "learned", "ds2"):
        assert f"\n{name} " in said
    assert "since the start, 0.1 h" in said
    assert "the model of the incumbent: 0.2064 USD/h, observed 0.2064 USD/h" in said


def test_json_has_a_line_per_job(tmp_path):
    for name in ("a", "b"):
        copied(list(read(REAL)), tmp_path / name).close()
    documents = [
        json.loads(line) for line in invoke("twins", tmp_path, "--json", "--seeds", 2).splitlines()
    ]
    assert [one["schema"] for one in documents] == ["dsp-gym/twins/1"] * 2
    assert documents[0] == documents[1]
    assert documents[0]["intervals"] == 44
    assert not list(tmp_path.glob("*/twins.json"))  # nothing is followed


@pytest.mark.slow
def test_a_process_beside_the_writer_follows_it_until_it_is_interrupted(tmp_path):
    entries = list(read(REAL))
    command = [sys.executable, "-c", "from dsp_gym.cli import main; main()", "twins"]
    command += [str(tmp_path), "--every", "1", "--json", "--seeds", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        journal = copied(entries[: len(entries) // 2], tmp_path / "orders")
        first = json.loads(process.stdout.readline())
        for entry in entries[len(entries) // 2 :]:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
        document = first
        while document["intervals"] < 43:
            document = json.loads(process.stdout.readline())
        journal.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert json.loads((tmp_path / "orders" / "twins.json").read_text("utf-8")) == document
    assert first["intervals"] < 43
