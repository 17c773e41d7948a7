"""The curves of the last decisions, and the cost of a day."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dsp_gym.control.serve import history as module
from dsp_gym.control.serve.history import QUANTITIES, StatusHistory
from dsp_gym.loop.snapshot import Status
from tests.unit.control.serve.conftest import ask, session_of


@pytest.fixture
def turns(serving):
    """Decisions 30 s apart, from ten minutes before midnight on."""
    session = serving()
    made = [session.run.turn() for _ in range(40)]
    return [replace(turn, t_s=86_400 - 600 + 30.0 * k) for k, turn in enumerate(made)]


def test_curves_are_as_long_as_the_history_and_say_what_ran_and_was_wanted(turns):
    found = StatusHistory(30.0)
    for turn in turns:
        found.add(turn)
    document = json.loads(json.dumps(found.document("words", "ds2"), allow_nan=False))
    assert set(document["curves"]) == set(QUANTITIES)
    assert {len(values) for values in document["curves"].values()} == {len(turns)}
    last, seen = {k: v[-1] for k, v in document["curves"].items()}, turns[-1].snapshot
    assert last["t_s"] == turns[-1].t_s
    assert last["running_tasks"] == seen.parallelism[0].sum()
    assert last["recommended_tasks"] == turns[-1].guarded.parallelism[0].sum()
    assert last["load_per_s"] > 0
    assert document["slo_latency_s"] == 2.0
    assert len(document["changes"]) >= 1


def test_a_day_begins_at_midnight_and_gaps_cost_nothing_known(turns):
    found = StatusHistory(30.0)
    for turn in turns[:15]:
        found.add(turn)
    price = found.document("words", "ds2")["curves"]["running_cost_per_h"][0]
    today = found.document("words", "ds2")["today"]
    assert today["since_s"] == turns[0].t_s
    assert today["running"] == pytest.approx(14 * 30 / 3600 * price)
    for turn in turns[15:21]:
        found.add(turn)
    assert found.document("words", "ds2")["today"]["since_s"] == 86_400
    assert found.document("words", "ds2")["today"]["running"] == 0
    before = found.document("words", "ds2")["today"]["running"]
    found.add(replace(turns[21], t_s=86_400 + 3 * 30 + 1.0))  # a gap
    assert found.document("words", "ds2")["today"]["running"] == before


def test_of_a_long_run_the_last_decisions_are_kept(turns, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 10)
    found = StatusHistory(30.0)
    for turn in [*turns, replace(turns[-1], t_s=turns[-1].t_s + 30, snapshot=None, guarded=None)]:
        found.add(turn)
    document = found.document("words", "ds2")
    assert document["decisions_made"] == 41
    assert document["curves"]["t_s"] == [turn.t_s for turn in turns[31:]] + [turns[-1].t_s + 30]
    assert document["curves"]["running_tasks"][-1] is None
    assert all(one["t_s"] >= turns[31].t_s for one in document["changes"])


def test_curves_and_files_of_the_page_are_served_under_a_strict_policy(serving):
    session = serving()
    url = session.server.url
    empty = ask(f"{url}/v1/history").json
    assert (empty["curves"]["t_s"], empty["today"]) == ([], None)
    session.run.run(steps=2)
    assert ask(f"{url}/v1/history").json == session.board.curves()
    assert ask(f"{url}/v1/history?job=none").status == 404
    page = ask(f"{url}/")
    assert "<style" not in page.text
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for path, kind in (
        ("live.js", "text/javascript"),
        ("charts.js", "text/javascript"),
        ("live.css", "text/css"),
    ):
        file = ask(f"{url}/page/{path}")
        assert file.status == 200
        assert file.headers["Content-Type"].startswith(kind)
        assert file.headers["X-Content-Type-Options"] == "nosniff"
        assert f"page/{path}" in page.text
    assert ask(f"{url}/page/other.js").status == 404


def test_the_page_needs_no_token_but_its_curves_do(serving, tmp_path):
    token = tmp_path / "token"
    session = serving(serve={"port": 0, "token_file": str(token)})
    assert ask(f"{session.server.url}/page/live.js").status == 200
    assert ask(f"{session.server.url}/v1/history").status == 401


def test_after_a_restart_the_curves_go_on_where_they_ended(tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=30)
        before = session.board.curves()
        spec, folder = session.run.spec, session.run.writer.folder
        turns = [session.run.turn() for _ in range(3)]
    found = StatusHistory(30.0)
    found.recall(folder, "flink-wordcount", spec)
    again = found.document("flink-wordcount", "ds2")
    assert again["decisions_made"] == 0
    for name, values in before["curves"].items():
        told = [value or 0.0 for value in again["curves"][name][:30]]
        assert told == pytest.approx([value or 0.0 for value in values], rel=1e-5, abs=1e-6), name
    assert again["changes"][: len(before["changes"])] == before["changes"]
    assert again["today"]["running"] > before["today"]["running"]
    found.add(replace(turns[-1], t_s=turns[-1].t_s + 30))
    later = found.document("flink-wordcount", "ds2")
    assert later["decisions_made"] == 1
    assert len(later["curves"]["t_s"]) == 34
    other = StatusHistory(30.0)  # a simulation begins at 0 again
    other.recall(folder, "flink-wordcount", spec)
    other.add(replace(turns[0], t_s=1.0))
    assert other.document("flink-wordcount", "ds2")["curves"]["t_s"] == [1.0]


def test_what_a_journal_says_of_another_job_or_in_a_damaged_line_is_not_drawn(tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=6)
        spec, folder = session.run.spec, session.run.writer.folder
    (file,) = folder.glob("journal-*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    snapshots = [k for k, line in enumerate(lines) if b'"kind":"snapshot"' in line[-300:]]
    lines[snapshots[0]] = lines[snapshots[0]].replace(b'"vertices"', b'"vertexes"')
    lines[snapshots[1]] = b"{" + lines[snapshots[1]]
    file.write_bytes(b"".join(lines))
    found = StatusHistory(30.0)
    found.recall(folder, "flink-wordcount", spec)
    assert len(found.document("w", "ds2")["curves"]["t_s"]) == 4
    found = StatusHistory(30.0)
    found.recall(folder, "another", spec)
    assert found.document("w", "ds2")["curves"]["t_s"] == []


def test_the_recommendations_of_every_policy_are_drawn_not_those_of_the_acting_one_alone(turns):
    found = StatusHistory(30.0)
    for turn in turns:
        found.add(turn)
    last = {one.policy: one.guarded for one in turns[-1].judgements}
    for policy in ("network", "ds2", "incumbent"):
        document = found.document("words", "ds2", policy)
        assert (document["acting"], document["policy"]) == ("ds2", policy)
        told = document["curves"]["recommended_tasks"][-1]
        assert told == last[policy].parallelism[0].sum()
    running, kept = (
        found.document("words", "ds2", "incumbent")["curves"][name]
        for name in ("running_cost_per_h", "recommended_cost_per_h")
    )
    assert kept == running  # the incumbent recommends what runs
    own = {name: found.document("w", "ds2", name)["today"] for name in ("ds2", "incumbent")}
    assert own["incumbent"]["recommended"] == pytest.approx(own["incumbent"]["running"])
    assert own["ds2"]["recommended"] != own["incumbent"]["recommended"]


def test_the_saving_as_advised_is_the_mean_of_many_decisions_and_does_not_flip(turns):
    found, told = StatusHistory(30.0), []
    for turn in turns:
        found.add(turn)
        told.append(found.saving("ds2")["per_month"])
    curves = found.document("words", "ds2")["curves"]
    pairs = zip(curves["running_cost_per_h"], curves["recommended_cost_per_h"], strict=True)
    each = [730 * (running - wanted) for running, wanted in pairs]
    assert told[-1] == pytest.approx(sum(each) / len(each), rel=1e-4)
    steps = [abs(one - other) for one, other in pairwise(told[20:])]
    assert max(steps) < max(each) - min(each)
    assert max(steps) <= (max(each) - min(each)) / 20


def test_a_job_is_late_since_the_first_decision_of_the_last_run_of_late_ones(turns):
    found = StatusHistory(30.0)
    assert found.glance().late_since_s is None
    slow = [replace(turn, snapshot=_late(turn.snapshot, 442.0)) for turn in turns[:6]]
    fine = [replace(turn, snapshot=_late(turn.snapshot, 0.1)) for turn in turns[6:8]]
    again = [replace(turn, snapshot=_late(turn.snapshot, 9.0)) for turn in turns[8:12]]
    for turn in [*slow, *fine]:
        found.add(turn)
    assert found.glance().late_since_s is None
    for turn in again:
        found.add(turn)
    seen = found.glance()
    assert seen.late_since_s == turns[8].t_s
    assert seen.late_share == pytest.approx(10 / 12)
    assert (seen.latency_p95_s, seen.slo_latency_s) == (9.0, 2.0)
    assert seen.cost_per_month == pytest.approx(
        730 * found.document("words", "ds2")["curves"]["running_cost_per_h"][-1], rel=1e-5
    )


def told_of(turns, *snapshots, from_s=0.0):
    """A history of decisions 30 s apart with these snapshots."""
    found = StatusHistory(30.0)
    for k, (turn, seen) in enumerate(zip(turns, snapshots, strict=False)):
        found.add(replace(turn, t_s=from_s + 30.0 * k, snapshot=seen))
    return found


def test_a_job_that_is_down_is_late_and_one_that_does_not_run_costs_nothing(turns):
    fine = _late(turns[0].snapshot, 0.1)
    down, lost = _with(fine, status=Status.RESTARTING), _with(fine, status=Status.FAILED)
    seen = told_of(turns, fine, down, down).glance()
    assert (seen.late_since_s, seen.late_share) == (30.0, pytest.approx(2 / 3))
    assert seen.cost_per_month > 0
    seen = told_of(turns, fine, lost, lost).glance()
    assert (seen.late_since_s, seen.cost_per_month) == (30.0, None)


def test_what_is_not_known_makes_no_job_in_time(turns):
    slow = _late(turns[0].snapshot, 9.0)
    unknown = _with(_late(slow, np.nan), pending_records=np.nan, pending_growth_per_s=np.nan)
    seen = told_of(turns, slow, unknown, slow).glance()
    assert (seen.late_since_s, seen.late_share) == (0.0, 1.0)
    assert told_of(turns, unknown).glance().late_share is None


def test_a_job_is_not_said_to_have_been_late_while_nobody_looked(turns):
    slow = _late(turns[0].snapshot, 9.0)
    found = told_of(turns, slow, slow)
    found.add(replace(turns[2], t_s=3 * 86_400.0, snapshot=slow))
    assert found.glance().late_since_s == 3 * 86_400.0


def test_a_job_is_late_for_longer_than_decisions_are_kept(turns, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 10)
    slow = _late(turns[0].snapshot, 9.0)
    assert told_of(turns, *[slow] * 30).glance().late_since_s == 0.0


def _with(seen, **columns):
    """The same snapshot with other columns."""
    made = {name: np.full_like(getattr(seen, name), value) for name, value in columns.items()}
    return replace(seen, **made)


def _late(seen, latency_s):
    """The same snapshot with another latency, and nothing that waits."""
    latency = np.full_like(seen.latency_p95_s, latency_s)
    return replace(seen, latency_p95_s=latency, pending_records=0.0 * seen.pending_records)
