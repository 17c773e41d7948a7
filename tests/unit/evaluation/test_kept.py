"""An interrupted evaluation continues where it ended, with the scorecard of one that was not."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.run import evaluate

DOCUMENT = {
    "policies": ["ds2", "justin-paper", {"policy": "static", "guardrails": "deployed"}],
    "jobs": ["nexmark-q11"],
    "loads": {"test": {"loads": ["flash-crowd"], "seeds": {"from": 900, "to": 902}}},
    "episode_s": 900,
    "bootstrap": 100,
}
CONFIG = parse(BenchmarkConfig, DOCUMENT, "test")


class Until:
    """Interrupts at the first step of a policy; notes who played."""

    def __init__(self, label: str | None = None) -> None:
        self.label = label
        self.played: list[str] = []

    def __call__(self, label: str, *_: object) -> None:
        if label == self.label:
            raise KeyboardInterrupt
        if label not in self.played:
            self.played.append(label)


@pytest.fixture
def kept(tmp_path):
    """The results of the first two policies."""
    found = KeptResults(tmp_path / "unfinished")
    with pytest.raises(KeyboardInterrupt):
        evaluate(CONFIG, observer=Until("static"), kept=found)
    return found


def test_only_unfinished_policies_play_and_the_scorecard_is_the_same_to_the_last_bit(kept):
    assert len(kept) == 2
    rest = Until()
    assert evaluate(CONFIG, observer=rest, kept=kept).to_json() == evaluate(CONFIG).to_json()
    assert rest.played == ["static", "clairvoyant"]


def test_results_of_another_benchmark_or_policy_or_half_a_file_are_played_again(kept, tmp_path):
    other = parse(BenchmarkConfig, DOCUMENT | {"episode_s": 600}, "test")
    everyone = Until()
    evaluate(other, observer=everyone, kept=kept)
    assert everyone.played == ["ds2", "justin-paper", "static", "clairvoyant"]
    damaged = next(kept.folder.glob("*.json"))
    damaged.write_text(damaged.read_text()[:100])
    one = Until()
    evaluate(other, observer=one, kept=kept)
    assert len(one.played) == 1


def test_the_command_says_how_to_continue_and_leaves_no_rest(tmp_path, monkeypatch):
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(json.dumps(DOCUMENT))
    arguments = ["evaluate", str(file), "--out", str(out), "--no-track", "--json"]
    kept = KeptResults(out / "unfinished")
    with monkeypatch.context() as patch:
        patch.setattr("dsp_gym.cli.evaluate.progress", lambda _total: Interrupting())
        stopped = CliRunner().invoke(app, arguments)
    assert stopped.exit_code == 130
    assert "the results of 2 policies are kept" in " ".join(stopped.output.split())
    assert len(kept) == 2
    done = CliRunner().invoke(app, [*arguments, "--resume"])
    assert done.exit_code == 0, done.output
    assert done.stdout == evaluate(CONFIG).to_json()
    assert not kept.folder.exists()


class Interrupting(Until):
    """A progress bar under which Ctrl-C comes."""

    def __init__(self) -> None:
        super().__init__("static")

    def __enter__(self) -> Interrupting:
        return self

    def __exit__(self, *_: object) -> None:
        pass
