"""A dataset behind the API of S3: published, read by several engines, and raced for."""

from __future__ import annotations

import importlib.util
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import pyarrow as pa
import pytest

import dsp_gym.datasets
from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError, StorageError
from tests.unit.datasets.test_store import PARTITIONS, publish, seen

WRITERS, ROUNDS = 2, 4
OWN = Path(__file__).parents[2] / ".venv-moto" / "bin" / "python"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[str]:
    """A server of the API in its own process: delta-rs holds Python's lock while it waits."""
    if not OWN.exists() and importlib.util.find_spec("moto") is None:
        pytest.skip("no moto: make .venv-moto")
    (port,) = free_ports(1)
    python = str(OWN) if OWN.exists() else sys.executable
    command = [python, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path_factory.mktemp("moto") / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        address, until_s = f"http://127.0.0.1:{port}", time.monotonic() + 300
        while running.poll() is None and time.monotonic() < until_s:
            with suppress(OSError), urlopen(address):
                break
            time.sleep(0.2)
        yield address
        running.kill()
        running.wait()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch) -> str:
    """An empty bucket; the environment says how to reach it, as it does for a user."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    name = f"bucket-{uuid4().hex}"
    with urlopen(Request(f"{server}/{name}", method="PUT")) as made:
        assert made.status == 200
    return f"s3://{name}"


def test_what_was_published_is_read_by_its_address(bucket, tmp_path) -> None:
    import polars as pl

    place = f"{bucket}/live"
    publish(place, 1)
    publish(place, 2)
    dataset = dsp_gym.datasets.read(place)
    assert dataset.manifest.revision == 2
    assert dataset.problems() == []
    found = seen(pa.Table.from_batches(dataset.table("windows")).to_pylist())
    assert {x for _, _, x in found} == {1, 2}
    assert len(found) == 1000 * PARTITIONS
    table = dataset.delta("windows")
    assert seen(table.to_pyarrow_table().to_pylist()) == found
    assert seen(pl.read_delta(table).to_dicts()) == found
    publish(tmp_path / "folder", 1)
    publish(tmp_path / "folder", 2)
    same = Dataset.open(tmp_path / "folder").manifest.content_sha256
    assert dataset.manifest.content_sha256 == same
    assert not list(tmp_path.glob("s3:*"))


def test_a_bucket_that_is_not_there_is_named(bucket) -> None:
    with pytest.raises(StorageError, match="s3://no-bucket"):
        Dataset.open("s3://no-bucket/live")


def _race(place: str, folder: Path, start: Barrier, writer: int, told) -> None:
    """Publish round after round, from a work folder of its own as another machine would."""
    import os

    folder.mkdir()
    os.chdir(folder)
    for turn in range(ROUNDS):
        value = 100 * (writer + 1) + turn
        start.wait(120)
        try:
            manifest = publish(place, value, f"build-{value}")
            told.put((turn, value, manifest.revision, manifest.content_sha256))
        except DatasetError as error:
            told.put((turn, value, None, str(error)))


def test_of_writers_that_race_at_most_one_publishes_each_revision(bucket, tmp_path) -> None:
    place = f"{bucket}/raced"
    publish(place, 1)
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(WRITERS), context.Queue()
    racing = [
        context.Process(target=_race, args=(place, tmp_path / f"{n}", start, n, told))
        for n in range(WRITERS)
    ]
    for writer in racing:
        writer.start()
    ends = [told.get(timeout=300) for _ in range(WRITERS * ROUNDS)]
    for writer in racing:
        writer.join(60)
        assert writer.exitcode == 0
    published = [(revision, sha) for _, _, revision, sha in ends if revision is not None]
    refused = [said for _, _, revision, said in ends if revision is None]
    assert all("another build of this dataset has published meanwhile" in said for said in refused)
    # Nobody is told that a revision is published that somebody else's took the place of.
    assert sorted(revision for revision, _ in published) == list(range(2, len(published) + 2))
    assert len(published) >= ROUNDS
    assert len(published) < len(ends)  # they did meet
    dataset = Dataset.open(place)
    assert dataset.problems() == []
    assert (dataset.manifest.revision, dataset.manifest.content_sha256) == max(published)
    rows = Counter(
        x for _, _, x in seen(pa.Table.from_batches(dataset.table("windows")).to_pylist())
    )
    assert sorted(rows.values()) == [3000, 3000]  # of the last writer, and of the first build
