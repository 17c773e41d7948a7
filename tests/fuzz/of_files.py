"""Readers of files: configurations, manifests, journals, tables, results."""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from dsp_gym.backends.flink.local import state as local_state
from dsp_gym.backends.flink.local.launch import Home
from dsp_gym.backends.flink.local.processes import Process
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.config import files
from dsp_gym.config.files import private_text
from dsp_gym.config.kinds import KINDS, model_of
from dsp_gym.config.strict_json import parse_json
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.config.text import decoded
from dsp_gym.control.serve.tokens import read_tokens
from dsp_gym.datasets import delta
from dsp_gym.datasets.manifest import DatasetManifest
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DspGymError
from dsp_gym.evaluation import kept
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.traces import read_trace
from dsp_gym.records import flink_runs, journal, repair, rescales
from dsp_gym.records.parquet import read_samples, read_table
from dsp_gym.records.recording import Recording
from dsp_gym.whatif.journal import read_run
from tests.fuzz.cases import Tree, as_json, as_yaml
from tests.fuzz.readers import Reader, file_of, folder

__all__ = ["READERS"]

ROOT = Path(__file__).resolve().parents[2]


def _shipped(kind: str) -> list[bytes]:
    """The smallest shipped files of a kind, and one with anchors."""
    found = sorted((ROOT / "configs" / kind).rglob("*.yaml"), key=lambda file: file.stat().st_size)
    return [file.read_bytes() for file in found[:4]]


def _config(kind: str, data: bytes) -> object:
    file = file_of(f"{kind}/file.yaml", data)
    return files.parse(model_of(kind), files.read_yaml(file), file)


def _yaml(data: bytes) -> Tree:
    return parse_yaml(data.decode(), file="seed")


ANCHORS = b"a: &a {x: 1, y: [1, 2]}\nb: {<<: *a, z: *a}\nc: [*a, *a]\nd: 2026-01-01\ne: 1e6\n"

SLOW = {"experiments": 0.4, "benchmarks": 0.4, "frontiers": 0.2}
"""Kinds that name files of other kinds, which are read along with them."""

CONFIGURATIONS = [
    Reader(
        kind,
        partial(_config, kind),
        partial(_shipped, kind),
        as_yaml,
        _yaml,
        share=SLOW.get(kind, 1.0),
    )
    for kind in KINDS
]
TEXTS = [
    Reader(
        "JSON",
        parse_json,
        lambda: [as_json({"a": [1, {"b": "\u00e9\U0001f600"}]})],
        errors=(ValueError,),
    ),
    Reader(
        "YAML",
        lambda data: parse_yaml(data.decode("utf-8", "replace"), file="x"),
        lambda: [ANCHORS, *_shipped("jobs")],
        as_yaml,
        _yaml,
    ),
]


# Journals


def _entries() -> list[dict[str, Any]]:
    from tests.fuzz.documents import snapshot_document

    seen = snapshot_document()
    names = [vertex["name"] for vertex in seen["vertices"]]
    vertices = [{"name": name, "parallelism": 2, "memory_level": 0} for name in names]
    answer = {
        "schema": "dsp-gym/decision/1",
        "job": seen["job"],
        "t_s": 60.0,
        "changed": True,
        "reason": "more",
        "vertices": vertices,
        "proposed": vertices,
        "interventions": [],
    }
    outcome = {
        "seconds": 60,
        "arrived": 10.0,
        "processed": 10.0,
        "pending": 0.0,
        "cost": 0.1,
        "pending_s": 0.0,
        "latency_p95_s": 0.1,
        "slo_s": 60.0,
        "down_s": 0.0,
        "rescales": 0,
        "data_age_s": 1.0,
        "arrivals": [[30.0, 5.0], [60.0, 10.0]],
    }
    bodies = [
        ("actuation", None, {"event": "begun", "configuration": {"interval_s": 60}}),
        ("snapshot", None, seen),
        ("decision", "ds2", answer),
        ("guard", "ds2", answer),
        ("actuation", "ds2", {"event": "savepoint", "location": "/s/1", "seconds": 2.0}),
        ("actuation", "ds2", {"event": "disposed", "savepoint": "/s/1"}),
        ("outcome", None, outcome),
        ("error", "ds2", {"stage": "policy", "reason": "late"}),
    ]
    return [
        {
            "schema": journal.JOURNAL_SCHEMA,
            "seq": seq,
            "t_s": 1000.0 + 10 * seq,
            "job": seen["job"],
            "kind": kind,
            "policy": policy,
            "body": body,
        }
        for seq, (kind, policy, body) in enumerate(bodies)
    ]


def _summed(lines: Tree) -> bytes:
    """Lines of a journal with the sums of what they hold."""
    made = []
    for line in lines if isinstance(lines, list) else [lines]:
        text = json.dumps(line, sort_keys=True, separators=(",", ":"))
        if isinstance(line, dict):
            crc = zlib.crc32(text.encode())
            line = {**line, "crc32": crc}
            text = json.dumps(line, sort_keys=True, separators=(",", ":"))
        made.append(text.encode() + b"\n")
    return b"".join(made)


def _lines(data: bytes) -> Tree:
    found = [json.loads(line) for line in data.splitlines()]
    return [{key: value for key, value in line.items() if key != "crc32"} for line in found]


def _in_journal(data: bytes, read: Callable[[Path], object]) -> object:
    where = folder() / "journal"
    shutil.rmtree(where, ignore_errors=True)
    file_of("journal/journal-000000000000.jsonl", data)
    return read(where)


def _journal(name: str, read: Callable[[Path], object], **rest: Any) -> Reader:
    return Reader(
        name,
        lambda data: _in_journal(data, read),
        lambda: [_summed(_entries())],
        _summed,
        _lines,
        **rest,
    )


def _opened(where: Path) -> object:
    with journal.Journal(where, durable=False) as opened:
        return opened.dropped_bytes


JOURNALS = [
    _journal("journal", lambda where: list(journal.read(where))),
    _journal("journal opened", _opened, share=0.4),
    _journal("inspect", repair.check, share=0.1, is_bounded=False),
    _journal("journal rescales", rescales.savepoints_left),
    _journal("journal course", read_run, share=0.4),
]


# Recordings, datasets, rollouts


@cache
def _recording() -> dict[str, bytes]:
    from dsp_gym.records.writer import RecordingWriter
    from tests.unit.records.test_recording import SPEC, add

    where = folder() / "made-recording"
    writer = RecordingWriter.create(where, SPEC, {"flink": "2.1.0"}, started_unix_s=1e9)
    add(writer, "a")
    add(writer, "b", 50.0)
    return {
        str(file.relative_to(where)): file.read_bytes()
        for file in where.rglob("*")
        if file.is_file()
    }


def _of_recording(name: str, data: bytes) -> object:
    where = folder() / "recording"
    for file, known in _recording().items():
        file_of(f"recording/{file}", data if file == name else known)
    recording = Recording.open(where)
    found: list[object] = [recording.notes(), recording.environment, recording.truth()]
    for run in recording.runs:
        found += [run.configuration, run.cause]
        if name != "manifest.json":
            found.append(len(run.samples()))
    return found


def _recorded(name: str, **rest: Any) -> Reader:
    return Reader(
        f"recording {name}", partial(_of_recording, name), lambda: [_recording()[name]], **rest
    )


def _events_dumped(tree: Tree) -> bytes:
    lines = tree if isinstance(tree, list) else [tree]
    return b"".join(as_json(line) + b"\n" for line in lines)


def _events_parsed(data: bytes) -> Tree:
    return [json.loads(line) for line in data.splitlines()]


def _parquet(name: str, read: Callable[[Path], object]) -> Reader:
    def seeds() -> list[bytes]:
        return [next(data for file, data in _recording().items() if file.endswith(".parquet"))]

    return Reader(name, lambda data: read(file_of("a.parquet", data)), seeds, None, share=0.4)


def _dataset(data: bytes) -> object:
    place = folder() / "dataset"
    manifest = DatasetManifest.parsed(decoded(data, place), place)
    opened = Dataset(delta.DatasetHome.of(place), manifest)
    found: list[object] = [opened.manifest, opened.specs]
    for name in ("windows", "transitions"):
        try:
            found.append(list(opened.table(name)))
        except DspGymError as error:
            found.append(error)
    return found


def _dataset_manifest() -> list[bytes]:
    spec = load_job("flink-wordcount").model_dump(mode="json", by_alias=True)
    table = {"rows": 3, "sha256": "0" * 64}
    found = DatasetManifest.model_validate(
        {
            "name": "d",
            "revision": 1,
            "content_sha256": "0" * 64,
            "config": {"name": "d"},
            "sources": [
                {
                    "name": "s",
                    "kind": "archives",
                    "path": "/p",
                    "clock": "unix",
                    "pieces": [
                        {
                            "name": "p",
                            "sha256": "1",
                            "rows": 3,
                            "partitions": [["flink-wordcount", "2026-01-01"]],
                        }
                    ],
                }
            ],
            "tables": {"windows": 0},
            "jobs": {"flink-wordcount": spec},
            "partitions": [
                {
                    "job": "flink-wordcount",
                    "day": "2026-01-01",
                    "inputs_sha256": "2",
                    "revision": 1,
                    "tables": {"windows": table},
                }
            ],
            "detail": {"encoding": {}},
        }
    )
    return [found.text().encode()]


RECORDS = [
    _recorded("manifest.json", share=0.4),
    _recorded("events.jsonl", dump=_events_dumped, parse=_events_parsed),
    _recorded("job.yaml", dump=as_yaml, parse=_yaml, share=0.4),
    _recorded("env.yaml", dump=as_yaml, parse=_yaml, share=0.4),
    _parquet("samples in Parquet", read_samples),
    _parquet("a table in Parquet", read_table),
    Reader("dataset manifest", _dataset, _dataset_manifest),
]


# Tables


def _trace(data: bytes) -> object:
    return read_trace(file_of("trace.csv", data))


def _csv(name: str, read: Callable[[bytes], object], *seeds: str, **rest: Any) -> Reader:
    return Reader(name, read, lambda: [seed.encode() for seed in seeds], None, **rest)


RUNS = (
    "run,submit_to_running_s,state_managed_memory_mib,split_parallelism,state_parallelism,schedule,"
    'stop_with_savepoint_s\ndirect-read-p4-m16-sat,1.5,16,2,4,"1000:60,2000:100000",2.5\n'
)
SAMPLES = (
    f"run,t_s,vertex,subtask,emitted,{','.join(flink_runs._COLUMNS)}\n"
    f"direct-read-p4-m16-sat,5,state,0,{',1.5' * len(flink_runs._COLUMNS)}\n"
    f"direct-read-p4-m16-sat,10,source,0,70{',2' * len(flink_runs._COLUMNS)}\n"
)


def _flink_runs(data: bytes, *, which: str) -> object:
    contents = {"runs.csv": RUNS.encode(), "samples.csv.gz": gzip.compress(SAMPLES.encode(), 1)}
    contents[which] = data
    for name, known in contents.items():
        file_of(f"runs/{name}", known)
    return flink_runs.read_flink_runs(folder() / "runs", _flink_runs_job())


@cache
def _flink_runs_job() -> Any:
    names = files.names("jobs")
    return load_job("flink-large-update" if "flink-large-update" in names else names[0])


TABLES = [
    _csv("load trace", _trace, "t_seconds,rate\n0,1\n10,2.5\n20,1e3\n"),
    _csv("CSV table", lambda data: read_rows(file_of("t.csv", data), ("a", "b")), "a,b\n1,2\n3,\n"),
    _csv("runs.csv", partial(_flink_runs, which="runs.csv"), RUNS),
    Reader(
        "samples.csv.gz",
        partial(_flink_runs, which="samples.csv.gz"),
        lambda: [gzip.compress(SAMPLES.encode(), 1), SAMPLES.encode()],
        None,
        is_bounded=False,
    ),
    _csv(
        "samples.csv",
        lambda data: _flink_runs(gzip.compress(data, 1), which="samples.csv.gz"),
        SAMPLES,
    ),
]


# Results


def _scorecard() -> list[bytes]:
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.evaluation.run import evaluate

    document = {
        "policies": ["static"],
        "jobs": ["nexmark-q1"],
        "episode_s": 600,
        "seeds": 1,
        "loads": {"test": {"loads": ["constant"]}},
        "reference": None,
        "bootstrap": 100,
    }
    done = evaluate(files.parse(BenchmarkConfig, document, "fuzz"))
    return [done.to_json().encode()]


def _local(data: bytes) -> object:
    home = Home(folder() / "home")
    file_of(str(home.state_file.relative_to(folder())), data)
    return local_state.read_state(home)


def _local_state() -> list[bytes]:
    settings = ClusterSettings()
    made = local_state.ClusterState(
        settings=settings, ports=local_state.choose_ports(settings), flink_version="2.1.0"
    )
    return [made.model_dump_json().encode()]


RESULTS = [
    Reader(
        "scorecard",
        lambda data: Scorecard.from_json(data.decode("utf-8", "replace")),
        _scorecard,
        share=0.4,
    ),
    Reader(
        "kept result", lambda data: kept._read(file_of("kept.json", data)), _scorecard, share=0.2
    ),
    Reader("cluster state", _local, _local_state),
    Reader(
        "process",
        lambda data: Process.read(file_of("one.pid", data)),
        lambda: [as_json({"pid": 7, "started": "now"})],
    ),
]


# Credentials


def _private(read: Callable[[Path], object], data: bytes) -> object:
    file = file_of("private", data)
    file.chmod(0o600)
    return read(file)


CREDENTIALS = [
    _csv(
        "tokens", partial(_private, read_tokens), "a " + "x" * 32 + "\n" + "y" * 20 + "\n", "z" * 40
    ),
    _csv(
        "account of Prometheus",
        partial(_private, lambda file: private_text(file, "key")),
        "user:password\n",
        "bearer",
    ),
]

READERS: list[Reader] = [
    *TEXTS,
    *CONFIGURATIONS,
    *JOURNALS,
    *RECORDS,
    *TABLES,
    *RESULTS,
    *CREDENTIALS,
]
