"""The metrics of a loop: read back with Prometheus' own parser."""

from __future__ import annotations

import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsp_gym.backends.upstream.deadlines import within
from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.control.guarded_policy import FaultCounts
from dsp_gym.control.serve import exporter
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.exporter import Exporter
from dsp_gym.errors import FlinkError, KubernetesError
from dsp_gym.loop.watchers import WatcherFailures
from dsp_gym.version import __version__
from tests.unit.control.serve.conftest import ask

OF_UPSTREAMS = {"upstream_late": {"upstream"}, "upstream_abandoned": {"upstream"}}
"""Of the process: none until a server was late."""

OF_PROCESS = {"build_info": {"version"}}
"""Of the process, whether it has jobs or none."""

NAMES = {
    "current_parallelism": {"vertex"},
    "recommended_parallelism": {"vertex", "policy"},
    "allowed_parallelism": {"vertex", "policy"},
    "baseline_parallelism": {"vertex", "baseline"},
    "current_memory_level": {"vertex"},
    "recommended_memory_level": {"vertex", "policy"},
    "decision_seconds": {"policy"},
    "decisions": {"policy"},
    "held": {"reason"},
    "data_age_seconds": set(),
    "window_fill": set(),
    "rescaling": set(),
    "guard_trips": {"policy", "guardrail"},
    "fallback_active": {"policy"},
    "policy_failures": {"policy", "cause"},
    "api_errors": {"api", "reason"},
    "condition": {"condition"},
    "paused": set(),
    "mode": {"mode"},
    "policy_info": {"policy", "version", "sha256"},
    "model_info": {"job_file", "sha256"},
    "predicted_cost_per_hour": {"policy", "currency"},
    "writes": {"outcome"},
    "running_cost_per_month": {"currency"},
    "load_records_per_second": set(),
    "backlog_seconds": set(),
    "latency_p95_seconds": set(),
    "slo_latency_seconds": set(),
    "late_for_seconds": set(),
    "late_share": set(),
}


@pytest.fixture(autouse=True)
def faults(monkeypatch) -> FaultCounts:
    """Those of a process of its own."""
    counts = FaultCounts()
    monkeypatch.setattr(exporter, "FAULTS", counts)
    return counts


def scraped(session):
    text = ask(f"{session.server.url}/metrics").text
    return {
        family.name.removeprefix("dsp_gym_"): family.samples
        for family in text_string_to_metric_families(text)
    }


def value(families, name, **labels):
    found = [sample.value for sample in families[name] if labels.items() <= sample.labels.items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_every_metric_of_the_interface_is_there_with_its_labels(serving):
    session = serving()
    session.run.run(steps=30)
    families = scraped(session)
    assert set(families) - set(OF_UPSTREAMS) - set(OF_PROCESS) == set(NAMES)
    for name, labels in NAMES.items():
        for sample in families[name]:
            found = set(sample.labels) - {"namespace", "job", "le"}
            assert found == labels, (name, sample)
            assert sample.labels["job"] == "flink-wordcount"


def test_a_process_says_that_it_runs_once_whether_it_has_jobs_or_none(serving):
    boards = Boards()
    boards.fail("orders", "flink", "its job file cannot be read")
    for text in (
        Exporter(Boards()).text().decode(),
        Exporter(boards).text().decode(),
        ask(f"{serving().server.url}/metrics").text,
    ):
        families = text_string_to_metric_families(text)
        (found,) = (s for one in families for s in one.samples if s.name == "dsp_gym_build_info")
        assert (found.labels, found.value) == ({"version": __version__}, 1)


def test_the_numbers_are_those_of_the_status(serving):
    session = serving()
    session.run.run(steps=30)
    families, document = scraped(session), session.board.document()
    for vertex in document["vertices"]:
        name, ds2 = vertex["name"], vertex["policies"]["ds2"]
        running = vertex["current"]["parallelism"]
        assert value(families, "current_parallelism", vertex=name) == running
        assert value(families, "baseline_parallelism", vertex=name) == running
        both = {"vertex": name, "policy": "ds2"}
        assert value(families, "recommended_parallelism", **both) == ds2["uncapped"]
        assert value(families, "allowed_parallelism", **both) == ds2["target"]
    assert value(families, "decisions", policy="ds2") == 30
    assert value(families, "mode", mode="shadow") == 1
    assert value(families, "mode", mode="active") == 0
    assert value(families, "condition", condition="Ready") == 1
    counted = [s for s in families["decision_seconds"] if s.name.endswith("_count")]
    assert {s.labels["policy"]: s.value for s in counted} == {"network": 30, "ds2": 30}


def test_recommendations_are_absent_until_the_window_is_full_and_while_nothing_is_seen(
    serving, monkeypatch
):
    session = serving()
    session.run.turn()
    families = scraped(session)
    assert "recommended_parallelism" not in families
    assert "current_parallelism" in families
    assert value(families, "window_fill") < 1
    session.run.run(steps=4)
    assert "recommended_parallelism" in scraped(session)

    def refuses():
        raise FlinkError("not today", api="prometheus", reason="Timeout")

    monkeypatch.setattr(session.run.backend.collector, "snapshot", refuses)
    session.run.turn()
    families = scraped(session)
    assert "recommended_parallelism" not in families
    assert "current_parallelism" not in families
    assert value(families, "api_errors", api="prometheus", reason="Timeout") == 1
    assert value(families, "held", reason="collector") == 1
    assert value(families, "condition", condition="Ready") == 0


@pytest.mark.parametrize(
    ("error", "api", "reason"),
    [
        (FlinkError("not today"), "flink", "Other"),
        (FlinkError("the job has gone home", reason="NotFound"), "flink", "NotFound"),
        (FlinkError("{}", api="prometheus", reason="Timeout"), "prometheus", "Timeout"),
        (FlinkError("{}", api="prometheus", reason="NoMetrics"), "prometheus", "NoMetrics"),
        (KubernetesError("{}", reason="Unreachable"), "kubernetes", "Unreachable"),
        (FlinkError("no metrics of Prometheus within 5 s, refused"), "flink", "Other"),
        (TimeoutError("kubernetes"), "flink", "Timeout"),
        (ConnectionRefusedError("prometheus"), "flink", "Unreachable"),
        (KeyError("prometheus"), "flink", "Other"),
    ],
)
def test_failures_are_counted_by_what_the_error_carries_whatever_it_says(
    serving, monkeypatch, error, api, reason
):
    session = serving()

    def refuses(*given):
        raise error

    monkeypatch.setattr(session.run.backend.collector, "snapshot", refuses)
    session.run.turn()
    counted = {
        (s.labels["api"], s.labels["reason"]): s.value for s in scraped(session)["api_errors"]
    }
    assert counted == {(api, reason): 1}


def test_every_outcome_of_a_change_is_told_from_zero_on(serving):
    """A rate sees the first failed change only if the counter was there before it."""
    session = serving()
    outcomes = ("asked", "refused", "rolled_back", "reached", "failed", "restored", "left", "alarm")
    families = scraped(session)
    for outcome in outcomes:
        assert value(families, "writes", outcome=outcome) == 0
    session.run.writer.steps["failed"] += 1
    assert value(scraped(session), "writes", outcome="failed") == 1


def test_a_failing_policy_is_counted_by_cause(serving, monkeypatch):
    session = serving()
    session.run.run(steps=3)

    def raises(snapshot):
        raise ZeroDivisionError("no rate")

    monkeypatch.setattr(session.run.policies[0].policy, "decide", raises)
    session.run.run(steps=5)
    families = scraped(session)
    assert value(families, "policy_failures", policy="network", cause="raised") == 2
    assert value(families, "fallback_active", policy="network") == 1
    assert value(families, "fallback_active", policy="ds2") == 0


def test_what_fails_beside_a_decision_is_counted_by_policy(serving, faults):
    session = serving()
    session.run.run(steps=1)
    assert "faults_beside_decisions" not in scraped(session)
    for what in ("forecast", "plan", "plan"):
        faults.add("network", what, ValueError("no load yet"))
    found = scraped(session)
    assert value(found, "faults_beside_decisions", policy="network", what="forecast") == 1
    assert value(found, "faults_beside_decisions", policy="network", what="plan") == 2


def test_a_watcher_that_failed_is_counted(serving, monkeypatch):
    failures = WatcherFailures()
    monkeypatch.setattr("dsp_gym.control.serve.exporter.WATCHER_FAILURES", failures)
    session = serving()
    failures.add("lease", ValueError("nobody thought of this"))
    assert value(scraped(session), "watcher_failures", watcher="lease") == 1


def test_questions_that_a_server_answers_too_late_are_counted_by_server(serving):
    session, let_go = serving(), threading.Event()
    url = "http://late.example:9090"
    with pytest.raises(LateError):
        within(f"{url}/api", 0.01, lambda: let_go.wait(10))
    found = scraped(session)
    assert value(found, "upstream_late", upstream=url) == 1
    assert value(found, "upstream_abandoned", upstream=url) == 1
    let_go.set()
    until_s = time.monotonic() + 10
    while value(scraped(session), "upstream_abandoned", upstream=url):
        assert time.monotonic() < until_s
    assert value(scraped(session), "upstream_late", upstream=url) == 1
