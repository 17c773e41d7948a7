"""Documents of Flink's real classes: collector, ticks, and `dsp-gym decide`."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from baselines.flink_autoscaler.answers import Trace, decision
from baselines.flink_autoscaler.collector import (
    CollectionFailed,
    Vertex,
    job_sample,
    source_partitions,
    vertex_sample,
)
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.state import (
    GC,
    GLOBALS,
    HEAP_RATIO,
    IN,
    LAG,
    LOAD,
    OBSERVED,
    SCALING_METRICS,
)
from dsp_gym.cli import app

COUNTERS = ("NUM_RECORDS_IN", "NUM_RECORDS_OUT", "ACCUMULATED_BUSY_TIME")
CONF = {
    "job.autoscaler.enabled": "true",
    "job.autoscaler.metrics.window": "2 min",
    "job.autoscaler.stabilization.interval": "1 min",
    "job.autoscaler.scale-down.interval": "0 s",
}
SOURCE = {
    "busyTimeMsPerSecond": {"max": 900.0, "avg": 600.0, "min": 100.0},
    "backPressuredTimeMsPerSecond": {"avg": 200.0},
    "Source__s.numRecordsIn": {"sum": 5000.0},
    "Source__s.numRecordsInPerSecond": {"sum": 100.0},
    "Source__s.pendingRecords": {"sum": 3000.0},
    "Source__s.other.pendingRecords": {"sum": 4000.0},
}


def sample(metrics, conf=None, carried=math.nan, **vertex):
    given = {"name": "s", "inputs": {}, "parallelism": 2, "max_parallelism": 128} | vertex
    return vertex_sample(Vertex(**given), metrics, Options.of(conf or {}), lambda: carried)


def without(name):
    return {key: value for key, value in SOURCE.items() if not key.endswith(name)}


def test_a_source_counts_its_own_records_and_sums_what_is_pending():
    row = sample(SOURCE)
    assert row[LOAD] == 0.9
    assert row[IN] == 5000.0
    assert row[LAG] == 7000.0
    assert row[OBSERVED] == 125.0  # 100 / (1 - 0.2): 7000 records are more than 30 s of 100/s
    assert sample(SOURCE, records_in=70.0)[IN] == 70.0  # Flink's own counter comes first
    assert sample(without("pendingRecords"), carried=50.0)[OBSERVED] == 50.0
    assert sample(without("pendingRecords"))[LAG] == 0.0
    out = {**SOURCE, "Source__s.numRecordsIn": {"sum": 0.0}, "Source__s.numRecordsOut": {"sum": 9}}
    assert sample(out)[IN] == 9.0


@pytest.mark.parametrize(("aggregator", "load"), [("MAX", 0.9), ("AVG", 0.6), ("MIN", 0.1)])
def test_busy_time_is_aggregated_as_configured(aggregator, load):
    conf = {"job.autoscaler.metrics.busy-time.aggregator": aggregator}
    assert sample(SOURCE, conf)[LOAD] == load


@pytest.mark.parametrize(
    "missing", ["busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", ".numRecordsIn",
                ".numRecordsInPerSecond"]
)  # fmt: skip
def test_a_required_metric_that_is_missing_fails_the_collection(missing):
    with pytest.raises(CollectionFailed, match=missing.strip(".")):
        sample(without(missing))


def test_a_finished_vertex_reports_zeros():
    row = sample({}, finished=True)
    assert (row[LOAD], row[LAG], row[IN]) == (0.0, 0.0, 0.0)


def test_partitions_are_counted_by_cluster_topic_and_number():
    kafka = "0.Source__k.KafkaSourceReader.topic.{}.partition.{}.currentOffset"
    names = [kafka.format("a", 0), kafka.format("a", 1), kafka.format("b", 0), kafka.format("a", 0)]
    assert source_partitions(names) == 3
    cluster = "0.Source__k.kafkaCluster.{}.KafkaSourceReader.topic.a.partition.0.currentOffset"
    assert source_partitions([cluster.format("x"), cluster.format("y")]) == 2
    pulsar = "0.Source__p.PulsarConsumer.persistent_//t-partition-{}.{}.numMsgsReceived"
    assert source_partitions([pulsar.format(1, "c1"), pulsar.format(1, "c2")]) == 1
    assert source_partitions(["Source__k.numRecordsIn"]) == 0


def test_metrics_of_the_processes():
    tm = {
        "HEAP_MEMORY_MAX": {"max": 200.0}, "HEAP_MEMORY_USED": {"max": 50.0},
        "MANAGED_MEMORY_USED": {"max": 7.0}, "METASPACE_MEMORY_USED": {"max": 8.0},
    }  # fmt: skip
    row = job_sample({"taskSlotsTotal": 10, "taskSlotsAvailable": 4}, tm)
    assert row[HEAP_RATIO] == 0.25
    assert row[GLOBALS.index("NUM_TASK_SLOTS_USED")] == 6.0
    assert math.isnan(row[GC])  # older Flink reports no garbage collection
    assert job_sample(None, {**tm, "TOTAL_GC_TIME_PER_SEC": {"max": 30.0}})[GC] == 0.03
    with pytest.raises(CollectionFailed, match="HEAP_MEMORY_USED"):
        job_sample(None, {"HEAP_MEMORY_MAX": {"max": 1.0}})


def tick(now_s: int, metrics=None, **given):
    read = 100.0 * now_s
    vertices = [
        {"name": "s", "parallelism": 4, "max_parallelism": 128,
         "io_metrics": {"num_records_in": 0, "num_records_out": read,
                        "accumulated_busy_time_ms": 100 * now_s}},
        {"name": "t", "inputs": {"s": "REBALANCE"}, "parallelism": 4, "max_parallelism": 128,
         "io_metrics": {"num_records_in": read, "num_records_out": 0,
                        "accumulated_busy_time_ms": 100 * now_s}},
    ]  # fmt: skip
    source = {**SOURCE, "Source__s.numRecordsIn": {"sum": read},
              "Source__s.pendingRecords": {"sum": 0.0}}  # fmt: skip
    flink = {"s": source, "t": {"busyTimeMsPerSecond": {"max": 100.0}}} | (metrics or {})
    return {
        "now_ms": 1000 * now_s, "job_running_ts_ms": 0, "vertices": vertices,
        "flink_metrics": flink, **given,
    }  # fmt: skip


def trace(*ticks, conf=None):
    run = Trace({"conf": {**CONF, **(conf or {})}, "ticks": ticks})
    return [run.tick(one) for one in ticks]


def test_a_trace_evaluates_while_it_stabilises_and_decides_when_the_window_is_full():
    out = trace(*(tick(30 * i) for i in range(1, 8)))
    assert ["evaluated" in o for o in out] == [False] + [True] * 6
    assert [o["scaled"] or o["balanced"] for o in out] == [False] * 5 + [True] * 2
    assert out[4]["evaluated"]["t"]["RECOMMENDED_PARALLELISM"] is None
    # t: 100/s at a tenth of the time is 1000/s, far above 100/s: down to 40 %, 2 tasks.
    assert out[5]["scaled"]
    assert out[5]["parallelism_overrides"]["t"] == 2
    assert out[5]["evaluated"]["t"]["RECOMMENDED_PARALLELISM"] == {"current": 2}
    assert out[5]["event_reasons"] == ["ScalingReport"]


def test_while_a_job_does_not_run_nothing_is_collected_and_overrides_stay():
    ticks = [tick(30 * i) for i in range(1, 7)] + [tick(210, job_status="CREATED")]
    out = trace(*ticks)
    assert "evaluated" not in out[6]
    assert out[6]["window_samples"] == out[5]["window_samples"]
    assert out[6]["parallelism_overrides"] == out[5]["parallelism_overrides"]
    out = trace(*ticks[:6], tick(210, conf={}))
    assert out[6]["parallelism_overrides"] == {}  # switched off: all is forgotten
    assert out[6]["window_samples"] == 0


def test_a_sources_missing_metric_is_silent_while_the_job_stabilises_and_an_error_later():
    """Flink asks for the names of a source's metrics on every pass (ScalingMetricCollector)."""
    gone = {"s": {}}
    out = trace(tick(10, gone), tick(20), tick(30, gone), tick(90, gone))
    assert [o["error"] for o in out] == [False, False, False, True]
    assert [o["window_samples"] for o in out] == [0, 1, 1, 1]
    assert out[3]["event_reasons"] == ["AutoscalerError"]


def test_busy_time_that_another_vertex_stops_reporting_leaves_it_out():
    """Flink keeps the names of its metrics; what they no longer report is unknown, no error."""
    gone = {"t": {}}
    out = trace(tick(10, gone), *(tick(30 * i) for i in range(1, 6)), tick(180, gone))
    assert [o["window_samples"] for o in out] == [0, 1, 2, 3, 4, 5, 5]
    assert not any(o["error"] for o in out)
    assert out[6]["balanced"]  # t alone is outside its thresholds, and it is left out
    whole = trace(*(tick(30 * i) for i in range(1, 7)))
    assert whole[5]["parallelism_overrides"] == {"s": 6, "t": 2}
    out = trace(tick(90, gone))
    assert out[0]["error"]  # never seen
    ended = tick(60)
    ended["vertices"][0]["finished"] = True
    out = trace(ended, tick(90, gone))
    assert out[1]["error"]  # beside a finished vertex all names are asked for again


def test_a_finished_vertex_reports_nothing_of_what_it_once_read():
    row = sample({}, finished=True, records_in=7.0, records_out=8.0, busy_ms=9.0)
    assert [row[SCALING_METRICS.index(name)] for name in COUNTERS] == [0.0, 0.0, 0.0]


def test_a_vertex_without_busy_time_is_left_out_but_feeds_what_follows():
    ticks = [tick(30 * i) for i in range(1, 7)]
    for one in ticks:
        one["flink_metrics"]["s"]["busyTimeMsPerSecond"] = {"max": "NaN"}
    out = trace(*ticks)
    assert out[5]["parallelism_overrides"] == {"s": 4, "t": 2}
    assert out[5]["evaluated"]["s"]["LOAD"] == {}


def document(**given):
    history = [
        {"ts_ms": 60_000 * i,
         "vertex_metrics": {"s": {"NUM_RECORDS_IN": 6000 * i, "LOAD": 0.5, "LAG": 0}}}
        for i in range(3)
    ]  # fmt: skip
    vertices = [{"name": "s", "parallelism": 4, "max_parallelism": 128}]
    base = {"id": "one", "now_ms": 120_000, "conf": {}, "vertices": vertices, "history": history}
    return base | given


def test_a_decision_document_is_answered_with_the_fields_of_the_real_classes():
    answer = decision(document())
    assert answer["id"] == "one"
    assert answer["evaluated"]["s"]["TRUE_PROCESSING_RATE"] == {"average": 200}
    # 100/s, 200/s possible: within 100 .. 267. 160 needed: 4 * 0.8 = 3.2 tasks, no change.
    assert answer["vertex_changes"]["s"] == {"current": 4, "new": 4}
    assert answer["scaled"] is False
    assert "global" not in answer


def test_infinity_times_nothing_is_recorded_as_an_unknown_expectation():
    history = document()["history"]
    for sample in history:
        sample["vertex_metrics"]["s"]["NUM_RECORDS_IN"] = 0
    conf = {"job.autoscaler.scale-down.max-factor": "1.0",
            "job.autoscaler.scale-down.interval": "0 s"}  # fmt: skip
    answer = decision(document(history=history, conf=conf))
    assert answer["vertex_changes"]["s"] == {
        "current": 4, "new": 1, "outside_utilization_bound": True,
        "expected_processing_rate": "NaN",
    }  # fmt: skip


def test_a_source_without_a_rate_is_the_error_that_flink_throws():
    answer = decision(document(history=document()["history"][:1]))
    assert "Cannot evaluate metrics" in answer["error"]
    assert answer["event_reasons"] == ["AutoscalerError"]


def test_an_idle_vertex_aborts_the_pass_with_observed_scalability():
    entry = {"ts_ms": 0, "current_parallelism": 2, "new_parallelism": 4,
             "true_processing_rate": 0, "expected_processing_rate": 0}  # fmt: skip
    conf = {"job.autoscaler.observed-scalability.enabled": "true",
            "job.autoscaler.observed-scalability.min-observations": "1"}  # fmt: skip
    answer = decision(document(conf=conf, scaling_history={"s": [entry]}))
    assert answer["event_reasons"] == ["AutoscalerError"]


def test_where_flink_throws_vertices_visited_before_have_raised_their_events():
    """Java's hash map holds `op1` before `op0`; both would be aligned to less than they need."""
    history = [
        {"ts_ms": 60_000 * i, "vertex_metrics": {
            "s": {"NUM_RECORDS_IN": 6000 * i, "LOAD": 0.9, "LAG": 0},
            "op0": {"NUM_RECORDS_IN": 6000 * i, "LOAD": 0.9},
            "op1": {"NUM_RECORDS_IN": 6000 * i, "LOAD": 0.9}}}
        for i in range(3)
    ]  # fmt: skip
    vertices = [
        {"name": "s", "parallelism": 4, "max_parallelism": 128},
        {"name": "op0", "inputs": {"s": "HASH"}, "parallelism": 25, "max_parallelism": 47},
        {"name": "op1", "inputs": {"s": "HASH"}, "parallelism": 25, "max_parallelism": 47},
    ]
    entry = {"ts_ms": 0, "current_parallelism": 2, "new_parallelism": 4,
             "true_processing_rate": 0, "expected_processing_rate": 0}  # fmt: skip
    conf = {"job.autoscaler.observed-scalability.enabled": "true",
            "job.autoscaler.observed-scalability.min-observations": "1",
            "job.autoscaler.vertex.max-parallelism": "40"}  # fmt: skip
    given = {"history": history, "vertices": vertices, "conf": conf}
    events = ["ScalingLimited", "ScalingLimited"]
    assert decision(document(**given))["event_reasons"][:2] == events
    for idle, raised in (("op1", []), ("op0", events[:1]), ("s", events[:1])):
        answer = decision(document(**given, scaling_history={idle: [entry]}))
        assert answer["event_reasons"] == [*raised, "AutoscalerError"]
        assert answer["error"] == "the scaling coefficient is not a number"
        assert not answer["scaled"]


def test_a_decision_takes_the_whole_history_it_is_given():
    """Four scalings where three are remembered: the loop forgets, a decision does not."""
    past = [
        {"ts_ms": 1000 * i, "current_parallelism": p, "new_parallelism": 2 * p,
         "true_processing_rate": 100.0, "expected_processing_rate": 200.0}
        for i, p in enumerate((2, 2, 2, 2))
    ]  # fmt: skip
    past[0]["true_processing_rate"] = 40.0  # 20 a task, then 50: (40 + 3 * 100) / 4 of 100
    conf = {"job.autoscaler.observed-scalability.enabled": "true",
            "job.autoscaler.observed-scalability.min-observations": "4",
            "job.autoscaler.scale-down.interval": "0 s"}  # fmt: skip
    # 160 of 200/s are needed; by 0.85 of linear scaling 0.95 of the tasks instead of 0.8.
    found = decision(document(conf=conf, scaling_history={"s": past}))
    assert found["vertex_changes"]["s"] == {"current": 4, "new": 4}
    eight = [{"name": "s", "parallelism": 20, "max_parallelism": 128}]
    change = decision(document(conf=conf, scaling_history={"s": past}, vertices=eight))
    assert change["vertex_changes"]["s"]["new"] == 19
    three = decision(document(conf=conf, scaling_history={"s": past[1:]}, vertices=eight))
    assert three["vertex_changes"]["s"]["new"] == 16


def decide(text: str, *arguments: str):
    return CliRunner().invoke(app, ["decide", "-", *arguments], input=text)


def test_decide_answers_documents_and_traces_on_the_command_line():
    lines = "".join(f"{json.dumps(document(id=i))}\n" for i in (1, 2))
    result = decide(lines, "--policy", "flink-autoscaler")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [1, 2]
    run = {"id": "t", "conf": CONF, "ticks": [{"in": tick(30 * i), "out": {}} for i in (1, 2)]}
    result = decide(json.dumps(run), "--policy", "flink-autoscaler", "--trace")
    assert result.exit_code == 0, result.output
    (answer,) = map(json.loads, result.stdout.splitlines())
    assert answer["id"] == "t"
    assert [set(t) for t in answer["ticks"]] == [{"out"}, {"out"}]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("{}", ["--policy", "ds2", "--trace"], "cannot read traces"),
        ("{}", ["--policy", "flink-autoscaler"], "has no 'vertices'"),
        ("{}", ["--policy", "flink-autoscaler", "--trace"], "has no 'ticks'"),
        ("[1]", ["--policy", "flink-autoscaler", "--trace"], "cannot be read"),
        ("{", ["--policy", "flink-autoscaler"], "not valid JSON"),
        (json.dumps(document(conf={"job.autoscaler.windw": "1"})), ["--policy", "flink-autoscaler"],
         "unknown key of the autoscaler"),
        (json.dumps(document(vertices=[{"name": "a", "parallelism": 1, "max_parallelism": 2,
                                        "inputs": {"b": "HASH"}}])),
         ["--policy", "flink-autoscaler"], "waits for an input that never comes"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_with_its_line(text, arguments, message):
    result = decide(text, *arguments)
    assert result.exit_code == 2
    assert message in result.output
