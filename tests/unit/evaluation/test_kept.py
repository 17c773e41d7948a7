"""An interrupted evaluation continues, with the scorecard of an uninterrupted one."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.engine import LocalEngine
from dsp_gym.evaluation.batch_of_runs import batch_of, play
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.run import decisions_of, evaluate
from dsp_gym.job.catalog import load_job
from dsp_gym.policies.local_module import LocalPolicy, offer_local
from dsp_gym.trackers import BackgroundTracker

DOCUMENT = {
    "policies": ["ds2", "justin-paper", {"policy": "static", "guardrails": "deployed"}],
    "jobs": ["nexmark-q11"],
    "loads": {"test": {"loads": ["flash-crowd"], "seeds": {"from": 900, "to": 902}}},
    "episode_s": 900,
    "bootstrap": 100,
}
CONFIG = parse(BenchmarkConfig, DOCUMENT, "test")


class Until:
    """Interrupts at the first word of a policy; notes who played."""

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
    assert len(kept) == 4  # two runs of two policies
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


RULE = """from dsp_gym.loop.per_job import per_job

@per_job
def tasks(job):
    "Every vertex gets as many tasks."
    return {vertex: 2 for vertex in job.vertices}
"""
GUARDED = "guardrails: [{kind: step_limit, up_factor: 2.0}]"


def reads_after(kept, batch, file, changed) -> bool:
    """Whether results are taken before a file changes, and whether they still are afterwards."""
    kept.write(batch, play(batch))
    assert len(kept.read(batch)) == 1
    file.write_text(changed)
    return bool(kept.read(batch))


def test_results_with_other_guardrails_in_the_same_file_are_played_again(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GUARDED)
    batch = batch_of(CONFIG, Entrant(policy="ds2", name="ds2", guardrails=str(file)))
    assert not reads_after(KeptResults(tmp_path), batch, file, GUARDED.replace("2.0", "3.0"))


def test_results_with_another_job_file_of_a_planner_are_played_again(tmp_path):
    file, text = tmp_path / "job.yaml", load_job("nexmark-q11").model_dump_json(by_alias=True)
    file.write_text(text)
    policy = {"policy": "planner", "params": {"job_files": [str(file)]}}
    batch = batch_of(CONFIG, Entrant.model_validate({"policy": policy, "name": "mine"}))
    document = json.loads(text)
    document["source"]["rate_per_s"] *= 2
    assert not reads_after(KeptResults(tmp_path), batch, file, json.dumps(document))


def test_results_under_another_recording_of_the_same_name_are_played_again(tmp_path):
    file, kept = tmp_path / "day.csv", KeptResults(tmp_path / "kept")
    rows = [(second, 0.5 + second / 2000) for second in range(0, 901, 60)]
    for factor in (1.0, 1.2):
        lines = (f"{second},{factor * rate}" for second, rate in rows)
        file.write_text("\n".join(["t_seconds,rate", *lines]))
        day = {"name": "day", "load": {"form": "trace", "path": "day"}}
        config = parse(BenchmarkConfig, DOCUMENT | {"loads": {"test": {"loads": [day]}}}, "test")
        batch = batch_of(config, Entrant(policy="ds2", name="ds2"), tmp_path)
        assert not kept.read(batch)
        kept.write(batch, play(batch))
        assert len(kept.read(batch)) == 1


def test_results_of_a_rule_before_it_was_edited_are_played_again(tmp_path):
    file, kept = tmp_path / "edited_rule.py", KeptResults(tmp_path)
    code = {"my-rule": LocalPolicy("edited_rule", "tasks")}
    for tasks in (2, 3):
        file.write_text(RULE.replace("2", str(tasks)))
        sys.modules.pop("edited_rule", None)  # as in a new process
        with offer_local(code, [tmp_path]):
            batch = batch_of(CONFIG, Entrant(policy="my-rule", name="my-rule"))
            assert not kept.read(batch)
            kept.write(batch, play(batch))
            assert len(kept.read(batch)) == 1
    sys.modules.pop("edited_rule", None)


def test_the_command_says_how_to_continue_and_leaves_no_rest(tmp_path, monkeypatch):
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(json.dumps(DOCUMENT))
    arguments = ["evaluate", str(file), "--out", str(out), "--track", "none", "--json"]
    kept = KeptResults(out / "unfinished")
    with monkeypatch.context() as patch:
        patch.setattr("dsp_gym.cli.evaluate.cells_bar", lambda _what: Interrupting())
        stopped = CliRunner().invoke(app, arguments)
    assert stopped.exit_code == 130
    assert "the results of 4 runs are kept" in " ".join(stopped.output.split())
    assert len(kept) == 4
    done = CliRunner().invoke(app, [*arguments, "--resume"])
    assert done.exit_code == 0, done.output
    assert done.stdout == evaluate(CONFIG).to_json()
    assert not kept.folder.exists()


def command(folder, out):
    """The line that plays the benchmark."""
    file = folder / "small.yaml"
    file.write_text(json.dumps(DOCUMENT))
    return ["evaluate", str(file), "--out", str(out), "--track", "none", "--json"]


def test_kept_results_are_neither_removed_nor_taken_unasked(kept, tmp_path):
    arguments = command(tmp_path, tmp_path)
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "an interrupted run kept 4 results" in refused.stderr
    assert "--resume" in refused.stderr
    assert "--overwrite" in refused.stderr
    both = CliRunner().invoke(app, [*arguments, "--resume", "--overwrite"])
    assert both.exit_code == 2
    assert "Give one of them" in both.stderr
    assert len(kept) == 4
    assert len(KeptResults(tmp_path)) == 4  # those of a cell below the folder count, too
    KeptResults.beside(tmp_path, resume=False, overwrite=True)
    assert len(kept) == 0


def test_a_report_that_cannot_be_written_loses_nothing(tmp_path, monkeypatch):
    arguments = command(tmp_path, tmp_path / "out")
    kept = KeptResults(tmp_path / "out" / "unfinished")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "results.json")

    with monkeypatch.context() as patch:
        patch.setattr("dsp_gym.evaluation.results.Results.write", full)
        failed = CliRunner().invoke(app, arguments)
    assert failed.exit_code == 2
    assert len(kept) == 8
    played = Until()
    assert evaluate(CONFIG, observer=played, kept=kept).to_json() == evaluate(CONFIG).to_json()
    assert played.played == []


def test_a_store_that_never_answers_neither_blocks_nor_loses_an_evaluation(tmp_path, monkeypatch):
    answers = threading.Event()

    def silent():
        assert (tmp_path / "out" / "results.json").is_file()  # written first, tracked after
        answers.wait()
        raise RuntimeError

    tracker = BackgroundTracker(silent, wait_s=0.2)
    monkeypatch.setattr("dsp_gym.cli.tracked.open_tracker", lambda *_: tracker)
    arguments = [
        one for one in command(tmp_path, tmp_path / "out") if one not in ("--track", "none")
    ]
    try:
        done = CliRunner().invoke(app, [*arguments, "--seeds", "1", "--track", "http://store"])
    finally:
        answers.set()
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cells"]
    said = " ".join(done.stderr.split())
    assert "not recorded in http://store, or not whole: the store did not answer" in said


def test_sigterm_says_what_is_kept(tmp_path, monkeypatch):
    class Terminating(Interrupting):
        def __call__(self, label, *_):
            if label == self.label:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("dsp_gym.cli.evaluate.cells_bar", lambda _what: Terminating())
    stopped = CliRunner().invoke(app, command(tmp_path, tmp_path / "out"))
    assert stopped.exit_code == 130
    assert "the results of 4 runs are kept" in " ".join(stopped.output.split())
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_a_command_that_is_killed_is_continued_by_other_workers(tmp_path):
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(json.dumps(DOCUMENT))
    arguments = ["evaluate", str(file), "--out", str(out), "--track", "none", "--json"]
    main = [sys.executable, "-c", "from dsp_gym.cli import main; main()"]
    kept = KeptResults(out / "unfinished")
    running = subprocess.Popen([*main, *arguments, "--workers", "2"], stdout=subprocess.DEVNULL)
    assert wait_until(lambda: len(kept) > 0, 120, 0.01)
    running.kill()
    running.wait()
    assert len(kept) < decisions_of(CONFIG) / (CONFIG.episode_s / CONFIG.interval_s)
    done = CliRunner().invoke(app, [*arguments, "--workers", "1", "--resume"])
    assert done.exit_code == 0, done.output
    assert done.stdout == evaluate(CONFIG).to_json()


class OneByOne(LocalEngine):
    """This process with batches of one run, the last first, and an end after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after
        self.cells = 0

    @property
    def slots(self) -> int:
        return 1_000_000

    def map(self, do, cells, heard=None, *, patient=False):
        for place in reversed(range(len(cells))):
            if self.cells == self.stop_after:
                raise KeyboardInterrupt
            self.cells += 1
            for _, result in super().map(do, [cells[place]], None):
                yield place, result


def test_single_runs_are_kept_whatever_their_order_and_go_on_in_other_batches(tmp_path):
    kept = KeptResults(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        evaluate(CONFIG, engine=OneByOne(stop_after=3), kept=kept)
    assert len(kept) == 3  # both of the plan, and the second one of a policy
    rest = OneByOne(stop_after=4)
    with pytest.raises(KeyboardInterrupt):
        evaluate(CONFIG, engine=rest, kept=kept)
    assert len(kept) == 7
    told = []
    card = evaluate(CONFIG, told=lambda *news: told.append(news), kept=kept)
    assert {label for label, _, _ in told} == {"ds2"}
    assert told[-1][1:] == (pytest.approx(8.0), 8)
    assert card.to_json() == evaluate(CONFIG).to_json()


@pytest.mark.slow
def test_results_that_overlap_are_taken_once(tmp_path):
    kept = KeptResults(tmp_path)
    evaluate(CONFIG, engine=OneByOne(), kept=kept)
    singles = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept.clear()
    evaluate(CONFIG, kept=kept)
    for name, text in singles.items():
        (tmp_path / name).write_text(text)
    assert evaluate(CONFIG, kept=kept).to_json() == evaluate(CONFIG).to_json()


@pytest.mark.slow
def test_two_processes_give_the_scorecard_of_one():
    told = []
    with LocalEngine(2) as two:
        card = evaluate(CONFIG, engine=two, told=lambda *news: told.append(news))
    assert card.to_json() == evaluate(CONFIG).to_json()
    assert told[-1][1:] == (pytest.approx(8.0), 8)


def test_decisions_are_counted_before_anything_is_played():
    taken = []
    evaluate(CONFIG, observer=lambda _label, _k, _n, step: taken.append(len(step.outcome.cost)))
    assert decisions_of(CONFIG) == sum(taken)


class Interrupting(Until):
    """A progress bar under which Ctrl-C comes."""

    def __init__(self) -> None:
        super().__init__("static")

    def __enter__(self) -> Interrupting:
        return self

    def __exit__(self, *_: object) -> None:
        pass
