"""Progress of a long command without a progress bar."""

import re
import time
from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

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


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        (
            progress.long_columns(),
            {"figures": "best return -0.512  cost/h 0.223  SLO missed 0.0213"},
        ),
        (progress.cells_columns(), {"said": "200 of 12345 runs of unseen-jobs-unseen-loads"}),
    ],
    ids=["long", "cells"],
)
def test_a_bar_fits_80_columns_and_shows_the_time_left_whole(columns, fields):
    clock = iter(float(second) for second in range(1000))
    console = Console(width=80, file=StringIO(), force_terminal=True, color_system=None)
    shown = Progress(*columns, console=console, auto_refresh=False, get_time=lambda: next(clock))
    name = "flink-autoscaler-tuned on nexmark-q11"
    task = shown.add_task(name, total=12_345, **fields)
    for done in (100, 200):
        shown.update(task, completed=done)
    console.print(shown.make_tasks_table(shown.tasks))
    line, *more = console.file.getvalue().splitlines()
    assert more == []
    assert len(line.rstrip()) <= 80
    assert re.search(r"\d:\d\d:\d\d left", line), line
    assert "flink-autosc" in line
    assert "200 of 12345 runs" in line or "2 %" in line


def test_a_bar_is_drawn_before_the_number_of_cells_is_known(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with cells_bar("runs") as told:
        told("ds2", 1.0, 4)
    assert "1 of 4 runs" in capsys.readouterr().err
