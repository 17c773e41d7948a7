"""A pinned policy is the intended one, or it decides nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import agents
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import policy_names, started
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.evaluation.config import Entrant
from dsp_gym.guardrails.chain import build
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.pins import digest_of, split_pin
from dsp_gym.policies.registry import is_pinned, is_trained, make, resolve


@pytest.fixture
def folder(tmp_path) -> Path:
    """A trained policy that was not shipped."""
    return shutil.copytree(Path(agents.__file__).parent / "pretrained/planning", tmp_path / "mine")


def test_a_pinned_policy_decides_as_the_folder_does(folder):
    pinned = f"{folder}@{digest_of(folder)}"
    assert resolve(pinned) == resolve(folder)
    assert make(pinned).name == "mine"
    given = PolicyConfig(policy="trained", params={"path": pinned})
    assert resolve(given)[1] == resolve(folder)[1]
    assert is_trained(given)
    assert Entrant(policy=pinned).name == "mine"


def test_a_link_is_followed_once_and_may_lead_elsewhere_afterwards(folder, tmp_path):
    latest = tmp_path / "latest"
    latest.symlink_to(folder.name)
    for named in (latest, f"{latest}@{digest_of(folder)}"):
        assert resolve(named)[1].params == {"path": str(folder.resolve())}
    assert resolve(folder)[1].params == {"path": str(folder)}


@pytest.mark.parametrize("change", ["content", "added", "removed", "renamed"])
def test_a_folder_that_changed_since_is_refused(folder, change):
    pinned = f"{folder}@{digest_of(folder)}"
    card = folder / "card.md"
    if change == "content":
        card.write_text(card.read_text() + " ")
    elif change == "added":
        (folder / "new").touch()
    elif change == "removed":
        card.unlink()
    else:
        card.rename(folder / "other.md")
    for policy in (pinned, PolicyConfig(policy="trained", params={"path": pinned})):
        with pytest.raises(PolicyError, match="differs from the pinned one"):
            make(policy)


def test_what_a_volume_adds_does_not_count(folder):
    before = digest_of(folder)
    (folder / "..data").mkdir()
    (folder / "..data" / "x").touch()
    assert digest_of(folder) == before


@pytest.mark.parametrize("named", ["ds2@sha256:12", f"{{}}@sha256:{'A' * 64}", "{}@sha256:"])
def test_what_is_no_digest_is_refused(folder, named):
    with pytest.raises(PolicyError, match="64 hexadecimal digits"):
        make(named.format(folder))


def test_only_a_folder_has_a_digest():
    with pytest.raises(PolicyError, match="only the folder of a trained policy"):
        make(f"ds2@sha256:{'0' * 64}")


def test_a_run_that_asks_for_pins_refuses_a_policy_without_one(folder, tmp_path):
    pinned = f"{folder}@{digest_of(folder)}"
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"policy": "trained", "params": {"path": pinned}}))
    for policy, answer in (
        (str(folder), False),
        (PolicyConfig(policy="trained", params={"path": str(folder)}), False),
        (pinned, True),
        (str(file), True),
        ("ds2", True),
        ("planner", True),  # travels with the package
    ):
        assert is_pinned(policy) is answer
    document = {"job": "nexmark-q11", "pinned": True}
    for named in ({"policy": str(folder)}, {"policy": "ds2", "fallback": str(folder)}):
        config = parse(RunConfig, document | named, "test")
        with pytest.raises(ConfigError, match="pinned: true"), started(config, mode="shadow"):
            pytest.fail("it was asked")
    assert policy_names(parse(RunConfig, document | {"policy": pinned}, "test")) == ["mine"]


GUARDS = ("capacity_floor", "excess_budget", "fallback")


@pytest.mark.parametrize("kind", GUARDS)
def test_the_policies_of_guardrails_are_pinned_like_the_policy(folder, kind):
    def run(named: str) -> RunConfig:
        guardrails = {"guardrails": [{"kind": kind, "policy": named}]}
        document = {"job": "nexmark-q11", "policy": "ds2", "guardrails": guardrails}
        return parse(RunConfig, {**document, "pinned": True}, "test")

    with pytest.raises(ConfigError, match="pinned: true") as refused:
        policy_names(run(str(folder)))
    assert refused.value.key == f"guardrails.{kind}.policy"
    pinned = f"{folder}@{digest_of(folder)}"
    assert policy_names(run(pinned)) == ["ds2"]
    assert policy_names(run("justin-paper")) == ["ds2"]
    if kind == "capacity_floor":  # a trained policy has no model
        return
    assert build(run(pinned).guardrails).names == (kind,)
    (folder / "card.md").write_text("changed")
    with pytest.raises(PolicyError, match="differs from the pinned one"):
        build(run(pinned).guardrails)


def test_the_commands_print_the_digest(folder):
    shown = CliRunner().invoke(app, ["policy", "show", str(folder)])
    assert digest_of(folder) in shown.stdout
    assert split_pin(f"a@{digest_of(folder)}") == ("a", digest_of(folder))
