"""What a long command says of its progress where nobody sees a bar."""

import time

import pytest

from dsp_gym.cli import progress
from dsp_gym.cli.engines import cells_bar


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.05)


def lines_of(capsys) -> list[str]:
    found = capsys.readouterr()
    assert found.out == ""
    return found.err.splitlines()


def test_without_a_terminal_a_long_command_says_how_far_it_is_and_what_is_left(quickly, capsys):
    with cells_bar("runs") as told:
        told("ds2", 30.0, 120)
        time.sleep(0.3)
    lines = lines_of(capsys)
    assert lines
    assert all("ds2 25 %, about 0:00:" in line and line.endswith("left") for line in lines)


def test_the_lines_end_with_the_work(quickly, capsys):
    with cells_bar("runs") as told:
        told("ds2", 120.0, 120)
    lines_of(capsys)
    time.sleep(0.2)
    assert lines_of(capsys) == []


def test_a_short_command_says_nothing(capsys):
    with cells_bar("runs") as told:
        told("ds2", 30.0, 120)
    assert lines_of(capsys) == []


def test_work_not_yet_counted_is_named(quickly, capsys):
    with cells_bar("episodes"):
        time.sleep(0.2)
    assert lines_of(capsys)[0] == "0:00:00  episodes"
