"""Damaged journals: entries restored bit for bit, replaced, or lost."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.control.state_store import MEMORY
from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records.journal import Entry, Journal, read
from dsp_gym.records.repair import check, repair

MIB = 2**20


def filled(folder: Path, entries: int = 12, segment_mib: float = 64) -> list[Entry]:
    with Journal(folder, segment_mib) as written:
        for i in range(entries):
            body = {"busy": i / 3, "vertices": [{"name": "JOIN", "parallelism": i}]}
            written.append("snapshot", 60.0 * i, "q11", None if i % 2 else "ds2", body)
    return list(read(folder))


def segment(folder: Path, number: int = 0) -> Path:
    return sorted(folder.glob("*.jsonl"))[number]


def flip(file: Path, position: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


def test_files_of_killed_writes_are_listed(tmp_path):
    filled(tmp_path)
    left = tmp_path / f".{MEMORY}.k3_x9yza.part"
    left.touch(0o600)
    os.utime(left, (0, 0))
    code, said = journal("check", tmp_path)
    assert code == 0
    assert left.name in said.replace("\n", "")
    assert left.exists()  # nothing is written


def journal(what: str, folder: object) -> tuple[int, str]:
    words = ["inspect", str(folder), *(["--repair"] if what == "repair" else [])]
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output


@pytest.mark.parametrize("seed", range(25))
def test_a_flipped_bit_anywhere_is_found_and_restored(tmp_path, seed):
    before = filled(tmp_path)
    file, drawn = segment(tmp_path), random.Random(seed)
    content = file.read_bytes()
    last_line = content.rstrip(b"\n").rfind(b"\n") + 1
    flip(file, drawn.randrange(last_line), drawn.randrange(8))
    with pytest.raises(SchemaError, match=r"Repair it: dsp-gym inspect .* --repair"):
        list(read(tmp_path))
    found = check(tmp_path)
    assert not found.is_sound
    assert [damage.lost for damage in found.damages] == [0]
    repair(tmp_path)
    assert list(read(tmp_path)) == before
    assert file.read_bytes() == content
    assert check(tmp_path).is_sound


@pytest.mark.parametrize("line", [0, 5, 11])
def test_the_end_of_a_line_is_restored_too(tmp_path, line):
    before = filled(tmp_path, 12)
    file = segment(tmp_path)
    ends = [i for i, byte in enumerate(file.read_bytes()) if byte == 0x0A]
    flip(file, ends[line], 0)
    repair(tmp_path)
    after = list(read(tmp_path))
    assert after == (before if line < 11 else before[:11])  # the last line is then a torn one


def test_a_character_that_became_the_end_of_a_line_is_restored(tmp_path):
    before = filled(tmp_path)
    file = segment(tmp_path)
    content = file.read_bytes()
    near = {0x0A ^ (1 << bit): bit for bit in range(8)}
    position = next(i for i, byte in enumerate(content) if byte in near)
    flip(file, position, near[content[position]])
    assert file.read_bytes().count(b"\n") == 13
    repair(tmp_path)
    assert list(read(tmp_path)) == before


def test_what_cannot_be_restored_is_replaced_under_its_number_and_kept_beside(tmp_path):
    before = filled(tmp_path)
    file = segment(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:20] + b"XXXXXXXX" + lines[4][28:]
    damaged = b"".join(lines)
    file.write_bytes(damaged)
    code, said = journal("check", tmp_path)
    assert code == 2
    assert f"{file.name} line 5: " in said
    assert "1 entries cannot" in said
    assert file.read_bytes() == damaged
    code, said = journal("repair", tmp_path)
    assert code == 0
    assert "0 entries restored, 1 replaced, 0 bytes cut off." in said
    after = list(read(tmp_path))
    assert after[:4] + after[5:] == before[:4] + before[5:]
    assert after[4].kind == "error"
    assert f"{file.name}.damaged holds its bytes" in after[4].body["reason"]
    assert (tmp_path / f"{file.name}.damaged").read_bytes() == damaged
    assert journal("check", tmp_path)[0] == 0
    with Journal(tmp_path) as again:
        assert again.append("error", 999.0, "q11", None, {}) == 12


def test_a_torn_tail_is_cut_off_and_said(tmp_path):
    before = filled(tmp_path)
    file = segment(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    code, said = journal("check", file)
    assert code == 0  # every reader leaves it out
    assert "the last line is torn" in said
    assert journal("repair", tmp_path)[0] == 0
    assert file.read_bytes().endswith(b"}\n")
    assert list(read(tmp_path)) == before[:11]


def test_damage_in_an_older_segment_is_repaired_there(tmp_path):
    before = filled(tmp_path, 40, segment_mib=1000 / MIB)
    for number in (1, 3):
        file = segment(tmp_path, number)
        flip(file, 40, 2)
    last = segment(tmp_path, 2)
    last.write_bytes(last.read_bytes()[:-30])  # cut short, and not the last
    found = repair(tmp_path)
    assert [damage.lost for damage in found.damages] == [0, 1, 0]
    after = list(read(tmp_path))
    assert len(after) == 40
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_a_missing_segment_is_said_and_nothing_is_made_up(tmp_path):
    filled(tmp_path, 40, segment_mib=1000 / MIB)
    segment(tmp_path, 2).unlink()
    found = check(tmp_path)
    assert not found.is_sound
    assert len(found.gaps) == 1
    assert found.damages == ()
    assert journal("repair", tmp_path)[0] == 2


def test_a_journal_that_is_written_is_not_repaired_and_can_be_checked(tmp_path):
    with Journal(tmp_path) as written:
        written.append("snapshot", 0.0, "q11", None, {})
        assert check(tmp_path).is_sound
        with pytest.raises(StorageError, match="another process writes"):
            repair(tmp_path)
    code, said = journal("check", tmp_path / "elsewhere")
    assert code == 2
    assert "holds no journal" in said


def test_what_a_restart_would_take_up_and_what_takes_up_space_is_listed(tmp_path):
    with Journal(tmp_path) as written:
        for number in range(2):
            steps = [
                ("asked", {"from": {}, "to": {}}),
                ("stopping", {"job_id": "a", "trigger_id": "b", "next_id": "c"}),
                ("savepoint", {"location": f"file:/savepoints/{number}", "seconds": 1.0}),
                ("reached", {}),
            ]
            for event, body in steps[: 4 - number]:
                written.append("actuation", 60.0 * number, "q", None, {"event": event, **body})
    (tmp_path / MEMORY).write_text("{")
    code, said = journal("check", tmp_path)
    assert code == 0
    assert "asked for at 1970-01-01 00:01:00 UTC has no end: its state is in" in said
    assert "savepoint of the last rescale, kept: file:/savepoints/1" in said
    assert "savepoint that nothing needs: file:/savepoints/0" in said
    assert "rests, counts and guardrails start over" in said
