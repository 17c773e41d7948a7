"""Command lines with something wrong, in a folder of files that they name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import Status, unknown_snapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_to_json
from dsp_gym.records.journal import Journal

JOB = """\
job: tiny
source: {rate_per_s: 1000}
vertices:
- {name: source, kind: source, cpu_us_per_record: 1}
- {name: map, inputs: [{from: source}], cpu_us_per_record: 1, parallelism: 2, max_parallelism: 4}
- {name: sink, kind: sink, inputs: [{from: map}], cpu_us_per_record: 1}
"""
BENCHMARK = """\
description: tiny
policies: [static]
reference: null
jobs: [job.yaml]
loads: {test: {loads: [constant]}}
episode_s: 600
seeds: 1
"""
SHADOW = """\
job: flink-wordcount
policy: ds2-local
interval_s: 30
window: {window_s: 30, stabilization_s: 20}
"""
NO_POLICY = ("there is no policy 'ds3'", "Did you mean 'ds2'?")
NOT_UTF8 = ("is not UTF-8 text: byte 0xe9 at line 2, column 6", "Save it as UTF-8.")


def snapshot(t_s: float = 60.0) -> dict[str, Any]:
    """A document of a job of which little is known."""
    seen = unknown_snapshot(Topology.of([load_job("nexmark-q11")]))
    seen.t_s[:], seen.status[:] = t_s, Status.RUNNING
    seen.parallelism[:] = 1
    return snapshot_to_json(seen.job(0), "q11")


def lines(*documents: object) -> str:
    return "".join(f"{json.dumps(document)}\n" for document in documents)


def edited(*place: Any) -> str:
    """A snapshot with another value: keys, places in lists, and the value last."""
    *path, last, value = place
    document = snapshot()
    inner: Any = document
    for step in path:
        inner = inner[step]
    inner[last] = value
    return lines(document)


def metric(name: str, value: object, vertex: int = 1) -> str:
    return edited("vertices", vertex, "metrics", name, value)


Content = str | bytes | Callable[[], str]


@dataclass(frozen=True)
class Case:
    """One command line, what it says, and files beside the common ones."""

    line: str
    says: tuple[str, ...]
    files: dict[str, Content] = field(default_factory=dict)
    stdin: str | None = None

    def __str__(self) -> str:
        return self.line


def case(line: str, *says: str, stdin: str | None = None, **files: Content) -> Case:
    """A case; a file's name is its key, `__` for a dot and `___` for a slash."""
    named = {
        name.replace("___", "/").replace("__", "."): content for name, content in files.items()
    }
    return Case(line, says, named, stdin)


MACHINE = ("Traceback", "bug in dsp-gym", "[Errno", "codec can't", "object has no")
"""Words that are no help to the reader."""


def write_common(folder: Path) -> None:
    """Files that cases name."""
    texts = {
        "job.yaml": JOB,
        "bench.yaml": BENCHMARK,
        "shadow.yaml": SHADOW,
        "file": "text\n",
        "empty.yaml": "",
        "empty.json": "",
        "empty.csv": "",
        "list.yaml": "- a\n",
        "list.json": "[]",
        "snapshots.jsonl": lines(snapshot(0.0), snapshot(60.0)),
    }
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "latin.yaml").write_bytes(b"job: a\n# caf\xe9\n")
    (folder / "folder").mkdir()
    for name in ("journal", "damaged"):
        journal = Journal(folder / name, durable=False)
        for t_s in (0.0, 60.0, 120.0):
            journal.append("snapshot", t_s, "q11", None, snapshot(t_s))
        journal.close()
    (segment,) = (folder / "damaged").glob("*.jsonl")
    first, second, last = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(first + second[:8] + b"\xe9" + second[9:] + last)


def copied(common: Path, folder: Path, wrong: Case) -> None:
    """The common files, and those of the case."""
    shutil.copytree(common, folder)
    for name, content in wrong.files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        made = content() if callable(content) else content
        file.write_bytes(made if isinstance(made, bytes) else made.encode("utf-8"))


def assert_refused(wrong: Case, folder: Path) -> None:
    """Run in a folder: exit code 2, in words, and every file as it was."""
    before = _contents(folder)
    result = CliRunner().invoke(app, wrong.line.split(), input=wrong.stdin)
    said = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2, said
    for text in wrong.says:
        assert text in said, said
    for words in MACHINE:
        assert words not in said
    after = _contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.endswith(".part")]


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "lock"
    }
