from __future__ import annotations

import json

import pytest

from spark_pipelines.studies.scale import growth, main, missed


def report(seconds: float, rows: int, *, skew: float = 1.0, peak: float = 1000.0) -> dict:
    return {
        "rates": [{"name": "whole build", "median": rows / seconds}],
        "told": {"skew_factor": skew, "peak_mib": peak},
        "bars": {"skew_factor": 1.5, "peak_mib": 4096.0},
    }


def test_fixed_costs_do_not_count_against_growth():
    """10 s to start and 1 s per million rows: a further row costs 20 / 30 of what one did."""
    small, large = report(30.0, 20_000_000), report(210.0, 200_000_000)
    assert growth(small, 20_000_000, large, 200_000_000) == {
        "whole build": pytest.approx(2 / 3, abs=1e-3)
    }


@pytest.mark.parametrize(
    ("large", "over"),
    [
        (report(199.0, 200_000_000), []),
        (report(260.0, 200_000_000), ["whole build"]),
        (report(199.0, 200_000_000, peak=5000.0), ["peak_mib"]),
    ],
)
def test_what_is_above_its_bar_is_named(tmp_path, large, over, capsys):
    small = report(20.0, 20_000_000)
    found = growth(small, 20_000_000, large, 200_000_000)
    assert [name for name, _, _ in missed(found, small, large)] == over
    for name, content in (("small.json", small), ("large.json", large)):
        (tmp_path / name).write_text(json.dumps(content))
    files = [str(tmp_path / name) for name in ("small.json", "large.json")]
    assert main(["20000000", files[0], "200000000", files[1]]) == bool(over)
    assert all(name in capsys.readouterr().err for name in over)


def test_a_skewed_job_has_a_bar_of_its_own():
    small, large = report(20.0, 20_000_000, skew=1.6), report(200.0, 200_000_000)
    assert [name for name, _, _ in missed({}, small, large)] == ["skew_factor"]
