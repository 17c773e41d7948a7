"""Progress of a command without a terminal."""

from __future__ import annotations

import pytest
from rich.progress import Progress

from dsp_gym.cli.progress import _line


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (0.0, "0:01:00  runs"),
        (1e-9, "0:01:00  runs 0 %"),  # no time left is told from next to nothing
        (25.0, "0:01:00  runs 25 %, about 0:03:00 left"),
        (100.0, "0:01:00  runs 100 %, about 0:00:00 left"),
    ],
)
def test_the_time_left_is_told_from_the_first_percent(done, says):
    shown = Progress(disable=True)
    shown.add_task("runs", total=100.0, completed=done)
    assert _line(shown.tasks[0], 60.0) == says
