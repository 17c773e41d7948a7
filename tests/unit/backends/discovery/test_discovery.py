"""From Flink's description of a running job to a job file."""

from __future__ import annotations

import dataclasses

import pytest

from dsp_gym.backends.discovery.document import Choices, job_file
from dsp_gym.backends.discovery.flink import found_by_rest, running_jobs
from dsp_gym.backends.discovery.found import (
    Edge,
    FoundJob,
    FoundVertex,
    FoundWindow,
    says_window,
    window_in,
)
from dsp_gym.backends.discovery.names import file_stems, safe_stem, vertex_names
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.strict_yaml import dump_yaml, parse_yaml
from dsp_gym.errors import FlinkError
from dsp_gym.loop.topology import Topology
from tests.answering import answering
from tests.running_job import GRAPH, run_job


@pytest.fixture
def flink():
    with answering() as told:
        yield told


def written(flink, **rest):
    run_job(flink, **rest)
    found = found_by_rest(FlinkRest(flink.url), rest.get("job_id", "a1"), lambda _: None)
    return job_file(found, "words", Choices(), 0.0)


def said(made, key):
    return " ".join(note.text for note in made.notes if note.key == key)


def test_everything_that_flink_says_stands_in_the_job_file(flink):
    made = written(flink)
    source, session, sink = made.spec.vertices
    assert (source.name, source.kind, source.partitions) == ("bids", "source", 2)
    assert (made.spec.source.rate_per_s, made.spec.source.log) == (500, True)
    assert source.cpu_us_per_record == pytest.approx(0.1 / 500 * 1e6)
    assert (session.parallelism, session.max_parallelism) == (2, 128)
    assert [(e.from_, e.ship) for e in session.inputs] == [("bids", "HASH")]
    assert session.selectivity == pytest.approx(0.1)
    # 0.4 busy on two tasks at 500/s are 1600 us, 20 of them state access.
    state = session.state
    assert session.cpu_us_per_record + state.read_hit_us + state.write_us == pytest.approx(1600)
    assert (state.window.kind, state.window.length_s) == ("session", 2)
    assert state.keys * state.value_bytes == pytest.approx(2_000_000)
    assert (sink.name, sink.kind, sink.state) == ("out", "sink", None)
    assert made.spec.memory.model_dump(include={"base_mib", "levels", "uniform", "heap_mib"}) == {
        "base_mib": 32, "levels": 1, "uniform": True, "heap_mib": 64,
    }  # fmt: skip
    place = made.spec.taskmanager
    assert (place.slots, place.cores, place.memory_mib) == (8, 4, 2048)
    assert (made.spec.slot_sharing, made.spec.rescale.mode) == (True, "redeploy")
    assert made.spec.max_parallelism_per_vertex == 8
    assert "# state: one read and one write per record are assumed" in made.text


def test_what_was_not_found_is_a_comment_that_says_how_to_find_it(flink):
    silent = [{**one, "in": 0.0, "out": 0.0, "busy": float("nan"), "metrics": []} for one in GRAPH]
    made = written(flink, graph=silent, checkpoint=False)
    for key, words in {
        "source.rate_per_s": "numRecordsInPerSecond",
        "source.log": "log: true",
        "vertices": "execution.checkpointing.interval",
        "vertices.bids.cpu_us_per_record": "discover again under load",
        "vertices.bids.partitions": "kafka-topics",
        "vertices.session.selectivity": "numRecordsOut / numRecordsIn",
        "vertices.session.state": "rocksdb.estimate-num-keys",
        "max_parallelism_per_vertex": "Set it here",
    }.items():
        assert words in said(made, key), key
        assert words.split()[0] in made.text
    assert made.spec.source.rate_per_s == 1000


def test_the_rate_of_a_job_that_has_just_started_is_since_its_start(flink):
    """After 15 s Flink's meters, which are over a minute, show a quarter of the rate."""
    clocks = {"accumulateBusyTimeMs": 1500.0, "accumulateBackPressuredTimeMs": 500.0,
              "accumulateIdleTimeMs": 13_000.0}  # fmt: skip
    bids, session, out = GRAPH
    counters = {"numRecordsIn": 0.0, "numRecordsOut": 7500.0}
    young = {**bids, "out": 125.0, "told": {**clocks, **counters}}
    old = {**session, "told": {**counters, "accumulateIdleTimeMs": 90_000.0}}
    made = written(flink, graph=(young, old, out))
    assert made.spec.source.rate_per_s == 500
    assert made.spec.vertices[1].selectivity == pytest.approx(0.1)


def test_a_release_that_shows_less_still_gives_a_file(flink):
    run_job(flink)
    for path in ("/jobmanager/config", "/taskmanagers", "/jobs/a1/checkpoints",
                 "/jobs/a1/checkpoints/config"):  # fmt: skip
        del flink.answers[path]
    found = found_by_rest(FlinkRest(flink.url), "a1", lambda _: None)
    made = job_file(found, "words", Choices(), 0.0)
    assert "state.backend.type" in said(made, "memory")
    assert "taskmanager.numberOfTaskSlots" in said(made, "taskmanager.slots")
    assert "taskmanager.memory.managed.size" in said(made, "memory.base_mib")


def test_an_account_in_the_address_is_not_written_down(flink):
    run_job(flink)
    found = found_by_rest(FlinkRest(flink.url), "a1", lambda _: None)
    found = dataclasses.replace(found, seen_at="http://me:s3cret@flink:8081")
    text = job_file(found, "words", Choices(), 0.0).text
    assert "@flink:8081" in text
    assert "s3cret" not in text


def rescaled(flink, completed, took, last=(1_000, 9_000)):
    counts = {"ignored": 1, "inProgress": 0, "completed": completed, "failed": 1}
    latest = {"completed": None, "failed": None, "ignored": None}
    if last is not None:
        times = {"startTimestampInMillis": last[0], "endTimestampInMillis": last[1]}
        latest["completed"] = {"rescaleAttemptId": 2, **times}
    flink.answers["/jobs/a1/rescales/summary"] = {
        "rescalesCounts": counts,
        "completedRescalesDurationStatsInMillis": took,
    }
    flink.answers["/jobs/a1/rescales/overview"] = {"rescalesCounts": counts, "latest": latest}


TOOK = {"min": 4000, "max": 90000, "avg": 9000, "p50": 8000.0, "p90": 30000.0, "p95": 3e4}
NONE = {"min": 0, "max": 0, "avg": 0, "p50": "NaN", "p90": "NaN", "p95": "NaN"}
ADAPTIVE = {"jobmanager.scheduler": "adaptive"}


def test_outages_are_those_that_flink_has_counted(flink):
    rescaled(flink, 5, TOOK)
    made = written(flink, settings=ADAPTIVE)
    assert made.spec.rescale.outage_s == (4, 8, 30)
    assert made.found.rescales.last_s == 8.0
    assert "Flink counted of 5 completed rescales" in said(made, "rescale")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "Flink keeps no account of rescales"),
        ((1, TOOK), "Flink has counted 1 completed rescales, too few"),
        ((0, NONE, None), "Flink has counted 0 completed rescales, too few"),
    ],
)
def test_where_flink_has_counted_too_little_outages_are_assumed_and_it_is_said(flink, given, says):
    if given is not None:
        rescaled(flink, *given)
    made = written(flink, settings=ADAPTIVE)
    assert made.spec.rescale.outage_s == (6, 10, 20)
    assert says in said(made, "rescale")


@pytest.mark.parametrize(
    "took",
    [{}, TOOK | {"p50": None}, TOOK | {"p50": 1.0}, TOOK | {"min": -1}, TOOK | {"p90": 1e12}, [1]],
)
def test_an_account_that_flink_never_writes_is_refused(flink, took):
    rescaled(flink, 5, took)
    with pytest.raises(FlinkError):
        written(flink, settings=ADAPTIVE)


def test_the_adaptive_scheduler_rescales_in_place(flink):
    made = written(flink, settings={"jobmanager.scheduler": "Adaptive"})
    assert made.spec.rescale.mode == "in_place"


def test_slots_of_several_sizes_are_levels(flink):
    made = written(flink, managed_mib=(0.0, 64.0, 16.0))
    memory = made.spec.memory
    assert (memory.base_mib, memory.levels, memory.uniform) == (16, 3, False)
    assert "16, 64 MiB" in said(made, "memory")


def test_state_on_the_heap_counts_by_its_size_alone(flink):
    run_job(flink)
    flink.answers["/jobs/a1/checkpoints/config"] = {"state_backend": "HashMapStateBackend"}
    found = found_by_rest(FlinkRest(flink.url), "a1", lambda _: None)
    state = job_file(found, "words", Choices(), 0.0).spec.vertex("session").state
    assert (state.reads, state.writes) == (0, 0)


def test_ship_strategies_that_are_not_modelled_are_named(flink):
    graph = [*GRAPH[:2], {**GRAPH[2], "inputs": {1: "BROADCAST"}}]
    made = written(flink, graph=graph)
    assert made.spec.vertex("out").inputs[0].ship == "REBALANCE"
    assert "ships BROADCAST" in said(made, "vertices.out.inputs")


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        ([{"name": "Source: a -> Sink: b", "busy": 1.0}], "chained into one vertex.*disableChain"),
        (
            [*({"name": f"Source: s{k}", "busy": 1.0} for k in range(5)),
             {"name": "join", "busy": 1.0, "inputs": dict.fromkeys(range(5), "HASH")}],
            "'join' has 5 inputs, 4 are the most",
        ),
    ],
)  # fmt: skip
def test_a_job_that_no_file_can_describe_is_refused_with_the_reason(flink, graph, why):
    with pytest.raises(FlinkError, match=why):
        written(flink, graph=graph)


@pytest.mark.parametrize(
    "name",
    ["1e6", "true", "~", "a: b", "- x", "# no", "é", "'", '"', "[red]x[/red]", "{a}", "<b>x</b>"],
)
def test_no_name_of_an_operator_breaks_the_file(flink, name):
    graph = [GRAPH[0], {**GRAPH[1], "name": name}, GRAPH[2]]
    made = written(flink, name="x\n- evil: yes", graph=graph)
    assert len(made.spec.vertices) == 3
    assert parse_yaml(dump_yaml({name: [name]}), file="test") == {name: [name]}
    assert "x?- evil: yes" in made.text  # in a comment, on its line
    assert "\n- evil" not in made.text


def test_vertices_that_no_name_tells_apart_are_named(flink):
    graph = [GRAPH[0], {**GRAPH[1], "name": "Map"}, {**GRAPH[2], "name": "Map"}]
    made = written(flink, graph=graph)
    assert [vertex.name for vertex in made.spec.vertices] == ["bids", "Map", "Map 2"]
    assert "no name tells the task 'Map' from the others" in said(made, "vertices")


def test_jobs_that_do_not_run_are_named_with_those_that_do(flink):
    with pytest.raises(FlinkError, match="no job runs there"):
        running_jobs(FlinkRest(flink.url))
    run_job(flink)
    with pytest.raises(FlinkError, match=r"no job named 'word' runs\. Did you mean 'words'"):
        running_jobs(FlinkRest(flink.url), ["word"])


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("../../evil", "evil"), ("/etc/passwd", "etc-passwd"), ("..", "job"), ("", "job"),
        ("con", "job-con"), (".hidden", "hidden"), ("a\x00b\n", "a-b"), ("x" * 300, "x" * 60),
    ],
)  # fmt: skip
def test_a_name_becomes_a_safe_file_name(name, stem):
    assert safe_stem(name) == stem


def test_no_two_jobs_share_a_file():
    jobs = [("a", "1"), ("A", "2"), ("../a", "3"), ("a-2", "4")]
    assert file_stems(jobs) == ["a-1", "A-2-2", "a-3", "a-2"]
    of_resources = [("orders", "orders-eu"), ("orders", "orders-us"), ("orders", "orders-us")]
    assert file_stems(of_resources) == [
        "orders-orders-eu", "orders-orders-us", "orders-orders-us-2",
    ]  # fmt: skip


def test_a_vertex_is_named_after_an_operator_that_no_other_task_has():
    names, lost = vertex_names(["Source: a -> Map", "Map -> Filter", "Map -> Sink: out"])
    assert (names, lost) == (["a", "Filter", "out"], [])


@pytest.mark.parametrize("idle_per_s", [0.0, None])
def test_a_source_that_is_idle_or_has_ended_carries_next_to_none_of_the_load(idle_per_s):
    sources = [
        FoundVertex("a", "Source: busy", 1, out_per_s=1000.0),
        FoundVertex("b", "Source: table", 1, out_per_s=idle_per_s),
    ]
    sink = FoundVertex("c", "Sink: out", 1, inputs=(Edge("a", "HASH"), Edge("b", "HASH")))
    found = FoundJob("join", "1" * 32, "a test", (*sources, sink))
    spec = job_file(found, "join", Choices(), 0.0).spec
    shares = Topology.of([spec]).tables.source_share[0]
    assert shares[:2] == pytest.approx([1.0, 0.0], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("Window(TumblingEventTimeWindows(5000), X)", FoundWindow("tumbling", 5)),
        ("SlidingProcessingTimeWindows(10000, 2000)", FoundWindow("sliding", 10, 2)),
        ("ProcessingTimeSessionWindows(1500)", FoundWindow("session", 1.5)),
        ("window=[HOP(time_col=[t], size=[10 s], slide=[2 s])]", FoundWindow("sliding", 10, 2)),
        ("window=[SESSION(time_col=[t], gap=[5 minutes])]", FoundWindow("session", 300)),
        ("window=[CUMULATE(win_end=[w], max_size=[1 h], step=[1 min])]",
         FoundWindow("tumbling", 3600)),
        ("TUMBLE(size=[5 fortnights])", None),
        ("Window(DynamicEventTimeSessionWindows)", None),
        ("Map", None),
    ],
)  # fmt: skip
def test_a_window_is_read_from_its_description(text, window):
    assert window_in(text) == window
    assert says_window(text) == (text != "Map")
