"""External input that once ended in an internal fault: each kind by its name."""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.checkpoint import STATE, checkpoint_steps, read_checkpoint, write_checkpoint
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.access import RightsWatch, check_read_only
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import levels_in
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.backends.upstream import answers
from dsp_gym.config.files import find
from dsp_gym.errors import (
    ConfigError,
    FlinkError,
    KubernetesError,
    PolicyError,
    SchemaError,
    StorageError,
)
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.wire import decision_from_json, snapshot_from_json
from dsp_gym.policies.registry import make, resolve
from dsp_gym.records import journal
from dsp_gym.records.flink_runs import read_flink_runs
from dsp_gym.records.parquet import read_samples, write_samples
from dsp_gym.records.recording import Recording
from dsp_gym.records.repair import check
from dsp_gym.records.writer import RecordingWriter
from dsp_gym.whatif.journal import read_run
from tests.fuzz.cases import nested
from tests.fuzz.documents import cluster, series, snapshot_document
from tests.fuzz.of_services import _api, _of_answers, _rest, answer_with
from tests.simulating import line
from tests.unit.records.test_recording import SPEC, add, some_samples

SHAPES = [b"7", b"[]", b'{"jobs": 5}', b'{"jobs": [{"jid": []}]}', b'{"jobs": null}', b"null"]


# Flink


@pytest.mark.parametrize("answer", [*SHAPES, nested(100_000).encode()])
def test_a_flink_that_answers_in_another_shape_is_trouble_and_no_fault(answer):
    job = FlinkJob(_rest(lambda path: answer), "mine", line())
    assert job.observe(1000.0).status == Status.RESTARTING
    assert isinstance(job.trouble, FlinkError)
    assert "http://flink:8081" in str(job.trouble)


def test_a_vertex_with_more_subtasks_than_there_can_be_is_trouble():
    answers = cluster()
    answers["/jobs/a1"]["vertices"][1]["parallelism"] = 10**30

    def observed(rest: FlinkRest) -> FlinkJob:
        job = FlinkJob(rest, "mine", line())
        job.observe(1000.0)
        return job

    assert "parallelism of 1000000" in str(_of_answers(answers, observed).trouble)


# Prometheus


def samples_of(content: bytes) -> object:
    job: Any = SimpleNamespace(names=("a",), ids=("a1",), job_id="a1")
    source = PrometheusSamples("http://prometheus", job, line())
    answer_with(source._api, content)
    return source.samples(0.0, 100.0)


@pytest.mark.parametrize(
    "answer", [b"[]", b'{"data": 7}', b'{"data": {"result": 1}}', nested(50_000).encode()]
)
def test_a_prometheus_that_answers_in_another_shape_is_named(answer):
    with pytest.raises(FlinkError, match="http://prometheus"):
        samples_of(answer)


def test_an_answer_that_grows_when_it_is_unpacked_is_given_up(monkeypatch):
    content = json.dumps(series()).encode()
    assert samples_of(content) is not None
    monkeypatch.setattr(answers, "MOST_BYTES", len(content) - 1)
    with pytest.raises(FlinkError, match="answered more than"):
        samples_of(content)


# Kubernetes


@pytest.mark.parametrize("items", [7, "x", [1], {"a": 1}, [["a", "b"]]])
def test_a_list_of_another_shape_does_not_end_the_watcher(items):
    api = _api(json.dumps({"items": items, "metadata": {"resourceVersion": "1"}}).encode())
    watcher = Watcher(api, "FlinkDeployment", "jobs")
    try:
        assert not watcher.wait(0.3)
        assert isinstance(watcher.trouble, KubernetesError)
        assert watcher._thread.is_alive()
    finally:
        watcher.close()


@pytest.mark.parametrize("status", [7, "x", {"resourceRules": 5}, {"resourceRules": [7]}])
def test_rights_of_another_shape_prove_nothing_and_do_not_end_the_proofs(status):
    api = _api(json.dumps({"status": status}).encode())
    with pytest.raises(KubernetesError):
        check_read_only(api, "jobs")
    watch = RightsWatch(lambda: check_read_only(api, "jobs"), every_s=0.01)
    watch._closing.wait(0.1)
    assert watch.error is None
    assert watch._thread.is_alive()
    watch.close()


@pytest.mark.parametrize("body", [{"spec": "x"}, {"spec": []}, {"metadata": 7}, {}])
def test_a_lease_of_another_shape_is_none_of_ours_or_free(body):
    lease = Lease(_api(json.dumps(body).encode()), "jobs", "words", "me")
    assert lease.try_acquire() in (True, False)
    assert lease.is_held_now() in (True, False)
    lease.release()


@pytest.mark.parametrize("text", [nested(50_000), "[]", "users: x\n", "contexts: [{name: c}]\n"])
def test_a_kubeconfig_of_another_shape_is_named(text, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(KubernetesError, match="kubeconfig"):
        KubernetesApi.connect(KubernetesPlace(kubeconfig=file, namespace="jobs", name="words"))


def test_memory_that_is_no_number_is_not_known():
    for mib in ("x", "0", "-1", "inf", "1e999"):
        assert levels_in(["--program", "p", "--managed-mib", f"map={mib}"], line()) is None


# Journals


def written(folder: Path, *entries: dict[str, Any]) -> Path:
    lines = []
    for entry in entries:
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        whole = {**entry, "crc32": zlib.crc32(text.encode())}
        lines.append(json.dumps(whole, sort_keys=True, separators=(",", ":")) + "\n")
    (folder / "journal-000000000000.jsonl").write_text("".join(lines))
    return folder


def entry(seq: object = 0, **changed: object) -> dict[str, Any]:
    known = {
        "schema": journal.JOURNAL_SCHEMA,
        "seq": seq,
        "t_s": 1.0,
        "job": "j",
        "kind": "error",
        "policy": None,
        "body": {"stage": "policy"},
    }
    return known | changed


@pytest.mark.parametrize(
    "changed", [{"seq": "0"}, {"t_s": "now"}, {"t_s": 10**400}, {"body": []}, {"job": 7}]
)
def test_an_entry_of_wrong_types_is_damage_whatever_its_sum_says(changed, tmp_path):
    written(tmp_path, entry(**changed), entry(1))
    with pytest.raises(SchemaError, match="wrong type"):
        list(journal.read(tmp_path))
    assert not check(tmp_path).is_sound


def test_a_number_that_jumps_does_not_fill_the_memory(tmp_path):
    report = check(written(tmp_path, entry(0), entry(10**12), entry(1)))
    assert report.entries <= 2
    assert report.damages or report.torn_bytes


def test_many_damaged_lines_are_looked_through_in_time(tmp_path):
    body = {"stage": "policy", "reason": "x" * 20_000}
    written(tmp_path, *(entry(seq, body=body) for seq in range(40)))
    file = tmp_path / "journal-000000000000.jsonl"
    damaged = bytearray(file.read_bytes())
    for at in range(100, len(damaged), len(damaged) // 40):
        damaged[at] ^= 1
    file.write_bytes(damaged)
    report = check(tmp_path)
    assert sum(len(damage.restored) for damage in report.damages) + report.entries >= 39


# Recordings and tables


@pytest.mark.parametrize("samples", ["../../etc/passwd", "/etc/passwd", "x" * 5000])
def test_samples_outside_the_folder_of_a_recording_are_refused(samples, tmp_path):
    writer = RecordingWriter.create(tmp_path / "r", SPEC, {}, started_unix_s=1e9)
    add(writer, "a")
    file = tmp_path / "r" / "manifest.json"
    document = json.loads(file.read_text())
    document["runs"][0]["samples"] = samples
    file.write_text(json.dumps(document))
    with pytest.raises(SchemaError, match="samples are no file"):
        Recording.open(tmp_path / "r")


def test_events_that_are_no_text_are_named(tmp_path):
    writer = RecordingWriter.create(tmp_path / "r", SPEC, {}, started_unix_s=1e9)
    add(writer, "a")
    (tmp_path / "r" / "events.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(SchemaError, match=r"events\.jsonl"):
        Recording.open(tmp_path / "r")


def test_a_journal_of_other_bodies_is_no_course(tmp_path):
    written(tmp_path, entry(kind="snapshot", body={"vertices": [7]}))
    with pytest.raises(SchemaError, match="entry 0, a snapshot"):
        read_run(tmp_path)


def test_a_parquet_file_that_is_damaged_inside_is_named(tmp_path):
    file = tmp_path / "a.parquet"
    write_samples(file, "j", [some_samples(0, 4000)])
    content = bytearray(file.read_bytes())
    for at in range(30, len(content) // 2, 7):
        content[at] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(StorageError, match=r"a\.parquet"):
        read_samples(file)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"run,b\n1\n", b'run,"' + b"x" * 200_000])
@pytest.mark.parametrize("name", ["runs.csv", "samples.csv.gz"])
def test_tables_of_measured_runs_in_another_shape_are_named(content, name, tmp_path):
    runs, samples = (content, b"run\n") if name == "runs.csv" else (b"run\n", content)
    (tmp_path / "runs.csv").write_bytes(runs)
    (tmp_path / "samples.csv.gz").write_bytes(gzip.compress(samples))
    with pytest.raises(SchemaError):
        read_flink_runs(tmp_path, load_job("flink-large-update"))


def test_a_packed_table_that_is_cut_or_damaged_is_named(tmp_path):
    (tmp_path / "runs.csv").write_text("run\n")
    packed = bytearray(gzip.compress(b"run,t_s\n" + b"a,1\n" * 1000))
    packed[20] ^= 0xFF
    (tmp_path / "samples.csv.gz").write_bytes(packed)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_flink_runs(tmp_path, load_job("flink-large-update"))


# Documents


def test_a_decision_of_more_subtasks_than_there_can_be_is_refused():
    seen = snapshot_document()
    names = [vertex["name"] for vertex in seen["vertices"]]
    vertices = [{"name": name, "parallelism": 2**70, "memory_level": 0} for name in names]
    answer = {
        "schema": "dsp-gym/decision/1",
        "job": seen["job"],
        "t_s": 1.0,
        "changed": True,
        "reason": "",
        "vertices": vertices,
    }
    with pytest.raises(SchemaError, match="32768"):
        decision_from_json([answer], snapshot_from_json([seen]).topology)


@pytest.mark.parametrize("kind", [[], {}, 7])
def test_a_policy_of_a_kind_that_is_no_text_is_refused(kind, tmp_path):
    pretrained = Path(__file__).resolve().parents[2] / "agents/pretrained/planning"
    folder = Path(shutil.copytree(pretrained, tmp_path / "policy"))
    document = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps(document | {"policy": kind}))
    with pytest.raises(PolicyError, match="policy"):
        resolve(folder)


def test_a_policy_of_a_megabyte_is_refused_unread(tmp_path):
    (tmp_path / "policy.json").write_text(
        json.dumps({"schema": "dsp-gym/policy/1", "x": "y" * 10**6})
    )
    with pytest.raises(PolicyError, match="524,288 are the most"):
        make(tmp_path)


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        "7",
        '{"schema": "dsp-gym/checkpoint/1"}',
        '{"schema": "dsp-gym/checkpoint/1", "tree": {"a": {"$array": "nowhere"}}}',
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(state, tmp_path):
    write_checkpoint(tmp_path / "c", {"steps": 1})
    (tmp_path / "c" / STATE).write_text(state)
    with pytest.raises(SchemaError):
        read_checkpoint(tmp_path / "c")
    with pytest.raises(SchemaError):
        checkpoint_steps(tmp_path / "c")


def test_a_name_that_is_too_long_for_one_is_no_configuration():
    with pytest.raises(ConfigError, match="cannot be looked for"):
        find("jobs", "x" * 5000)
