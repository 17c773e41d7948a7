"""Decisions of Flink's autoscaler against a second implementation of its rules, for any window."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.flink_autoscaler.answers import decision
from baselines.studies.autoscaler_checks import differences
from tests.flink_rules import Decision

NOW = 1_750_000_000_000
HOUR = 3_600_000
CHOICES = {
    "utilization.target": ("0.5", "0.7", "1.0"),
    "target.utilization.boundary": ("0.1", "0.4"),
    "utilization.max": ("0.8", "1.0"),
    "utilization.min": ("0.0", "0.4", "0.65"),
    "catch-up.duration": ("0 s", "30 s", "1 h"),
    "restart.time": ("0 s", "1 min"),
    "scale-down.interval": ("0 s", "30 min", "1 h"),
    "scale-down.max-factor": ("0.0", "0.2", "1.0"),
    "scale-up.max-factor": ("0.5", "2.0"),
    "vertex.min-parallelism": ("4", "300"),
    "vertex.max-parallelism": ("1", "24", "400"),
    "metrics.busy-time.aggregator": ("AVG", "MAX", "MIN"),
    "scaling.key-group.partitions.adjust.mode": ("EVENLY_SPREAD", "MAXIMIZE_UTILISATION"),
    "backlog-processing.lag-threshold": ("1 s", "30 s"),
    "observed-true-processing-rate.min-observations": ("1", "3"),
    "observed-true-processing-rate.switch-threshold": ("0.0", "0.5"),
    "scaling.effectiveness.detection.enabled": ("true", "false"),
    "scaling.effectiveness.threshold": ("0.05", "0.8"),
    "observed-scalability.enabled": ("true",),
    "observed-scalability.min-observations": ("1", "4"),
    "observed-scalability.coefficient-min": ("0.001", "0.333", "0.8"),
    "scaling.enabled": ("false",),
    "memory.gc-pressure.threshold": ("0.9",),
    "memory.heap-usage.threshold": ("0.9",),
    "quota.cpu": ("8.0", "32.0"),
    "quota.memory": ("16 gb", "64 gb"),
}
"""Values of the options that a decision depends on; half of them are left at their defaults."""

share = st.floats(0.0, 1.0).map(lambda x: round(x, 3))
factors = st.sampled_from([0.2, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0])


@st.composite
def configurations(draw, names: list[str]) -> dict[str, str]:
    conf = {}
    for key, values in CHOICES.items():
        if draw(st.booleans()):
            conf[f"job.autoscaler.{key}"] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        left_out = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        conf["job.autoscaler.vertex.exclude.ids"] = ";".join(left_out)
    return conf | {"taskmanager.numberOfTaskSlots": draw(st.sampled_from("124"))}


@st.composite
def graphs(draw) -> list[dict[str, Any]]:
    sources, operators = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    found: list[dict[str, Any]] = []
    for i in range(sources + operators):
        groups = draw(st.sampled_from([24, 97, 128, 360]))
        vertex: dict[str, Any] = {
            "name": f"src{i}" if i < sources else f"op{i - sources}",
            "parallelism": min(groups, draw(st.sampled_from([1, 2, 5, 10, 16, 40]))),
            "max_parallelism": groups,
            "slot_sharing_group": draw(st.sampled_from(["g0", "g1"])),
        }
        if i < sources:
            vertex["num_source_partitions"] = draw(st.sampled_from([0, 7, 30, 97]))
        else:
            before = [v["name"] for v in found]
            into = draw(st.lists(st.sampled_from(before), min_size=1, max_size=2, unique=True))
            ships = st.sampled_from(["HASH", "FORWARD", "REBALANCE", "RESCALE"])
            vertex["inputs"] = {name: draw(ships) for name in into}
        found.append(vertex)
    return found


@st.composite
def windows(draw, vertices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two or three samples a minute apart; some vertices read nothing, others are never busy."""
    count, base = draw(st.integers(2, 3)), draw(st.sampled_from([3.0, 1234.5, 80_000.0]))
    samples = [
        {
            "ts_ms": NOW - 60_000 * (count - 1 - i),
            "vertex_metrics": {},
            "global_metrics": {"GC_PRESSURE": draw(share), "HEAP_MAX_USAGE_RATIO": draw(share)},
        }
        for i in range(count)
    ]
    for v in vertices:
        rate = draw(st.sampled_from([0.0, 0.3, 1.0, 1.0, 1.7])) * base
        busy, out = draw(share), draw(factors)
        lag, growth = draw(st.sampled_from([0.0, 10.0, 900.0])), draw(st.sampled_from([-9, 0, 20]))
        for i, sample in enumerate(samples):
            read = round(60.0 * rate * i)
            metrics = {
                "NUM_RECORDS_IN": 1000 + read,
                "NUM_RECORDS_OUT": 500 + round(out * read),
                "ACCUMULATED_BUSY_TIME": round(60_000.0 * busy * v["parallelism"] * i, 3),
                "LOAD": min(1.0, round(busy * draw(st.sampled_from([0.9, 1.0, 1.2])), 3)),
            }
            if "inputs" not in v:
                metrics["LAG"] = round(max(0.0, base * (lag + growth * i)), 3)
                if draw(st.booleans()):
                    metrics["OBSERVED_TPR"] = draw(
                        st.sampled_from([round(1.5 * rate, 3), round(4 * rate, 3), "Infinity"])
                    )
            sample["vertex_metrics"][v["name"]] = metrics
    return samples


@st.composite
def pasts(draw, vertices: list[dict[str, Any]], base: float) -> dict[str, list[dict[str, Any]]]:
    """Up to five scalings of a vertex, the last of which may have led to where it runs."""
    found = {}
    for v in vertices:
        steps = draw(st.lists(st.sampled_from([1, 2, 3, 8, 17]), max_size=5))
        last = draw(st.sampled_from([v["parallelism"], 6]))
        entries, path = [], [*steps, last]
        for i, (p, q) in enumerate(pairwise(path)):
            rate = round(base * p * draw(factors), 3)
            entries.append({
                "ts_ms": NOW - HOUR * (len(steps) - i),
                "current_parallelism": p, "new_parallelism": q + (p == q),
                "true_processing_rate": rate,
                "expected_processing_rate": round(rate * draw(factors), 3),
            })  # fmt: skip
        if entries:
            found[v["name"]] = entries
    return found


@st.composite
def documents(draw) -> dict[str, Any]:
    vertices = draw(graphs())
    names = [v["name"] for v in vertices]
    waiting = st.tuples(
        st.sampled_from(names), st.integers(1, 89), st.integers(1, 40), st.booleans()
    )
    asked = sorted(draw(st.lists(waiting, max_size=6)), key=lambda w: -w[1])
    return {
        "id": "any",
        "now_ms": NOW,
        "conf": draw(configurations(names)),
        "vertices": vertices,
        "tm_cpu": 2.0,
        "tm_memory": "4 gb",
        "history": draw(windows(vertices)),
        "scaling_history": draw(pasts(vertices, draw(st.sampled_from([1.0, 300.0, 20_000.0])))),
        "delayed_scale_down": [
            {"vertex": name, "ts_ms": NOW - 60_000 * minutes, "parallelism": p,
             "outside_utilization_bound": outside}
            for name, minutes, p, outside in asked
        ],
    }  # fmt: skip


@given(documents())
def test_every_field_of_a_decision_follows_the_published_rules(document):
    found = decision(document)
    found["event_reasons"] = [e for e in found["event_reasons"] if e[:13] != "Configuration"]
    expected = Decision(document).answer()
    assert differences(expected, found) == []
    kept = {name: found[name] for name in expected}
    assert set(kept["vertex_changes"]) == set(expected["vertex_changes"])
    for name, change in expected["vertex_changes"].items():
        assert set(kept["vertex_changes"][name]) == set(change)
    order = Decision(document).visited()
    assert list(kept["delayed"]) == [name for name in order if name in kept["delayed"]]


@given(documents(), st.data())
def test_an_excluded_vertex_is_reported_and_never_rescaled(document, data):
    name = data.draw(st.sampled_from([v["name"] for v in document["vertices"]]))
    conf = {k: v for k, v in document["conf"].items() if "exclude" not in k}
    free = decision({**document, "conf": conf})
    kept = decision({**document, "conf": conf | {"job.autoscaler.vertex.exclude.ids": name}})
    assert kept["vertex_changes"] == free["vertex_changes"]
    assert kept["evaluated"] == free["evaluated"]
    running = {v["name"]: v["parallelism"] for v in document["vertices"]}
    if kept["scaled"]:
        assert kept["parallelism_overrides"][name] == running[name]
    raised = Counter(kept["event_reasons"])
    limited = ("ScalingLimited", "IneffectiveScaling")
    assert all(raised[event] <= Counter(free["event_reasons"])[event] for event in limited)


@given(
    steps=st.lists(st.tuples(st.integers(1, 30), st.floats(0.5, 4000.0)), min_size=1, max_size=6),
    least=st.integers(1, 5),
    lowest=st.sampled_from([0.001, 0.333, 0.5, 0.8]),
)
@settings(max_examples=50)
def test_less_than_linear_scaling_raises_what_is_asked_for_by_its_coefficient(steps, least, lowest):
    """One source that needs 0.5 of its rate; its past says how much a task more brought."""
    past = [
        {"ts_ms": NOW - HOUR * (len(steps) - i), "current_parallelism": p, "new_parallelism": 99,
         "true_processing_rate": round(rate, 3), "expected_processing_rate": 1.0}
        for i, (p, rate) in enumerate(steps)
    ]  # fmt: skip
    metrics = {"LOAD": 0.5, "LAG": 0.0, "NUM_RECORDS_OUT": 0}
    document = {
        "now_ms": NOW,
        "conf": {
            "job.autoscaler.observed-scalability.enabled": "true",
            "job.autoscaler.observed-scalability.min-observations": str(least),
            "job.autoscaler.observed-scalability.coefficient-min": str(lowest),
            "job.autoscaler.scale-down.interval": "0 s",
            "job.autoscaler.utilization.target": "1.0",
            "job.autoscaler.restart.time": "0 s",
            "job.autoscaler.scale-down.max-factor": "1.0",
            "job.autoscaler.vertex.max-parallelism": "100000",
        },
        "vertices": [{"name": "s", "parallelism": 1000, "max_parallelism": 32768}],
        "history": [
            {"ts_ms": NOW - 60_000 * (1 - i),
             "vertex_metrics": {"s": {**metrics, "NUM_RECORDS_IN": 6_000_000 * i}}}
            for i in range(2)
        ],
        "scaling_history": {"s": past},
    }  # fmt: skip
    change = decision(document)["vertex_changes"]["s"]
    alpha = Decision(document).alpha(past) if len(past) >= least else 1.0
    # Rounded up to hundredths after the lower bound was applied: 0.333 becomes 0.34.
    assert lowest <= alpha <= 1.0
    assert change.get("expected_processing_rate", 200_000.0) == round(200_000.0 * (0.5 / alpha), 3)
