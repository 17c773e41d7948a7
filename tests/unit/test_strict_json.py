"""JSON and YAML from outside are bounded: in levels, in text, and in expanded aliases."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.config.files import parse
from dsp_gym.config.strict_json import MOST_DEPTH, parse_json
from dsp_gym.config.strict_yaml import MOST_BYTES, parse_yaml
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from tests.fuzz.cases import as_json, content, nested

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('"[]{}\\a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('"[\\'), inner),
    max_leaves=12,
)


@settings(max_examples=50)
@given(value=VALUES)
def test_a_document_is_read_as_python_reads_it(value):
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_document_that_is_nested_too_deep_is_refused(kind):
    assert parse_json(nested(MOST_DEPTH, kind)) is not None
    for depth in (MOST_DEPTH + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_json(nested(depth, kind))


def test_brackets_in_texts_are_no_levels():
    texts = ["[" * 300, '"[' * 60, "\\" * 3 + '"[' * 99, "{\\"]
    assert parse_json(json.dumps([texts, {"]" * 200: 1}])) == [texts, {"]" * 200: 1}]
    with pytest.raises(ValueError, match="nested deeper"):
        parse_json(json.dumps(["]" * 200])[:-1] + "," + nested(MOST_DEPTH) + "]")


def test_half_a_character_is_refused_and_a_whole_one_of_two_halves_is_not():
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    for text in ('"\\ud83d"', '{"a": ["x", "\\ude00"]}', '{"\\ud83d": 1}', b'"\xed\xa0\xbd"'):
        with pytest.raises(ValueError):
            parse_json(text)


@pytest.mark.parametrize("text", [b"\xff", b"", "{", '{"a": 1} 2', f"[{'9' * 5000}]"])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("level", ["[", "- ", "{a: ", "? "])
def test_a_configuration_that_is_nested_too_deep_does_not_end_the_process(level):
    closing = {"[": "]", "{a: ": "}"}.get(level, "") * 100_000
    script = (
        "import sys\nfrom dsp_gym.config.strict_yaml import parse_yaml\n"
        "from dsp_gym.errors import ConfigError\n"
        "try: parse_yaml(sys.stdin.read(), file='deep.yaml')\n"
        "except ConfigError as error: sys.exit(str(error))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=(level * 100_000 + closing).encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1, done.returncode
    assert b"deep.yaml: line 1: it is nested deeper than 100 levels" in done.stderr


def bomb(factor: int, count: int) -> str:
    lines = ["a0: &a0 [x, y]"]
    for i in range(1, count):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * factor)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(9, 20), "aliases stand for more than 100,000 values"),
        (bomb(1, 150), "nested deeper than 100 levels"),
        ("m: &m {<<: [*m, *m]}", "stands for what it is part of"),
        ("a: &a [1, *a]", "line 1: *a stands for what it is part of"),
        ("a: " + "x" * MOST_BYTES, "is too large"),
        ("a: !!timestamp x", "cannot be read"),
        ("a: !!int x", "cannot be read"),
        ("a: !!bool x", "cannot be read"),
        ("a: " + "9" * 5000, "cannot be read"),
        ('a: "\\ud800"', "half a character"),
    ],
)
def test_a_configuration_beyond_the_bounds_is_refused(text, said):
    with pytest.raises(ConfigError, match=r"x\.yaml") as caught:
        parse_yaml(text, file="x.yaml")
    assert said in str(caught.value)


def test_aliases_within_the_bounds_are_read():
    text = "a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}\n"
    assert parse_yaml(text, file="x") == {"a": {"x": 1}, "b": {"x": 1, "y": [{"x": 1}] * 2}}


def test_of_very_many_findings_the_first_are_told():
    document = {"job": "x", "source": {"rate_per_s": "much"}, "vertices": [{"nam": 1}] * 20_000}
    with pytest.raises(ConfigError) as caught:
        parse(JobSpec, document, "big.yaml")
    said = str(caught.value)
    assert "things are wrong" in said
    assert "source.rate_per_s" in said
    assert "vertices[0].nam" in said
    assert len(said) < 5000


@given(number=st.integers(0, 2**31 - 1))
def test_noise_is_read_or_refused(number):
    """The short form of tests/fuzz/test_readers.py."""
    seed = {"a": [1, {"b": "\u00e9"}], "c": "x"}
    data = content([as_json(seed)], as_json, [seed], number)
    with contextlib.suppress(ValueError):
        parse_json(data)
    with contextlib.suppress(ConfigError):
        parse_yaml(data.decode("utf-8", "replace"), file="x")
