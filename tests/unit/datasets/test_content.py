from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dsp_gym.datasets.manifest import content_sha256

ROWS = {
    "text": ["a", None, "c"],
    "number": [1.0, None, float("nan")],
    "whole": [1, 2, None],
    "flag": [True, None, False],
    "list": [[1.0, 2.0], None, []],
    "nested": [{"x": 1.0, "y": [1]}, {"x": None, "y": None}, None],
}


def sha(**changed: object) -> str:
    return content_sha256(pa.table({**ROWS, **changed}))


def test_the_same_rows_have_the_same_hash_whatever_their_files_are(tmp_path) -> None:
    table = pa.table(ROWS)
    for name, options in (("a", {"compression": "zstd"}), ("b", {"row_group_size": 1})):
        parquet.write_table(table, tmp_path / name, **options)
    parquet.write_table(table.slice(0, 1), tmp_path / "c")
    parquet.write_table(table.slice(1), tmp_path / "d")
    expected = (3, content_sha256(table))
    for names in (["a"], ["b"], ["c", "d"]):
        read = pa.concat_tables([parquet.read_table(tmp_path / name) for name in names])
        assert (read.num_rows, content_sha256(read)) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"text": ["a", "", "c"]},
        {"text": ["a", None, "d"]},
        {"number": [1.0, float("nan"), None]},
        {"number": [1.0, 0.0, float("nan")]},
        {"whole": [1, 2, 0]},
        {"flag": [True, False, False]},
        {"list": [[1.0], [2.0], []]},
        {"list": [[1.0, 2.0], [], None]},
        {"nested": [{"x": 1.0, "y": [2]}, {"x": None, "y": None}, None]},
        {"nested": [{"x": 1.0, "y": [1]}, None, {"x": None, "y": None}]},
    ],
)
def test_another_value_anywhere_is_another_hash(changed) -> None:
    assert sha(**changed) != sha()


def test_the_order_of_rows_and_the_names_of_columns_count() -> None:
    table = pa.table(ROWS)
    assert content_sha256(table.take([1, 0, 2])) != content_sha256(table)
    assert content_sha256(table.rename_columns([*"abcdef"])) != content_sha256(table)


def test_nans_are_alike_whatever_their_bits_are() -> None:
    other = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    plain = content_sha256(pa.table({"x": pa.array([float("nan")])}))
    assert content_sha256(pa.table({"x": pa.array(other, from_pandas=False)})) == plain


def test_what_stands_behind_a_null_does_not_count() -> None:
    a = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, 2.0]))]
    )
    b = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, 9.0]))]
    )
    assert content_sha256(pa.table({"x": a})) == content_sha256(pa.table({"x": b}))
