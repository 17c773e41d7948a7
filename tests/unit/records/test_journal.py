"""A journal keeps synced entries, finds damage, and continues after its last entry."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records import journal
from dsp_gym.records.journal import JOURNAL_SCHEMA, Entry, Journal, read

MIB = 2**20


def filled(folder: Path, entries: int, segment_mib: float = 64) -> list[Entry]:
    with Journal(folder, segment_mib) as written:
        for i in range(entries):
            written.append("snapshot", 5.0 * i, "q11", None if i % 2 else "ds2", {"busy": i / 3})
    return list(read(folder))


def only_segment(folder: Path) -> Path:
    (segment,) = folder.glob("*.jsonl")
    return segment


def test_entries_come_back_as_they_were_written(tmp_path):
    entries = filled(tmp_path, 3)
    assert [e.seq for e in entries] == [0, 1, 2]
    assert entries[2] == Entry(2, 10.0, "q11", "snapshot", "ds2", {"busy": 2 / 3})
    assert entries[1].policy is None


def test_a_line_is_canonical_json_with_the_crc32_of_the_rest(tmp_path):
    filled(tmp_path, 1)
    line = only_segment(tmp_path).read_text(encoding="ascii")
    document = json.loads(line)
    found = document.pop("crc32")
    rest = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert found == zlib.crc32(rest.encode())
    assert document["schema"] == JOURNAL_SCHEMA
    assert line.endswith("}\n")
    assert " " not in line


def test_numbers_json_does_not_know_become_null_and_arrays_lists(tmp_path):
    with Journal(tmp_path) as written:
        written.append("outcome", 0, "q1", None, {"a": np.array([1.0, np.nan]), "b": np.int64(3)})
    (entry,) = read(tmp_path)
    assert entry.body == {"a": [1.0, None], "b": 3}


@pytest.mark.parametrize("kind", ["snapshot", "decision", "guard", "outcome"])
def test_a_line_is_the_same_whether_its_body_is_plain_or_not(tmp_path, kind):
    bodies = [
        {"b": {"y": 1, "x": [1.5, None, True, "ä"]}, "a": 2.0},
        {"b": {"y": np.int64(1), "x": (1.5, np.nan, True, "ä")}, "a": np.float64(2.0)},
    ]
    for n, body in enumerate(bodies):
        with Journal(tmp_path / str(n)) as written:
            written.append(kind, 3.0, "q1", "ds2", body)
    first, second = (only_segment(tmp_path / str(n)).read_bytes() for n in range(2))
    assert first == second
    assert json.dumps(json.loads(first), sort_keys=True, separators=(",", ":")) == (
        first.decode("ascii").rstrip()
    )


def test_a_journal_is_gone_on_with(tmp_path):
    filled(tmp_path, 2)
    with Journal(tmp_path) as again:
        assert again.dropped_bytes == 0
        assert again.append("error", 99.0, "q11", None, {"message": "Zürich"}) == 2
    assert [e.seq for e in read(tmp_path)] == [0, 1, 2]


def test_only_its_owner_reads_a_journal_also_one_of_an_earlier_release(tmp_path):
    filled(tmp_path, 50, segment_mib=1000 / MIB)
    assert {s.stat().st_mode & 0o777 for s in tmp_path.glob("*.jsonl")} == {0o600}
    for segment in tmp_path.glob("*.jsonl"):
        segment.chmod(0o644)
    filled(tmp_path, 1)
    assert {s.stat().st_mode & 0o777 for s in tmp_path.glob("*.jsonl")} == {0o600}


def test_segments_end_before_the_limit_and_read_as_one(tmp_path):
    entries = filled(tmp_path, 50, segment_mib=1000 / MIB)
    segments = sorted(tmp_path.glob("*.jsonl"))
    assert len(segments) > 5
    assert all(s.stat().st_size <= 1000 for s in segments)
    assert [e.seq for e in entries] == list(range(50))


def test_a_missing_segment_is_an_error_that_names_the_next(tmp_path):
    filled(tmp_path, 50, segment_mib=1000 / MIB)
    segments = sorted(tmp_path.glob("*.jsonl"))
    segments[2].unlink()
    with pytest.raises(SchemaError, match=f"{segments[3].name}.*a segment is missing"):
        list(read(tmp_path))


def test_a_changed_byte_in_the_middle_is_an_error_that_names_file_and_line(tmp_path):
    filled(tmp_path, 4)
    segment = only_segment(tmp_path)
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"t_s":5.0', b'"t_s":6.0')
    segment.write_bytes(b"".join(lines))
    with pytest.raises(SchemaError, match=rf"{segment.name}: line 2 is damaged.*crc32"):
        list(read(tmp_path))
    with pytest.raises(SchemaError, match="line 2"):
        Journal(tmp_path)


def test_another_version_is_refused(tmp_path):
    filled(tmp_path, 2)
    segment = only_segment(tmp_path)
    segment.write_bytes(segment.read_bytes().replace(b"journal/1", b"journal/2"))
    with pytest.raises(SchemaError, match=r"journal/2.*reads 'dsp-gym/journal/1'"):
        list(read(tmp_path))


def test_zeros_a_crash_left_behind_the_last_line_are_dropped(tmp_path):
    filled(tmp_path, 2)
    with only_segment(tmp_path).open("ab") as stream:
        stream.write(b"\0" * 4096)
    with Journal(tmp_path) as again:
        assert again.dropped_bytes == 4096
        assert again.append("error", 99.0, "q11", None, {}) == 2


def test_a_decision_is_synced_once_and_even_when_it_fails(tmp_path, monkeypatch):
    synced: list[int] = []
    written = Journal(tmp_path)
    monkeypatch.setattr(journal.os, "fsync", synced.append)
    with written.decision():
        written.append("snapshot", 0, "q1", None, {})
        written.append("decision", 0, "q1", "ds2", {})
        assert synced == []
    assert len(synced) == 1
    with pytest.raises(SchemaError), written.decision():
        _ = [written.append(kind, 60, "q1", None, {}) for kind in ("snapshot", "unknown")]
    assert len(synced) == 2
    assert len(list(read(tmp_path))) == 3
    written.append("error", 60, "q1", None, {})
    assert len(synced) == 3
    written.close()


def test_a_second_writer_is_kept_out_until_the_first_one_closes(tmp_path):
    first = Journal(tmp_path)
    with pytest.raises(StorageError, match="another process writes"):
        Journal(tmp_path)
    first.close()
    first.close()
    Journal(tmp_path).close()
    with pytest.raises(StorageError, match="was closed"):
        first.append("error", 0, "q1", None, {})


def test_a_journal_can_be_read_while_it_is_written(tmp_path):
    with Journal(tmp_path) as written:
        written.append("snapshot", 0, "q1", None, {})
        assert len(list(read(tmp_path))) == 1
        written.append("snapshot", 5, "q1", None, {})
        assert len(list(read(tmp_path))) == 2


def test_an_unknown_kind_and_an_empty_folder_are_refused(tmp_path):
    with (
        Journal(tmp_path) as written,
        pytest.raises(SchemaError, match="no entries of kind 'rescale'"),
    ):
        written.append("rescale", 0, "q1", None, {})  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="holds no journal"):
        list(read(tmp_path / "elsewhere"))


@given(data=st.data(), entries=st.integers(1, 8), segment=st.sampled_from([150, 500, MIB]))
def test_cut_at_any_byte_it_loses_at_most_the_last_line(tmp_path_factory, data, entries, segment):
    folder = tmp_path_factory.mktemp("journal")
    before = filled(folder, entries, segment / MIB)
    last = sorted(folder.glob("*.jsonl"))[-1]
    whole = last.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    last.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    kept = before[: entries - whole.count(b"\n") + complete]
    assert list(read(folder)) == kept
    with Journal(folder, segment / MIB) as again:
        assert again.dropped_bytes == cut - len(b"".join(whole.splitlines(True)[:complete]))
        assert again.append("error", 1.5, "q1", None, {"cut": cut}) == len(kept)
    after = list(read(folder))
    assert after[:-1] == kept
    assert after[-1].body == {"cut": cut}


def test_a_journal_bounded_in_size_drops_its_oldest_segments(tmp_path):
    with Journal(tmp_path, max_mib=4000 / MIB) as written:
        for i in range(200):
            written.append("snapshot", float(i), "q11", None, {"busy": i / 3})
            assert sum(s.stat().st_size for s in tmp_path.glob("*.jsonl")) <= 4000
    entries = list(read(tmp_path))
    assert 10 < len(entries) < 200
    assert [e.seq for e in entries] == list(range(200 - len(entries), 200))
    with Journal(tmp_path, max_mib=4000 / MIB) as again:
        assert again.append("error", 1.0, "q11", None, {}) == 200


@pytest.mark.parametrize("segment_mib", [MIB, 700 / MIB])
def test_a_disk_that_refuses_loses_what_was_not_synced_and_nothing_else(
    tmp_path, limited_files, segment_mib
):
    with Journal(tmp_path, segment_mib) as written:
        kept = [written.append("snapshot", float(i), "q11", None, {"i": i}) for i in range(4)]
        size = max(s.stat().st_size for s in tmp_path.glob("*.jsonl"))
        limited_files(min(size + 60, 400))
        with pytest.raises(OSError, match="large"):
            a_long_decision(written)
        assert [e.seq for e in read(tmp_path)][: len(kept)] == kept
        with pytest.raises(OSError, match="until it has recovered"):
            written.append("decision", 9.0, "q11", "ds2", {})
        limited_files(None)
        assert written.recover() >= 0
        assert written.append("error", 10.0, "q11", None, {"lost": True}) == 4
    assert [e.seq for e in read(tmp_path)] == [*kept, 4]


def a_long_decision(written: Journal) -> None:
    with written.decision():
        for _ in range(8):
            written.append("decision", 9.0, "q11", "ds2", {"text": "x" * 100})


def test_a_journal_whose_disk_stays_full_can_still_be_closed(tmp_path, limited_files):
    written = Journal(tmp_path)
    written.append("snapshot", 0.0, "q11", None, {})
    limited_files(100)
    with pytest.raises(OSError, match="large"):
        written.append("snapshot", 1.0, "q11", None, {"text": "x" * 400})
    written.close()
    limited_files(None)
    assert [e.seq for e in read(tmp_path)] == [0]
    Journal(tmp_path).close()


def test_a_journal_that_need_not_last_is_not_waited_for_and_reads_alike(tmp_path, monkeypatch):
    synced = []
    with Journal(tmp_path, durable=False) as written:
        monkeypatch.setattr(journal.os, "fsync", synced.append)
        for i in range(3):
            with written.decision():
                written.append("snapshot", float(i), "q11", None, {})
        assert [e.seq for e in read(tmp_path)] == [0, 1, 2]
    assert not synced
