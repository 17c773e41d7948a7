from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.flink.submission import (
    Configuration,
    Submission,
    all_running,
    load_arguments,
    unready,
)
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.deployment import adaptive, slot_levels
from dsp_gym.job.spec import JobSpec


def spec(flink: bool = True, slot_sharing: bool = False) -> JobSpec:
    return JobSpec.model_validate({
        "job": "counting",
        "source": {"rate_per_s": 100},
        "memory": {"base_mib": 12.5, "levels": 3},
        "slot_sharing": slot_sharing,
        "vertices": [
            {"name": "source", "kind": "source", "cpu_us_per_record": 1},
            {"name": "count", "kind": "sink", "cpu_us_per_record": 1, "parallelism": 2,
             "inputs": [{"from": "source"}]},
        ],
        "flink": {"program": "wordcount", "arguments": {"direct-io": True, "keys": 10}}
        if flink else None,
    })  # fmt: skip


def pairs(arguments: list[str]) -> dict[str, str]:
    return dict(zip(arguments[::2], arguments[1::2], strict=True))


def test_the_program_is_told_configuration_load_and_its_own_arguments() -> None:
    configuration = Configuration({"source": 1, "count": 3}, {"source": -1, "count": 1})
    submission = Submission.of_spec(spec(), {"rate": "50", "keys": "7"})
    assert pairs(submission.program_arguments(configuration)) == {
        "--program": "wordcount",
        "--job-name": "counting",
        "--parallelism": "source=1,count=3",
        "--managed-mib": "count=25",
        "--slot-sharing": "per-vertex",
        "--direct-io": "true",
        "--keys": "7",
        "--rate": "50",
    }


def test_memory_is_passed_in_whole_mib_and_left_out_where_there_is_none() -> None:
    submission = Submission.of_spec(spec(slot_sharing=True), {}, "other")
    both = Configuration({"source": 1, "count": 1}, {"source": 0, "count": 2})
    passed = pairs(submission.program_arguments(both))
    assert passed["--managed-mib"] == "source=12,count=50"
    assert (passed["--job-name"], passed["--slot-sharing"]) == ("other", "default")
    none = Configuration({"source": 1, "count": 1}, {"source": -1, "count": -1})
    assert "--managed-mib" not in pairs(submission.program_arguments(none))


def test_a_job_that_can_only_be_simulated_is_refused() -> None:
    submission = Submission.of_spec(spec(flink=False), {})
    with pytest.raises(ConfigError, match="no 'flink' section"):
        submission.program_arguments(Configuration.of_spec(spec()))


class Running:
    """What `of_running` asks of a cluster, as Flink 2.1 answers it."""

    def __init__(self, arguments: dict[str, str], vertices: dict[str, int]) -> None:
        self._arguments = arguments
        self._vertices = vertices
        self.reading = contextlib.nullcontext

    def arguments(self, job_id: str) -> dict[str, str]:
        return self._arguments

    def job(self, job_id: str) -> dict[str, Any]:
        vertices = [
            {"id": f"{k:032x}", "name": name, "parallelism": p}
            for k, (name, p) in enumerate(self._vertices.items())
        ]
        return {"name": "mine", "state": "RUNNING", "vertices": vertices}


def test_a_running_job_gives_back_what_it_was_submitted_with() -> None:
    configuration = Configuration({"source": 1, "count": 3}, {"source": -1, "count": 2})
    sent = Submission.of_spec(spec(), {"rate": "50", "direct-io": "true", "keys": "10"}, "mine")
    arguments = {
        key.removeprefix("--"): value
        for key, value in pairs(sent.program_arguments(configuration)).items()
    }
    rest: Any = Running(arguments, {"Source: source": 1, "count -> sink": 3})
    assert Submission.of_running(rest, "id", spec()) == (sent, configuration)


def test_parallelism_is_the_running_one_not_the_submitted_one() -> None:
    arguments = {"parallelism": "source=1,count=1", "slot-sharing": "per-vertex"}
    rest: Any = Running(arguments, {"Source: source": 1, "count": 4})
    _, configuration = Submission.of_running(rest, "id", spec())
    assert configuration.parallelism == {"source": 1, "count": 4}
    assert configuration.memory_level == {"source": -1, "count": -1}


def test_memory_of_uniform_slots_is_that_of_the_slot_whatever_was_asked_for() -> None:
    uniform = adaptive(load_job("nexmark-q11"), 0)
    tasks = dict.fromkeys(Configuration.of_spec(uniform).parallelism, 1)
    listed = ",".join(f"{name}=1" for name in tasks)
    rest: Any = Running({"parallelism": listed, "slot-sharing": "default"}, tasks)
    _, configuration = Submission.of_running(rest, "id", uniform)
    assert configuration.memory_level == slot_levels(uniform)


def job(state: str, *vertices: tuple[str, int, int]) -> dict[str, Any]:
    return {
        "state": state,
        "vertices": [
            {"id": name, "name": name, "parallelism": p, "tasks": {"RUNNING": running}}
            for name, p, running in vertices
        ],
    }


def test_a_job_is_ready_when_every_subtask_asked_for_runs() -> None:
    wanted = Configuration({"source": 1, "count": 2}, {"source": -1, "count": -1})
    ready = job("RUNNING", ("Source: source", 1, 1), ("count", 2, 2))
    assert unready(ready, spec(), wanted) is None
    initializing = job("RUNNING", ("Source: source", 1, 1), ("count", 2, 1))
    assert "1 of 2 subtasks of 'count' run" in str(unready(initializing, spec(), wanted))
    fewer = job("RUNNING", ("Source: source", 1, 1), ("count", 1, 1))
    assert "Flink started 1" in str(unready(fewer, spec(), wanted))
    assert unready(job("CREATED"), spec(), wanted) == "not every task was placed"


def test_a_vertex_that_runs_in_part_does_not_run() -> None:
    vertex = {"parallelism": 2, "status": "RUNNING", "tasks": {"RUNNING": 1, "INITIALIZING": 1}}
    assert not all_running({"state": "RUNNING", "vertices": [vertex]})
    assert all_running({"state": "RUNNING", "vertices": [vertex | {"tasks": {"RUNNING": 2}}]})


def test_a_load_is_written_as_its_changes(tmp_path: Path) -> None:
    arguments = load_arguments([10, 10, 20.5, 20.5, 10], tmp_path / "loads", 1234)
    file = Path(arguments["load-file"])
    assert file.is_absolute()
    assert file.read_text() == "0,10\n2,20.5\n4,10\n"
    assert arguments["epoch-ms"] == "1234"
    assert load_arguments([10, 10, 20.5, 20.5, 10, 10], tmp_path / "loads", 1) == {
        "load-file": str(file),
        "epoch-ms": "1",
    }
    assert load_arguments(5.0, tmp_path, 1)["load-file"] != str(file)


@pytest.mark.parametrize("rates", [[], [1.0, -1.0], [np.nan], [np.inf]])
def test_a_load_that_is_none_is_refused(rates: list[float], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finite rates"):
        load_arguments(rates, tmp_path, 0)
