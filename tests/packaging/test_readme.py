"""Commands in the README and in the list of commands work as shown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_every_make_target_it_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z]+)", README))
    assert {"quickstart", "test"} <= named
    assert named <= targets


def commands() -> list[str]:
    """The commands of the table, the first words of each line of code in its first column."""
    rows = re.findall(r"^\| (`dsp-gym .*?) \| ", COMMANDS, re.MULTILINE)
    spans = [span for row in rows for span in re.findall(r"`([^`]*)`", row)]
    words = [span.removeprefix("dsp-gym ").split() for span in spans]
    group = [" ".join(w[:2] if w[0] in {"config", "policy"} else w[:1]) for w in words]
    return sorted(set(group))


@pytest.mark.parametrize("command", commands())
def test_every_command_it_names_is_there(command: str) -> None:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


def test_its_film_takes_ten_seconds_and_at_most_a_mebibyte() -> None:
    image = pytest.importorskip("PIL.Image")
    (name,) = re.findall(r"\]\((docs/figures/.*\.gif)\)", README)
    assert name in (ROOT / "Makefile").read_text("utf-8")
    assert (ROOT / name).stat().st_size <= 2**20
    with image.open(ROOT / name) as film:
        assert 9_000 <= film.n_frames * film.info["duration"] <= 12_500


NUMBER = (
    r"(?<![A-Za-z\d])\d[\d.,]*|\b(?:two|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|hundred|thousand)\b|"
    r"\b(?:half )?an? (?:second|minute|hour|week)\b|\b(?:half|third|quarter|tenth) of\b"
)


def test_each_figure_in_it_is_generated_or_checked_here() -> None:
    # Between these marks docs/results.py writes: tests/unit/test_results_page.py compares.
    begin, _, rest = README.partition("<!-- scorecard -->")
    prose = begin + rest.partition("<!-- end of scorecard -->")[2]
    for code in (r"```.*?```", r"`[^`]*`", r"\]\([^)]*\)"):
        prose = re.sub(code, " ", prose, flags=re.DOTALL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    known = {"ten": "the film's length, above", oldest: "pip's", "2.0": project["license"]}
    found = re.findall(NUMBER, prose, re.IGNORECASE)
    assert set(found) == set(known), "a figure in the README needs a command that generates it"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_its_python_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})
