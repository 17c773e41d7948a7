"""Twins: the scorecard's prediction kept going, the same after a restart bit for bit."""

from __future__ import annotations

import dataclasses
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
from dsp_gym.records.journal import Journal, read, segments_of
from dsp_gym.whatif.evaluation import CounterfactualConfig, evaluate_journal
from dsp_gym.whatif.follow import Following, JournalTwins
from dsp_gym.whatif.journal import CourseReader, read_course
from dsp_gym.whatif.model_error import Trust
from dsp_gym.whatif.replay import Twins

REAL = "flink-q11-day"
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
    assert np.nansum(read_course(folder).outcome["rescales"]) >= 1
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


def test_unequal_states_are_told_apart(rescaled):
    found = [Twins(rescaled, seeds) for seeds in (2, 3)]
    for one in found:
        one.follow(read_course(rescaled), final=True)
    assert same(found[0].state(), found[0].state())
    assert not same(found[0].state(), found[1].state())


@pytest.mark.parametrize("name", [REAL, "rescaled"])
def test_the_scorecard_of_the_same_journal_says_the_same(name, request):
    journal = REAL if name == REAL else request.getfixturevalue(name)
    any_error = Trust(lag=10, slo_share=1, cost=10)
    card = evaluate_journal(journal, how=CounterfactualConfig(seeds=SEEDS, trust=any_error))
    twins = Twins(journal, SEEDS, any_error)
    twins.follow(read_course(journal), final=True)
    assert twins.error() == dataclasses.replace(card.error, lag_range_s=None, slo_range=None)
    told = twins.figures()
    assert set(told) == {claim.policy for claim in card.claims}
    for claim in card.claims:
        figures = {key: float(np.mean(values)) for key, values in told[claim.policy].items()}
        assert figures == {key: claim.figures[key].value for key in figures}, claim.policy
    seconds = twins.document()["periods"]["start"]["seconds"]
    for name, shown in twins.document()["periods"]["start"]["policies"].items():
        figures = {key: float(np.mean(values)) for key, values in told[name].items()}
        assert shown["cost"] == pytest.approx(figures["cost_per_h"] * seconds / 3600)
        assert shown["late_s"] == pytest.approx(figures["slo_share"] * seconds)
        assert shown["rescales"] == pytest.approx(figures["rescales_per_day"] * seconds / 86_400)


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(data=st.data())
@pytest.mark.parametrize("name", [REAL, "rescaled"])
def test_a_restart_changes_nothing(name, request, data):
    """Going on entry by entry, in any portions, ends in the state of a start with all of it."""
    journal = REAL if name == REAL else request.getfixturevalue(name)
    entries = list(read(journal))
    cuts = sorted(data.draw(st.sets(st.integers(20, len(entries) - 1), max_size=5)))
    kept, reader = Twins(journal, SEEDS), CourseReader(journal)
    for begin, end in zip([0, *cuts], [*cuts, len(entries)], strict=True):
        for entry in entries[begin:end]:
            reader.take(entry)
        while kept.follow(reader.course(), most=data.draw(st.integers(1, 30))):
            pass
    fresh = Twins(journal, SEEDS)
    fresh.follow(read_course(journal))
    assert same(kept.state(), fresh.state())


def test_without_a_rescale_of_the_job_the_twins_are_begun_once():
    kept, reader = Twins(REAL, SEEDS), CourseReader(REAL)
    seen = []
    for entry in read(REAL):
        reader.take(entry)
        if entry.kind == "outcome":
            kept.follow(reader.course())
            seen.append(kept.intervals)
    assert kept.begun == 1
    assert seen[-1] == len(seen) - 1  # one behind: the load to its end is not known yet
    assert np.all(np.diff(seen[10:]) == 1)


def test_a_policy_fares_alone_as_it_does_beside_others():
    whole = read_course(REAL)
    both = Twins(REAL, SEEDS)
    both.follow(whole, final=True)
    document = dict(whole.configuration or {})
    for name in ("ds2", "learned"):
        seats = [seat for seat in document["policies"] if _name(seat) in (name, INCUMBENT)]
        alone = dataclasses.replace(whole, configuration={**document, "policies": seats})
        one = Twins(REAL, SEEDS)
        one.follow(alone, final=True)
        assert same(one.figures()[name], both.figures()[name])


def _name(seat: object) -> str:
    return seat["name"] if isinstance(seat, dict) and "name" in seat else str(seat)


def test_nothing_is_said_where_the_model_is_wrong_about_the_incumbent():
    twins = Twins(REAL, SEEDS, Trust(slo_share=0.001))
    twins.follow(read_course(REAL), final=True)
    document = twins.document()
    for period in document["periods"].values():
        assert period["policies"] == {}
        assert "late share of the time is off by" in period["distrust"][0]
        assert period["observed"]["cost"] > 0
    assert document["curves"] is None


def test_a_policy_that_cannot_be_made_has_no_twin_and_the_others_have():
    whole = read_course(REAL)
    document = dict(whole.configuration or {})
    seats = [*document["policies"], {"name": "gone", "policy": "/no/such/folder"}]
    twins = Twins(REAL, SEEDS)
    twins.follow(dataclasses.replace(whole, configuration={**document, "policies": seats}))
    assert "/no/such/folder" in twins.failures["gone"]
    assert set(twins.document()["periods"]["start"]["policies"]) == {"incumbent", "learned", "ds2"}


def test_a_bounded_journal_makes_the_twins_begin_where_it_begins(tmp_path):
    """What was dropped is forgotten, as it would be after a restart."""
    entries = list(read(REAL))
    with Journal(tmp_path / "q11", segment_mib=0.06) as journal:
        for entry in entries[: len(entries) // 2]:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
        kept = JournalTwins(tmp_path / "q11", SEEDS)
        assert kept.look()
        first = segments_of(tmp_path / "q11")[0]
        for entry in entries[len(entries) // 2 :]:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
        started_at = next(e for e in entries if e.body.get("event") == "started")
        journal.append("actuation", started_at.t_s, started_at.job, None, started_at.body)
    first.unlink()
    assert kept.look(most=None)
    fresh = JournalTwins(tmp_path / "q11", SEEDS)
    assert fresh.look(most=None)
    assert kept.twins.begun == 2
    assert kept.intervals < 44
    assert same(kept.twins.state(), fresh.twins.state())


def test_journals_come_and_go_and_one_in_trouble_keeps_no_other_waiting(tmp_path):
    following = Following(tmp_path, SEEDS)
    assert list(following.look()) == []
    for name in ("bad", "good"):
        with Journal(tmp_path / name) as journal:
            for entry in read(REAL):
                journal.append(entry.kind, entry.t_s, name, entry.policy, entry.body)
    bad = segments_of(tmp_path / "bad")[0]
    bad.write_bytes(bad.read_bytes().replace(b"snapshot", b"snapsh0t", 3))
    found = dict(following.look())
    assert "is damaged" in str(found["bad"])
    assert found["good"]["job"] == "good"
    assert (tmp_path / "good" / "twins.json").is_file()
    assert not (tmp_path / "bad" / "twins.json").exists()
    assert "good" not in dict(following.look())  # nothing new
