"""Transitions as arrays: rows of one width, read from a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dsp_gym.datasets.transitions import COLUMNS, transitions_of
from dsp_gym.envs.reward import TERMS
from dsp_gym.errors import DatasetError


def table(*widths: int) -> pa.Table:
    """Steps of a run with observations of these widths."""
    rows = []
    for step, width in enumerate(widths):
        observed = [float(step)] * width
        row = dict.fromkeys(COLUMNS, "") | dict.fromkeys(TERMS, 0.0)
        row |= {"step": step, "action": [0], "action_mask": [True], "propensity": 1.0}
        row |= {"observation": observed, "next_observation": observed}
        rows.append(row | {"terminated": False, "truncated": False})
    return pa.Table.from_pylist(rows)


def test_rows_of_one_width_become_one_array() -> None:
    assert transitions_of(table(4, 4)).observation.tolist() == [[0.0] * 4, [1.0] * 4]


def test_rows_of_two_widths_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"'observation' has rows of 4 values and of 6"):
        transitions_of(table(4, 6))  # 10 values, which would fit 2 rows of 5
