from __future__ import annotations

import copy
import json
from dataclasses import fields

import numpy as np
import pytest

from dsp_gym.errors import SchemaError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop import wire
from dsp_gym.loop.decision import GuardedDecision, Intervention, ScalingDecision
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot


def document(**changes):
    """The least a sender has to say about a job of two vertices."""
    return {
        "schema": "dsp-gym/snapshot/1",
        "job": "pay",
        "t_s": 60.0,
        "status": "RUNNING",
        "metrics": {"window_s": 120, "window_fill": 1},
        "vertices": [
            {
                "name": "sum",
                "inputs": [{"from": "in", "ship": "HASH"}],
                "stateful": True,
                "parallelism": 3,
                "memory_level": 1,
                "metrics": {"busy_ms_per_s": 512.5},
            },
            {"name": "in", "kind": "source", "parallelism": 2, "metrics": {}},
        ],
    } | changes


def test_every_metric_of_a_snapshot_is_described():
    assert set(wire.MEANINGS) == set(PER_JOB + PER_VERTEX) - {
        "t_s",
        "status",
        "parallelism",
        "memory_level",
    }


def test_vertices_come_in_any_order_and_end_up_in_topological_order():
    snapshot = wire.snapshot_from_json([document()])
    assert snapshot.topology.names(0) == ("in", "sum")
    assert snapshot.parallelism.tolist() == [[2, 3]]
    assert snapshot.memory_level.tolist() == [[-1, 1]]
    assert snapshot.job(0).vertex("sum", "busy_ms_per_s") == 512.5


def test_what_is_not_said_is_unknown():
    job = wire.snapshot_from_json([document()]).job(0)
    assert job.get("latency_p95_s") is None
    assert job.vertex("in", "busy_ms_per_s") is None
    assert job.status is Status.RUNNING


def test_facts_reach_the_tables_a_policy_reads():
    changed = document(slo={"latency_s": 0.5}, max_parallelism_per_vertex=8)
    changed["vertices"][0]["slot_sharing_group"] = changed["vertices"][1]["slot_sharing_group"] = (
        "default"
    )
    tables = wire.snapshot_from_json([changed]).topology.tables
    assert tables.slo_s.tolist() == [0.5]
    assert tables.max_parallelism.tolist() == [[2, 8]]  # a source keeps its parallelism
    assert tables.stateful.tolist() == [[0, 1]]
    assert tables.slot_sharing.tolist() == [1]


def test_jobs_of_different_shapes_share_a_batch():
    longer = document(job="long")
    longer["vertices"] = [
        *longer["vertices"],
        {"name": "out", "kind": "sink", "inputs": [{"from": "sum"}], "parallelism": 1,
         "metrics": {}},
    ]  # fmt: skip
    snapshot = wire.snapshot_from_json([document(), longer])
    assert snapshot.topology.mask.tolist() == [[True, True, False], [True, True, True]]
    assert np.isnan(snapshot.busy_ms_per_s[0, 2])


@pytest.mark.parametrize(
    ("schema", "shown"),
    [("dsp-gym/snapshot/2", "'dsp-gym/snapshot/2'"), (None, "the key 'schema' is missing")],
)
def test_another_version_is_refused_with_the_version_we_read(schema, shown):
    changed = document(schema=schema)
    with pytest.raises(SchemaError, match="reads 'dsp-gym/snapshot/1'") as error:
        wire.snapshot_from_json([changed], "in.jsonl:7")
    assert shown in str(error.value)
    assert str(error.value).startswith("in.jsonl:7")


def test_a_wrong_value_names_its_key():
    changed = document()
    changed["vertices"][0]["metrics"]["busy_ms_per_s"] = "much"
    with pytest.raises(SchemaError, match=r"vertices\[0\]\.metrics\.busy_ms_per_s.*'much'"):
        wire.snapshot_from_json([changed])


def test_an_unknown_metric_gets_a_suggestion():
    changed = document()
    changed["vertices"][0]["metrics"]["busy_ms"] = 1.0
    with pytest.raises(SchemaError, match="Did you mean 'busy_ms_per_s'"):
        wire.snapshot_from_json([changed])


def test_nan_is_no_json_number():
    changed = document(t_s=float("nan"))
    with pytest.raises(SchemaError, match="t_s"):
        wire.snapshot_from_json([changed])


def test_an_impossible_graph_is_refused():
    changed = document()
    changed["vertices"][0]["inputs"] = [{"from": "nowhere"}]
    with pytest.raises(SchemaError, match="unknown vertex 'nowhere'"):
        wire.snapshot_from_json([changed])


def test_a_level_the_job_does_not_have_is_refused():
    changed = document()
    changed["vertices"][0]["memory_level"] = 3
    with pytest.raises(SchemaError, match=r"runs level 3, the job has levels -1\.\.2"):
        wire.snapshot_from_json([changed])


def test_more_subtasks_than_the_quota_allows_are_refused():
    changed = document(max_parallelism_per_vertex=2)
    with pytest.raises(SchemaError, match="'sum' runs 3 subtasks, the highest is 2"):
        wire.snapshot_from_json([changed])


def test_a_job_begins_with_what_it_was_submitted_with_or_with_what_runs():
    changed = document()
    changed["vertices"][0]["start_parallelism"] = 5
    tables = wire.snapshot_from_json([changed]).topology.tables
    assert tables.start_parallelism.tolist() == [[2, 5]]


def guarded(snapshot: MetricsSnapshot) -> GuardedDecision:
    proposed = ScalingDecision(np.array([[2, 9]]), np.array([[-1, 1]]), ("demand rose",))
    return GuardedDecision(
        np.array([[2, 4]]),
        np.array([[-1, 1]]),
        proposed,
        np.array([[True]]),
        (Intervention(0, "step-limit", "9 is more than 3 + 1"),),
    )


def test_a_decision_says_what_was_wanted_and_what_was_changed():
    snapshot = wire.snapshot_from_json([document()])
    answer = wire.decision_to_json(guarded(snapshot), snapshot.job(0))
    assert answer["schema"] == "dsp-gym/decision/1"
    assert (answer["job"], answer["t_s"], answer["changed"]) == ("pay", 60.0, True)
    assert answer["reason"] == "demand rose"
    assert answer["vertices"][1] == {"name": "sum", "parallelism": 4, "memory_level": 1}
    assert answer["proposed"][1] == {"name": "sum", "parallelism": 9, "memory_level": 1}
    assert answer["interventions"] == [
        {"guardrail": "step-limit", "reason": "9 is more than 3 + 1"}
    ]


def test_a_decision_equal_to_what_runs_changes_nothing():
    snapshot = wire.snapshot_from_json([document()])
    same = ScalingDecision(snapshot.parallelism, snapshot.memory_level, ("steady",))
    answer = wire.decision_to_json(same, snapshot.job(0))
    assert answer["changed"] is False
    assert answer["proposed"] is None


def test_a_decision_comes_back_as_it_was_sent():
    snapshot = wire.snapshot_from_json([document()])
    answer = json.loads(json.dumps(wire.decision_to_json(guarded(snapshot), snapshot.job(0))))
    back = wire.decision_from_json([answer], snapshot.topology)
    assert back.parallelism.tolist() == [[2, 4]]
    assert back.memory_level.tolist() == [[-1, 1]]
    assert back.reasons == ("demand rose",)


def test_a_decision_on_other_vertices_is_refused():
    snapshot = wire.snapshot_from_json([document()])
    answer = wire.decision_to_json(guarded(snapshot), snapshot.job(0))
    answer["vertices"][1]["name"] = "total"
    with pytest.raises(SchemaError, match="has in, sum"):
        wire.decision_from_json([answer], snapshot.topology)


def test_the_json_schemas_describe_the_documents():
    schema = wire.json_schema(wire.SNAPSHOT_SCHEMA)
    assert schema["$id"] == "dsp-gym/snapshot/1"
    assert set(document()) <= set(schema["properties"])
    assert "changed" in wire.json_schema(wire.DECISION_SCHEMA)["properties"]
    with pytest.raises(SchemaError, match="reads 'dsp-gym/snapshot/1' and"):
        wire.json_schema("dsp-gym/snapshot/0")


def test_every_field_of_a_snapshot_travels():
    sent = {"t_s", "status", "topology", *wire.MEANINGS, "parallelism", "memory_level"}
    assert {f.name for f in fields(MetricsSnapshot)} == sent


def test_a_changed_document_changes_no_other() -> None:
    seen = blank_snapshot(Topology.of([load_job("nexmark-q11")]))
    first = wire.snapshot_to_json(seen.job(0))
    before = copy.deepcopy(first)
    first["memory"].clear()
    first["vertices"][1]["inputs"].clear()
    first["vertices"][0]["metrics"].clear()
    assert wire.snapshot_to_json(seen.job(0)) == before


def test_jobs_are_told_apart_and_the_oldest_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(wire, "_MOST_FIXED", 2)
    monkeypatch.setattr(wire, "_FIXED", {})
    specs = [load_job("nexmark-q11").model_copy(update={"job": f"j{n}"}) for n in range(4)]
    names = [name for spec in specs for name in (spec.job, spec.job)]
    seen = [blank_snapshot(Topology.of([spec])) for spec in specs for _ in range(2)]
    assert [wire.snapshot_to_json(one.job(0))["job"] for one in seen] == names
    assert len(wire._FIXED) == 2


def test_a_snapshot_without_a_currency_is_in_the_one_of_the_shipped_prices():
    older = wire.snapshot_from_json([document(prices={"core_hour": 2.0, "gib_hour": 0.0})])
    prices = older.topology.spec(0).prices
    assert (prices.currency, prices.core_hour) == ("USD", 2.0)


def test_a_decision_says_what_it_costs_and_in_which_currency():
    prices = {"currency": "EUR", "core_hour": 2.0, "gib_hour": 0.0}
    seen = wire.snapshot_from_json([document(prices=prices)])
    sent = wire.snapshot_to_json(seen.job(0))
    assert sent["prices"] == prices
    wanted = ScalingDecision(np.array([[2, 5]]), np.array([[-1, 1]]), ("",))
    made = wire.decision_to_json(wanted, seen.job(0))
    # The source is left out; five tasks of a core each.
    assert (made["cost_per_hour"], made["cost_per_month"]) == (10.0, 7300.0)
    assert made["currency"] == "EUR"
    older = {key: made[key] for key in made if not key.startswith(("cost", "currency"))}
    for one in (made, older):
        read = wire.decision_from_json([one], seen.topology)
        assert read.parallelism.tolist() == [[2, 5]]


@pytest.mark.parametrize("wrong", ["eur", "EURO", "€", "E1R", ""])
def test_a_currency_that_is_no_code_is_refused(wrong):
    with pytest.raises(SchemaError, match=r"prices\.currency.*three capitals, such as EUR"):
        wire.snapshot_from_json([document(prices={"currency": wrong})])
