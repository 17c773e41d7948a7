"""A replay that follows a journal: what a backtest of it says, bit for bit, however it is cut."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.start import started
from dsp_gym.errors import DspGymError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import Journal, read, segments_of
from dsp_gym.records.shipped import folder_of
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.follow import Follower, Following
from dsp_gym.whatif.journal import JournalReader, journal_of, read_run
from dsp_gym.whatif.journal_history import history_of_run, journal_histories
from dsp_gym.whatif.replay import IntervalRows
from dsp_gym.whatif.result import Trust

REAL = folder_of("journals", "flink-q11-day")
SEEDS = 2
POLICIES = [{"name": "ds2", "policy": "ds2-justin"}, "hpa-cpu", "incumbent"]


@pytest.fixture(scope="module")
def rescaled(tmp_path_factory) -> Path:
    """A journal of a simulated job that DS2 scales up."""
    folder = tmp_path_factory.mktemp("journals") / "rescaled"
    document = {
        "job": "nexmark-q1", "policies": POLICIES, "mode": "active", "guardrails": "default",
        "roll_back": {"slo_share": 1.0},
    }  # fmt: skip
    place = Substitute(load="diurnal", duration_s=3600)
    config = parse(RunConfig, document, "run.yaml")
    with started(config, mode="active", substitute=place, journal=folder) as loop:
        loop.run(steps=30)
    assert np.nansum(read_run(folder).outcome["rescales"]) >= 1
    return folder


def same(one: object, other: object) -> bool:
    """Equal to the last bit, NaN included."""
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        assert isinstance(other, dict)
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def whole(journal, seeds=SEEDS, **given) -> Follower:
    """A follower that went through a whole journal at once."""
    one = Follower(journal, seeds, **given)
    one.follow(journal_of(journal), final=True)
    return one


def test_rows_are_the_same_in_blocks_as_in_one_array():
    rows = np.random.default_rng(1).random((1_200, 3))
    kept = IntervalRows()
    for row in rows:
        kept.append(row)
    assert np.array_equal(kept.all(), rows)
    assert np.array_equal(IntervalRows(rows[7:]).all(), rows[7:])
    assert len(IntervalRows().all()) == 0


def test_unequal_states_are_told_apart(rescaled):
    found = [whole(rescaled, seeds) for seeds in (2, 3)]
    assert same(found[0].replay.state(), found[0].replay.state())
    assert not same(found[0].replay.state(), found[1].replay.state())


@pytest.mark.parametrize("name", [REAL, "rescaled"])
def test_followed_live_it_says_what_a_backtest_of_the_journal_says(name, request, tmp_path):
    """One answer: entry by entry beside the writer, and afterwards, the same numbers."""
    journal = REAL if name == REAL else request.getfixturevalue(name)
    entries = list(read(journal))
    live = Follower(tmp_path / "live", SEEDS)
    with Journal(tmp_path / "live") as written:
        for k, entry in enumerate(entries):
            written.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
            if k > 60 and k % 25 == 0:
                live.look(most=7)
    while live.is_behind:
        live.look(most=7)
    live.look(final=True, most=None)
    (job,) = backtest(journal_histories(journal), "a journal", seeds=SEEDS).jobs
    assert live.result() == job
    assert job.intervals > 20
    # The figures of the page beside the run are the same sums.
    start = live.document()["periods"]["start"]
    for claim in job.claims:
        if start["policies"]:
            own, base = (start["policies"][key] for key in (claim.policy, INCUMBENT))
            assert own["late_s"] == pytest.approx(claim.late.value * start["seconds"])
            assert own["saved"] == pytest.approx(claim.saving.value * base["cost"])


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(data=st.data())
@pytest.mark.parametrize("name", [REAL, "rescaled"])
def test_a_restart_changes_nothing(name, request, data):
    """Going on entry by entry, in any portions, ends in the state of a start with all of it."""
    journal = REAL if name == REAL else request.getfixturevalue(name)
    entries = list(read(journal))
    cuts = sorted(data.draw(st.sets(st.integers(20, len(entries) - 1), max_size=5)))
    kept, reader = Follower(journal, SEEDS), JournalReader(journal)
    for begin, end in zip([0, *cuts], [*cuts, len(entries)], strict=True):
        for entry in entries[begin:end]:
            reader.take(entry)
        kept.follow(reader, most=0)
        while kept.is_behind:
            kept.follow(reader, most=data.draw(st.integers(1, 30)))
    fresh = Follower(journal, SEEDS)
    fresh.follow(journal_of(journal))
    assert same(kept.replay.state(), fresh.replay.state())


def test_without_a_rescale_of_the_job_the_replay_is_begun_once():
    kept, reader = Follower(REAL, SEEDS), JournalReader(REAL)
    seen = []
    for entry in read(REAL):
        reader.take(entry)
        if entry.kind == "outcome":
            kept.follow(reader)
            seen.append(len(kept.replay))
    assert kept.replay.begun == 1
    assert seen[-1] == len(seen) - 1  # one behind: the load to its end is not known yet
    assert np.all(np.diff(seen[10:]) == 1)


def test_nothing_is_said_where_the_model_is_wrong_about_the_incumbent():
    one = whole(REAL, trust=Trust(late=0.001))
    document = one.document()
    for period in document["periods"].values():
        assert period["policies"] == {}
        assert "more than 0.1 points apart" in period["distrust"][0]
        assert period["observed"]["cost"] > 0
    assert document["curves"] is None


def test_a_policy_that_cannot_be_made_is_left_out_and_the_others_are_replayed():
    run = read_run(REAL)
    document = dict(run.configuration or {})
    seats = [*document["policies"], {"name": "gone", "policy": "/no/such/folder"}]
    changed = dataclasses.replace(run, configuration={**document, "policies": seats})
    (job,) = backtest([history_of_run(changed, REAL)], "a journal", seeds=SEEDS).jobs
    assert "/no/such/folder" in job.failures["gone"]
    assert {claim.policy for claim in job.claims} == {"planner", "ds2"}


def test_a_bounded_journal_makes_the_replay_begin_where_it_begins(tmp_path):
    """What was dropped is forgotten, as it would be after a restart."""
    entries = list(read(REAL))
    with Journal(tmp_path / "q11", segment_mib=0.06) as journal:
        for entry in entries[: len(entries) // 2]:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
        kept = Follower(tmp_path / "q11", SEEDS)
        assert kept.look()
        first = segments_of(tmp_path / "q11")[0]
        for entry in entries[len(entries) // 2 :]:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
        started_at = next(e for e in entries if e.body.get("event") == "started")
        journal.append("actuation", started_at.t_s, started_at.job, None, started_at.body)
    first.unlink()
    assert kept.look(most=None)
    fresh = Follower(tmp_path / "q11", SEEDS)
    assert fresh.look(most=None)
    assert kept.replay.begun == 2
    assert len(kept.replay) < 44
    assert same(kept.replay.state(), fresh.replay.state())


def test_a_job_without_prices_is_refused_and_keeps_no_other_waiting(tmp_path):
    free = load_job("flink-q11").model_dump(mode="json", by_alias=True, exclude_none=True)
    free["prices"] = {"core_hour": 0.0, "gib_hour": 0.0}
    (tmp_path / "free.yaml").write_text(json.dumps(free))  # JSON is YAML
    for name in ("free", "good"):
        with Journal(tmp_path / "journals" / name) as journal:
            for entry in read(REAL):
                body = dict(entry.body)
                if name == "free" and body.get("event") == "started":
                    job = str(tmp_path / "free.yaml")
                    policies = [{"name": "ds2", "policy": "ds2"}, "incumbent"]
                    told = {"job": job, "policies": policies}
                    body["configuration"] = {**body["configuration"], **told}
                journal.append(entry.kind, entry.t_s, name, entry.policy, body)
    found = dict(Following(tmp_path / "journals").look())
    assert isinstance(found["free"], DspGymError)
    assert "job 'flink-q11' costs nothing" in str(found["free"])
    assert found["good"].result().name == "good"


def test_journals_come_and_go_and_one_in_trouble_keeps_no_other_waiting(tmp_path):
    following = Following(tmp_path)
    assert list(following.look()) == []
    for name in ("bad", "good"):
        with Journal(tmp_path / name) as journal:
            for entry in read(REAL):
                journal.append(entry.kind, entry.t_s, name, entry.policy, entry.body)
    bad = segments_of(tmp_path / "bad")[0]
    bad.write_bytes(bad.read_bytes().replace(b"snapshot", b"snapsh0t", 3))
    found = dict(following.look())
    assert "is damaged" in str(found["bad"])
    assert found["good"].result().name == "good"
    assert (tmp_path / "good" / "twins.json").is_file()
    assert not (tmp_path / "bad" / "twins.json").exists()
    assert "good" not in dict(following.look())  # nothing new
