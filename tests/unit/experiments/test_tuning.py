from __future__ import annotations

import json
import random
import signal
from dataclasses import replace
from importlib.metadata import entry_points

import numpy as np
import pytest
import yaml
from sqlalchemy import NullPool

from dsp_gym.config.files import configs_root, load_model, parse, read_yaml
from dsp_gym.engine import HERE, LocalEngine
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.frontier.board import frontier_fingerprint
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.agent import AgentObjective, with_held_out_seeds
from dsp_gym.experiments.tuning.course import write_course
from dsp_gym.experiments.tuning.objective import PolicyObjective, Score, training_benchmark
from dsp_gym.experiments.tuning.result import point_file, provenance, write_tuned
from dsp_gym.experiments.tuning.space import AGENT, GROUP, search_space
from dsp_gym.experiments.tuning.study import PATIENCE, SearchResult, is_settled, on_bounds, tune
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.splits import LoadSet
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import load_class, make, resolve

optuna = pytest.importorskip("optuna")

LOADS = {
    "train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 10}},
    "test": {"loads": ["diurnal-bursts"], "seeds": {"from": 100, "to": 110}},
}
BENCHMARK = BenchmarkConfig.model_validate(
    {
        "policies": ["ds2"],
        "jobs": ["nexmark-q11"],
        "train_jobs": ["nexmark-q3"],
        "loads": LOADS,
        "episode_s": 1800,
    }
)


class RandomPick:
    """Picks evenly, the ends included now and then."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def real(self, name, low, high, *, log=False, physical="none"):
        return self._random.choice([low, high, self._random.uniform(low, high)])

    def whole(self, name, low, high, *, log=False, physical="none"):
        return self._random.randint(low, high)

    def one(self, name, values, *, physical="none"):
        return self._random.choice(list(values))


TUNABLE = {entry.name for entry in entry_points(group=GROUP)}


@pytest.mark.parametrize("policy", sorted(TUNABLE - {AGENT}))
def test_whatever_a_space_picks_is_accepted_by_the_policy(policy):
    _, base, _ = resolve(policy)
    for seed in range(200):
        params = with_params(base.params, search_space(policy)(RandomPick(seed)))
        parse(load_class(base.policy).Config, params, f"{policy} with seed {seed}")
    make(PolicyConfig(policy=base.policy, params=params))


def test_whatever_is_picked_for_an_agent_is_accepted():
    experiment = load_model(ExperimentConfig, "experiments", "q11-quickstart")
    document = experiment.model_dump(mode="json", by_alias=True)
    for seed in range(100):
        picked = search_space(AGENT)(RandomPick(seed))
        network = {**document["agent"]["network"], **picked.pop("network")}
        agent = {**document["agent"], **picked, "network": network}
        parse(ExperimentConfig, {**document, "agent": agent}, "picked")


def test_every_policy_of_the_papers_can_be_tuned():
    assert {
        AGENT, "aws-managed-flink", "beam-flink", "conttune", "daedalus", "dataflow", "dhalion",
        "dhalion-reactive", "ds2", "ds2-reactive", "flink-autoscaler", "hpa-cpu", "hpa-varga",
        "justin-artifact", "justin-paper", "keda", "streambed",
    } <= TUNABLE  # fmt: skip


def test_tuning_sees_training_jobs_and_loads_only():
    trained = training_benchmark(BENCHMARK, seeds=3)
    assert trained.jobs == ("nexmark-q3",)
    assert (trained.split, trained.seeds) == ("train", 3)
    assert training_benchmark(BENCHMARK.model_copy(update={"train_jobs": ()}), 3).jobs == (
        "nexmark-q11",
    )


def test_a_policy_is_tuned_on_the_jobs_of_an_experiment_and_not_on_those_it_is_compared_on():
    experiment = load_model(ExperimentConfig, "experiments", "q11-quickstart")
    document = experiment.model_dump(mode="json", by_alias=True) | {"jobs": ["nexmark-q11"]}
    document["evaluation"]["jobs"] = ["nexmark-q11", "nexmark-q5"]
    trained = training_benchmark(parse(ExperimentConfig, document, "two jobs"), seeds=2)
    assert trained.jobs == ("nexmark-q11",)


def test_a_benchmark_without_training_loads_cannot_be_tuned_on():
    with pytest.raises(ConfigError, match=r"loads to tune on.*Add loads.train"):
        training_benchmark(load_model(BenchmarkConfig, "benchmarks", "quick"), 2)


def test_cost_is_counted_in_the_smallest_configuration_that_carries_the_reference_rate(tmp_path):
    config = BENCHMARK.model_copy(
        update={"loads": LoadSet.model_validate({"train": {"loads": ["constant"]}}), "seeds": None}
    )
    spec = load_job("nexmark-q3")
    tasks = next(
        {"join": p, "auction_filter": 1, "person_filter": 1}
        for p in range(1, 25)
        if 0.7 * mst(spec, {"join": p}).rate_per_s >= spec.source.rate_per_s
    )
    file = tmp_path / "smallest.yaml"
    file.write_text(json.dumps({"policy": "static", "params": {"parallelism": tasks}}))
    objective = PolicyObjective(str(file), "here", config, seeds=1)
    assert objective.score({}, lambda taken, steps: None).metrics["cost"] == pytest.approx(1.0)


def test_the_reward_is_that_of_the_environment():
    experiment = load_model(ExperimentConfig, "experiments", "q11-quickstart")
    objective = PolicyObjective("ds2", experiment.name, experiment, seeds=1)
    score = objective.score({}, lambda taken, steps: None)
    weights, found = experiment.env.reward, score.metrics
    rescales = found["rescales_per_day"] / 86_400 * experiment.env.interval_s
    parts = (
        weights.cost * found["cost"] + weights.slo * found["slo_share"] + weights.rescale * rescales
    )
    # The backlog's term alone is not among the figures; it is never negative.
    assert score.value == -found["reward"]
    assert score.value >= parts - 1e-9


def test_what_keeps_to_the_level_is_better_than_what_is_cheaper():
    kept, cheap = Score(2.0, 0.01, {}), Score(1.0, 0.04, {})
    assert kept.order(0.02) < cheap.order(0.02)
    assert cheap.order(0.05) < kept.order(0.05)
    assert Score(1.0, 0.019, {}).order(0.02) < Score(1.5, 0.0, {}).order(
        0.02
    )  # slack earns nothing
    assert Score(9.0, 0.03, {}).order(0.02) < cheap.order(0.02)  # nearer to the level
    assert Score(-2.0, 0.0, {}).order(None) < Score(-1.0, 0.0, {}).order(None)


class Bowl:
    """Costs least at x = 0.3; late below x = 0.5, the more the farther; the default is x = 1."""

    levels = (0.05,)

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[float] = []
        self.stop_after = stop_after

    def score(self, params, told):
        if len(self.asked) == self.stop_after:
            raise KeyboardInterrupt
        x = params.get("x", 1.0)
        self.asked.append(x)
        told(1, 1)
        return Score((x - 0.3) ** 2, max(0.0, 0.55 - x), {"x": x})

    def about(self):
        return {"tuned_on": "bowl"}


class Silent:
    def step(self, trial, taken, steps):
        pass

    def done(self, trial, score, found):
        pass


class Alone(Bowl):
    """The value alone counts."""

    levels = ()


def bowl(pick):
    return {"x": pick.real("x", 0.0, 2.0)}


def search(objective, database, trials=40, resume=False, seed=1, **options):
    return tune(
        objective,
        bowl,
        database,
        trials=trials,
        seed=seed,
        resume=resume,
        progress=Silent(),
        **options,
    )


class Backwards(LocalEngine):
    """This process, which does the last cell first."""

    def map(self, do, cells, heard=None, *, patient=False):
        for place in reversed(range(len(cells))):
            for _, result in super().map(do, [cells[place]]):
                yield place, result


def scored(folder) -> dict[int, tuple[str, list[float]]]:
    """Parameters and values of each trial of a study."""
    closing = {"poolclass": NullPool}
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder}/study.db", engine_kwargs=closing)
    study = optuna.load_study(study_name="tuning", storage=storage)
    return {t.user_attrs["number"]: (t.user_attrs["params"], t.values) for t in study.trials}


SEQUENCE = (
    1.0, 0.6158, 1.283, 1.256, 1.782, 1.138, 0.9755, 0.7676, 0.3045, 0.2987, 1.814, 0.03822, 0.6727,
    0.6447,
)  # fmt: skip
"""What was tried when this was written: the default, and thirteen trials."""


@pytest.mark.slow
def test_one_trial_at_a_time_tries_what_it_always_tried(tmp_path):
    def space(pick):
        return bowl(pick) | {
            "n": pick.whole("n", 1, 20, log=True),
            "c": pick.one("c", [True, False]),
        }

    tried = Bowl()
    tune(tried, space, tmp_path / "study.db", trials=13, seed=1, resume=False, progress=Silent())
    assert tuple(tried.asked) == SEQUENCE


@pytest.mark.slow
def test_the_order_in_which_trials_are_done_changes_nothing(tmp_path):
    for name, engine in (("forwards", HERE), ("backwards", Backwards())):
        (tmp_path / name).mkdir()
        database = tmp_path / name / "study.db"
        found = search(Bowl(), database, trials=21, at_once=4, engine=engine)
        assert scored(tmp_path / name).keys() == set(range(21))
        if name == "forwards":
            wanted, trials = found, scored(tmp_path / name)
    assert found == wanted
    assert scored(tmp_path / "backwards") == trials


@pytest.mark.slow
def test_a_round_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    """Stopped within the second round, of which the later trials are done."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    wanted = search(Bowl(), tmp_path / "whole" / "study.db", trials=18, at_once=4)
    database, first = tmp_path / "parts" / "study.db", Bowl(stop_after=13)
    stopped = search(first, database, trials=12, at_once=4, engine=Backwards())
    assert not stopped.interrupted  # the round was cut at the twelfth trial
    stopped = search(
        Bowl(stop_after=3), database, trials=18, at_once=4, engine=Backwards(), resume=True
    )
    assert stopped.interrupted
    resumed = search(Bowl(), database, trials=18, at_once=4, resume=True)
    assert scored(tmp_path / "parts") == scored(tmp_path / "whole")
    assert resumed == wanted


def test_trials_at_once_belong_to_the_study(tmp_path):
    search(Bowl(), tmp_path / "study.db", trials=2, at_once=4)
    with pytest.raises(ConfigError, match="began with another at_once"):
        search(Bowl(), tmp_path / "study.db", trials=4, resume=True)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path):
    def found(name, **options):
        (tmp_path / name).mkdir()
        objective = PolicyObjective("ds2", "here", BENCHMARK, seeds=1)
        best = tune(
            objective,
            search_space("ds2"),
            tmp_path / name / "study.db",
            trials=13,
            seed=0,
            resume=False,
            progress=Silent(),
            at_once=2,
            **options,
        )
        return best, scored(tmp_path / name)

    with LocalEngine(2) as two:
        assert found("two", engine=two) == found("one")


def test_decisions_of_a_trial_are_those_of_its_runs():
    objective = PolicyObjective("ds2", "here", BENCHMARK, seeds=2)
    assert objective.decisions == 2 * 1800 // BENCHMARK.interval_s


@pytest.mark.slow
def test_the_search_comes_near_the_best_within_the_bound(tmp_path):
    best = search(Bowl(), tmp_path / "study.db")
    assert best.best.is_within
    assert best.best.params["x"] == pytest.approx(0.5, abs=0.06)
    assert best.trials == 40


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    whole, first, second = Bowl(), Bowl(stop_after=8), Bowl()
    wanted = search(whole, tmp_path / "whole.db", trials=15)
    stopped = search(first, tmp_path / "parts.db", trials=15)
    assert stopped.interrupted
    assert stopped.trials == 7  # and the default
    resumed = search(second, tmp_path / "parts.db", trials=15, resume=True)
    assert first.asked + second.asked == whole.asked
    assert resumed == wanted


@pytest.mark.slow
def test_ctrl_c_while_results_are_stored_waits_until_they_are(tmp_path):
    class Pressed(Silent):
        def done(self, trial, score, found):
            if trial == 3:
                signal.raise_signal(signal.SIGINT)

    best = tune(
        Bowl(), bowl, tmp_path / "study.db", trials=9, seed=1, resume=False, progress=Pressed()
    )
    assert best.interrupted
    assert best.trials == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_file_that_is_no_study_is_refused(tmp_path):
    (tmp_path / "study.db").write_text("not a database, but a text of some length" * 100)
    with pytest.raises(StorageError, match="cannot be used as a study"):
        search(Bowl(), tmp_path / "study.db", resume=True)


@pytest.mark.slow
def test_another_seed_tries_other_parameters(tmp_path):
    one, other = Bowl(), Bowl()
    search(one, tmp_path / "1.db", trials=3)
    search(other, tmp_path / "2.db", trials=3, seed=2)
    assert one.asked[1:] != other.asked[1:]


def test_the_default_stays_where_nothing_is_better(tmp_path):
    class Worse(Bowl):
        def score(self, params, told):
            return Score(float("x" in params), 0.0, {})

    best = search(Worse(), tmp_path / "study.db", trials=5).best
    assert best.is_default
    assert best.params == {}


def test_a_study_is_not_overwritten_and_not_mixed_with_another(tmp_path):
    database = tmp_path / "study.db"
    with pytest.raises(ConfigError, match="no study to resume"):
        search(Bowl(), database, trials=2, resume=True)
    search(Bowl(), database, trials=2)
    with pytest.raises(ConfigError, match=r"a study already.*--resume"):
        search(Bowl(), database, trials=2)
    with pytest.raises(ConfigError, match="began with another seed"):
        search(Bowl(), database, trials=4, resume=True, seed=3)


@pytest.mark.slow
def test_a_tuned_policy_is_a_policy_that_says_where_it_comes_from(tmp_path):
    objective = PolicyObjective("ds2-justin", "here", BENCHMARK, seeds=1)
    found = search(Bowl(), tmp_path / "study.db", trials=2)
    record = provenance(found, found.best, objective.about(), seed=1)
    file = write_tuned(tmp_path / "x-tuned.yaml", objective.config({"min_down": 3}), record)
    config = load_model(PolicyConfig, "policies", file)
    assert config.params["min_down"] == 3
    assert config.params["warm_up_s"] == 60  # as the file it began with
    assert config.provenance["fingerprint"] == objective.about()["fingerprint"]
    assert config.provenance["jobs"] == ["nexmark-q3"]
    assert config.provenance["max_slo_share"] == 0.05
    assert make(file).name == "x-tuned"


def test_an_agent_is_judged_on_training_seeds_it_did_not_learn_from():
    loads = with_held_out_seeds(LoadSet.model_validate(LOADS))
    assert (loads.train.seeds.from_, loads.train.seeds.to) == (0, 8)
    assert (loads.validation.seeds.from_, loads.validation.seeds.to) == (8, 10)
    assert loads.test is None


def test_an_agent_that_learns_from_a_recording_is_not_tuned_and_the_recording_is_named():
    loads = load_model(ExperimentConfig, "experiments", "q11-worldcup").loads
    with pytest.raises(ConfigError, match=r"'loads.train': value 'worldcup98-train'.*generated"):
        with_held_out_seeds(loads)


def test_a_tuned_agent_is_an_experiment_to_train(tmp_path):
    experiment = load_model(ExperimentConfig, "experiments", "q11-quickstart")
    objective = AgentObjective(experiment)
    found = search(Alone(), tmp_path / "study.db", trials=1)
    file = write_tuned(
        tmp_path / "agent.yaml",
        objective.config({"gamma": 0.9, "network": {"hold_bias": 1.0}}),
        provenance(found, found.best, objective.about(), seed=1),
    )
    tuned = parse(ExperimentConfig, read_yaml(file), file)
    assert tuned.agent.gamma == 0.9
    assert tuned.agent.network == experiment.agent.network.model_copy(update={"hold_bias": 1.0})
    assert tuned.agent.total_steps == experiment.agent.total_steps
    comment = [line[2:] for line in file.read_text().splitlines() if line.startswith("#")]
    assert yaml.safe_load("\n".join(comment[1:]))["provenance"]["steps"] == (
        experiment.agent.total_steps
    )


def test_an_unknown_policy_is_answered_with_those_that_can_be_tuned():
    with pytest.raises(ConfigError, match=r"no search space is known for 'static'.*entry point"):
        search_space("static")


# -- points at levels of lateness, and the end of a search


class Levels(Bowl):
    levels = (0.01, 0.02, 0.03)


def test_a_search_finds_the_cheapest_at_each_level_of_lateness(tmp_path):
    found = search(Levels(), tmp_path / "study.db", trials=10)
    assert [point.level for point in found.points] == [0.01, 0.02, 0.03]
    assert found.best is found.points[1]
    for point in found.points:
        kept = [one.value for one in (found.default, *found.scores) if one.late <= point.level]
        assert point.score.value == min(kept)
    files = [point_file(tmp_path, "x", found, point).name for point in found.points]
    assert files == ["x-tuned-1pct.yaml", "x-tuned.yaml", "x-tuned-3pct.yaml"]


def scores(*pairs):
    return [Score(value, late, {}) for value, late in pairs]


LATE, KEPT = (1.0, 0.5), (2.0, 0.0)
DEFAULT_SCORE = Score(1.0, 0.5, {})


@pytest.mark.parametrize(
    ("trials", "ends"),
    [
        ([KEPT] * (PATIENCE - 1), False),  # too few
        ([KEPT] + [KEPT] * PATIENCE, True),
        ([KEPT] + [LATE] * PATIENCE, True),  # cheaper, but late
        ([KEPT] + [LATE] * (PATIENCE - 1) + [(1.981, 0.0)], True),  # less than a hundredth
        ([KEPT] + [LATE] * (PATIENCE - 1) + [(1.98, 0.0)], False),
        ([KEPT] + [(1.98, 0.0)] + [LATE] * PATIENCE, True),  # gained, but before
        ([KEPT] + [LATE] * (PATIENCE - 1) + [(1.0, 0.025)], False),  # at one level of three
        ([LATE] * PATIENCE, True),  # no level was ever reached
        ([LATE] * PATIENCE + [(9.0, 0.03)], False),  # one is reached at last
    ],
)
def test_a_search_ends_when_its_last_trials_lowered_no_cost_that_is_compared(trials, ends):
    assert is_settled(DEFAULT_SCORE, scores(*trials), Levels.levels) is ends
    assert not is_settled(DEFAULT_SCORE, scores(*trials), ())  # a reward has no share of gain


def test_a_settled_search_tries_no_more_and_neither_does_its_resumption(tmp_path, monkeypatch):
    monkeypatch.setattr("dsp_gym.experiments.tuning.study.PATIENCE", 3)

    class Flat(Bowl):
        def score(self, params, told):
            self.asked.append(0.0)
            return Score(1.0, 0.0, {})

    first, again = Flat(), Flat()
    found = search(first, tmp_path / "study.db", trials=40)
    assert found.has_settled
    assert found.trials == 10  # the first round is whole
    assert search(again, tmp_path / "study.db", trials=60, resume=True) == found
    assert again.asked == []


@pytest.mark.parametrize(
    ("space", "low", "high"),
    [
        (lambda pick: pick.real("x", 0.0, 1.0), ["x"], ["x"]),
        (lambda pick: pick.real("x", 0.0, 1.0, physical="low"), [], ["x"]),
        (lambda pick: pick.real("x", 0.0, 1.0, physical="high"), ["x"], []),
        (lambda pick: pick.whole("x", 0, 1), ["x"], ["x"]),
        (lambda pick: pick.whole("x", 0, 1, physical="both"), [], []),
        (lambda pick: pick.one("x", [0, 0.5, 1]), ["x"], ["x"]),
        (lambda pick: pick.one("x", [0, 0.5, 1], physical="low"), [], ["x"]),
        (lambda pick: pick.one("x", [0, 1]), [], []),  # a choice, not a range
        (lambda pick: pick.one("x", [False, True, None]), [], []),
    ],
)
def test_an_optimum_on_a_bound_is_named_unless_the_bound_is_physical(space, low, high):
    assert on_bounds(space, {"x": 0}) == low
    assert on_bounds(space, {"x": 1}) == high


def test_the_last_hundredth_of_a_range_is_its_bound():
    def space(pick):
        pick.real("x", 0.01, 100.0, log=True)
        pick.real("y", 0.0, 1.0)

    assert on_bounds(space, {"x": 0.0109, "y": 0.0109}) == ["x"]
    assert on_bounds(space, {"x": 0.02, "y": 0.995}) == ["y"]


def test_a_bound_that_is_met_stands_in_the_record(tmp_path):
    found = search(Bowl(), tmp_path / "study.db", trials=1)
    point = replace(found.best, on_bound=("x",))
    assert provenance(found, point, {}, seed=1)["on_bound"] == ["x"]
    assert "on_bound" not in provenance(found, found.best, {}, seed=1)


def test_the_course_of_a_search_is_drawn_and_kept(tmp_path):
    tried = tuple(scores((3.0, 0.005), (2.0, 0.015), (2.5, 0.008), (1.0, 0.4)))
    found = SearchResult((), DEFAULT_SCORE, tried)
    data, drawn = write_course(tmp_path, "bowl", found, Levels.levels, {"tuned_on": "bowl"})
    kept = json.loads(data.read_text())
    assert kept["tuned_on"] == "bowl"
    assert kept["trials"] == [[3.0, 0.005], [2.0, 0.015], [2.5, 0.008], [1.0, 0.4]]
    before = drawn.read_bytes()
    assert b"bowl: 4 trials" in before
    write_course(tmp_path, "bowl", found, Levels.levels, {"tuned_on": "bowl"})
    assert drawn.read_bytes() == before


def test_a_file_may_have_a_search_space_of_its_own():
    picked = search_space("mdp", "planner-walk")(RandomPick(1))
    assert "walk" in picked
    assert "walk" not in search_space("mdp", "planner")(RandomPick(1))


REFEREE = {
    "policies": [{"policy": "ds2", "rule": True, "knob": "target_utilization", "values": [0.5]}],
    "jobs": [{"name": "nexmark", "named": ["nexmark-q3"]}],
    "loads": [
        {
            "name": name,
            "group": "known",
            "triples": 3,
            "episode_s": episode_s,
            "load": {"form": "constant", "rate": {"between": [0.3, 0.6]}, "noise_cv": 0.05},
        }
        for name, episode_s in (("short", 600), ("long", 1200))
    ],
    "development": 1,
    "ledger": "ledger.jsonl",
}


def test_a_referee_is_tuned_on_its_development_set():
    config = RefereeConfig.model_validate(REFEREE)
    objective = PolicyObjective("ds2", "here", config, seeds=2)
    assert objective.levels == (0.01, 0.02, 0.03)
    assert objective.decisions == 2 * (10 + 20)
    about = objective.about()
    assert (about["split"], about["triples"]) == ("development", 4)
    assert about["families"] == ["short", "long"]
    steps = []
    score = objective.score({}, lambda taken, of: steps.append((taken, of)))
    assert steps == [(taken, 30) for taken in range(1, 31)]
    # Every triple counts alike, whatever its length.
    alone = {
        name: PolicyObjective(
            "ds2",
            "here",
            config.model_copy(update={"loads": tuple(f for f in config.loads if f.name == name)}),
            seeds=2,
        ).score({}, lambda taken, of: None)
        for name in ("short", "long")
    }
    assert score.value == pytest.approx(np.mean([one.value for one in alone.values()]))
    assert score.late == pytest.approx(np.mean([one.late for one in alone.values()]))


@pytest.mark.parametrize(
    "file",
    sorted((configs_root() / "policies/tuned/core-v3").glob("*.yaml")),
    ids=lambda file: file.stem,
)
def test_no_optimum_of_the_development_set_lies_on_a_bound_and_each_keeps_to_its_level(file):
    record = load_model(PolicyConfig, "policies", file).provenance
    assert record["tuned_on"] == "core-v3"
    assert record["split"] == "development"
    assert record["within_bound"]
    assert "on_bound" not in record
    assert record["found"]["slo_share"] <= record["max_slo_share"]


@pytest.mark.parametrize(
    "file",
    sorted((configs_root() / "policies/tuned/core-v2-frontier").glob("*.yaml")),
    ids=lambda file: file.stem,
)
def test_no_shipped_optimum_lies_on_a_bound_and_each_keeps_to_its_level(file):
    record = load_model(PolicyConfig, "policies", file).provenance
    assert record["within_bound"]
    assert "on_bound" not in record
    assert record["found"]["slo_share"] <= record["max_slo_share"]
    frontier = load_model(FrontierConfig, "frontiers", record["tuned_on"])
    assert record["fingerprint"] == frontier_fingerprint(frontier)
