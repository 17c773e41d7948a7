"""Studies as commands: options of a signature, figures, exit codes."""

from __future__ import annotations

import json

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.studies.runner import DataOption, OutOption, run, write_figures


def study(data: DataOption, out: OutOption = None) -> None:
    """Count what is there."""
    if not data.is_dir():
        raise ConfigError("no such folder", file=data, remedy="Name another.")
    write_figures({"count": 0}, out)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(study, arguments)
    return ended.value.code


def test_figures_are_printed_and_written(tmp_path, capsys):
    assert exit_code("--data", str(tmp_path), "--out", str(tmp_path / "out.json")) == 0
    assert capsys.readouterr().out == '{"count": 0}\n'
    assert json.loads((tmp_path / "out.json").read_text()) == {"count": 0}


def test_an_error_of_ours_is_a_message_and_code_2(tmp_path, capsys):
    assert exit_code("--data", str(tmp_path / "none")) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_missing_option_is_named(capsys):
    assert exit_code() == 2
    assert "--data" in capsys.readouterr().err
