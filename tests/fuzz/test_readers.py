"""Any input gives a result or one of our errors, within bounds of time and memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import of_policies
from tests.fuzz.all_readers import READERS
from tests.fuzz.bounds import problems
from tests.fuzz.readers import Reader

pytestmark = pytest.mark.slow
"""`make check` tries the parsers that they share, in tests/unit/test_strict_json.py."""

CASES = 120


@pytest.fixture(autouse=True, scope="module")
def _server_closed() -> Iterator[None]:
    yield
    of_policies.close()


@pytest.mark.parametrize("reader", READERS.values(), ids=str)
def test_a_valid_document_is_read(reader: Reader) -> None:
    seeds, _ = reader.made
    assert any(not isinstance(reader.takes(seed), Exception) for seed in seeds)


@pytest.mark.parametrize("reader", READERS.values(), ids=str)
def test_whatever_comes_in_there_is_a_result_or_an_error_of_ours(reader: Reader) -> None:
    @settings(max_examples=round(CASES * reader.share))
    @given(number=st.integers(0, 2**31 - 1))
    def tried(number: int) -> None:
        reader.takes(reader.case(number))

    tried()


OFTEN = (pytest.param("snapshot", marks=pytest.mark.validate), "policy.json of q11")
"""Readers whose bounds `make test` measures, and `make validate`; `make fuzz` measures all."""

SHAPES = ("levels", "objects", "unknown keys")


@pytest.mark.parametrize("name", OFTEN)
def test_a_megabyte_is_read_or_refused_within_its_bounds(name: str) -> None:
    assert problems(READERS[name], SHAPES) == []
