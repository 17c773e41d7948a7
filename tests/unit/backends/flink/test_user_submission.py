"""A user's own program: what is posted, which jar it is, and programs of another job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rescale.finisher import Order
from dsp_gym.backends.flink.rescale.preflight import check_levels
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator, by_hand
from dsp_gym.backends.flink.rescale.resumed import advice
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import Unreached, as_words
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.backends.flink.user_submission import UserSubmission
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.records.rescales import Unfinished
from dsp_gym.redaction import redacted_values
from tests.answering import Answering, answering, tell
from tests.simulating import line

SPEC = line(job="mine")
IDS = {"source": "v-source", "map": "v-map", "sink": "v-sink"}
OWN = UserProgram(
    jar="words.jar",
    entry_class="com.example.Words",
    arguments=("--topic", "orders", "--tasks", "{source},{map}", "--password", "hunter2"),
    parallelism=2,
    settings={"state.backend.type": "rocksdb"},
)
NAMED = {"id": "1_words.jar", "name": "words.jar", "uploaded": 1, "entry": []}
TWO = Configuration({"source": 4, "map": 2, "sink": 1}, dict.fromkeys(IDS, 0))


@pytest.fixture
def flink() -> Iterator[Answering]:
    with answering() as told:
        tell(told)
        told.answers["/jobs/a1/config"] = {"execution-config": {"user-config": {}}}
        told.answers["/jars"] = {"files": [NAMED]}
        told.answers["/jars/1_words.jar/plan"] = Planner(told)
        yield told


def plan(name: str, tasks: Mapping[str, int]) -> dict[str, Any]:
    nodes = [{"id": one, "parallelism": number} for one, number in tasks.items()]
    return {"plan": {"name": name, "nodes": nodes}}


class Planner:
    """Plans that follow from the tasks that the arguments name, as a program's do."""

    def __init__(self, told: Answering, name: str = "mine", **changes: int) -> None:
        self.told, self.name, self.changes = told, name, changes

    def __call__(self, _: Mapping[str, str]) -> dict[str, Any]:
        words = self.told.bodies[-1]["programArgsList"]
        source, many = words[words.index("--tasks") + 1].split(",")
        tasks = {"v-source": int(source), "v-map": int(many), "v-sink": 1} | self.changes
        return plan(self.name, {one: number for one, number in tasks.items() if number})


def found(told: Answering, own: UserProgram = OWN) -> RunningJob:
    return RunningJob.find(FlinkRest(told.url), "mine", SPEC, own)


def check(told: Answering, own: UserProgram = OWN) -> None:
    rest = FlinkRest(told.url)
    found(told, own).submission.check(rest, rest.job("a1"))


def test_arguments_name_the_tasks_and_the_rest_is_as_submitted(flink):
    job = found(flink)
    assert job.configuration.parallelism == {"source": 4, "map": 3, "sink": 1}
    assert job.submission.run(TWO) == {
        "entryClass": "com.example.Words",
        "programArgsList": ["--topic", "orders", "--tasks", "4,2", "--password", "hunter2"],
        "parallelism": 2,
        "flinkConfiguration": {"state.backend.type": "rocksdb"},
    }
    least = UserProgram(jar="words.jar")
    assert found(flink, least).submission.run(TWO) == {"programArgsList": []}


def adaptive(told: Answering) -> None:
    told.answers["/jobmanager/config"] = [{"key": "jobmanager.scheduler", "value": "Adaptive"}]


def test_the_adaptive_scheduler_is_asked_for_every_vertex_once_it_takes_it(flink):
    flink.answers["/jobs/a1"]["vertices"].append(
        {"id": "v-more", "name": "more", "parallelism": 3, "tasks": {"RUNNING": 3}}
    )
    adaptive(flink)
    job, rest = found(flink), FlinkRest(flink.url)
    answers = iter([(503, '{"errors": ["initializing"]}'), {}])
    flink.answers["/jobs/b2/resource-requirements"] = lambda _: next(answers)
    job.submission.placed(rest, "b2", TWO, 10.0)
    asked = {one: bounds["parallelism"]["upperBound"] for one, bounds in flink.bodies[-1].items()}
    assert asked == {"v-source": 4, "v-map": 2, "v-sink": 1, "v-more": 3}
    assert next(answers, None) is None


class TestTheJar:
    def test_of_the_cluster_by_name_and_by_id(self, flink):
        rest = FlinkRest(flink.url)
        for jar in ("words.jar", "1_words.jar"):
            own = OWN.model_copy(update={"jar": jar})
            assert found(flink, own).submission.upload(rest) == "1_words.jar"

    def test_several_of_one_name_are_told_by_their_ids(self, flink):
        flink.answers["/jars"]["files"].append(NAMED | {"id": "2_words.jar"})
        with pytest.raises(FlinkError, match=r"2 jars named 'words\.jar': 1_words\.jar, 2_words"):
            check(flink)

    def test_one_that_nobody_has(self, flink):
        with pytest.raises(FlinkError, match=r"neither a file.*Did you mean 'words\.jar'"):
            check(flink, OWN.model_copy(update={"jar": "word.jar"}))

    def test_of_this_machine_is_uploaded_once(self, flink, tmp_path):
        jar = tmp_path / "mine.jar"
        jar.write_bytes(b"classes")
        flink.answers["/jars/upload"] = {"filename": "/tmp/web/3_mine.jar"}
        own = OWN.model_copy(update={"jar": str(jar)})
        assert found(flink, own).submission.upload(FlinkRest(flink.url)) == "3_mine.jar"


class TestAProgramOfAnotherJob:
    def test_of_this_one_is_let_pass(self, flink):
        check(flink)

    def test_has_another_name(self, flink):
        flink.answers["/jars/1_words.jar/plan"] = Planner(flink, "other")
        with pytest.raises(FlinkError, match="builds a job named 'other'; the running one is 'mi"):
            check(flink)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"v-sink": 0, "v-new": 1}, "not found by their ids: 'sink'"),
            ({"v-new": 1}, "4 vertices, and the running job has 3"),
        ],
    )
    def test_has_another_graph(self, flink, changes, said):
        flink.answers["/jars/1_words.jar/plan"] = Planner(flink, **changes)
        with pytest.raises(FlinkError, match=said):
            check(flink)

    def test_always_builds_the_same_tasks(self, flink):
        flink.answers["/jars/1_words.jar/plan"] = plan("mine", dict.fromkeys(IDS.values(), 1))
        with pytest.raises(FlinkError, match=r"always gives map the same .*'\{map\}'"):
            check(flink)
        adaptive(flink)  # which takes them beside the submission
        check(flink)

    def test_may_keep_the_tasks_of_its_sources(self, flink):
        own = OWN.model_copy(update={"arguments": ("--tasks", "4,{map}")})
        check(flink, own)

    def test_builds_other_tasks_than_are_wanted(self, flink):
        job, rest = found(flink), FlinkRest(flink.url)
        job.submission.check_change(rest, TWO)
        more = Configuration({**TWO.parallelism, "sink": 2}, TWO.memory_level)
        with pytest.raises(FlinkError, match=r"words\.jar would give sink 1 tasks instead of 2"):
            job.submission.check_change(rest, more)

    def test_builds_none(self, flink):
        why = '{"errors": ["x", "a.ProgramInvocationException: No topic\\n\\tat b.c(D.java:1)"]}'
        flink.answers["/jars/1_words.jar/plan"] = (400, why)
        with pytest.raises(FlinkError, match=r"words\.jar builds no job with these arguments"):
            check(flink)


def test_credentials_go_with_every_request(flink, tmp_path):
    account = tmp_path / "account"
    account.write_text("me:hunter2")
    account.chmod(0o600)
    rest = FlinkRest(flink.url, access=AccessConfig(file=account))
    flink.answers["/jars/1_words.jar/run"] = {"jobid": "b2"}
    job = RunningJob.find(rest, "mine", SPEC, OWN)
    job.submission.check(rest, rest.job("a1"))
    rest.run_program(job.submission.upload(rest), job.submission.run(TWO), "file:/s", "b2")
    assert flink.asked.count("/jars/1_words.jar/plan") == 2
    assert flink.asked[-1] == "/jars/1_words.jar/run"
    assert len(set(flink.accounts)) == 1
    assert None not in flink.accounts


def test_memory_that_the_program_chooses_is_not_moved(flink):
    job = found(flink)
    check_levels(job, Configuration({**TWO.parallelism}, job.configuration.memory_level))
    moved = {name: level + 1 for name, level in job.configuration.memory_level.items()}
    with pytest.raises(Unreached, match="asked to move the level of source, map, sink"):
        check_levels(job, Configuration(TWO.parallelism, moved))


def test_what_is_written_down_holds_no_arguments_and_is_enough_to_go_on(flink, tmp_path):
    rest = FlinkRest(flink.url)
    with ResubmitActuator(rest, "mine", SPEC, tmp_path, own=OWN) as actuator:
        job = actuator._read()
        actuator._prepare(job)
        intent = actuator._intent(job)
    assert "hunter2" not in repr(intent)
    assert intent["vertex_ids"] == IDS
    asked = {"from": as_words(TWO), "to": as_words(job.configuration)}
    left = Unfinished(1.0, asked, {**intent, "trigger_id": "t"})
    assert left.can_be_taken_up
    state, commands = advice(rest.url, "mine", SPEC, left, OWN)
    assert state == "its savepoint is not known"
    assert '"--tasks", "4,2"' in commands


def test_a_person_reads_no_secret_and_is_told_where_the_jar_is(flink):
    text = by_hand(flink.url, found(flink), "file:/savepoints/one")
    assert f"with the id of words.jar, which {flink.url}/jars lists: curl -X POST" in text
    assert "hunter2" not in str(FlinkError("the job does not run", remedy=text))


def test_the_second_process_is_told_the_program():
    order = Order(
        journal="/j", policy=None, rest_url="http://flink:8081", timeout_s=1.0, access=None,
        job_name="mine", spec=SPEC, rescale_timeout_s=1.0, next_id="b2", arguments={}, own=OWN,
    )  # fmt: skip
    assert Order.model_validate_json(order.model_dump_json(by_alias=True)).own == OWN


class TestTheConfiguration:
    def place(self, **given: object) -> PlaceConfig:
        return parse(PlaceConfig, {"rest_url": "http://f:1", "metrics": "rest", **given}, "c.yaml")

    def test_takes_a_program(self):
        place = self.place(program={"jar": "a.jar", "arguments": ["--topic", "orders"]})
        assert place.program == UserProgram(jar="a.jar", arguments=("--topic", "orders"))

    def test_has_it_where_the_job_is_submitted_again_alone(self):
        with pytest.raises(ConfigError, match="program is for actuator: resubmit"):
            self.place(program={"jar": "a.jar"}, actuator="adaptive")

    def test_is_shown_without_secrets(self):
        shown = redacted_values(OWN.model_dump(mode="json"))
        assert shown["arguments"][-2:] == ["--password", "***"]  # type: ignore[index]  # a mapping stays one


def test_its_submission_says_nothing_of_memory(flink):
    assert isinstance(found(flink).submission, UserSubmission)
    assert not found(flink).submission.moves_memory
