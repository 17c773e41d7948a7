from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.cli import app
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.policies.registry import make

DECISIONS = 12


def play(policy: str, job: str, key: str) -> tuple[list[dict], list[dict]]:
    """Snapshots of a run in the gym, and what the policy decided there."""
    jobs = SimulatedJobs(Topology.of([load_job(job)]))
    rate = jobs.topology.tables.rate_per_s[jobs.topology.row][:, None]
    jobs.reset(np.array([7]), np.repeat(rate, DECISIONS * 60, axis=1))
    loop = ControlLoop(jobs, make(policy), None, 60)
    loop.reset(np.array([0]))
    steps = [loop.step() for _ in range(DECISIONS)]
    seen = [snapshot_to_json(step.snapshot.job(0), key) for step in steps]
    done = [decision_to_json(step.decision, step.snapshot.job(0), key) for step in steps]
    return seen, done


def write(path, documents) -> str:
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    return str(path)


def decide(*arguments: str, **options):
    return CliRunner().invoke(app, ["decide", *arguments], **options)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("policy", ["static", "hpa-cpu", "ds2", "justin-paper", "justin-artifact"])
def test_a_policy_decides_on_the_wire_what_it_decides_in_the_gym(policy, tmp_path):
    seen, done = play(policy, "nexmark-q11", "a")
    result = decide("--policy", policy, write(tmp_path / "in.jsonl", seen))
    assert result.exit_code == 0, result.output
    assert lines(result.stdout) == done
    if policy != "static":
        assert any(answer["changed"] for answer in done)


def test_jobs_in_one_file_have_a_policy_each(tmp_path):
    one, one_done = play("ds2", "nexmark-q11", "a")
    other, other_done = play("ds2", "nexmark-q5", "b")
    mixed = [document for pair in zip(one, other, strict=True) for document in pair]
    result = decide("--policy", "ds2", write(tmp_path / "in.jsonl", mixed))
    answers = lines(result.stdout)
    assert [answer for answer in answers if answer["job"] == "a"] == one_done
    assert [answer for answer in answers if answer["job"] == "b"] == other_done


def test_snapshots_are_read_from_standard_input():
    seen, done = play("ds2", "nexmark-q11", "a")
    text = "\n\n".join(json.dumps(document) for document in seen)  # blank lines are skipped
    assert lines(decide("--policy", "ds2", "-", input=text).stdout) == done


def test_output_is_written_whole(tmp_path):
    seen, done = play("ds2", "nexmark-q11", "a")
    source, target = write(tmp_path / "in.jsonl", seen), tmp_path / "out.jsonl"
    line = ("--policy", "ds2", source, "--out", str(target))
    said = decide(*line).stdout
    assert lines(target.read_text()) == done
    changes = sum(answer["changed"] for answer in done)
    assert said == f"{DECISIONS} answers, {changes} of them changes: {target}\n"


def test_a_bad_line_is_named_and_nothing_is_written(tmp_path):
    seen, _ = play("ds2", "nexmark-q11", "a")
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write(source, seen[:2])
    with source.open("a") as stream:
        stream.write('{"schema": "dsp-gym/snap\n')
    result = decide("--policy", "ds2", str(source), "--out", str(target))
    assert result.exit_code == 2
    assert f"{source}, line 3: is not valid JSON" in result.stderr
    assert list(tmp_path.iterdir()) == [source]


def changed(document: dict, **values) -> dict:
    return {**json.loads(json.dumps(document)), **values}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda d: changed(d, schema="dsp-gym/snapshot/2"), "reads 'dsp-gym/snapshot/1'"),
        (lambda d: changed(d, t_s=0.0), "t_s 0 of job 'a' does not follow 0"),
        (lambda d: changed(d, vertices=d["vertices"][:2]), "had the vertices bids, session, sink"),
        (lambda d: changed(d, status="FINE"), "value 'FINE'"),
        (lambda d: [d], "holds a list, expected a JSON object"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(second, message, tmp_path):
    seen, _ = play("ds2", "nexmark-q11", "a")
    source = write(tmp_path / "in.jsonl", [seen[0], second(seen[1])])
    result = decide("--policy", "ds2", source)
    assert result.exit_code == 2
    assert message in result.stderr
    assert f"{source}, line 2" in result.stderr


def test_a_policy_or_file_that_is_not_there_is_named(tmp_path):
    source = write(tmp_path / "in.jsonl", [])
    unknown = decide("--policy", "ds3", source)
    assert (unknown.exit_code, "Did you mean 'ds2'?" in unknown.stderr) == (2, True)
    missing = decide("--policy", "ds2", str(tmp_path / "no.jsonl"))
    assert missing.exit_code == 2
    assert "no.jsonl: cannot be read: No such file" in missing.stderr
