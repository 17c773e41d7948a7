"""A job of the operator observed through Flink, its metrics, and the resource."""

from __future__ import annotations

import re

import pytest

from dsp_gym.backends.base import Clock
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.collector import KubernetesJob, KubernetesSamples
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.errors import FlinkError, KubernetesError
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.window import WindowConfig
from tests.answering import TASKS, answering, tell
from tests.fakes.kubernetes_selectors import merged
from tests.flink_resources import MAP, SINK, SOURCE, deployment, stable
from tests.simulating import line

IDS = {"source": SOURCE, "map": MAP, "sink": SINK}
COUNT = "flink_taskmanager_job_task_numRecordsOut"


class Watched:
    """What a watcher knows; set by the test."""

    def __init__(self):
        self.trouble, self.age = None, 0.0
        self.known = {}
        self.tell({})

    def tell(self, change, job_id="a1", **given):
        body = deployment(**given)
        body["metadata"] |= {"generation": 1, "resourceVersion": "1", "uid": "u"}
        body |= {"status": stable(body, job_id=job_id)}
        self.known = {"words": FlinkResource.parse(merged(body, change))}

    def resources(self):
        return self.known

    def age_s(self):
        return self.age


@pytest.fixture
def watched():
    return Watched()


@pytest.fixture
def server():
    """Flink and Prometheus in one; `tasks` is what Prometheus has been scraping."""
    with answering() as told:
        tell(told)
        told.tasks = {name: (IDS[name], n) for name, n in TASKS.items()}
        told.job_id, told.extra, told.scraped = "a1", [], {}

        def query(asked):
            wanted = re.search(r'job_id=~"([^"]*)"', asked["query"])
            found = told.extra if wanted is None else [
                {"metric": {"__name__": COUNT, "task_name": name, "task_id": vertex_id,
                            "job_id": told.job_id, "tm_id": "t", "subtask_index": str(n)},
                 "values": [(at_s, "1") for at_s in told.scraped.get((name, n), (1000,))]}
                for name, (vertex_id, tasks) in told.tasks.items() for n in range(tasks)
                if told.job_id in wanted[1].replace("\\\\", "").split("|")
            ]  # fmt: skip
            return {"status": "success", "data": {"resultType": "matrix", "result": found}}

        told.answers["/api/v1/query"] = query
        yield told


@pytest.fixture
def by_flink(server, watched):
    return KubernetesJob(watched, "words", line(), FlinkRest(server.url, timeout_s=0.5))


@pytest.fixture
def by_metrics(server, watched):
    job = KubernetesJob(watched, "words", line(), clock=lambda: 1005.0)
    job.tasks = KubernetesSamples(server.url, job, line(), timeout_s=0.5)
    return job


def test_flink_tells_what_runs_and_the_resource_which_job_it_is(by_flink):
    seen = by_flink.observe(2000.0)
    assert by_flink.trouble is None
    assert (seen.status, dict(seen.parallelism)) == (Status.RUNNING, TASKS)
    assert by_flink.ids == ("a1",)
    look = by_flink.look()
    assert (look.job_id, look.settled, dict(look.parallelism)) == ("a1", True, TASKS)


def test_a_redeployed_job_has_another_id_and_is_still_followed(server, watched, by_flink):
    by_flink.observe(2000.0)
    tell(server, job_id="b2", state="RUNNING")
    watched.tell({}, job_id="b2")
    assert by_flink.observe(2010.0).status == Status.RUNNING
    assert by_flink.ids == ("a1", "b2")
    assert by_flink.look().job_id == "b2"


def test_without_flink_its_metrics_tell(watched, server, by_metrics):
    seen = by_metrics.observe(1005.0)
    assert by_metrics.trouble is None
    assert (seen.status, dict(seen.parallelism)) == (Status.RUNNING, TASKS)
    assert by_metrics.look().ids == IDS
    server.tasks["map"] = (MAP, 5)
    later = by_metrics.observe(1065.0)
    assert later.parallelism["map"] == 5
    assert later.running_since_s == 1065.0  # what was measured before is of another configuration


def test_a_task_that_a_rescale_took_away_is_not_counted_by_what_it_left_behind(server, by_metrics):
    """Scraped every 2 s; the fourth task was there until 12 s ago, within what is looked at."""
    server.tasks["map"] = (MAP, 4)
    server.scraped = {("map", n): range(986, 1004, 2) for n in range(3)}
    server.scraped |= {("map", 3): range(986, 992, 2)}
    assert by_metrics.observe(1005.0).parallelism["map"] == 3
    server.scraped |= {("map", 3): range(986, 1000, 2)}  # one scrape was missed
    assert by_metrics.observe(1005.0).parallelism["map"] == 4


def scraped_every(step_s: int, now_s: int, **tasks: int) -> dict[tuple[str, int], list[int]]:
    """Times at which each task was scraped, at an offset of its own."""
    return {
        (name, n): [t for t in range(n * 5 % step_s, now_s + 1, step_s) if t > now_s - 300]
        for name, count in tasks.items()
        for n in range(count)
    }


@pytest.mark.parametrize("now_s", [1005, 1012, 1020])
@pytest.mark.parametrize("step_s", [15, 30, 60])
def test_every_task_is_counted_however_seldom_it_is_scraped(server, by_metrics, step_s, now_s):
    within = server.answers["/api/v1/query"]

    def query(asked):
        since_s = now_s - int(re.search(r"\[(\d+)ms\]", asked["query"])[1]) / 1000
        answer = within(asked)
        for one in answer["data"]["result"]:
            one["values"] = [value for value in one["values"] if value[0] > since_s]
        answer["data"]["result"] = [one for one in answer["data"]["result"] if one["values"]]
        return answer

    server.answers["/api/v1/query"] = query
    server.tasks["map"] = (MAP, 6)
    server.scraped = scraped_every(step_s, now_s, source=4, map=6, sink=1)
    seen = by_metrics.observe(float(now_s))
    assert by_metrics.trouble is None
    assert dict(seen.parallelism) == {"source": 4, "map": 6, "sink": 1}


def test_tasks_that_are_scraped_no_more_are_not_counted(server, by_metrics):
    server.scraped = scraped_every(5, 980, source=4, map=3, sink=1)
    by_metrics.observe(1005.0)
    assert "there are none" in str(by_metrics.trouble)


def test_fewer_tasks_than_the_resource_asks_for_are_trouble_and_no_other_parallelism(
    server, watched, by_metrics
):
    watched.tell({}, overrides={SOURCE: 4, MAP: 4, SINK: 1})
    seen = by_metrics.observe(1005.0)
    assert "show 3 of 4 tasks of 'map'" in str(by_metrics.trouble)
    assert seen.parallelism["map"] == 4
    server.tasks["map"] = (MAP, 4)
    later = by_metrics.observe(1005.0)
    assert by_metrics.trouble is None
    assert later.parallelism["map"] == 4


def test_where_flink_is_out_of_reach_metrics_step_in(server, watched, by_metrics):
    gone = FlinkRest("http://127.0.0.1:9", timeout_s=0.2)
    job = KubernetesJob(watched, "words", line(), gone, clock=lambda: 1005.0)
    job.tasks = by_metrics.tasks
    seen = job.observe(1005.0)
    assert (seen.status, job.trouble) == (Status.RUNNING, None)
    assert dict(seen.parallelism) == TASKS
    assert job.look().by_id == {IDS[name]: n for name, n in TASKS.items()}


def test_with_neither_it_is_said_and_nothing_is_made_up(watched):
    job = KubernetesJob(watched, "words", line())
    with pytest.raises(FlinkError, match="neither Flink's REST interface nor a Prometheus"):
        job.look()
    assert job.observe(10.0).status == Status.RESTARTING


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"status": {"jobStatus": {"state": "RECONCILING"}}}, Status.RESTARTING),
        ({"status": {"jobStatus": {"state": "FAILED"}}}, Status.FAILED),
        ({"status": {"lifecycleState": "FAILED"}}, Status.FAILED),
        ({"status": {"jobStatus": {"jobId": None}}}, Status.RESTARTING),
    ],
)
def test_the_resource_tells_that_the_job_is_down(watched, by_metrics, change, status):
    watched.tell(change)
    assert by_metrics.observe(1005.0).status == status


def test_a_resource_that_was_deleted_is_a_job_that_is_gone(watched, by_flink):
    watched.known = {}
    assert by_flink.observe(10.0).status == Status.FAILED
    assert "no resource 'words'" in str(by_flink.trouble)
    assert (by_flink.trouble.api, by_flink.trouble.reason) == ("kubernetes", "NotFound")


def test_an_api_server_that_is_silent_for_too_long_is_not_believed(watched, by_flink):
    watched.age = 130.0
    watched.trouble = KubernetesError("connection refused", reason="Unreachable")
    assert by_flink.observe(10.0).status == Status.RESTARTING
    assert "last heard of 130 s ago: connection refused" in str(by_flink.trouble)
    assert (by_flink.trouble.api, by_flink.trouble.reason) == ("kubernetes", "Unreachable")
    watched.age = 10.0
    assert by_flink.observe(20.0).status == Status.RUNNING
    assert by_flink.trouble is None


def test_a_file_of_another_job_is_named(server, by_flink, by_metrics):
    del server.tasks["map"]
    with pytest.raises(FlinkError, match="no vertex 'map'"):
        by_metrics.look()
    server.tasks.clear()
    with pytest.raises(FlinkError, match="Does that Prometheus scrape"):
        by_metrics.look()
    server.answers["/jobs/a1"]["vertices"][0]["name"] = "else"
    with pytest.raises(FlinkError, match="no vertex 'source'"):
        by_flink.look()


def test_memory_levels_are_those_of_the_arguments_that_run(watched, by_metrics):
    arguments = ["--program", "micro", "--managed-mib", "map=316"]
    watched.tell({}, job=deployment()["spec"]["job"] | {"args": arguments})
    assert by_metrics.observe(1005.0).memory_level == {"source": -1, "map": 1, "sink": -1}


def test_what_was_measured_before_an_episode_is_not_looked_at(by_flink):
    by_flink.not_before_s = 1990.0
    assert by_flink.observe(2000.0).running_since_s == 1990.0


def test_the_built_in_autoscalers_advice_is_read_from_its_metrics(server, by_metrics):
    def advice(value, **labels):
        name = f"flink_k8soperator_namespace_resource_AutoScaler_jobVertexID_{MAP}"
        return {"metric": {"__name__": f"{name}_RECOMMENDED_PARALLELISM_Current"} | labels,
                "values": [(1000, value)]}  # fmt: skip

    server.extra = [
        advice("6.0", resourcens="jobs", resourcename="words"),
        advice("9.0", resourcens="jobs", resourcename="other"),
        advice("NaN", namespace="jobs", name="words"),
    ]
    assert by_metrics.tasks.advice("jobs", "words", 900, 1000) == {MAP: 6}


def test_a_collector_holds_while_the_api_server_is_silent(watched, server, by_metrics):
    collector = FlinkCollector(
        line(), by_metrics, by_metrics.tasks, WindowConfig(window_s=60, stabilization_s=0),
        clock=Clock(lambda: 1005.0),
    )  # fmt: skip
    watched.age = 1e9
    snapshot = collector.snapshot()
    assert "API server" in str(collector.trouble)
    assert snapshot.window_fill[0] == 0
