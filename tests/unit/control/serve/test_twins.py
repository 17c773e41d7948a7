"""Served data of twins that another process drives beside the journal."""

from __future__ import annotations

import json
import math

import pytest

from dsp_gym.control.beside import TWINS_FILE, write_twins
from dsp_gym.whatif.follow import Follower
from dsp_gym.whatif.result import Trust
from tests.unit.control.serve.conftest import ask
from tests.unit.control.serve.test_exporter import scraped, value

NAMES = {
    "twin_cost": {"policy", "period", "currency"},
    "twin_late_seconds": {"policy", "period"},
    "twin_rescales": {"policy", "period"},
    "twin_model": {"quantity", "of", "period"},
    "twin_trusted": {"period"},
    "twins_until_seconds": set(),
}
"""Metrics of twins, with their own labels."""

OF_VERDICT = {
    "saving_per_month": {"policy", "verdict", "bound", "currency"},
    "claimed_per_month": {"policy", "currency"},
}
"""Metrics of the verdict, likewise."""


def driven(session) -> dict:
    """Twins of a session's journal, with the file they write."""
    folder = session.run.writer.folder
    one = Follower(folder, 2, Trust(lag=10, late=1, cost=10))
    assert one.look(most=None)
    document = one.document()
    write_twins(folder, document)
    return document


def test_without_twins_there_are_no_periods_and_no_metrics(serving):
    session = serving()
    session.run.run(steps=3)
    found = ask(f"{session.server.url}/v1/twins").json
    assert found == {"schema": "dsp-gym/twins/1", "job": "flink-wordcount", "periods": {},
                     "curves": None, "failures": {}, "until_s": None,
                     "verdict": None}  # fmt: skip
    assert not [name for name in scraped(session) if name.startswith("twin")]


def test_page_and_metrics_have_the_figures_of_the_file(serving):
    session = serving()
    session.run.run(steps=20)
    document = driven(session)
    assert ask(f"{session.server.url}/v1/twins").json == document
    assert set(document["periods"]["start"]["policies"]) == {"incumbent", "network", "ds2"}
    families = scraped(session)
    for name, labels in NAMES.items():
        for sample in families[name]:
            assert set(sample.labels) - {"namespace", "job"} == labels, (name, sample)
    assert {name for name in families if name.startswith("twin")} == set(NAMES)
    for period, said in document["periods"].items():
        for policy, one in said["policies"].items():
            labels = {"policy": policy, "period": period}
            assert value(families, "twin_cost", currency="USD", **labels) == one["cost"]
            assert value(families, "twin_late_seconds", **labels) == one["late_s"]
            assert value(families, "twin_rescales", **labels) == one["rescales"]
        model, observed = said["error"]["cost_per_h"]
        labels = {"quantity": "cost_per_h", "period": period}
        assert value(families, "twin_model", of="model", **labels) == model
        assert value(families, "twin_model", of="observed", **labels) == observed
        assert value(families, "twin_trusted", period=period) == 1
    assert value(families, "twins_until_seconds") == document["until_s"]
    session.run.run(steps=25)
    later = driven(session)
    assert later != document
    assert ask(f"{session.server.url}/v1/twins").json == later


def test_where_the_model_is_wrong_there_are_no_figures_and_no_saving_of_twins(serving):
    session = serving()
    session.run.run(steps=20)
    document = driven(session)
    for said in document["periods"].values():
        said |= {"policies": {}, "distrust": ["the model's cost is off by 40.0%"]}
    document["verdict"] |= {"saving": None, "late_then": None, "claimed_per_month": 0.0}
    write_twins(session.run.writer.folder, document)
    families = scraped(session)
    assert "twin_cost" not in families or not families["twin_cost"]
    assert value(families, "twin_trusted", period="start") == 0
    (job,) = ask(f"{session.server.url}/v1/jobs").json["jobs"]
    assert job["saving"] is None
    assert not set(OF_VERDICT) & set(families)


def test_the_verdict_names_the_policy_and_the_saving_once_twins_are_driven(serving):
    session = serving()
    assert session.board.saving() is None
    session.run.run(steps=20)
    curves = session.board.curves()["curves"]
    pairs = zip(curves["running_cost_per_h"], curves["recommended_cost_per_h"], strict=True)
    mean = sum(running - wanted for running, wanted in pairs) / 20
    advice = session.board.saving()
    assert (advice["by"], advice["policy"]) == ("advice", "ds2")
    assert advice["per_month"] == pytest.approx(730 * mean, abs=1e-3)
    found = driven(session)["verdict"]
    told = ask(f"{session.server.url}/v1/jobs").json
    (job,) = told["jobs"]
    assert job["verdict"] == found
    assert found["policy"] is not None
    assert job["saving"] == {
        "per_month": found["saving"]["value"], "currency": "USD",
        "policy": found["policy"], "by": "verdict",
    }  # fmt: skip
    assert told["fleet"]["totals"][0]["spent"] == pytest.approx(job["now"]["cost_per_month"])
    families = scraped(session)
    for bound, amount in found["saving"].items():
        assert value(families, "saving_per_month", bound=bound) == amount
    for name, labels in OF_VERDICT.items():
        for sample in families[name]:
            assert set(sample.labels) - {"namespace", "job"} == labels


def test_a_verdict_of_another_release_is_none_and_the_twins_stay(serving):
    session = serving()
    session.run.run(steps=20)
    document = driven(session)
    write_twins(session.run.writer.folder, {**document, "verdict": {"word": "perhaps"}})
    assert session.board.verdict() is None
    assert session.board.twins()["periods"] == document["periods"]
    later = {**document["verdict"], "of_a_later_release": 1}
    write_twins(session.run.writer.folder, {**document, "verdict": later})
    assert session.board.verdict().sentence == document["verdict"]["sentence"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "dsp-gym/twins/9"}', "\udcff"])
def test_a_file_that_cannot_be_read_is_none(serving, text):
    session = serving()
    session.run.run(steps=2)
    file = session.run.writer.folder / TWINS_FILE
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert ask(f"{session.server.url}/v1/twins").json["periods"] == {}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_twins(session.run.writer.folder, {"schema": "dsp-gym/twins/1", "x": math.nan})
    assert file.read_text(encoding="utf-8", errors="surrogateescape") == text
    assert json.loads(json.dumps(session.board.twins()))["until_s"] is None
