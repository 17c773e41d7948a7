"""Requirements as Flink and Justin's endpoint take them, and the handling of failures."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.flink.rescale import (
    AdaptiveActuator,
    JustinActuator,
    ResubmitActuator,
    in_place,
)
from dsp_gym.backends.flink.rescale.in_place import lower_bound, requirements_of
from dsp_gym.backends.flink.rescale.justin import LARGE, SMALL, level_of, profile_for
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import Unreached
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import ActuatorStatus
from tests.answering import answering, tell
from tests.fakes.justin_endpoint import JOB_ID, JustinCluster, served
from tests.simulating import line, wanted

MIB = 2**20


def test_the_lower_bound_is_the_old_one_but_never_above_the_new_parallelism():
    old = {"v": {"parallelism": {"lowerBound": 4, "upperBound": 8}}}
    assert lower_bound(old, "v", 6) == 4
    assert lower_bound(old, "v", 2) == 2
    assert lower_bound(old, "unknown", 2) == 1


def test_every_vertex_is_in_the_requirements():
    at = Configuration({"map": 2, "sink": 1}, {"map": 0, "sink": 0})
    job = RunningJob("id", "RUNNING", Submission(line(), "line"), at, {"map": "a", "sink": "b"})
    assert requirements_of({}, job, Configuration({"map": 3, "sink": 1}, {})) == {
        "a": {"parallelism": {"lowerBound": 1, "upperBound": 3}},
        "b": {"parallelism": {"lowerBound": 1, "upperBound": 1}},
    }


def test_a_vertex_that_is_not_in_the_job_file_keeps_its_bounds():
    at = Configuration({"map": 2}, {"map": 0})
    job = RunningJob("id", "RUNNING", Submission(line(), "line"), at, {"map": "a"})
    bounds = {"parallelism": {"lowerBound": 2, "upperBound": 5}}
    new = requirements_of({"a": bounds, "b": bounds}, job, Configuration({"map": 3}, {}))
    assert new == {"a": {"parallelism": {"lowerBound": 2, "upperBound": 3}}, "b": bounds}


class TestAJobThatSomebodyElseSubmitted:
    @pytest.fixture
    def flink(self):
        with answering() as told:
            tell(told)
            told.answers["/jobs/a1/config"] = {"execution-config": {"user-config": {}}}
            told.answers["/jobs/a1/resource-requirements"] = {}
            told.answers["/jobs/a1/checkpoints/config"] = {"interval": 5000}
            yield told

    def ready(self, flink, spec=None):
        with AdaptiveActuator(FlinkRest(flink.url), "mine", spec or line()) as actuator:
            actuator.check_ready()
            return actuator._read().configuration

    def joined(self, flink, **ended):
        """A job of two sources; tasks that have ended, by vertex."""
        spec = line().model_dump(mode="json", by_alias=True, exclude_defaults=True)
        spec["vertices"].insert(0, {"name": "table", "kind": "source", "cpu_us_per_record": 1})
        spec["vertices"][2]["inputs"].append({"from": "table"})
        table = {"id": "v-table", "name": "Source: table", "parallelism": 2, "tasks": {}}
        vertices = [table, *flink.answers["/jobs/a1"]["vertices"]]
        for one in vertices:
            over = ended.get(one["id"].removeprefix("v-"), 0)
            one["tasks"] = {"RUNNING": one["parallelism"] - over, "FINISHED": over}
        flink.answers["/jobs/a1"]["vertices"] = vertices
        return JobSpec.model_validate(spec)

    def test_is_rescaled_once_one_of_its_sources_has_ended(self, flink):
        spec = self.joined(flink, table=2)
        assert self.ready(flink, spec).parallelism["table"] == 2

    @pytest.mark.parametrize(
        ("ended", "said"),
        [
            ({"table": 1}, "tasks of table have ended"),
            ({"table": 2, "map": 3}, "tasks of map have ended"),
            ({"table": 2, "source": 4}, "table, source have read all there was"),
        ],
    )
    def test_is_left_alone_where_more_has_ended(self, flink, ended, said):
        spec = self.joined(flink, **ended)
        with pytest.raises(FlinkError, match=said):
            self.ready(flink, spec)

    def test_is_left_alone_where_no_checkpoint_is_written_after_an_end(self, flink):
        flink.answers["/jobs/a1/checkpoints/config"]["checkpoints_after_tasks_finish"] = False
        self.ready(flink)
        spec = self.joined(flink, table=2)
        with pytest.raises(FlinkError, match=r"table has read all .*no checkpoint after") as raised:
            self.ready(flink, spec)
        assert "checkpoints-after-tasks-finish: true" in str(raised.value.remedy)

    def test_is_rescaled_in_place_at_the_levels_of_its_job_file(self, flink):
        assert self.ready(flink).parallelism == {"source": 4, "map": 3, "sink": 1}

    @pytest.mark.parametrize("answer", [{"interval": 2**63 - 1}, (404, '{"errors": ["none"]}')])
    def test_is_left_alone_where_it_would_begin_anew(self, flink, answer):
        flink.answers["/jobs/a1/checkpoints/config"] = answer
        with pytest.raises(Unreached, match=r"writes no checkpoints, so it would begin anew"):
            self.ready(flink)

    def test_is_left_alone_where_it_takes_every_slot(self, flink):
        flink.answers["/jobmanager/config"] = [{"key": "scheduler-mode", "value": "REACTIVE"}]
        with pytest.raises(Unreached, match=r"is in reactive mode: its jobs use every slot"):
            self.ready(flink)

    def test_is_submitted_again_by_nobody_who_has_not_been_told_how(self, flink, tmp_path):
        flink.answers["/jars"] = {"files": []}
        with (
            ResubmitActuator(FlinkRest(flink.url), "mine", line(), tmp_path) as actuator,
            pytest.raises(FlinkError, match=r"nothing says from which jar.*where: \{program: "),
        ):
            actuator.check_ready()


def test_profiles_are_those_of_justins_code():
    assert SMALL.of(1) == {
        "cpuCores": {"name": "CPU", "value": 1, "zero": False},
        "taskHeapMemory": {"bytes": 134 * MIB},
        "taskOffHeapMemory": {"bytes": 0},
        "managedMemory": {"bytes": 316 * MIB},
        "networkMemory": {"bytes": 39 * MIB},
    }
    assert LARGE.of(0)["managedMemory"] == {"bytes": 343 * MIB}
    assert SMALL.of(-1)["managedMemory"] == {"bytes": 0}


def test_the_profile_follows_the_taskmanagers_size():
    def of(mib):
        return profile_for([{"memoryConfiguration": {"totalProcessMemory": mib * MIB}}])

    assert (of(3072), of(3073)) == (SMALL, LARGE)
    with pytest.raises(Unreached, match="no TaskManager"):
        profile_for([])


def test_memory_that_is_no_level_is_not_taken_for_one():
    assert [level_of(158 * 2**x * MIB, 158) for x in range(3)] == [0, 1, 2]
    with pytest.raises(
        Unreached, match="200 MiB of managed memory, which is not a memory level of 158 MiB"
    ):
        level_of(200 * MIB, 158)


class TestJustin:
    @pytest.fixture
    def cluster(self):
        return JustinCluster({"source": 4, "map": 1, "sink": 1})

    @pytest.fixture
    def ask(self, cluster, monkeypatch):
        """Asks for tasks and a level of the map; gives status and events."""
        monkeypatch.setattr(in_place, "STALE_S", 0.0)  # the fake does not cache
        monkeypatch.setattr(in_place, "PATIENCE_S", 0.3)

        def ask(tasks, level, *, on=lambda kind: None, **memory):
            events = []

            def listen(kind, body):
                events.append((kind, body))
                on(kind)

            spec = line(flink={"program": "micro-update"}, memory=memory)
            with served(cluster) as url:
                rest = FlinkRest(url, timeout_s=1)
                actuator = JustinActuator(
                    rest, "line", spec, timeout_s=0.3, poll_s=0.02, on_event=listen
                )
                with actuator:
                    actuator.apply(wanted(np.array([[4, tasks, 1]]), np.array([[0, level, 0]])))
                    assert actuator.wait(20)
            return int(actuator.status()[0]), dict(events)

        return ask

    def test_parallelism_and_memory_go_through_one_call(self, cluster, ask):
        status, events = ask(3, 1)
        assert status == ActuatorStatus.REACHED
        assert len(cluster.puts) == 1
        part = cluster.puts[0][cluster.ids["map"]]
        assert part["parallelism"] == {"lowerBound": 1, "upperBound": 3}
        assert part["resourceProfile"]["managedMemory"] == {"bytes": 316 * MIB}
        assert events["running"]["outage_s"] == pytest.approx(1.5)

    def test_memory_alone_is_a_request(self, cluster, ask):
        assert ask(1, 2)[0] == ActuatorStatus.REACHED
        assert ask(1, 2)[0] == ActuatorStatus.IDLE  # the endpoint says that it runs
        assert len(cluster.puts) == 1

    def test_a_job_file_of_other_levels_is_refused(self, cluster, ask):
        status, events = ask(1, 1, base_mib=128)
        assert status == ActuatorStatus.FAILED
        assert "Set memory.base_mib: 158" in events["failed"]["reason"]
        assert cluster.puts == []

    def test_a_refusal_leaves_everything_alone(self, cluster, ask):
        cluster.refuses = True
        status, events = ask(3, 1)
        assert status == ActuatorStatus.FAILED
        assert "Resource profile cannot be fulfilled." in events["failed"]["reason"]
        assert cluster.running("map") == 1

    def test_too_few_slots_are_refused_before_anything_is_put(self, cluster, ask):
        cluster.slots_available = 1
        status, events = ask(3, 0)
        assert status == ActuatorStatus.FAILED
        assert "needs 8 slots; the job has 6 and 1 are free" in events["failed"]["reason"]
        assert cluster.puts == []

    def test_what_never_comes_into_effect_is_put_back(self, cluster, ask):
        cluster.heeds = False
        status, events = ask(3, 1)
        assert status == ActuatorStatus.TIMED_OUT
        assert "did not run within 0.3 s" in events["failed"]["reason"]
        back = cluster.puts[1][cluster.ids["map"]]
        assert back["parallelism"] == {"lowerBound": 1, "upperBound": 1}
        assert back["resourceProfile"]["managedMemory"] == {"bytes": 158 * MIB}
        assert events["restored"]["job_id"] == JOB_ID

    def test_what_had_no_effect_is_not_asked_again(self, cluster, monkeypatch):
        monkeypatch.setattr(in_place, "STALE_S", 0.0)
        cluster.heeds = False
        kinds = []
        spec = line(flink={"program": "micro-update"})
        with (
            served(cluster) as url,
            JustinActuator(
                FlinkRest(url, timeout_s=1), "line", spec, timeout_s=0.3, poll_s=0.02,
                on_event=lambda kind, body: kinds.append((kind, body)),
            ) as actuator,
        ):  # fmt: skip
            for tasks in (3, 3, 2, 3):
                actuator.apply(wanted(np.array([[4, tasks, 1]]), np.array([[0, 0, 0]])))
                assert actuator.wait(20)
        asked = [put[cluster.ids["map"]]["parallelism"]["upperBound"] for put in cluster.puts]
        assert asked == [3, 1, 2, 1, 3, 1]  # each put back
        (refused,) = (body for kind, body in kinds if kind == "refused")
        assert "the same was asked" in refused["reason"]
        assert refused["wanted"]["parallelism"]["map"] == 3

    def test_a_job_that_ends_meanwhile_is_an_alarm(self, cluster, ask):
        def ends(kind):
            if kind == "submitted":
                cluster.state = "FAILED"

        cluster.delay_s = 60
        status, events = ask(3, 1, on=ends)
        assert status == ActuatorStatus.FAILED
        assert "the job ended meanwhile: FAILED" in events["alarm"]["reason"]
        assert "PUT /jobs/:jobid/justin" in events["alarm"]["remedy"]

    def test_a_cluster_out_of_reach_meanwhile_is_waited_for(self, cluster, ask):
        def away(kind):
            if kind == "submitted":
                cluster.silent = True
            if kind == "failed":
                cluster.silent, cluster.delay_s = False, 0

        cluster.delay_s = 60
        status, events = ask(3, 1, on=away)
        assert status == ActuatorStatus.TIMED_OUT
        assert list(events) == ["asked", "submitted", "failed", "restored"]
        assert cluster.running("map") == 1


def test_without_justins_endpoint_the_actuator_is_not_made():
    cluster = JustinCluster({"source": 4, "map": 1, "sink": 1})
    documents = cluster.documents
    cluster.documents = lambda: {k: v for k, v in documents().items() if "justin" not in k}
    spec = line(flink={"program": "micro-update"})
    with served(cluster) as url:
        with pytest.raises(Exception, match="justin answered 404"):
            JustinActuator(FlinkRest(url), "line", spec)
        AdaptiveActuator(FlinkRest(url), "line", spec).close()
