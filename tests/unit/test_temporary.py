"""Leftovers of a killed write are removed by the next write of another process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from dsp_gym.config import files, temporary
from dsp_gym.config.files import write_atomic
from dsp_gym.config.temporary import SUFFIX, begun, sweep
from dsp_gym.records.parquet import read_table, write_table


def killed_while_writing(folder: Path, kind: str) -> None:
    """A write that ends by kill -9 when its content is to be synced."""
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    if kind == "parquet":
        write_table(folder / "runs.parquet", {"a": list(range(1000))})
    write_atomic(folder / "manifest.json", "{}")


def left_by(folder: Path, kind: str) -> Path:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=killed_while_writing, args=(folder, kind))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    (file,) = folder.glob(f".*{SUFFIX}")
    return file


def aged(file: Path) -> Path:
    before_s = time.time() - 120
    os.utime(file, (before_s, before_s))
    return file


@pytest.mark.parametrize("kind", ["parquet", "document"])
def test_the_next_write_into_the_folder_removes_it(tmp_path, kind):
    left = aged(left_by(tmp_path, kind))
    write_table(tmp_path / "other.parquet", {"a": [1]})
    assert not left.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["other.parquet"]
    assert read_table(tmp_path / "other.parquet") == {"a": [1]}


def test_a_file_that_is_being_written_or_is_young_stays(tmp_path):
    young = tmp_path / f".a.{SUFFIX}"
    young.write_text("")
    descriptor, name = begun(tmp_path / "b")
    mine = aged(Path(name))
    other = tmp_path / ".hidden"
    aged_other = other.write_text("") or aged(other)
    assert sweep(tmp_path) == []
    os.close(descriptor)
    assert sweep(tmp_path) == [mine]
    assert young.exists()
    assert aged_other.exists()


def test_a_folder_is_looked_through_once_per_process(tmp_path, monkeypatch):
    swept: list[Path] = []
    monkeypatch.setattr(temporary, "sweep", swept.append)
    for number in range(3):
        files.write_atomic(tmp_path / f"{number}.json", "{}")
    assert swept == [tmp_path]


@pytest.mark.parametrize("name", [".a.original", "a.part", ".bashrc"])
def test_what_may_be_somebody_elses_stays(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(b"PAR1")
    aged(file)
    write_table(tmp_path / "other.parquet", {"a": [1]})
    assert file.exists()
