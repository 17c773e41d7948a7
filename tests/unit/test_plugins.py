"""Plugins of other distributions are named like shipped parts, and refused with a remedy."""

from __future__ import annotations

import contextlib
import json
import sys

import numpy as np
import pytest

from dsp_gym.config import files
from dsp_gym.config.plugins import Plugins
from dsp_gym.errors import ConfigError
from dsp_gym.guardrails import config as guardrails_config
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GROUP, GuardrailsConfig
from dsp_gym.loads import rates
from dsp_gym.loads import spec as loads_spec
from dsp_gym.loads.spec import LoadConfig, is_seeded
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.topology import Topology
from tests.plugin import block, install
from tests.strategies import blank_snapshot, chain_spec

GUIDE = "add-a-guardrail.md"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package with these modules and entries for the length of a test."""

    def make(modules, entries):
        monkeypatch.syspath_prepend(str(install(tmp_path / "site", modules, entries)))
        forget()
        return Plugins(GROUP, "guardrail", guardrails_config.INSTALLED.guide)

    def forget():
        for group in guardrails_config.INSTALLED, loads_spec.INSTALLED:
            with contextlib.suppress(AttributeError):  # nothing was looked up yet
                del group.entries

    yield make
    forget()
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


@pytest.fixture
def guide(installed):
    return installed({"night_rest": block(GUIDE, "python")}, block(GUIDE, "toml"))


def parsed(text: str, tmp_path) -> GuardrailsConfig:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return files.load_model(GuardrailsConfig, "guardrails", file)


@pytest.mark.usefixtures("guide")
def test_the_guide_s_guardrail_is_named_in_a_file_and_acts(tmp_path):
    config = parsed(block(GUIDE, "yaml"), tmp_path)
    chain = build(config)
    assert chain.names == ("night_rest", "step_limit")
    topology = Topology.of([chain_spec()])
    chain.reset(topology, np.array([0]))
    for hour, held in ((6.5, True), (7.5, False)):
        snapshot = blank_snapshot(topology, 86_400 + hour * 3600, parallelism=[[2, 2, 2, 1]])
        wanted = ScalingDecision(np.array([[2, 3, 2, 1]]), snapshot.memory_level, ("more",))
        guarded = chain.allow(snapshot, wanted)
        assert guarded.parallelism[0, 1] == (2 if held else 3)
        found = [(i.guardrail, i.kind, i.reason) for i in guarded.interventions]
        assert found == (
            [("night_rest", "held", "at rest until 7:00, it is 6.5 h")] if held else []
        )


@pytest.mark.usefixtures("guide")
def test_its_configuration_is_written_and_read_again(tmp_path):
    config = parsed(block(GUIDE, "yaml"), tmp_path)
    written = json.loads(config.model_dump_json())
    assert written["guardrails"][0] == {"kind": "night_rest", "until_h": 7.0}
    assert GuardrailsConfig.model_validate(written) == config
    assert GuardrailsConfig.model_validate(config.model_dump()) == config


@pytest.mark.usefixtures("guide")
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("{kind: night_rest, untill_h: 7}", "unknown key 'untill_h'. Did you mean 'until_h'?"),
        ("{kind: night_rest, until_h: 25}", "key 'until_h': value 25"),
        ("{kind: night_rst}", "there is no guardrail 'night_rst'. Did you mean 'night_rest'?"),
        ("{kind: step_limits}", "there is no guardrail 'step_limits'. Did you mean 'step_limit'?"),
        (
            "{kind: step_limit, levls: 1}",
            "unknown key 'guardrails[0].levls'. Did you mean 'levels'?",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_the_nearest_right_word(part, said, tmp_path):
    with pytest.raises(ConfigError) as refused:
        parsed(f"guardrails: [{part}]", tmp_path)
    assert said in str(refused.value)


@pytest.mark.usefixtures("guide")
def test_a_guardrail_of_ones_own_stands_once_in_a_chain(tmp_path):
    with pytest.raises(ConfigError, match="'night_rest' is given twice"):
        parsed("guardrails: [{kind: night_rest}, {kind: night_rest}]", tmp_path)


def test_a_plug_in_that_lacks_its_own_module_is_refused_with_its_name(installed):
    offered = installed(
        {"older": "import no_such_library"},
        f'[project.entry-points."{GROUP}"]\nolder = "my_package.older:Older"\n',
    )
    with pytest.raises(ConfigError, match=r"No module named 'no_such_library'.*dsp-gym doctor"):
        offered.load("older")


def test_a_guardrail_without_a_configuration_model_is_refused(installed):
    installed(
        {"bare": "class Bare:\n    pass\n"},
        f'[project.entry-points."{GROUP}"]\nbare = "my_package.bare:Bare"\n',
    )
    with pytest.raises(ConfigError, match="guardrail 'bare' has no `Config`"):
        GuardrailsConfig.model_validate({"guardrails": [{"kind": "bare"}]})


LOAD_GUIDE = "add-a-load.md"


@pytest.fixture
def load_guide(installed):
    code = {"saw_tooth": block(LOAD_GUIDE, "python")}
    installed(code, block(LOAD_GUIDE, "toml"))


@pytest.mark.usefixtures("load_guide")
def test_the_guide_s_form_of_load_is_named_in_a_file_and_gives_its_rates(tmp_path):
    file = tmp_path / "saw.yaml"
    file.write_text(block(LOAD_GUIDE, "yaml", 1))
    spec = files.load_model(LoadConfig, "loads", file).load
    one, again, other = (rates(spec, seed=seed, duration_s=1200) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(one[:600], one[600:], atol=1e-9)
    assert 0 <= one.min() < one.max() < 0.5  # scaled
    assert is_seeded(spec)
    written = json.loads(LoadConfig(load=spec).model_dump_json())["load"]
    assert (written["form"], written["period_s"], written["scale"]) == ("saw_tooth", 600.0, 0.5)
    assert LoadConfig.model_validate({"load": written}).load == spec


@pytest.mark.usefixtures("load_guide")
@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"form": "saw_tooth", "periods": 1}, "unknown key 'periods'. Did you mean 'period_s'?"),
        ({"form": "saw_teeth"}, "there is no form 'saw_teeth'. Did you mean 'saw_tooth'?"),
        (
            {"form": "sum", "parts": [{"form": "stepp"}]},
            "there is no form 'stepp'. Did you mean 'step'?",
        ),
    ],
)
def test_what_is_wrong_about_a_load_is_said_with_the_nearest_right_word(load, said):
    with pytest.raises(ConfigError) as refused:
        files.parse(LoadConfig, {"load": load}, "mine.yaml")
    assert said in str(refused.value)
