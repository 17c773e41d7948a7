"""Rows of jobs that were changed: kept one by one, and arranged for the page."""

from __future__ import annotations

from dsp_gym.studies.validation.acting import Acted, by_kind, figures_file, read, record

UP = Acted("join", "in_place", up_s=0.2, back_s=0.1, records=2000)


def test_a_row_takes_the_place_of_the_one_before(tmp_path):
    file = tmp_path / "acting.json"
    assert read(file) == {}
    refused = Acted("join", "redeploy", refused="no jar")
    for row in (Acted("join", "in_place", refused="no checkpoints"), refused, UP):
        record("2.1.0", row, file)
    record("2.2.0", refused, file)
    found = read(file)
    assert list(found["2.1.0"].rows) == [UP, refused]
    assert list(found["2.2.0"].rows) == [refused]
    assert by_kind(found["2.1.0"].rows) == {"join": {"redeploy": refused, "in_place": UP}}


def test_the_published_rows_are_read():
    (found,) = read(figures_file()).values()
    for row in found.rows:
        assert (row.records is None) == (row.refused is not None)
        assert (row.up_s is None) == (row.back_s is None) == (row.refused is not None)
