"""`dsp-gym bench growth`: its measurements and slopes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.studies.bench import growth
from dsp_gym.studies.bench.growth import (
    FULL,
    GrowthLine,
    GrowthPoint,
    GrowthSizes,
    plot_growth,
    slope,
)

SMALL = GrowthSizes((1, 2, 4), (2, 4), (1, 2))


def points(*cpu_s: float) -> tuple[GrowthPoint, ...]:
    return tuple(GrowthPoint(4**k, one, one) for k, one in enumerate(cpu_s))


def test_a_slope_is_the_exponent_of_the_size():
    assert slope(points(1.0, 4.0, 16.0)) == 1.0
    assert slope(points(1.0, 2.0, 4.0)) == 0.5
    assert slope(points(3.0, 3.0)) == 0.0


def test_the_sizes_are_those_of_a_fleet_a_large_job_and_a_month():
    assert (FULL.jobs[0], FULL.jobs[-1]) == (1, 16_384)
    assert (FULL.vertices[0], FULL.vertices[-1]) == (2, 64)
    assert (FULL.days[0], FULL.days[-1]) == (1, 30)


def test_slopes_are_those_of_the_smaller_and_of_the_larger_half(monkeypatch):
    times = {1: 1.0, 4: 1.0, 16: 1.0, 64: 4.0, 256: 16.0}
    told = []
    line = growth._line(
        "jobs",
        tuple(times),
        lambda size: GrowthPoint(size, times[size], 0.0),
        lambda quantity, point: told.append((quantity, point.size)),
    )
    assert (line.slope_small, line.slope_large) == (0.0, 1.0)
    assert told == [("jobs", size) for size in times]


@pytest.mark.slow
def test_the_command_tells_times_and_slopes_and_draws_them(monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "QUICK", SMALL)
    given = ["bench", "growth", "--quick", "--runs", "1", "--json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [line["quantity"] for line in document["lines"]] == ["jobs", "vertices", "days"]
    for line, sizes in zip(document["lines"], SMALL, strict=True):
        assert tuple(point["size"] for point in line["points"]) == sizes
        assert all(point["cpu_s"] > 0 for point in line["points"])
        assert {"slope_small", "slope_large"} <= line.keys()
    assert document["machine"]["cores"] >= 1
    assert "2 days: " in done.stderr


@pytest.mark.slow
def test_the_same_lines_are_drawn_alike_with_their_slopes(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra 'train'")
    line = GrowthLine("jobs", "a step", points(1.0, 2.0, 8.0), 0.5, 1.0)
    for name in ("one.svg", "two.svg"):
        plot_growth([line], tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    assert "jobs; slopes 0.5, 1" in drawn
