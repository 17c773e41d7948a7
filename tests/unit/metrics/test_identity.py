"""Tasks are the vertices of a job file by Flink's id, else by name, in any script."""

from __future__ import annotations

import pytest

from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.identity import Task, tasks_by_vertex


def chain(*names: str, ids: dict[str, str] | None = None) -> JobSpec:
    vertices = [
        {
            "name": name,
            "cpu_us_per_record": 10.0,
            "kind": "source" if k == 0 else "sink" if k == len(names) - 1 else "operator",
            "inputs": [{"from": names[k - 1]}] if k else [],
            **({"vertex_id": ids[name]} if ids and name in ids else {}),
        }
        for k, name in enumerate(names)
    ]
    return JobSpec.model_validate(
        {"job": "chain", "source": {"rate_per_s": 100.0}, "vertices": vertices}
    )


def found(spec: JobSpec, *tasks: Task) -> dict[str, str]:
    return {vertex: task.id for vertex, task in tasks_by_vertex(spec, tasks).items()}


@pytest.mark.parametrize("written", ["数据清洗", "____", "Map", ""])
def test_an_id_finds_its_task_whatever_the_task_is_named(written):
    spec = chain("源", "数据清洗", "🚀", ids={"数据清洗": "b" * 32})
    tasks = Task("a" * 32, "Source: 源"), Task("b" * 32, written), Task("c" * 32, "Sink: 🚀")
    assert found(spec, *tasks) == {"源": "a" * 32, "数据清洗": "b" * 32, "🚀": "c" * 32}


def test_an_id_of_an_earlier_graph_leaves_the_task_to_its_name():
    spec = chain("in", "map", "out", ids={"map": "f" * 32})
    tasks = Task("1", "Source: in"), Task("2", "map"), Task("3", "Sink: out")
    assert found(spec, *tasks) == {"in": "1", "map": "2", "out": "3"}


def test_a_writer_is_the_sink_and_its_committer_is_not_unless_it_stands_alone():
    spec = chain("in", "map", "out")
    writer, committer = Task("3", "out: Writer"), Task("4", "out: Committer")
    head = Task("1", "Source: in"), Task("2", "map")
    assert found(spec, *head, committer, writer)["out"] == "3"
    assert found(spec, *head, committer)["out"] == "4"


def test_two_tasks_of_one_name_are_refused_with_their_ids_and_told_apart_by_them():
    tasks = [Task("a" * 32, "Source: in"), Task("b" * 32, "Map"), Task("c" * 32, "Map"),
             Task("d" * 32, "Sink: out")]  # fmt: skip
    with pytest.raises(FlinkError, match=rf"named after 'Map': {'b' * 32}, {'c' * 32}.*vertex_id"):
        found(chain("in", "Map", "Map 2", "out"), *tasks)
    spec = chain("in", "Map", "Map 2", "out", ids={"Map": "b" * 32, "Map 2": "c" * 32})
    assert found(spec, *tasks) == {
        "in": "a" * 32, "Map": "b" * 32, "Map 2": "c" * 32, "out": "d" * 32,
    }  # fmt: skip
