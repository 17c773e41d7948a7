"""The contents of a job file, and refusals."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec


def vertex(name, *inputs, **changes):
    kind = "operator" if inputs else "source"
    edges = [{"from": name} for name in inputs]
    return {"name": name, "kind": kind, "inputs": edges, "cpu_us_per_record": 1, **changes}


def read(*vertices, **changes):
    return parse(
        JobSpec,
        {"job": "j", "source": {"rate_per_s": 1}, "vertices": list(vertices), **changes},
        "j.yaml",
    )


def test_vertices_may_stand_in_any_order():
    job = read(vertex("c", "b"), vertex("b", "a"), vertex("a"))
    assert [v.name for v in job.topological_order()] == ["a", "b", "c"]


def test_a_number_is_bare_or_has_a_source():
    sourced = {"value": 2.5, "source": "fit", "ci": [2.0, 3.0]}
    job = read(vertex("a"), vertex("b", "a", cpu_us_per_record=sourced))
    assert job.vertex("b").cpu_us_per_record == 2.5


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        ((vertex("a"), vertex("b", "c"), vertex("c", "b")), "cycle"),
        ((vertex("a"), vertex("b", "x")), "unknown vertex 'x'"),
        ((vertex("a"), vertex("b", "a"), vertex("b", "a")), "two vertices are named 'b'"),
        ((vertex("a"), vertex("b", "a", kind="source")), "'b' is a source with 1 inputs"),
        ((vertex("a"), vertex("b", kind="operator")), "'b' is a operator with 0 inputs"),
        ((vertex("a"), vertex("b", "a", parallelism=9, max_parallelism=8)), "8 key groups"),
        ((vertex("a"), vertex("b", "a", parallelism=25)), "max_parallelism_per_vertex 24"),
        ((vertex("a"), vertex("b", *"aaaaa")), "more than 4 inputs"),
        ((vertex("a"),), "2 or more entries"),
        ((vertex("a"), vertex("b", "a", cpu_us_per_record=-1)), r"vertices\[1\].cpu_us_per_record"),
        ((vertex("a"), vertex("b", "a", cpu_us=1)), "unknown key.*cpu_us"),
    ],
)
def test_impossible_graphs_are_refused_by_name(vertices, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read(*vertices)
    assert "j.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"kind": "sliding", "length_s": 10}, "slide_s belongs to sliding windows"),
        ({"kind": "tumbling", "length_s": 10, "slide_s": 1}, "slide_s belongs to sliding windows"),
        ({"kind": "sliding", "length_s": 10, "slide_s": 20}, "must not exceed length_s"),
    ],
)
def test_windows_that_cannot_be_are_refused(window, message):
    state = {"keys": 1, "value_bytes": 1, "window": window}
    with pytest.raises(ConfigError, match=message):
        read(vertex("a"), vertex("b", "a", state=state))


def test_the_start_level_must_exist():
    with pytest.raises(ConfigError, match="start_level must be below"):
        read(vertex("a"), vertex("b", "a"), memory={"levels": 2, "start_level": 2})


def test_outage_quantiles_must_rise():
    with pytest.raises(ConfigError, match="p10 <= p50 <= p90"):
        read(vertex("a"), vertex("b", "a"), rescale={"outage_s": [5, 4, 6]})
