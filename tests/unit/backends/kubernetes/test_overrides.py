"""The parallelism override in every form that operators 1.10 to 1.16 take."""

from __future__ import annotations

import pytest

from dsp_gym.backends.kubernetes.overrides import KEY, Override, flattened
from tests.fakes.kubernetes_selectors import merged

A, B = "a" * 32, "b" * 32

FORMS = [
    ("flat", {KEY: f"{A}:2,{B}:3"}, {KEY: f"{A}:4,{B}:3"}),
    ("flat", {KEY: f"{{{A}: '2', {B}: '3'}}"}, {KEY: f"{A}:4,{B}:3"}),
    ("nested", {KEY: {A: 2, B: "3"}}, {KEY: {A: 4, B: "3"}}),
    (
        "nested",
        {"pipeline": {"jobvertex-parallelism-overrides": f"{A}:2,{B}:3"}},
        {"pipeline": {"jobvertex-parallelism-overrides": f"{A}:4,{B}:3"}},
    ),
    (
        "nested",
        {"pipeline": {"name": "x", "jobvertex-parallelism-overrides": {A: 2, B: 3}}},
        {"pipeline": {"name": "x", "jobvertex-parallelism-overrides": {A: 4, B: 3}}},
    ),
    ("prefix", {f"{KEY}.{A}": "2", f"{KEY}.{B}": 3}, {f"{KEY}.{A}": "4", f"{KEY}.{B}": 3}),
    (
        "prefix",
        {"pipeline": {f"jobvertex-parallelism-overrides.{v}": n for v, n in ((A, 2), (B, 3))}},
        {"pipeline": {f"jobvertex-parallelism-overrides.{v}": n for v, n in ((A, 4), (B, 3))}},
    ),
]


@pytest.mark.parametrize(("form", "configuration", "patched"), FORMS)
def test_it_is_read_in_any_form_and_written_back_in_the_same(form, configuration, patched):
    configuration = {"state.backend.type": "rocksdb", **configuration}
    override = Override.of(configuration)
    assert override.form == form
    assert override.values == {A: 2, B: 3}
    after = merged(configuration, override.patch({A: 4}))
    assert after == {"state.backend.type": "rocksdb", **patched}
    assert Override.of(after).values == {A: 4, B: 3}


@pytest.mark.parametrize(("form", "configuration", "patched"), FORMS)
def test_a_vertex_that_was_not_overridden_joins_the_others(form, configuration, patched):
    more = merged(configuration, Override.of(configuration).patch({"c": 7}))
    assert Override.of(more).values == {A: 2, B: 3, "c": 7}
    assert Override.of(more).form == form


def test_where_there_is_none_a_flat_text_is_written():
    override = Override.of({"pipeline": {"name": "x"}, "pipeline.max-parallelism": 128})
    assert (override.form, override.values) == ("none", {})
    assert override.patch({A: 2, B: 3}) == {KEY: f"{A}:2,{B}:3"}


@pytest.mark.parametrize(
    "configuration",
    [
        {KEY: f"{A}:2", "pipeline": {"jobvertex-parallelism-overrides": {A: 3}}},
        {KEY: f"{A}:2", f"{KEY}.{A}": 3},
        {KEY: {A: 2}, f"{KEY}.{B}": 3},
        {f"{KEY}.{A}": 2, "pipeline": {f"jobvertex-parallelism-overrides.{B}": 3}},
    ],
)
def test_two_forms_at_once_are_told_and_not_chosen_between(configuration):
    override = Override.of(configuration)
    assert override.form == "mixed"
    assert "several forms" in override.trouble


@pytest.mark.parametrize("text", [f"{A}:two", f"{A}", f"{A}:0", f"{A}:-1", f"{A}:2.5"])
def test_what_is_no_parallelism_is_told(text):
    override = Override.of({KEY: text})
    assert override.values == {}
    assert "cannot be read" in override.trouble


def test_an_empty_override_is_one_of_no_vertex():
    override = Override.of({KEY: ""})
    assert (override.form, override.values, override.trouble) == ("flat", {}, None)


def test_a_configuration_is_flattened_as_flink_reads_it():
    nested = {"a": {"b": {"c": 1}, "d": True}, "e.f": None}
    assert flattened(nested) == {"a.b.c": "1", "a.d": "true", "e.f": ""}
