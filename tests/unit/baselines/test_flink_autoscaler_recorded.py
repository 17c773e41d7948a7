"""Decisions of Flink's real autoscaler classes, release 1.15.0, on random small jobs.

`flink_decisions.jsonl` holds inputs and answers as numbers: windows, graphs and histories drawn at
random, the answers what `ScalingMetricEvaluator`, `JobVertexScaler` and `ScalingExecutor` gave for
them. Together they reach excluded vertices, observed scalability with histories longer than
`history.max.count`, several limited and ineffective vertices, delayed scale-downs, quotas, memory
pressure and tuning, advice only, idle vertices, and passes that the classes abort.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from baselines.flink_autoscaler.answers import decision
from baselines.studies.autoscaler_checks import decision_answers, differences, wrong

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "flink_decisions.jsonl").read_text("utf-8").splitlines()
]
EXCLUDE = "job.autoscaler.vertex.exclude.ids"
SCALABILITY = "job.autoscaler.observed-scalability.enabled"


def answered(line: dict[str, Any]) -> dict[str, Any]:
    return line["expected"]["1.15.0"]


def moves_excluded(line: dict[str, Any]) -> bool:
    """Whether a vertex that is left out would change otherwise."""
    left_out = line["conf"].get(EXCLUDE, "").split(";")
    changes = answered(line).get("vertex_changes", {})
    return any(c["new"] != c["current"] for name, c in changes.items() if name in left_out)


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_every_field_is_what_flinks_classes_answer(line):
    assert wrong([line], decision_answers) == {}
    found = decision({k: v for k, v in line.items() if k != "expected"})
    expected = answered(line)
    # Nor is there anything they do not say.
    assert set(found) <= {*expected, "id", "error"}
    for part in ("vertex_changes", "parallelism_overrides", "delayed", "config_overrides"):
        assert differences(found.get(part, {}), expected.get(part, {})) == []


def test_the_recorded_decisions_reach_every_kind_of_rule():
    events = [Counter(answered(line)["event_reasons"]) for line in LINES]
    for reason in (
        "ScalingReport", "MemoryPressure", "ResourceQuotaReached", "Configuration recommendation",
        "AutoscalerError", "IneffectiveScaling",
    ):  # fmt: skip
        assert any(reason in raised for raised in events)
    assert any(raised["ScalingLimited"] > 1 for raised in events)
    assert any(raised["ScalingLimited"] and raised["IneffectiveScaling"] for raised in events)
    assert sum(map(moves_excluded, LINES)) >= 3
    fitted = [line for line in LINES if SCALABILITY in line["conf"]]
    longest = [max(map(len, line.get("scaling_history", {"": []}).values())) for line in fitted]
    assert sum(length > 3 for length in longest) >= 3  # more than history.max.count
    assert sum(bool(answered(line)["delayed"]) for line in LINES) >= 3
    assert sum("config_overrides" in answered(line) for line in LINES) >= 2
