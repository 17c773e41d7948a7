"""Training the planning policy: its counts, its choice of price, its folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

from typer.testing import CliRunner

from agents.folder import POLICY, HistoryDocument, PlanningDocument, read_any, read_kind
from agents.planning.chain import counted, highest_level
from agents.planning.export import export_planning
from agents.planning.history import watched
from agents.planning.learner import PlanningLearner
from agents.planning.load import STATES
from agents.planning.policy import MdpConfig, MdpPolicy
from agents.planning.trained import Trained, own_pasts, past_in, past_prefix, trained
from agents.provenance import data_hashes
from agents.seeds import SeedCell, train_seed
from agents.stages import TrainingInterrupted
from agents.trained import TrainedConfig, TrainedPolicy
from agents.training import train
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError, PolicyError, StorageError
from dsp_gym.evaluation.shipped_work import ship
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel, SizingConfig
from dsp_gym.trackers import BackgroundTracker, NullTracker
from tests.simulating import line
from tests.strategies import blank_snapshot

DAY = [{"name": "day", "load": {"form": "diurnal", "period_s": 1200, "noise_cv": 0.1}}]


def an_experiment(**agent) -> ExperimentConfig:
    return parse(
        ExperimentConfig,
        {
            "name": "small",
            "jobs": ["nexmark-q1"],
            "loads": {
                "train": {"loads": DAY, "seeds": {"from": 0, "to": 8}},
                "validation": {"loads": DAY, "seeds": {"from": 10, "to": 20}},
            },
            "env": {"episode_s": 1200},
            "agent": {
                "kind": "planning",
                "draws": 3,
                "late_prices": [1, 2, 4],
                "eval_episodes": 1,
                **agent,
            },
        },
        "test",
    )


class Recorded(NullTracker):
    """Keeps what a run records."""

    def __init__(self):
        super().__init__()
        self.given, self.figures, self.registered = {}, {}, None

    def params(self, values):
        self.given |= values

    def metrics(self, values, step):
        self.figures |= {(name, step): value for name, value in values.items()}

    def register(self, folder, model, alias):
        self.registered = (folder, model, alias)


@pytest.fixture(scope="module")
def trained_whole(tmp_path_factory):
    """Two seeds, and what was recorded of them."""
    out, recorded = tmp_path_factory.mktemp("trained"), Recorded()
    train(an_experiment(seeds=[0, 1], params={"prior": "none"}), out, tracker=recorded)
    return out, recorded


@pytest.fixture(scope="module")
def folder(trained_whole):
    return trained_whole[0] / "policy"


def with_lateness(tmp_path, monkeypatch, lateness, **agent):
    """A learner whose plays are late as a function of the price says, and the prices it tried."""
    played = []

    def play(self, price):
        played.append(price)
        share = lateness(price)
        return {"return": 0.0, "cost_per_h": price, "slo_share": share, "rescales_per_h": 0.0}

    monkeypatch.setattr(PlanningLearner, "_played", play)
    return PlanningLearner(an_experiment(**agent), 0, tmp_path), played


# -- the price


@pytest.mark.parametrize("target", [0.5, 0.2, 0.101, 0.04])
def test_the_lowest_price_that_keeps_to_the_aim_is_chosen(tmp_path, monkeypatch, target):
    prices = [1, 1.5, 2, 3, 5, 8, 13]
    learner, played = with_lateness(
        tmp_path, monkeypatch, lambda price: 0.5 / price, late_prices=prices, late_target=target
    )
    best = learner.run()
    assert best.late_price == next(price for price in prices if 0.5 / price <= target)
    assert len(played) == learner.agent.total_steps == 3
    assert learner.kept_aim


def test_an_aim_out_of_reach_is_told_on_the_card(tmp_path, monkeypatch):
    learner, _ = with_lateness(tmp_path, monkeypatch, lambda price: 0.3)
    assert learner.run().late_price == 4
    card = (export_planning(learner, tmp_path / "policy") / "card.md").read_text()
    assert "which the highest price that was tried does not reach" in card


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_with_the_prices_it_has(tmp_path):
    whole = PlanningLearner(an_experiment(), 0, tmp_path / "whole")
    whole.run()

    def stop(stage, done, of, figures):
        first.stop |= stage == "price 4" and done == 3

    first = PlanningLearner(an_experiment(), 0, tmp_path / "halves", progress=stop)
    with pytest.raises(TrainingInterrupted):
        first.run()
    second = PlanningLearner(an_experiment(), 0, tmp_path / "halves")
    plays = []
    second._progress = lambda stage, done, of, figures: plays.append(stage)
    second.run(resume=True)
    assert "price 2" not in plays
    assert "price 4" in plays
    one, other = (export_planning(x, tmp_path / x.checkpoint.parent.name) for x in (whole, second))
    for file in one.iterdir():
        assert file.read_bytes() == (other / file.name).read_bytes()


def test_a_checkpoint_of_another_aim_is_refused(tmp_path, monkeypatch):
    learner, _ = with_lateness(tmp_path, monkeypatch, lambda price: 0.1)
    learner.run()
    other = PlanningLearner(an_experiment(late_target=0.1), 0, tmp_path)
    with pytest.raises(ConfigError, match=r"agent\.late_target.*made with 0\.02"):
        other.run(resume=True)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ({"late_prices": [2, 1]}, "rise"),
        ({"late_prices": [0, 1]}, "above 0"),
        ({"params": {"late_price": 3}}, "is what training finds"),
        ({"draws": 0}, "nothing to learn from"),
        ({"late_target": 1}, "late_target.*less than 1"),
        ({"kind": "plan"}, "'ppo' or 'planning'"),
    ],
)
def test_a_training_that_makes_no_sense_is_refused(agent, says):
    with pytest.raises(ConfigError, match=says):
        an_experiment(**agent)


# -- the folder


def test_a_folder_is_read_by_the_policy_that_made_it(folder):
    document = read_any(folder)[0]
    name, config, _ = resolve(folder)
    assert (name, config.policy) == ("policy", "mdp")
    policy = make(folder)
    assert policy.config.late_price == document.params["late_price"]
    assert policy.config.prior == "none"
    other = make(PolicyConfig(policy="mdp", params={"path": str(folder), "late_price": 7.5}))
    assert other.config.late_price == 7.5
    assert other.config.prior == "none"


def test_a_training_is_recorded_and_registered_as_that_of_a_network(trained_whole, folder):
    _, recorded = trained_whole
    assert recorded.given["agent"]["kind"] == "planning"
    document = read_any(folder)[0]
    prefix = f"seed-{document.seed}/validation"
    assert {recorded.figures[f"{prefix}/late_price", step] for step in (1, 2)} == {
        float(price) for price in document.tried
    }
    assert recorded.figures["best/slo_share", 0] == document.validation["slo_share"]
    assert recorded.registered == (folder, "small", "champion")


def test_resuming_a_training_that_is_done_plays_nothing(trained_whole, monkeypatch):
    out, _ = trained_whole
    before = (out / "policy" / POLICY).read_bytes()
    monkeypatch.setattr(PlanningLearner, "__init__", None)  # nobody learns
    train(an_experiment(seeds=[0, 1], params={"prior": "none"}), out, resume=True)
    assert (out / "policy" / POLICY).read_bytes() == before


def test_finished_seeds_of_another_experiment_are_not_resumed_and_every_key_is_named(trained_whole):
    out, _ = trained_whole
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    other = an_experiment(seeds=[0, 1], params={"prior": "none"}, draws=4, late_target=0.5)
    with pytest.raises(
        ConfigError, match=r"agent\.draws.*value 4.*made with 3.*agent\.late_target"
    ):
        train(other, out, resume=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_folder_with_a_training_is_left_alone_unless_told(trained_whole, monkeypatch):
    out, _ = trained_whole
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    monkeypatch.setattr(PlanningLearner, "__init__", None)  # nobody learns
    experiment = an_experiment(seeds=[0, 1], params={"prior": "none"})
    with pytest.raises(StorageError, match=r"seed 0 at 2 of 2.*--resume.*--overwrite"):
        train(experiment, out)
    with pytest.raises(ConfigError, match="Give one of them"):
        train(experiment, out, resume=True, overwrite=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_an_overwritten_training_begins_again(tmp_path, monkeypatch):
    _, played = with_lateness(tmp_path, monkeypatch, lambda price: 0.05 / price)
    for times in (1, 2):
        train(an_experiment(), tmp_path, overwrite=True)
        assert played == times * [2, 4]
    other = an_experiment(late_prices=[3])  # which the checkpoint could not continue
    train(other, tmp_path, overwrite=True)
    assert played[-1] == 3


def test_an_overwritten_training_leaves_no_policy_of_the_former(tmp_path, monkeypatch):
    seen = []

    def play(self, price):
        seen.append({str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json")})
        return {"return": 0.0, "cost_per_h": price, "slo_share": 0.0, "rescales_per_h": 0.0}

    monkeypatch.setattr(PlanningLearner, "_played", play)
    train(an_experiment(seeds=[0, 1, 2], late_prices=[3]), tmp_path)
    assert len(list(tmp_path.glob("seed-*/policy"))) == 3
    train(an_experiment(seeds=[1], late_prices=[3]), tmp_path, overwrite=True)
    assert seen[-1] == set()  # neither while it learns
    assert list(tmp_path.glob("seed-*/policy")) == [tmp_path / "seed-1" / "policy"]


def test_of_two_trainings_in_a_folder_the_second_is_refused(tmp_path, monkeypatch):
    refused = []

    def play(self, price):
        with pytest.raises(StorageError) as error:
            train(an_experiment(), tmp_path, overwrite=True)
        refused.append(str(error.value))
        return {"return": 0.0, "cost_per_h": price, "slo_share": 0.0, "rescales_per_h": 0.0}

    monkeypatch.setattr(PlanningLearner, "_played", play)
    train(an_experiment(late_prices=[3]), tmp_path)
    assert len(refused) == 1
    assert "another training writes into this folder" in refused[0]


def test_a_store_that_fails_at_the_end_loses_no_training(tmp_path, monkeypatch):
    with_lateness(tmp_path, monkeypatch, lambda price: 0.05 / price)

    class Failing(NullTracker):
        def register(self, folder, model, alias):
            summary = json.loads((tmp_path / "training.json").read_text())  # written first
            assert (summary["run_id"], summary["model"]) == (None, None)
            raise ConnectionError("the store has gone")

    tracker = BackgroundTracker(Failing)
    result = train(an_experiment(), tmp_path, tracker=tracker)
    assert tracker.problem == "ConnectionError: the store has gone"
    assert (result.policy / POLICY).is_file()
    assert json.loads((tmp_path / "training.json").read_text())["seed"] == result.seed


def test_on_another_machine_a_seed_comes_back_after_every_price(tmp_path, monkeypatch):
    with_lateness(tmp_path, monkeypatch, lambda price: 0.05 / price)
    cell, visits = SeedCell(an_experiment(), 0, tmp_path / "seed", None, files={}), 0
    figures = None
    while figures is None:
        here = train_seed(cell, lambda news: False)
        figures, cell, visits = here.figures, replace(cell, files=here.files), visits + 1
    assert visits == 3  # after each of two prices, and for the end
    assert figures["cost_per_h"] == 4
    assert set(here.files) == {"checkpoint", "policy"}


def test_seeds_count_different_days_of_the_same_loads(folder):
    tables = [read_any(folder.parent / f"seed-{seed}" / "policy")[1] for seed in (0, 1)]
    minutes = [table["transitions/minutes"].sum() for table in tables]
    assert minutes[0] == minutes[1] == 3 * 19
    assert any(not np.array_equal(*(table[name] for table in tables)) for name in tables[0])


def test_a_folder_is_shown_with_its_price_and_carried_along(folder):
    shown = CliRunner().invoke(app, ["policy", "show", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "price of a late minute" in shown.stdout
    assert "## Limits" in shown.stdout
    work = ship(None, resolve(folder)[1], shares_disk=False)
    with work.unpacked() as config:
        assert make(config).config.prior == "none"


def test_a_folder_of_the_other_kind_is_refused_with_a_sentence(folder):
    with pytest.raises(PolicyError, match=r"holds a policy 'mdp', and was named as one of 'tra"):
        TrainedPolicy(TrainedConfig(path=str(folder)))
    with pytest.raises(PolicyError, match=r"holds a policy 'trained', and was named as one of"):
        MdpPolicy(MdpConfig(path="shipped:q11"))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("policy", "oracle", "is read by a policy that is not installed"),
        (
            "states",
            {"levels": 9, "level_width": 0.1, "trends": 5, "peaks": 3},
            "load states differ",
        ),
        ("weights_sha256", "0", "not the file that policy.json describes"),
        ("params", {"late_price": "dear"}, "late_price"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(folder, tmp_path, key, value, says):
    other = shutil.copytree(folder, tmp_path / "policy")
    document = json.loads((other / POLICY).read_text())
    (other / POLICY).write_text(json.dumps(document | {key: value}))
    with pytest.raises((PolicyError, ConfigError), match=says):
        make(other)


# -- the past of one job

SPEC = line(source={"rate_per_s": 6000.0})  # a task of the map carries 1,000/s
JOB = Topology.of([SPEC])


def a_run(load_per_s, minutes, slower=1.0):
    """Snapshots of six maps, each minute one."""
    rows = JOB.take(np.zeros(minutes, np.int64))
    times = 600.0 + 60.0 * np.arange(minutes)
    busy = load_per_s * slower / 6.0
    return blank_snapshot(
        rows,
        parallelism=[[4, 6, 1]],
        t_s=times,
        records_in_per_s=load_per_s,
        busy_ms_per_s=[[1.0, busy, 1.0]],
        records_in_total=(load_per_s * times)[:, None],
        pending_records=[[0.0, np.nan, np.nan]],
    )


def past_of(slower=1.3, minutes=60):
    return watched([a_run(3000.0, minutes, slower)], JOB, Prior.of_files(JOB), SizingConfig())


def test_the_past_of_a_job_is_its_load_by_the_minute_and_what_its_vertices_take():
    past = past_of()
    assert [load.tolist() for load in past.loads] == [pytest.approx([0.5] * 59)]
    model = ServiceModel()
    model.reset(JOB, Prior.of_files(JOB))
    fresh = model.capacity_per_s(JOB, np.array([[4, 6, 1]]), np.array([[-1, -1, -1]]))[0]
    model.adopt(np.array([0]), past.service)
    found = model.capacity_per_s(JOB, np.array([[4, 6, 1]]), np.array([[-1, -1, -1]]))[0]
    assert found == pytest.approx(fresh / 1.3, rel=0.03)


def test_what_was_learned_holds_beside_other_jobs_and_after_the_file_was_changed():
    past = past_of(slower=1.0)
    twice = line(cpu_us=2000.0, source={"rate_per_s": 6000.0})
    deep = line(memory={"levels": 5}).model_copy(update={"job": "deep"})
    jobs = Topology.of([deep, twice])
    model = ServiceModel()
    model.reset(jobs, Prior.of_files(jobs))
    model.adopt(np.array([1]), past.service)
    parallelism, level = np.array([[4, 6, 1]] * 2), np.full((2, 3), -1)
    # The file now says half of what the job was seen to carry.
    assert model.capacity_per_s(jobs, parallelism, level)[1] == pytest.approx(6000.0, rel=0.05)
    assert model.learned(1)["mean"].shape == past.service["mean"].shape


def test_a_load_beyond_the_reference_is_scaled_as_the_policy_scales_it():
    past = watched([a_run(12000.0, 30)], JOB, Prior.of_files(JOB), SizingConfig())
    assert past.loads[0] == pytest.approx(np.full(29, 1.0))


def test_a_gap_in_the_past_is_no_transition():
    run = a_run(3000.0, 60)
    silent = np.array(run.records_in_total)
    silent[20:45], rates = np.nan, np.array(run.records_in_per_s)
    rates[20:45] = np.nan
    values = {name: getattr(run, name) for name in ("t_s", "parallelism", "pending_records")}
    holey = blank_snapshot(run.topology, **values, records_in_total=silent, records_in_per_s=rates)
    past = watched([holey], JOB, Prior.of_files(JOB), SizingConfig())
    assert len(past.loads) == 2


def test_a_policy_starts_from_the_past_of_its_job_and_refuses_another_graph(tmp_path):
    learner = PlanningLearner(an_experiment(), 0, tmp_path)
    learner.counts += counted([np.full(60, 0.5)])
    learner.tried[2.0] = {
        "return": 0.0,
        "cost_per_h": 1.0,
        "slo_share": 0.01,
        "rescales_per_h": 0.0,
    }
    learner.best.late_price, learner.best.figures = 2.0, learner.tried[2.0]
    learner.past["line"] = past_of()
    folder = export_planning(learner, tmp_path / "policy")
    assert "own past of" in CliRunner().invoke(app, ["policy", "show", str(folder)]).stdout
    assert "60 minutes" not in (folder / "card.md").read_text()
    assert "59 minutes of its load" in (folder / "card.md").read_text()
    policy = MdpPolicy(MdpConfig(path=str(folder)))
    policy.reset(JOB, np.zeros(1, np.int64))
    at = policy._model.times(JOB, np.array([[4, 6, 1]]), np.full((1, 3), -1))[0][0, 1]
    assert at == pytest.approx(1.3e-3, rel=0.03)
    other = Topology.of([line(memory={"levels": 5})])
    with pytest.raises(PolicyError, match="memory levels differ"):
        policy.reset(other, np.zeros(1, np.int64))
    MdpPolicy(MdpConfig(path=str(folder), own_past=False)).reset(other, np.zeros(1, np.int64))
    document, _ = read_kind(folder, PlanningDocument)
    assert document.history["line"].vertices == JOB.names(0)
    # Times without a job file are ratios to something else.
    start = Trained(MdpConfig(prior="none"), learner.counts, document.history, {"line": {}})
    assert own_pasts(start, JOB) == {}


@pytest.mark.parametrize("column", [-1.0, 9.0, 1e9, np.nan])
def test_a_limit_at_no_memory_level_is_refused(tmp_path, column):
    learned = past_of().service
    weights = {past_prefix("line") + name: values for name, values in learned.items()}
    weights[past_prefix("line") + "limit_column"] = np.full(3, column)
    document = HistoryDocument(minutes=59, prior="job-file", vertices=JOB.names(0))
    with pytest.raises(PolicyError, match="do not hold the service model of 'line'"):
        past_in(weights, "line", document, tmp_path / "weights.safetensors")


def test_the_highest_level_that_was_counted_is_known():
    assert highest_level(counted([np.full(60, 0.5)])) == pytest.approx(0.52)


# -- laws of the load


STEADY = {"form": "diurnal", "mean": {"between": [0.4, 0.8]}, "amplitude": 0.02, "noise_cv": 0.02}
JUMPY = {
    "form": "markov_modulated",
    "states": [
        {"rate": {"between": [0.2, 0.4]}, "mean_sojourn_s": 300},
        {"rate": {"between": [0.8, 1.0]}, "mean_sojourn_s": 300},
    ],
}
TWO_LAWS = [{"name": "steady", "load": STEADY}, {"name": "jumpy", "load": JUMPY}]


def test_laws_are_counted_apart_and_read_back(tmp_path):
    learner = PlanningLearner(an_experiment(laws=TWO_LAWS), 0, tmp_path)
    learner.run()
    folder = export_planning(learner, tmp_path / "policy")
    document, _ = read_kind(folder, PlanningDocument)
    assert document.laws == ("steady", "jumpy")
    assert "steady, jumpy" in (folder / "card.md").read_text()
    counts = trained(MdpConfig(path=str(folder))).counts
    np.testing.assert_array_equal(counts, learner.counts)
    assert counts.shape[0] == 2
    assert MdpPolicy(MdpConfig(path=str(folder))).shared()[0].laws.size.shape == (2, STATES)
    assert counts.sum(axis=(1, 2)).tolist() == [57, 57]  # three loads of 20 minutes each
    stays = [one.trace() / one.sum() for one in counts]
    assert stays[0] > stays[1]


def test_a_decision_names_the_law_of_the_load(tmp_path):
    learner = PlanningLearner(an_experiment(laws=TWO_LAWS), 0, tmp_path)
    learner.run()
    policy = MdpPolicy(MdpConfig(path=str(export_planning(learner, tmp_path / "policy"))))
    policy.reset(JOB, np.zeros(1, np.int64))
    assert policy._law(0) == ""  # all alike before any minute
    policy._heard["evidence"][0] = [0.0, -5.0]
    assert policy._law(0) == "; its load behaves as 'steady' does (99 %)"
    told = MdpPolicy(policy.config.model_copy(update={"known_law": True}))
    told.reset(JOB, np.zeros(1, np.int64))
    assert told._law(0) == ""


def test_other_seeds_count_other_loads_of_the_same_laws(tmp_path):
    config = an_experiment(laws=TWO_LAWS)
    one, same, other = (
        [minutes for _, minutes in PlanningLearner(config, seed, tmp_path)._drawn()]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.isin(one, other).any()


def test_a_trace_that_a_law_names_is_hashed(tmp_path):
    (tmp_path / "steps.csv").write_text("t_s,rate\n0,1\n60,2\n")
    law = {"name": "recorded", "load": {"form": "trace", "path": str(tmp_path / "steps.csv")}}
    assert list(data_hashes(an_experiment(laws=[law]))) == [str(tmp_path / "steps.csv")]


@pytest.mark.parametrize(
    ("laws", "said"),
    [
        ([TWO_LAWS[0], TWO_LAWS[0]], "the law 'steady' is listed twice"),
        ([{"name": f"law-{i}", "load": STEADY} for i in range(65)], "64"),
        ([{"name": "a/b", "load": STEADY}], "pattern"),
        ([{"name": "a", "load": {"form": "diurnal", "mean": {"between": [0.8, 0.4]}}}], "no range"),
        ([{"name": "a", "load": {"form": "tide"}}], "form"),
    ],
)
def test_laws_that_cannot_be_drawn_are_refused(laws, said):
    with pytest.raises(ConfigError, match=said):
        an_experiment(laws=laws)
