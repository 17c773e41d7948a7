"""Every job of the zoo is discovered on a plain Flink, scaled up and back, and loses no record.

Each way has a cluster of its own: in place under the adaptive scheduler, and by redeploying under
the default one, with the owner's jar and arguments. A job that cannot be changed in one way is
refused before it is touched, and the reason is told.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.distribution import find_libraries
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import runs_whole
from dsp_gym.backends.flink.versions import Way
from dsp_gym.cli import app
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.config.files import load_model
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.journal import read
from dsp_gym.studies.validation import acting as figures
from tests.acting import acting
from tests.conftest import RECORD_RELEASES
from tests.real_flink import PATIENCE_S, REAL_FLINK, cancel_all, short_lived_jvms
from tests.zoo import KINDS, LEGACY, compiled
from tests.zoo_ledgers import Ledger, one_in

pytestmark = [*REAL_FLINK, pytest.mark.validate]

KINDS_HERE = [kind for kind in KINDS if kind != LEGACY]
"""Of the installed Flink, which is a 2."""

SCHEDULERS: Mapping[Way, str] = {"in_place": "adaptive", "redeploy": "default"}
ENTRY = "dspgym.flink.Zoo"
ACTS = ("--apply", "--sole", "--no-serve", "--steps", "3")
WITHOUT_CHECKPOINTS = "no-checkpoints"

REFUSED: Mapping[tuple[str, Way], str] = {
    (WITHOUT_CHECKPOINTS, "in_place"): "writes no checkpoints, so it would begin anew",
}
"""What is said of the jobs that cannot be changed in one way."""


@dataclass(frozen=True)
class House:
    """A job on a cluster, and the folder that discovery has written."""

    kind: str
    way: Way
    cluster: LocalCluster
    folder: Path
    jar: Path

    @property
    def id(self) -> str:
        """Flink's, of the job that has not ended."""
        return self.cluster.rest.find_job(self.kind).id

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.kind, self.folder / self.kind)

    @property
    def arguments(self) -> list[str]:
        """What the owner submits the job with."""
        return [self.kind, str(self.folder / self.kind), "--lines", "true"]

    @property
    def configuration(self) -> Path:
        return self.folder / "jobs" / "fleet" / "shadow.yaml"

    def spec(self) -> JobSpec:
        return load_model(JobSpec, "job", self.folder / "jobs" / f"{self.kind}.yaml")

    def tasks(self) -> dict[str, int]:
        """Tasks by vertex of the job file."""
        by_id = {one["id"]: one["parallelism"] for one in self._vertices()}
        return {one.name: by_id[one.vertex_id] for one in self.spec().vertices}

    def edit(self, tasks: Mapping[str, int]) -> None:
        """What its owner adds: what is to be asked, and how the job is submitted."""
        document = yaml.safe_load(self.configuration.read_text())
        if self.way == "redeploy":
            arguments = [*self.arguments, "--tasks", self._told()]
            own = {"jar": str(self.jar), "entry_class": ENTRY, "arguments": arguments}
            document["where"] |= {"program": own}
        policy = {"policy": "static", "params": {"parallelism": dict(tasks)}}
        document |= {"policies": [{"name": "fixed", "policy": policy}], "guardrails": None}
        document |= {"interval_s": 5, "window": {"window_s": 30, "stabilization_s": 0}}
        document["journal"] = str(self.folder / "journal")
        self.configuration.write_text(yaml.safe_dump(document))

    def _told(self) -> str:
        """How the program is told tasks: an operator's are those of the vertex that it is in."""
        named = {one.vertex_id: one.name for one in self.spec().vertices}
        often: Counter[str] = Counter()
        told = []
        for vertex in self._vertices():
            of = named[vertex["id"]]
            for operator in vertex["name"].split(" -> "):
                name = re.sub(r"^Source: |\[\d+\]$", "", operator)
                often[name] += 1
                number = f"#{often[name]}" if often[name] > 1 else ""
                told += [f"{name}{number}={{{of}}}"] if of in scaled(self.spec()) else []
        return ",".join(told)

    def _vertices(self) -> list[Any]:
        return list(self.cluster.rest.job(self.id)["vertices"])

    def actuations(self) -> list[Mapping[str, Any]]:
        """Steps of the rescales, as the journal has them."""
        folders = sorted((self.folder / "journal").glob("*"))
        entries = (entry for folder in folders for entry in read(folder))
        return [entry.body for entry in entries if entry.kind == "actuation"]


def scaled(spec: JobSpec) -> list[str]:
    """Vertices that may be scaled; a source keeps its tasks."""
    return [one.name for one in spec.vertices if one.scalable and one.kind != "source"]


def dsp_gym(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def jar(tmp_path_factory) -> Path:
    return compiled(find_libraries(), tmp_path_factory.mktemp("jar") / "zoo.jar", legacy=False)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory) -> Iterator[Callable[[Way], LocalCluster]]:
    """A cluster for each way, started when it is asked for; one runs at a time."""
    running: dict[Way, LocalCluster] = {}

    def start(way: Way) -> LocalCluster:
        if way not in running:
            down(running)
            settings = ClusterSettings(
                scheduler=SCHEDULERS[way], slots=16, managed_mib=128, task_heap_mib=256,
                network_mib=64, network_segment_kib=4, rest_port=0, prometheus=False,
                metric_fetch_s=2, restart_delay_s=1, restart_attempts=1000,
                checkpoint_interval_s=5,
            )  # fmt: skip
            running[way] = LocalCluster.up(settings, tmp_path_factory.mktemp(way))
        return running[way]

    with short_lived_jvms():
        try:
            yield start
        finally:
            down(running)


def down(running: dict[Way, LocalCluster]) -> None:
    for cluster in running.values():
        cluster.down()
    running.clear()


@pytest.fixture
def housed(clusters, jar, tmp_path) -> Iterator[Callable[[str, Way], House]]:
    """Submits a job as its owner does, and discovers it once it runs; ended after the test."""
    made: list[House] = []

    def submitted(kind: str, way: Way) -> House:
        house = House(kind, way, clusters(way), tmp_path, jar)
        made.append(house)
        (tmp_path / kind).mkdir()
        rest = house.cluster.rest
        job_id = rest.run_jar(rest.upload_jar(jar), ENTRY, house.arguments)
        assert wait_until(lambda: runs_whole(rest, job_id), PATIENCE_S, 0.5)
        assert wait_until(lambda: has_begun(house), 2 * PATIENCE_S, 1.0)
        done = dsp_gym("discover", "--flink", house.cluster.rest_url, "--out", tmp_path / "jobs")
        assert done.exit_code == 0, done.output
        return house

    yield submitted
    for house in made:
        cancel_all(house.cluster)


def has_begun(house: House) -> bool:
    """Whether a table was read, what can match has matched, and every partition has been seen."""
    lines, last, wrong = house.ledger.read()
    if house.kind == WITHOUT_CHECKPOINTS:
        return True  # its lines are visible once it is stopped
    if house.kind == "bounded":
        return bool(lines) and not wrong
    if house.kind == "join":
        return last["unmatched"] == 0
    return min(last.values()) >= 0


def counted(house: House) -> tuple[int, dict[str, int]]:
    """What the sinks have written: nothing is lost, and nothing is there twice."""
    lines, last, wrong = house.ledger.read()
    assert not wrong, (wrong[:5], len(wrong))
    return lines, last


def goes_on(house: House, before: Mapping[str, int]) -> None:
    """Every partition is read further than it was; else one may have been lost."""
    if house.kind == WITHOUT_CHECKPOINTS:
        return
    for _ in range(int(PATIENCE_S)):
        _, last = counted(house)
        if all(last[one] > before[one] or one == "unmatched" for one in before):
            return
        time.sleep(1.0)
    raise AssertionError(f"{before}, then {last}")


def changed(house: House, tasks: dict[str, int]) -> float:
    """Have dsp-gym change the job; the seconds for which not all of its subtasks ran."""
    job_id, taken = house.id, len(house.actuations())
    _, before = counted(house)
    house.edit(tasks)
    for _ in range(5):  # a decision waits for samples, and leaves a vertex without any as it is
        done = dsp_gym("shadow", house.folder / "jobs", *ACTS)
        assert done.exit_code == 0, done.output
        if house.tasks() == tasks:
            break
    steps = house.actuations()[taken:]
    assert house.tasks() == tasks, (done.output, steps)
    assert (house.id == job_id) == (house.way == "in_place")
    assert not {step["event"] for step in steps} & {"alarm", "restored", "failed"}
    goes_on(house, before)
    return sum(float(step["outage_s"]) for step in steps if step["event"] == "running")


def stop(house: House) -> None:
    """The owner stops it, with a savepoint: what its sinks hold back becomes visible."""
    rest, job_id = house.cluster.rest, house.id
    for _ in range(3):  # a job that is restarting just then writes none
        assert wait_until(lambda: runs_whole(rest, job_id), PATIENCE_S, 0.5)
        rest.stop_with_savepoint(job_id, house.cluster.savepoints.as_uri())
        if wait_until(lambda: rest.state(job_id) in ENDED, PATIENCE_S / 4, 0.5):
            return
    raise AssertionError("it does not stop")


def scale(house: House) -> figures.Acted:
    """Up and back; or refused, with the reason."""
    before = house.tasks()
    more = before | {name: before[name] + 1 for name in scaled(house.spec())}
    assert more != before
    why = REFUSED.get((house.kind, house.way))
    if why is not None:
        job_id = house.id
        house.edit(more)
        done = dsp_gym("shadow", house.folder / "jobs", *ACTS)
        assert done.exit_code == USER_ERROR, done.output
        assert why in " ".join(done.output.split())
        assert (house.id, house.tasks()) == (job_id, before)
        return figures.Acted(house.kind, house.way, refused=why)
    up_s, back_s = changed(house, more), changed(house, before)
    stop(house)
    lines, _ = counted(house)
    assert lines > 0
    return figures.Acted(
        house.kind, house.way, up_s=round(up_s, 1), back_s=round(back_s, 1), records=lines
    )


@pytest.fixture
def record_acted(request) -> Callable[[figures.Acted], None]:
    """Keeps a row of the table in the docs, where figures are recorded."""

    def record(row: figures.Acted) -> None:
        if request.config.getoption(RECORD_RELEASES):
            figures.record(find_libraries().version, row, figures.figures_file())

    return record


@acting("in_place")
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_in_place_no_record_is_lost_or_doubled(housed, kind, record_acted):
    record_acted(scale(housed(kind, "in_place")))


@acting("redeploy")
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_by_redeploying_no_record_is_lost_or_doubled(housed, kind, record_acted):
    record_acted(scale(housed(kind, "redeploy")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_finds_a_record_that_is_lost_or_doubled(kind, tmp_path):
    sinks = written(kind)
    ledger = Ledger(kind, tmp_path)
    places = [tmp_path / "lines"] if kind == "file-sink" else []
    places = places or [tmp_path / "ledger" / str(k) for k in range(len(sinks))]
    write(places, sinks)
    lines, last, wrong = ledger.read()
    assert (lines, wrong) == (sum(map(len, sinks)), [])
    assert min(last.values()) >= 0
    for changes in (
        lambda lines, k: lines[:k] + lines[k + 1 :],
        lambda lines, k: [*lines, lines[k]],
    ):
        for sink, own in enumerate(sinks):
            middle = len(own) // 2
            write(places, [changes(own, middle) if k == sink else o for k, o in enumerate(sinks)])
            assert ledger.read()[2], (sink, own[middle])


def write(places: list[Path], sinks: list[list[str]]) -> None:
    """The files of the sinks, a part for every other line."""
    for place, lines in zip(places, sinks, strict=True):
        for part in range(2):
            file = place / "2026-11-28--03" / f"part-{part}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{line}\n" for line in lines[part::2]))


def written(kind: str) -> list[list[str]]:
    """What the sinks of a kind have written of the first records."""
    some = range(1600)
    if kind == "sql":
        return [[f"{v % 100} {v // 100 + 1} {v}" for v in some if v % 2 == 0]]
    of_sinks: list[list[int]] = {
        "chained-filter": [[n for n in range(80_000) if one_in(100)(n)]],
        "chained-flatmap": [[10 * n + i for n in some for i in range(10)]],
        "join": [[n for n in some if n % 50 < 40]],
        "union": [sorted([*some, *range(1200)])],
        "bounded": [sorted([*some, *range(1, 101)])],
        "same-names": [[n for n in some if one_in(2)(n)]],
        "unicode": [[n for n in some if one_in(4)(n)]],
        "side-output": [[n for n in some if one_in(4)(n) == k] for k in (False, True)],
        "window": [[n for n in some if one_in(10)(n) == k] for k in (False, True)],
        "partitioners": [[n for n in some if one_in(2)(n)]],
    }.get(kind, [[*some]])
    return [[str(number) for number in numbers] for numbers in of_sinks]
