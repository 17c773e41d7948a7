"""The plugin beside other evaluators of one job.

Operators up to 1.16.0 call the first evaluator of the list. One with the chain of FLINK-39554 calls
all by their priority; each sees what those before it have set, and sets more. One jar runs in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operator_loop import (
    EVALUATOR,
    EXECUTOR,
    MAP,
    SINK,
    SOURCE,
    Autoscaler,
    FakeGym,
    autoscaler,
    compiled,
    cycle,
    deciding,
    fake_gym,
    forecast,
    options,
    warmed,
    written_token,
)
from tests.real_flink import REAL_FLINK

pytestmark = [*REAL_FLINK, pytest.mark.validate]

EARLY, LATE = "dspgym.operator.Others$Early", "dspgym.operator.Others$Late"
"""Evaluators of others: of the usual priority 0, and of one above the plugin's."""

BUILT_IN = {SOURCE: 4, MAP: 4, SINK: 4}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def first_alone(classes, tmp_path_factory) -> Iterator[Autoscaler]:
    with autoscaler(classes, tmp_path_factory.mktemp("first")) as running:
        yield warmed(running, tmp_path_factory.mktemp("token"))


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("chain")


@pytest.fixture(scope="module")
def chain(classes, log, tmp_path_factory) -> Iterator[Autoscaler]:
    with autoscaler(classes, log, has_chain=True) as running:
        yield warmed(running, tmp_path_factory.mktemp("token"))


@pytest.fixture
def gym() -> Iterator[FakeGym]:
    with fake_gym() as made:
        yield made


@pytest.fixture
def token(tmp_path) -> Path:
    return written_token(tmp_path)


@pytest.fixture
def name(request) -> str:
    """A job of each test's own: the plugin remembers jobs."""
    return f"flink/{request.node.name}"


def beside(given: dict[str, str], listed: str, **others: dict[str, str]) -> dict[str, str]:
    """Options of the plugin with those of other evaluators, by their names in the list."""
    more = {
        f"metrics.custom-evaluator.{name}.{key}": value
        for name, own in others.items()
        for key, value in own.items()
    }
    return {**given, **more, "metrics.custom-evaluators": listed}


def setting(of: str, kind: str = EARLY, **metrics: str) -> dict[str, str]:
    """Options of an evaluator that sets metrics, current and average, of a vertex."""
    return {"class": kind, "of": of, **{f"sets.{one}": value for one, value in metrics.items()}}


def doubled(kind: str = EARLY) -> dict[str, str]:
    return setting(SOURCE, kind, TARGET_DATA_RATE="NaN,16000")


class TestWhereTheFirstOfTheListIsCalledAlone:
    def test_the_plugin_is_asked_where_it_is_the_first(self, first_alone, gym, token, name):
        gym.answer = deciding({MAP: 9})
        given = beside(options(gym.url, token, "policy"), "gym;other", other=doubled())
        (done,) = first_alone.run(cycle(given, job=name))
        assert done["applied"] == {MAP: 9}
        assert len(gym.asked) == 1

    def test_the_plugin_is_silent_and_vetoes_nothing_where_another_is(
        self, first_alone, gym, token, name
    ):
        given = beside(options(gym.url, token, "policy"), "other;gym", other=doubled())
        (done,) = first_alone.run(cycle(given, job=name))
        assert done["evaluated"][SOURCE]["TARGET_DATA_RATE"] == ["NaN", 16_000.0]
        assert (gym.asked, done["events"]) == ([], [])


class TestInAChain:
    def test_it_may_be_the_only_one(self, chain, gym, token, name):
        gym.answer = deciding({MAP: 9})
        (done,) = chain.run(cycle(options(gym.url, token, "policy"), job=name))
        assert (done["recommended"], done["applied"]) == ({**BUILT_IN, MAP: 9}, {MAP: 9})

    @pytest.mark.parametrize("listed", ["gym;other", "other;gym"])
    def test_policy_has_the_last_word_wherever_it_is_listed(self, chain, gym, token, name, listed):
        gym.answer = deciding({MAP: 9})
        other = setting(
            MAP, TARGET_DATA_RATE="NaN,64000", TRUE_PROCESSING_RATE="NaN,5000", LAG="7,NaN"
        )
        given = beside(options(gym.url, token, "policy"), listed, other=other)
        (done,) = chain.run(cycle(given, job=name))
        assert (done["recommended"], done["applied"]) == ({**BUILT_IN, MAP: 9}, {MAP: 9})
        of_map = done["evaluated"][MAP]
        assert of_map["TRUE_PROCESSING_RATE"] == ["NaN", 5000.0]  # usable, so it is kept
        assert of_map["LAG"] == [7.0, "NaN"]
        assert len(gym.asked) == 1

    @pytest.mark.parametrize(
        ("forecast_per_s", "target_per_s"), [(12_000.0, 16_000.0), (24_000.0, 24_000.0)]
    )
    def test_forecast_never_lowers_what_another_has_set(
        self, chain, gym, token, name, forecast_per_s, target_per_s
    ):
        gym.answer = deciding({}, **forecast(forecast_per_s))
        given = beside(options(gym.url, token, "forecast"), "gym;other", other=doubled())
        (done,) = chain.run(cycle(given, job=name))
        assert done["evaluated"][SOURCE]["TARGET_DATA_RATE"] == ["NaN", target_per_s]
        assert done["evaluated"][MAP]["TARGET_DATA_RATE"] == ["NaN", target_per_s]

    def test_forecast_leaves_higher_thresholds(self, chain, gym, token, name):
        gym.answer = deciding({}, **forecast(24_000))
        thresholds = {"SCALE_UP_RATE_THRESHOLD": "99000,NaN", "SCALE_DOWN_RATE_THRESHOLD": "1,NaN"}
        given = beside(
            options(gym.url, token, "forecast"), "gym;other", other=setting(SOURCE, **thresholds)
        )
        (done,) = chain.run(cycle(given, job=name))
        of_source = done["evaluated"][SOURCE]
        assert of_source["SCALE_UP_RATE_THRESHOLD"] == [99_000.0, "NaN"]
        assert of_source["SCALE_DOWN_RATE_THRESHOLD"] == [64_000.0, "NaN"]

    def test_observe_changes_nothing_of_what_others_make(self, chain, gym, token, name):
        gym.answer = deciding({MAP: 9})
        early = setting(SOURCE, TARGET_DATA_RATE="NaN,30000")
        others = {"other": early, "last": setting(SINK, LATE, TARGET_DATA_RATE="NaN,40000")}
        given = beside(options(gym.url, token, "observe"), "gym;other;last", **others)
        (seen,) = chain.run(cycle(given, job=name))
        (plain,) = chain.run(cycle(beside({}, "other;last", **others), job="flink/plain"))
        assert plain["applied"]
        assert (seen["evaluated"], seen["applied"]) == (plain["evaluated"], plain["applied"])
        assert seen["gauges"][f"{name}.AutoScaler.jobVertexID.{MAP}.DSP_GYM_PARALLELISM.Current"]

    def test_one_that_throws_does_not_stop_it(self, chain, gym, token, name):
        gym.answer = deciding({MAP: 9})
        given = beside(
            options(gym.url, token, "policy"), "other;gym", other={"class": EARLY, "throws": "1"}
        )
        (done,) = chain.run(cycle(given, job=name))
        assert done["applied"] == {MAP: 9}
        assert len(done["caught"]) == 3

    def test_its_own_failure_leaves_what_others_have_set(self, chain, gym, token, name):
        gym.answer = lambda snapshot: (500, b"{}")
        given = beside(options(gym.url, token, "policy"), "gym;other", other=doubled())
        (done,) = chain.run(cycle(given, job=name))
        assert done["evaluated"][SOURCE]["TARGET_DATA_RATE"] == ["NaN", 16_000.0]
        assert done["events"] == []

    def test_what_a_later_one_makes_of_a_policys_rates_is_vetoed(self, chain, gym, token, name):
        gym.answer = deciding({MAP: 9})
        later = setting(MAP, LATE, TARGET_DATA_RATE="NaN,64000")
        given = beside(options(gym.url, token, "policy"), "gym;later", later=later)
        (done,) = chain.run(cycle(given, job=name))
        assert done["recommended"][MAP] > 9
        assert (done["applied"], done["events"]) == ({}, ["ScalingVetoed"])

    def test_a_second_instance_of_other_options_has_no_say(self, chain, log, gym, token, name):
        gym.answer = deciding({MAP: 9}, **forecast(24_000))
        own = {"class": EVALUATOR, "mode": "forecast", "url": gym.url, "token-file": str(token)}
        given = beside(options(gym.url, token, "observe"), "gym;second", second=own)
        (done,) = chain.run(cycle(given, job=name))
        (plain,) = chain.run(cycle({}, job="flink/plain"))
        assert done["evaluated"] == plain["evaluated"]
        assert len(gym.asked) == 1
        said = f"{name}: two evaluators are DspGymEvaluator, and only the first is asked"
        assert said in (log / "loop.log").read_text()

    def test_the_executor_lets_pass_what_others_decide_where_it_does_not_lead(
        self, chain, gym, token, name
    ):
        gym.answer = deciding({MAP: 1})
        executor = {
            "scaling.custom-executors": "gym",
            "scaling.custom-executor.gym.class": EXECUTOR,
        }
        early = setting(SOURCE, TARGET_DATA_RATE="NaN,64000")
        given = beside(options(gym.url, token, "observe"), "gym;early", early=early)
        (done,) = chain.run(cycle({**given, **executor}, job=name))
        assert done["applied"][MAP] > 9
        assert done["events"] == []
