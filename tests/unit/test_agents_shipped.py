"""The shipped policies: small, found by name, and independent of training packages."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

from agents.folder import PlanningDocument, PolicyDocument
from agents.planning.policy import MdpPolicy
from agents.shipped import PRETRAINED
from agents.trained import TrainedPolicy
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.play import entrants
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.catalog import list_jobs, load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, available, make
from dsp_gym.policies.registry import is_trained, resolve

SHIPPED = {"planner": "planning", "learned-ppo": "ppo", "learned-q11": "q11"}
"""Folder of each, by the policy's name."""
TRAINED_BY = {"planner": "planning", "learned-ppo": "family", "learned-q11": "q11"}
"""Experiment that makes each."""


def test_every_shipped_folder_has_a_name_and_all_of_them_are_small():
    assert {folder.name for folder in PRETRAINED.iterdir()} == set(SHIPPED.values())
    assert set(SHIPPED) <= set(available())
    assert sum(file.stat().st_size for file in PRETRAINED.rglob("weights.safetensors")) <= 2**20
    assert all((PRETRAINED / folder / "card.md").is_file() for folder in SHIPPED.values())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_name_means_its_folder_and_the_policy_that_the_folder_asks_for(name):
    made = make(name)
    assert (made.name, made.document.name) == (name, TRAINED_BY[name])
    assert isinstance(made, MdpPolicy if name == "planner" else TrainedPolicy)
    assert is_trained(resolve(name)[1])


@pytest.mark.parametrize("name", SHIPPED)
def test_an_agent_was_trained_by_the_experiment_that_is_shipped_with_it(name):
    document = make(name).document
    config = load_model(ExperimentConfig, "experiments", document.name)
    assert set(document.jobs) == {load_job(job).job for job in config.jobs}
    assert document.seeds == config.agent.seeds
    assert isinstance(document, PlanningDocument if name == "planner" else PolicyDocument)


@pytest.mark.parametrize(
    ("before", "now"), [("learned", "planner"), ("mdp-no-file", "planner-no-file")]
)
def test_an_earlier_name_is_refused_with_the_present_one(before, now):
    for named in (before, PolicyConfig(policy=before, params={"late_price": 3.0})):
        with pytest.raises(ConfigError, match=f"no policy '{before}'.*Did you mean '{now}'"):
            make(named)


def test_the_parameters_of_a_shipped_configuration_are_overridden_one_by_one():
    file = load_model(PolicyConfig, "policies", "ds2-justin")
    made = make(PolicyConfig(policy="ds2-justin", params={"min_down": 3}))
    assert made.name == "ds2-justin"
    assert (
        made.config == make(PolicyConfig(policy="ds2", params=file.params | {"min_down": 3})).config
    )


def test_the_planner_takes_another_price_without_a_folder():
    dearer = make(PolicyConfig(policy="planner", params={"late_price": 3.0}))
    assert dearer.config.late_price == 3.0
    assert dearer.document == make("planner").document
    none = make(PolicyConfig(policy="planner", params={"path": None}))
    assert none.config.late_price == make("planner").config.late_price


def test_a_folder_is_read_by_the_policy_that_its_document_names(tmp_path):
    for name, reader in (("planning", MdpPolicy), ("ppo", TrainedPolicy)):
        folder = shutil.copytree(PRETRAINED / name, tmp_path / name)
        given = PolicyConfig(policy="trained", params={"path": str(folder), "late_price": 2.0})
        assert isinstance(made := make(given), reader)
        assert made.config.late_price == 2.0
        assert isinstance(make(folder), reader)


def test_agents_of_one_file_hold_what_it_says_once(tmp_path):
    copied = shutil.copytree(PRETRAINED / "q11", tmp_path / "copied")
    one, other = make("learned-q11"), make(str(copied))
    assert sum(weights.nbytes for weights in one.shared()) > 100_000
    assert [id(weights) for weights in one.shared()] == [id(weights) for weights in other.shared()]
    assert one.document is other.document
    text = (copied / "policy.json").read_text()
    (copied / "policy.json").write_text(text.replace('"seed"', '"seeds"'))
    with pytest.raises(PolicyError, match="the key 'seed' is missing"):
        make(str(copied))


def test_what_is_not_shipped_is_refused_with_the_nearest():
    with pytest.raises(PolicyError, match=r"no policy 'planing' is shipped.*planning"):
        make(PolicyConfig(policy="mdp", params={"path": "shipped:planing"}))
    with pytest.raises(ConfigError, match="the key 'path' is missing"):
        make("trained")
    with pytest.raises(ConfigError, match="late_prices"):
        make(PolicyConfig(policy="planner", params={"late_prices": 3.0}))


@pytest.mark.parametrize("policy", [p for p in SHIPPED if p != "learned-q11"])
def test_core_v2_sweeps_the_price_of_the_shipped_agents(policy):
    config = load_model(FrontierConfig, "frontiers", "core-v2")
    (swept,) = (one for one in config.policies if one.name == policy)
    found = [resolve(entrant.policy)[1] for entrant in entrants(swept)]
    assert [one.params["late_price"] for one in found] == list(swept.values)
    assert len(found) == 5
    assert (swept.guardrails, swept.fallback) == ("floor", "justin-artifact-tuned")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_agent_acts_on_every_shipped_job(name):
    policy = make(name)
    jobs = Topology.of(list_jobs())
    simulated = SimulatedJobs(jobs)
    rates = np.repeat(jobs.tables.rate_per_s[jobs.row, None], 600, axis=1)
    simulated.reset(np.arange(len(jobs)), rates)
    simulated.advance(300)
    policy.reset(jobs, np.arange(len(jobs)))
    seen = simulated.snapshot()
    decision = policy.decide(seen)
    tables, mask = jobs.tables, jobs.mask
    assert (decision.parallelism <= tables.max_parallelism[jobs.row])[mask].all()
    assert (decision.parallelism >= 1)[mask].all()
    changed = decision.changes(seen.parallelism, seen.memory_level, mask)
    for job in range(len(jobs)):
        holds = decision.reasons[job].startswith("hold")
        assert holds == (not changed[job]) or name == "learned-ppo"  # which may be there already


DECIDE = """
import sys
for name in ("torch", "mlflow", "scipy", "stable_baselines3"):
    sys.modules[name] = None  # its import fails
import numpy as np
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import make
jobs = Topology.of([load_job("nexmark-q11")])
simulated = SimulatedJobs(jobs)
simulated.reset(np.zeros(1, int), np.full((1, 300), 20000.0))
for name in sys.argv[1:]:
    policy = make(name)
    policy.reset(jobs, np.zeros(1, int))
    for _ in range(2):
        simulated.advance(60)
        policy.decide(simulated.snapshot())
"""


@pytest.mark.slow
def test_deciding_needs_neither_torch_nor_scipy():
    done = subprocess.run(
        [sys.executable, "-c", DECIDE, *SHIPPED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
