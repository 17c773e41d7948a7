"""Full disks: no request to a job before its record is on disk."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.base import INTENTS
from dsp_gym.cli import app
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.journal_writer import JournalWriter, listener
from dsp_gym.control.modes import RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.turn import Hooks, Turn
from dsp_gym.errors import StorageError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import Status
from dsp_gym.records import journal as records
from dsp_gym.records.journal import Journal, read
from tests.living import Living

STEPS = ("savepoint", "stopped", "running")


class Asks:
    """A policy that wants two tasks of the map."""

    name = "asks"

    def reset(self, jobs, seeds, mask=None) -> None:
        pass

    def decide(self, snapshot) -> ScalingDecision:
        p = snapshot.parallelism.copy()
        p[:, 1] = 2
        return ScalingDecision(p, snapshot.memory_level.copy(), ("wants two",))

    def state(self) -> dict:
        return {}

    def restore(self, state: dict) -> None:
        pass


@pytest.fixture
def journal(tmp_path) -> Iterator[Journal]:
    with Journal(tmp_path) as written:
        yield written


@pytest.fixture
def living() -> Living:
    return Living()


def run_of(living: Living, journal: Journal, turns: list[Turn], **rest) -> JobAutoscaler:
    writer = JournalWriter(journal, "line", "asks", living.clock)
    return JobAutoscaler(
        living.backend, [GuardedPolicy(Asks())], writer, permission=Permission("active"),
        hooks=Hooks(on_turn=turns.append), **rest,
    )  # fmt: skip


def full(journal: Journal, limited_files) -> None:
    size = max(file.stat().st_size for file in journal.folder.glob("*.jsonl"))
    limited_files(size + 100)


def test_with_a_full_disk_a_change_is_held_and_asked_for_when_there_is_room(
    living, journal, limited_files
):
    turns: list[Turn] = []
    run = run_of(living, journal, turns)
    limited_files(100)
    run.run(steps=3)
    assert [turn.held_code for turn in turns] == ["journal"] * 3
    assert "the journal cannot be written" in turns[0].held
    assert run.held == turns[-1].held
    assert not living.asked
    assert not any(turn.asked for turn in turns)
    limited_files(None)
    run.turn()
    assert turns[-1].held is None
    assert len(living.asked) == 1
    last = [e for e in read(journal.folder) if e.body.get("event") == "decided"][-1]
    assert last.body["asked"]
    assert run.writer.decided == last.seq


def test_a_roll_back_waits_for_the_disk_too(living, journal, limited_files):
    turns: list[Turn] = []
    run = run_of(living, journal, turns, roll_back=RollBack(RollBackConfig(return_s=90)))
    decided = run.decide()
    living.status_shown = Status.RESTARTING
    run.finish(decided, 60)
    run.turn()
    full(journal, limited_files)
    run.run(steps=5)
    assert [turn.held_code for turn in turns[2:]] == ["journal"] * 3
    assert not living.taken_back
    limited_files(None)
    run.turn()
    assert turns[-1].held_code == "rolled_back"
    assert len(living.taken_back) == 1


def test_a_roll_back_waits_while_an_operator_has_stopped_all_acting(living, journal, tmp_path):
    turns: list[Turn] = []
    run = run_of(living, journal, turns, roll_back=RollBack(RollBackConfig(return_s=90)))
    stop = tmp_path / "STOP"
    run.permission._stop_file = stop
    decided = run.decide()
    living.status_shown = Status.RESTARTING  # the job does not come back
    stop.write_text("")
    run.finish(decided, 60)
    run.run(steps=5)
    assert turns[-1].held_code == "paused"
    assert turns[-1].held.startswith(f"stopped by the file {stop}; a roll-back waits: the job is")
    assert not living.taken_back
    stop.unlink()
    run.turn()
    assert turns[-1].held_code == "rolled_back"
    assert len(living.taken_back) == 1


def test_an_intent_is_synced_before_anything_is_asked(living, journal, monkeypatch):
    order: list[str] = []
    synced = records.os.fsync
    monkeypatch.setattr(records.os, "fsync", lambda fd: (synced(fd), order.append("synced")))
    writer = run_of(living, journal, []).writer
    writer.intent("asked", {"to": 2})
    order.append("asked")
    assert order == ["synced", "asked"]


def test_a_terminal_that_is_gone_stops_no_rescale_and_a_full_disk_does(
    living, journal, limited_files
):
    writer = run_of(living, journal, []).writer
    writer.decided = 7

    def closed(kind: str, body: dict) -> None:
        raise BrokenPipeError

    step = listener(writer, "asks", closed)
    step("asked", {"to": 2})
    (entry,) = read(journal.folder)
    assert entry.body == {"event": "asked", "to": 2, "decision": 7}
    full(journal, limited_files)
    step("running", {"text": "x" * 200})
    with pytest.raises(StorageError, match="cannot be written"):
        step("asked", {"to": 3})


def test_what_a_full_disk_keeps_out_of_the_journal_is_told_without_passwords(
    living, journal, limited_files
):
    writer, told = run_of(living, journal, []).writer, list[tuple[str, dict]]()
    step = listener(writer, "asks", lambda kind, body: told.append((kind, body)))
    limited_files(0)
    step("alarm", {"reason": "no slots", "remedy": 'curl -d \'["--db.password", "hunter2"]\''})
    assert [kind for kind, _ in told] == ["alarm", "not journaled"]
    assert told[1][1]["reason"].startswith("alarm {'reason': 'no slots'")
    assert "hunter2" not in str(told)


def test_what_was_done_while_the_disk_took_nothing_is_written_with_its_time(
    living, journal, limited_files
):
    run = run_of(living, journal, [])
    run.turn()
    full(journal, limited_files)
    for event in STEPS:
        living.sleep(1)
        run.writer.step(event, {"location": "x" * 200})
    assert run.writer.lost == 3
    with pytest.raises(StorageError, match="cannot be written"):
        run.writer.intent("asked", {})
    limited_files(None)
    run.run(steps=5)
    entries = list(read(journal.folder))
    found = [(e.body["event"], e.t_s) for e in entries if e.body.get("event") in STEPS]
    assert found == [(event, 61.0 + i) for i, event in enumerate(STEPS)]
    (said,) = (e.body["reason"] for e in entries if e.body.get("stage") == "journal")
    assert said.startswith("1 entries are missing")  # the intent that was refused
    assert run.writer.lost == 1


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(line, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def acted(folder: Path, *options: str) -> tuple[int, str, str]:
    line = ["shadow", "flink-wordcount", "diurnal", "--mode", "active", "--apply"]
    done = CliRunner().invoke(app, [*line, "--journal", str(folder), *options])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.slow
def test_on_a_disk_that_fills_the_command_holds_and_says_so_at_the_end(small_disk):
    code, said, errors = acted(small_disk / "journal", "--steps", "150")
    assert code == 2
    assert "held: the journal cannot be written" in said
    assert "No space left on device" in said
    assert "decisions were held for it" in errors
    told, summary = errors.splitlines()
    assert told.startswith("the journal cannot be written, and decisions are lost: ")
    assert "entries are missing in the journal" in summary
    entries = list(read(small_disk / "journal"))
    assert [e.seq for e in entries] == list(range(len(entries)))


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["by itself", "by SIGTERM"])
def test_a_shadow_on_a_disk_that_fills_counts_what_is_lost_and_does_not_end_well(small_disk, ended):
    """It acts on nothing, so nothing is held: 0 held alone would look like a good run."""
    line = [sys.executable, "-c", "from dsp_gym.cli import main; main()", "shadow"]
    line += ["shadow-wordcount", "diurnal", "--policies", "ds2"]
    line += ["--steps", "120"] if ended == "by itself" else ["--speed", "6000"]
    full = [*line, "--journal", str(small_disk / "journal")]
    process = subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = ""
    assert process.stderr is not None
    while "the journal cannot be written" not in told:
        told = process.stderr.readline()
        assert told, "it ended without a word"
    if ended == "by SIGTERM":
        process.terminate()
    said, errors = process.communicate(timeout=120)
    assert process.returncode == (2 if ended == "by itself" else 130)
    assert "No space left on device" in told
    found = re.search(r"0 held\. (\d+) entries are missing", said)
    assert found is not None
    assert f"{found.group(1)} entries are missing in the journal" in errors
    entries = read(small_disk / "journal")
    written = sum(entry.body.get("stage") != "journal" for entry in entries)
    if ended == "by itself":
        beside = small_disk.parent / "whole"
        whole = subprocess.run([*line, "--journal", str(beside)], capture_output=True, text=True)
        assert whole.returncode == 0
        assert "missing" not in whole.stdout
        assert written + int(found.group(1)) == len(list(read(beside)))


def test_on_a_disk_that_is_read_only_nothing_is_begun(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code, _, errors = acted(small_disk / "journal", "--steps", "3")
    assert code == 2
    assert "Read-only file system" in errors
    assert "Choose a folder on a disk that can be written to." in errors


def test_intents_are_the_steps_before_something_is_asked():
    assert frozenset(("asked", "stopping")) == INTENTS
    assert not INTENTS.intersection(STEPS)
