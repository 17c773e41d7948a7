"""Laws that hold for any load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dsp_gym.loads import LoadSpec, rates

SPEC: TypeAdapter[LoadSpec] = TypeAdapter(LoadSpec)

multiplier = st.floats(0, 3)
seconds = st.floats(1, 2000)
noise = {
    "noise_cv": st.sampled_from([0.0, 0.05, 0.5]),
    "noise_correlation_s": st.sampled_from([0.0, 0.1, 7.0, 300.0]),
    "scale": st.floats(0.1, 10),
}


def between(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(numbers, min_size=2, max_size=2).map(sorted)


def form(name: str, **keys: st.SearchStrategy[object]) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({"form": st.just(name), **keys, **noise})


simple = st.one_of(
    form("constant", rate=multiplier),
    form("diurnal", mean=st.floats(0.5, 2), amplitude=st.floats(0, 0.5), period_s=seconds),
    form(
        "burst",
        rate_per_h=st.floats(0, 200),
        magnitude=between(multiplier),
        duration_s=between(seconds),
        shape=st.sampled_from(["rectangular", "decaying"]),
    ),
    form(
        "flash_crowd",
        base=multiplier,
        peaks=st.lists(
            st.fixed_dictionaries({"at_s": between(seconds), "magnitude": between(multiplier)}),
            min_size=1,
            max_size=3,
        ),
    ),
    form(
        "markov_modulated",
        states=st.lists(
            st.fixed_dictionaries({"rate": multiplier, "mean_sojourn_s": seconds}),
            min_size=2,
            max_size=4,
        ),
    ),
)
loads = st.recursive(
    simple, lambda parts: form("sum", parts=st.lists(parts, min_size=1, max_size=3)), max_leaves=4
).map(SPEC.validate_python)
seeds = st.integers(0, 2**63)
lengths = st.integers(1, 1500)


@given(spec=loads, seed=seeds, length=lengths, dt_s=st.sampled_from([0.5, 1.0, 5.0]))
@settings(max_examples=100, deadline=None)
def test_a_load_is_never_negative_never_infinite_and_as_long_as_asked(spec, seed, length, dt_s):
    made = rates(spec, seed=seed, duration_s=length * dt_s, dt_s=dt_s)
    assert made.shape == (length,)
    assert np.isfinite(made).all()
    assert (made >= 0).all()


@given(spec=loads, seed=seeds, length=lengths)
@settings(max_examples=60, deadline=None)
def test_the_same_seed_gives_the_same_load_to_the_last_bit(spec, seed, length):
    first = rates(spec, seed=seed, duration_s=length)
    assert first.tobytes() == rates(spec, seed=seed, duration_s=length).tobytes()


@given(spec=loads, seed=seeds, length=lengths, more=lengths)
@settings(max_examples=60, deadline=None)
def test_a_longer_load_begins_with_the_shorter_one(spec, seed, length, more):
    short = rates(spec, seed=seed, duration_s=length)
    long = rates(spec, seed=seed, duration_s=length + more)
    assert long[:length] == pytest.approx(short, rel=1e-12, abs=1e-12)


@given(spec=loads, seed=seeds)
@settings(max_examples=60, deadline=None)
def test_scaling_a_load_scales_every_rate(spec, seed):
    double = spec.model_copy(update={"scale": 2 * spec.scale})
    once, twice = (rates(each, seed=seed, duration_s=300) for each in (spec, double))
    assert twice == pytest.approx(2 * once, rel=1e-12)


@given(first=loads, second=loads, seed=seeds)
@settings(max_examples=60, deadline=None)
def test_a_part_does_not_change_what_comes_before_it(first, second, seed):
    parts = [first.model_dump(), {**second.model_dump(), "scale": 1e-100}]
    alone = rates(
        SPEC.validate_python({"form": "sum", "parts": parts[:1]}), seed=seed, duration_s=300
    )
    both = rates(SPEC.validate_python({"form": "sum", "parts": parts}), seed=seed, duration_s=300)
    assert both == pytest.approx(alone, rel=1e-12, abs=1e-12)
