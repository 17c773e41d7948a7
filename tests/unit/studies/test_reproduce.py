"""The framework of `dsp-gym reproduce`, and the commands `mst` and `reproduce`."""

from __future__ import annotations

import json
import sys
import types

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.reproduce import registry


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def one_study(monkeypatch):
    """A registry of one study that gives these checks."""

    def put(*checks):
        module = types.ModuleType("made_up_study")
        module.run = lambda data: list(checks)
        monkeypatch.setitem(sys.modules, "made_up_study", module)
        monkeypatch.setattr(
            registry, "STUDIES", {"made-up": registry.Study("made_up_study:run", "a study")}
        )

    return put


def made(passed):
    return registry.Check("made-up/x", "paper", "a claim", 1.0, 2.0, "10 %", passed, False)


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_code_says_whether_a_check_failed(one_study, passed, code):
    one_study(made(True), made(passed))
    result = call("reproduce", "made-up", "--json")
    assert result.exit_code == code
    assert [found["passed"] for found in json.loads(result.stdout)] == [True, passed]


def test_the_table_marks_a_failure(one_study):
    one_study(made(False))
    assert "FAILED" in call("reproduce").stdout


def test_an_unknown_study_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'streambed'"):
        registry.reproduce("streamed")


def test_without_the_data_folder_the_check_says_why_it_was_skipped(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSP_GYM_DATA", raising=False)
    (skipped,) = registry.reproduce("streambed")
    assert skipped.passed is None
    assert "DSP_GYM_DATA" in str(skipped.note)


def test_a_data_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="DSP_GYM_DATA does not name a folder"):
        registry.data_folder()


def test_the_studies_are_listed():
    assert "justin-micro" in call("reproduce", "--list").stdout


def test_mst_as_json():
    result = call("plan", "justin-write", "--configuration", "state=8@4", "--json")
    found = json.loads(result.stdout)
    assert found["slots"] == 9
    assert found["mst"]["bottleneck"] == "state"
    state = load_job("justin-write").vertex("state")
    seconds = (state.cpu_us_per_record + state.state.write_us) * 1e-6
    assert found["mst"]["rate_per_s"] == pytest.approx(8 / seconds)


def test_mst_places_a_job_on_slots():
    found = json.loads(
        call("plan", "streambed-q11", "--slots", "12", "--slot-memory-mib", "2048", "--json").stdout
    )
    assert found["slots"] == 12


def test_the_interval_of_a_quota_is_no_answer_for_more_slots():
    found = json.loads(call("plan", "streambed-q11", "--slots", "200", "--json").stdout)
    assert found["slots"] < 200
    assert found["validity"]["interval"] is None
    lifted = found["quota"]["lifted"]
    assert found["quota"]["tasks"] == 64
    assert lifted["rate_per_s"] > 2 * found["mst"]["rate_per_s"]
    assert lifted["validity"]["interval"]["high_per_s"] > lifted["rate_per_s"]
    said = call("plan", "streambed-q11", "--slots", "200").stdout
    assert "The quota of 64 tasks per vertex binds" in said
    assert "no answer for 200" in said
    few = json.loads(call("plan", "streambed-q11", "--slots", "12", "--json").stdout)
    assert few["quota"] is None
    assert few["validity"]["interval"] is not None


def test_mst_as_a_table_names_the_limit():
    assert "limited by 'state'" in call("plan", "justin-read").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--configuration", "state"), "VERTEX=PARALLELISM"),
        (("--configuration", "state=2,state=3"), "twice"),
        (("--configuration", "stat=2"), "Did you mean 'state'"),
        (("--slots", "4", "--configuration", "state=1@1"), "chooses the configuration itself"),
        (("--slots", "1"), "at least 2 slots"),
    ],
)
def test_wrong_options_of_mst_end_with_exit_code_2(arguments, message):
    result = call("plan", "justin-read", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
