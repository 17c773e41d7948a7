"""Builds too small for the JVM's second compiler to pay."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: the extra 'spark'")

from spark_pipelines.build import _BRIEF_ROWS, _is_brief
from spark_pipelines.sources import Piece, SourceFacts


def holding(*rows: int) -> SourceFacts:
    pieces = tuple(Piece(str(n), "0" * 64, r, (("j", "d"),), Path("f")) for n, r in enumerate(rows))
    return SourceFacts("s", "archives", "folder", "run", pieces)


@pytest.mark.parametrize(
    ("facts", "is_brief"),
    [
        ([holding(1, _BRIEF_ROWS - 1)], True),
        ([holding(1), holding(_BRIEF_ROWS)], False),
        ([holding(1, -1)], False),  # nobody knows how many rows that piece holds
    ],
)
def test_a_build_is_brief_where_all_rows_are_known_to_be_few(facts, is_brief) -> None:
    assert _is_brief(facts) is is_brief
