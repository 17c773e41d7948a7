"""Every row of the page of faults names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| Fault ")
]


def test_the_page_has_rows():
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_is_whole_and_its_test_is_there(row):
    assert len(row) == 5
    assert all(row)
    file, name = re.fullmatch(r"`(\S+)::(\w+)` ?\|?", row[4]).groups()
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
