"""A job that its owner has submitted, known here by discovery alone: it is rescaled, and no record
is lost or made. Every line that its exactly-once sink writes is read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.distribution import jobs_jar
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import load_arguments, runs_whole
from dsp_gym.cli import app
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.records.journal import read
from tests.acting import acting
from tests.nemesis.sinks import Ledger, Load
from tests.real_flink import PATIENCE_S, QUICK_TO_RESCALE, REAL_FLINK, small_cluster

pytestmark = REAL_FLINK

NAME = "words of the house"
ENTRY = "dspgym.flink.Main"
WORDS = 5
ON_S, OFF_S, LASTS_S = 15, 20, 3600
ACTS = ("--apply", "--sole", "--no-serve", "--steps", "2")


@dataclass(frozen=True)
class House:
    """A cluster with one job, and the folder that discovery has written."""

    cluster: LocalCluster
    arguments: tuple[str, ...]  # that the owner has submitted it with
    ledger: Ledger
    jobs: Path

    @property
    def configuration(self) -> Path:
        return self.jobs / "fleet" / "shadow.yaml"

    def tasks(self) -> dict[str, int]:
        """Tasks by vertex, of the one job that has not ended."""
        job = self.cluster.rest.job(self.cluster.rest.find_job(NAME).id)
        names = [one["name"].partition(" -> ")[0] for one in job["vertices"]]
        tasks = [one["parallelism"] for one in job["vertices"]]
        return dict(zip(names, tasks, strict=True))

    def edit(self, where: Mapping[str, Any], **tasks: int) -> None:
        """What its owner adds: what is to be asked, and how the job is submitted."""
        document = yaml.safe_load(self.configuration.read_text())
        document["where"] |= where
        policy = {"policy": "static", "params": {"parallelism": tasks}}
        document |= {"policies": [{"name": "fixed", "policy": policy}], "guardrails": None}
        document |= {"interval_s": 5, "window": {"window_s": 10, "stabilization_s": 0}}
        document["journal"] = str(self.jobs / "journal")
        self.configuration.write_text(yaml.safe_dump(document))

    def settled(self) -> bool:
        """Whether every line that is due is written, once."""
        return wait_until(lambda: self.ledger.settled() is None, PATIENCE_S, 0.5)

    def steps(self) -> list[str]:
        """Steps of the rescale, as the journal has them."""
        entries = (entry for folder in (self.jobs / "journal").iterdir() for entry in read(folder))
        events = (str(entry.body["event"]) for entry in entries if entry.kind == "actuation")
        return [event for event in events if event not in ("started", "decided", "ended")]


def dsp_gym(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def on_default(tmp_path_factory) -> Iterator[House]:
    with small_cluster(
        tmp_path_factory.mktemp("default"), prometheus=False, checkpoint_interval_s=2
    ) as cluster:
        yield submitted(cluster, tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def on_adaptive(tmp_path_factory) -> Iterator[House]:
    with small_cluster(
        tmp_path_factory.mktemp("adaptive"), prometheus=False, **QUICK_TO_RESCALE
    ) as cluster:
        yield submitted(cluster, tmp_path_factory.mktemp("house"))


def submitted(cluster: LocalCluster, folder: Path) -> House:
    """The owner's way: a jar, a main class, arguments. Then the job is discovered."""
    load = Load(float(int(time.time())), 20, ON_S, OFF_S, LASTS_S)
    given = load_arguments(load.rates, folder / "loads", int(load.epoch_s * 1000))
    given |= {"program": "wordcount", "job-name": NAME, "results": str(folder / "results")}
    given |= {"words": str(WORDS), "keys": "50", "cpu-us": "flatmap=500,count=10"}
    arguments = tuple(word for key, value in given.items() for word in (f"--{key}", value))
    job_id = cluster.rest.run_jar(cluster.rest.upload_jar(jobs_jar()), ENTRY, arguments)
    assert wait_until(lambda: runs_whole(cluster.rest, job_id), PATIENCE_S, 0.5)
    done = dsp_gym("discover", "--flink", cluster.rest_url, "--out", folder / "jobs")
    assert done.exit_code == 0, done.output
    return House(cluster, arguments, Ledger(folder / "results", load, WORDS), folder / "jobs")


TASKS = ("--parallelism", "source={source},flatmap={flatmap},count={count}")
"""How its owner's program is told the tasks of its vertices."""


def program(house: House, **changes: object) -> dict[str, Any]:
    arguments = [*house.arguments, *TASKS]
    own = {"jar": str(jobs_jar()), "entry_class": ENTRY, "arguments": arguments}
    return {"program": own | changes}


def refused(house: House, *words: str) -> str:
    """What is said where nothing may be asked; the job is as it was."""
    job_id, before = house.cluster.rest.find_job(NAME).id, house.tasks()
    done = dsp_gym("shadow", house.jobs, *words)
    assert done.exit_code == USER_ERROR, done.output
    assert (house.cluster.rest.find_job(NAME).id, house.tasks()) == (job_id, before)
    return " ".join(done.output.split())


@acting("in_place")
@pytest.mark.validate
def test_in_place_under_the_adaptive_scheduler(on_adaptive):
    house = on_adaptive
    assert yaml.safe_load(house.configuration.read_text())["where"]["actuator"] == "adaptive"
    before, job_id = house.tasks(), house.cluster.rest.find_job(NAME).id
    assert set(before.values()) == {1}
    house.edit({}, flatmap=2, count=3)
    looked = dsp_gym("shadow", house.jobs, "--steps", "1", "--no-serve", "--json")
    assert json.loads(looked.output.splitlines()[0])["enacted"] is False
    assert house.tasks() == before
    done = dsp_gym("shadow", house.jobs, *ACTS)
    assert done.exit_code == 0, done.output
    assert house.tasks() == before | {"flatmap": 2, "count": 3}
    assert house.cluster.rest.find_job(NAME).id == job_id
    assert house.settled()
    assert house.ledger.total > 0
    assert house.steps() == ["asked", "submitted", "running", "reached"]


@acting("redeploy")
@pytest.mark.validate
def test_by_redeploying_with_the_owners_own_jar_and_arguments(on_default):
    house = on_default
    where = yaml.safe_load(house.configuration.read_text())["where"]
    assert where["actuator"] == "resubmit"
    assert where["savepoints"] == house.cluster.savepoints.as_uri()
    assert "entry_class: com.example.Words" in house.configuration.read_text()
    before, job_id = house.tasks(), house.cluster.rest.find_job(NAME).id
    house.edit(program(house), flatmap=2, count=3)
    assert house.settled()
    written = house.ledger.total
    done = dsp_gym("shadow", house.jobs, *ACTS)
    assert done.exit_code == 0, done.output
    assert house.tasks() == before | {"flatmap": 2, "count": 3}
    assert house.cluster.rest.state(job_id) in ENDED
    # Lines come in bursts: the next one may be twenty seconds away.
    assert wait_until(lambda: house.settled() and house.ledger.total > written, PATIENCE_S, 0.5)
    taken = ["asked", "stopping", "savepoint", "stopped", "submitted", "running", "reached"]
    assert house.steps() == taken


class TestWhatIsRefusedBeforeTheStart:
    @pytest.mark.validate
    def test_a_job_of_which_nobody_has_said_how_it_is_submitted(self, on_default):
        on_default.edit({"program": None}, flatmap=2)
        said = refused(on_default, *ACTS)
        assert f"job '{NAME}' could not be submitted again: nothing says from which jar" in said
        assert "where: {program: {jar: words.jar" in said

    def test_arguments_of_another_job(self, on_default):
        words = [one.replace(NAME, "another") for one in on_default.arguments]
        on_default.edit(program(on_default, arguments=words), flatmap=1)
        said = refused(on_default, *ACTS)
        assert f"builds a job named 'another'; the running one is '{NAME}'" in said

    def test_a_program_that_nobody_tells_its_tasks(self, on_default):
        on_default.edit(program(on_default, arguments=on_default.arguments), flatmap=1)
        said = refused(on_default, *ACTS)
        assert "always gives flatmap, count the same number of tasks" in said

    def test_a_jar_that_nobody_has(self, on_default):
        on_default.edit(program(on_default, jar="no.jar"), flatmap=1)
        said = refused(on_default, *ACTS)
        assert "'no.jar' is neither a file of this machine nor a jar of http://" in said

    def test_in_place_where_the_scheduler_is_another(self, on_default):
        on_default.edit({"program": None, "actuator": "adaptive"}, flatmap=1)
        said = refused(on_default, *ACTS)
        assert "cannot be rescaled in place" in said
        assert "where.program and where.savepoints" in said
