"""What the commands of studies have in common."""

from __future__ import annotations

import json
import sys

import pytest

from dsp_gym.studies.study import dsp_gym, options_of, report


def test_figures_are_printed_and_kept(tmp_path, capsys):
    report({"holds": True}, tmp_path / "out" / "figures.json")
    assert capsys.readouterr().out == '{"holds": true}\n'
    assert json.loads((tmp_path / "out" / "figures.json").read_text()) == {"holds": True}


def test_exactly_one_of_some_options_is_asked_for():
    options, one_of = {"--out": {}}, {"--runs": {}, "--policy": {}}
    assert options_of("A study.", options, ["--policy", "ds2"], one_of).policy == "ds2"
    for line in ([], ["--policy", "ds2", "--runs", "runs"]):
        with pytest.raises(SystemExit):
            options_of("A study.", options, line, one_of)


def test_a_command_runs_in_this_environment():
    assert dsp_gym("bench", 5)[0] == sys.executable
    assert dsp_gym("bench", 5)[-2:] == ["bench", "5"]
