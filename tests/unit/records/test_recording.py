"""A recording is complete after every run, lists its gaps, and is reproducible."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.errors import ConfigError, MissingExtraError, SchemaError, StorageError
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples
from dsp_gym.records import parquet
from dsp_gym.records.manifest import Event, RecordedLoad, RecordingManifest
from dsp_gym.records.recording import Recording, gaps_in
from dsp_gym.records.writer import EndedRun, RecordingWriter, machine
from tests.simulating import exact, keyed

SPEC = keyed()
START = Configuration.of_spec(SPEC)
LOAD = RecordedLoad(name="steady", steps=((0, 100.0),))


def some_samples(since_s: float, until_s: float, value: float = 1.0) -> Samples:
    return Samples.of(
        (t_s, vertex.name, 0, "busy_ms_per_s", value)
        for t_s in np.arange(since_s + 5, until_s + 1, 5.0).tolist()
        for vertex in SPEC.vertices
    )


def add(writer: RecordingWriter, name: str, since_s: float = 0.0, **rest) -> None:
    until_s = since_s + 40
    samples = rest.pop("samples", some_samples(since_s, until_s))
    truth = rest.pop("truth", None)
    times = {"t_begin_s": since_s, "t_load_s": since_s, "t_running_s": since_s, "t_end_s": until_s}
    run = EndedRun(**{"name": name, "configuration": START, "load": LOAD, **times, **rest})
    began = Event(t_s=since_s + 1, run=name, kind="running", body={"p": since_s})
    writer.add(run, samples, [began], truth)


@pytest.fixture
def writer(tmp_path) -> RecordingWriter:
    return RecordingWriter.create(tmp_path / "r", SPEC, {"flink": "2.1.0"}, started_unix_s=1e9)


def test_a_run_comes_back_as_it_was_written(writer):
    add(writer, "a")
    recording = Recording.open(writer.folder)
    run = recording.run("a")
    assert recording.spec == SPEC == run.spec
    assert run.configuration == START
    assert run.load == LOAD
    assert run.complete
    assert recording.notes() == []
    assert recording.environment["flink"] == "2.1.0"
    assert recording.environment["machine"] == machine()
    assert recording.manifest.started_unix_s == 1e9
    assert [event.kind for event in run.events] == ["running"]
    assert list(run.samples().rows()) == list(some_samples(0, 40).rows())
    assert run.samples().between(10, 20).t_s.tolist() == [15, 15, 15, 20, 20, 20]
    assert recording.truth() is None


def test_unknown_values_stay_unknown(writer):
    add(writer, "a", samples=some_samples(0, 40, float("nan")))
    assert np.isnan(Recording.open(writer.folder).run("a").samples().value).all()


def test_a_run_can_be_read_in_parts(writer, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 7)
    add(writer, "a")
    parts = list(Recording.open(writer.folder).run("a").stream())
    assert [len(part) for part in parts] == [7, 7, 7, 3]
    rows = [row for part in parts for row in part.rows()]
    assert rows == list(some_samples(0, 40).rows())


def test_the_same_samples_give_the_same_bytes(tmp_path):
    found = []
    for name in ("one", "two"):
        writer = RecordingWriter.create(tmp_path / name, SPEC, {})
        add(writer, "a")
        found.append(writer.manifest.runs[0].sha256)
    assert found[0] == found[1]
    add(writer, "b", samples=some_samples(0, 40, 2.0))
    assert writer.manifest.runs[1].sha256 != found[0]


def test_a_folder_that_is_not_empty_is_not_overwritten(writer, tmp_path):
    with pytest.raises(StorageError, match="is not empty"):
        RecordingWriter.create(writer.folder, SPEC, {})
    with pytest.raises(StorageError, match=r"no manifest.json.*dsp-gym record"):
        Recording.open(tmp_path)


def test_another_version_is_refused(writer):
    file = writer.folder / "manifest.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"schema": "dsp-gym/recording/2"}))
    with pytest.raises(SchemaError, match=r"recording/2.*reads 'dsp-gym/recording/1'"):
        Recording.open(writer.folder)


def test_a_gap_is_told_and_the_run_still_opens(writer):
    kept = [row for row in some_samples(0, 40).rows() if not 10 < row[0] < 35]
    add(writer, "a", samples=Samples.of(kept))
    recording = Recording.open(writer.folder)
    assert recording.notes() == ["run 'a': no samples from 10 to 35 s"]
    assert len(recording.run("a").samples()) == len(kept)
    assert gaps_in(Samples.of(()), 0, 40) == ((0.0, 40.0),)


def test_an_aborted_run_is_kept_and_marked(writer):
    add(writer, "a.failed-1", cause="no slots", t_running_s=None, samples=Samples.of(()))
    add(writer, "a", since_s=50.0, attempt=2)
    recording = Recording.open(writer.folder)
    assert [run.name for run in recording.complete_runs()] == ["a"]
    assert recording.notes() == ["run 'a.failed-1' was aborted: no slots"]
    assert np.isnan(recording.run("a.failed-1").t_running_s)
    assert len(recording.run("a.failed-1").samples()) == 0
    assert writer.names() == {"a"}


def test_a_lost_file_costs_its_run_only_and_can_be_recorded_again(writer):
    add(writer, "a")
    add(writer, "b", since_s=50.0)
    (writer.folder / "samples" / "a.parquet").unlink()
    recording = Recording.open(writer.folder)
    assert [run.name for run in recording.complete_runs()] == ["b"]
    assert recording.notes() == ["run 'a' was aborted: samples/a.parquet is missing"]
    with pytest.raises(StorageError, match="run 'a' has no samples"):
        recording.run("a").samples()
    again = RecordingWriter.resume(writer.folder)
    assert again.names() == {"b"}
    add(again, "a", since_s=100.0)
    run = Recording.open(writer.folder).run("a")
    assert [event.body["p"] for event in run.events] == [100.0]  # not the lost run's


def test_a_changed_file_is_noticed(writer):
    add(writer, "a")
    file = writer.folder / "samples" / "a.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match=r"a.parquet.*sha256 differs"):
        Recording.open(writer.folder).run("a").samples()


@pytest.mark.parametrize("crash_before", ["samples/b.parquet", "events.jsonl", "manifest.json"])
def test_a_crash_while_a_run_is_added_leaves_the_runs_before_it(writer, monkeypatch, crash_before):
    add(writer, "a")
    real = os.replace

    def replace(source, target) -> None:
        if str(target).endswith(crash_before):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            add(writer, "b", since_s=50.0)
    recording = Recording.open(writer.folder)
    assert [run.name for run in recording.runs] == ["a"]
    assert [event.run for event in recording.events] == ["a"]
    again = RecordingWriter.resume(writer.folder)
    assert [file.name for file in (writer.folder / "samples").iterdir()] == ["a.parquet"]
    add(again, "b", since_s=90.0)
    recording = Recording.open(writer.folder)
    assert [run.name for run in recording.complete_runs()] == ["a", "b"]
    assert [event.t_s for event in recording.events] == [1.0, 91.0]


def test_missing_or_damaged_events_are_an_error_that_names_the_line(writer):
    add(writer, "a")
    file = writer.folder / "events.jsonl"
    whole = file.read_text()
    file.write_text("")
    with pytest.raises(SchemaError, match=r"has 0 lines, the manifest counts 1"):
        Recording.open(writer.folder)
    file.write_text(whole.replace("running", "walking"))
    with pytest.raises(SchemaError, match=r"events.jsonl: line 1 is damaged"):
        Recording.open(writer.folder)


def test_the_savepoint_runs_start_from_is_kept(writer):
    event = Event(t_s=3.0, run="", kind="savepoint", body={"bytes": 5})
    writer.note([event], {"location": "file:/s", "bytes": 5})
    recording = Recording.open(writer.folder)
    assert recording.manifest.populated == {"location": "file:/s", "bytes": 5}
    assert recording.events == (event,)


def test_names_are_looked_up_with_a_hint(writer):
    add(writer, "p2-m64-sat")
    with pytest.raises(ConfigError, match="Did you mean 'p2-m64-sat'"):
        Recording.open(writer.folder).run("p2-m64-sut")


def test_what_is_offered_can_be_told_from_when_the_job_ran(writer):
    load = RecordedLoad(name="step", steps=((0, 10.0), (20, 30.0)))
    for name, t_load_s in (("early", 0.0), ("late", 12.0)):
        run = EndedRun(
            name=name, configuration=START, load=load,
            t_begin_s=0.0, t_load_s=t_load_s, t_running_s=8.0, t_end_s=60.0,
        )  # fmt: skip
        writer.add(run, some_samples(0, 40), [])
    early, late = Recording.open(writer.folder).runs
    assert early.offered == ((0.0, 10.0), (12.0, 30.0))
    assert late.offered == ((0.0, 0.0), (4.0, 10.0), (24.0, 30.0))
    assert load.rate_at(-1) == 0
    assert load.rate_at(19.9) == 10
    assert load.rate_at(500) == 30
    with pytest.raises(ValueError, match="must begin at 0"):
        RecordedLoad(name="late", steps=((5, 10.0),))


def test_a_configuration_that_changes_within_a_run_is_known_at_any_time(writer):
    wider = {**START.parallelism, "map": 3}
    body = {"parallelism": wider, "memory_level": dict(START.memory_level)}
    run = EndedRun(
        name="a", configuration=START, load=LOAD,
        t_begin_s=0.0, t_load_s=0.0, t_running_s=0.0, t_end_s=40.0,
    )  # fmt: skip
    rescaled = Event(t_s=20.0, run="a", kind="running", body=body)
    writer.add(run, some_samples(0, 40), [rescaled])
    run = Recording.open(writer.folder).run("a")
    assert run.configuration_at(19.0) == START
    assert run.configuration_at(20.0).parallelism == wider


def test_two_runs_of_one_name_are_refused(writer):
    add(writer, "a")
    twice = writer.manifest.model_dump(by_alias=True)
    twice["runs"] = twice["runs"] * 2
    with pytest.raises(ValueError, match="two runs are named 'a'"):
        RecordingManifest.model_validate(twice)


def test_a_simulated_recording_holds_the_truth_beside_the_samples(tmp_path):
    recorded = SimulatedRecording(tmp_path / "r", SPEC, exact())
    recorded.add("a", START, LOAD, 60)
    recorded.add("b", START, LOAD.model_copy(update={"steps": ((0, 50.0),)}), 40)
    recording = Recording.open(tmp_path / "r")
    truth = recording.truth()
    assert truth is not None
    assert truth["run"] == ["a"] * 60 + ["b"] * 40
    assert truth["t_s"] == list(range(100))
    a, b = recording.runs
    assert sum(truth["processed"][:60]) == pytest.approx(6000)
    _, _, emitted = a.samples().grid("source", "emitted_records_total")
    assert emitted[-1].sum() == pytest.approx(6000)
    assert (b.t_running_s, b.t_end_s) == (60, 100)
    assert b.samples().t_s[0] == 65
    assert recording.notes() == []


def test_without_pyarrow_the_extra_is_named(writer, monkeypatch):
    import sys

    add(writer, "a")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"reading a recording.*dsp-gym\[flink\]"):
        Recording.open(writer.folder).run("a").samples()
