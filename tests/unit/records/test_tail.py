"""A growing journal, read while it is written."""

from __future__ import annotations

import pytest

from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records.journal import Journal, segments_of
from dsp_gym.records.tail import JournalTail


def numbers(tail: JournalTail) -> list[int]:
    return [entry.seq for entry in tail.entries()]


def add(journal: Journal, times: int = 1) -> None:
    for _ in range(times):
        journal.append("snapshot", 1.0, "q", None, {"text": "x" * 400})


def test_each_call_gives_what_came_since_the_last_one(tmp_path):
    tail = JournalTail(tmp_path)
    with pytest.raises(StorageError, match="holds no journal"):
        numbers(tail)
    with Journal(tmp_path, segment_mib=0.002) as journal:
        add(journal, 3)
        assert numbers(tail) == [0, 1, 2]
        assert numbers(tail) == []
        add(journal, 9)  # over several segments
        assert len(segments_of(tmp_path)) > 2
        assert numbers(tail) == list(range(3, 12))


def test_a_line_that_is_being_written_is_left_for_the_next_call(tmp_path):
    with Journal(tmp_path) as journal:
        add(journal, 2)
    (segment,) = segments_of(tmp_path)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-20])
    tail = JournalTail(tmp_path)
    assert numbers(tail) == [0]
    segment.write_bytes(whole)
    assert numbers(tail) == [1]


def test_what_was_cut_off_or_dropped_makes_it_begin_anew(tmp_path):
    with Journal(tmp_path, segment_mib=0.002) as journal:
        add(journal, 8)
        tail = JournalTail(tmp_path)
        assert numbers(tail) == list(range(8))
        segments_of(tmp_path)[0].unlink()
        assert numbers(tail) == []
        assert tail.begins_anew
        first = int(segments_of(tmp_path)[0].stem.removeprefix("journal-"))
        assert numbers(tail) == list(range(first, 8))
        assert not tail.begins_anew
    last = segments_of(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-30])  # the writer cut off what it had not synced
    assert numbers(tail) == []
    assert tail.begins_anew
    assert numbers(tail)[-1] == 6


def test_a_damaged_line_is_an_error_at_the_second_look(tmp_path):
    with Journal(tmp_path) as journal:
        add(journal, 3)
    (segment,) = segments_of(tmp_path)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1].replace(b"xx", b"xy", 1) + lines[2])
    tail = JournalTail(tmp_path)
    assert numbers(tail) == [0]
    assert tail.begins_anew
    with pytest.raises(SchemaError, match=r"is damaged: its crc32 does not match.*repair"):
        numbers(tail)
