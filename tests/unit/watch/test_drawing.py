"""The parts of a frame: curves, the layout of a job, colours, numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.envs.watch.canvas import Sheet
from dsp_gym.envs.watch.episode_data import Moment, Scene, Story
from dsp_gym.envs.watch.job_graph import JobGraph
from dsp_gym.envs.watch.job_view import axis_of
from dsp_gym.envs.watch.layout import arranged
from dsp_gym.envs.watch.plot import CurvePanel, PanelEvents, Stroke, TimeAxis, path_masks
from dsp_gym.envs.watch.theme import theme
from dsp_gym.job.random_dag import random_dag
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import unknown_snapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.pages import STYLE

LINE = Stroke((255, 0, 0), thick=2.0, area=0.5)


def masks(x, y, stroke=LINE, columns=(0, 20), height=20):
    return path_masks(np.array(x, float), np.array(y, float), stroke, columns, height)


def test_a_level_line_is_as_thick_as_it_is_said_to_be():
    line, area = masks([0, 20], [10, 10])
    assert (line[9:11, 1:-1] == 255).all()
    assert not line[:9].any()
    assert not line[11:].any()
    assert (area[10:, 1:-1] == 255).all()
    assert not area[:10].any()


def test_a_line_between_two_pixels_is_on_both_by_half():
    line, _ = masks([0, 20], [10.5, 10.5])
    assert (line[9, 1:-1] == 128).all()
    assert (line[10, 1:-1] == 255).all()
    assert (line[11, 1:-1] == 128).all()


def test_an_upright_line_reaches_from_end_to_end():
    line, _ = masks([5, 5], [3, 16])
    assert (line[3:16, 5] > 100).all()
    assert not line[:, 8:].any()


def test_an_unknown_value_is_a_gap():
    line, area = masks([0, 5, 10, 15, 20], [10, 10, np.nan, 10, 10])
    assert line[:, 2].any()
    assert not line[:, 7:13].any()
    assert not area[:, 7:13].any()
    assert line[:, 17].any()


def test_a_step_holds_from_the_point_before():
    line, _ = masks([0, 10, 20], [np.nan, 5, 15], Stroke((0, 0, 0), step=True))
    assert line[5, 5] == 255
    assert line[15, 15] == 255
    assert line[5:15, 10].all()


def panel(**given):
    made = {"bound": 2.0, "scale": "log"} | given
    strokes = [Stroke((0, 0, 255), area=0.2)]
    return CurvePanel((300, 120), theme("dark"), "Latency", strokes, str, **made)


def drawn(one, size=(300, 120)):
    sheet = Sheet(*size, (0, 0, 0))
    one.draw(sheet, (0, 0))
    return sheet.pixels().astype(int)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_a_panel_that_grew_is_the_panel_drawn_at_once(scale):
    pytest.importorskip("PIL")
    t_s = np.arange(0.0, 3600, 60)
    values = 1 + np.abs(np.random.default_rng(0).normal(0, 3, len(t_s))).cumsum()
    values[20:23] = np.nan
    begins = t_s[5:-1:9]
    events = PanelEvents(begins, np.stack([begins, begins + 90], axis=1))
    axis = TimeAxis(0.0, 3600.0)
    grown, whole = panel(scale=scale), panel(scale=scale)
    for count in range(1, len(t_s) + 1):
        told = events.rescales_s < t_s[count - 1]
        some = PanelEvents(events.rescales_s[told], events.down_s[told])
        grown.update(axis, t_s[:count], [values[:count]], some)
    whole.update(axis, t_s, [values], events)
    assert np.abs(drawn(grown) - drawn(whole)).max() <= 3


def test_a_value_above_the_bound_is_red():
    pytest.importorskip("PIL")
    t_s, red = np.array([0.0, 1800, 3600]), np.array(theme("dark").bad)
    late, fine = panel(), panel()
    late.update(TimeAxis(0.0, 3600.0), t_s, [np.full(3, 5.0)])
    fine.update(TimeAxis(0.0, 3600.0), t_s, [np.full(3, 1.0)])
    assert (drawn(late) == red).all(axis=2).sum() > 200
    assert not (drawn(fine) == red).all(axis=2).any()


def test_a_chain_lies_on_one_line():
    plan = arranged([[], [0], [1]])
    assert plan.layers == 3
    assert plan.rows == 1
    assert {y for _, y in plan.centres} == {0.5}


def test_two_sources_of_a_join_lie_above_each_other():
    plan = arranged([[], [], [0, 1]])
    (ax, ay), (bx, by), (cx, cy) = plan.centres
    assert ax == bx < cx
    assert ay != by
    assert cy == pytest.approx((ay + by) / 2)


def test_an_edge_over_several_layers_runs_around_the_vertices_between():
    plan = arranged([[], [0], [1], [0, 2]])
    long = plan.edges[plan.ends.index((0, 3))]
    assert len(long) == 4
    assert not set(long[1:-1]) & set(plan.centres)


@pytest.mark.parametrize("seed", range(3))
def test_no_two_vertices_of_a_large_job_lie_on_the_same_place(seed):
    spec = JobSpec.model_validate(random_dag(seed, "large", 16))
    ordered = spec.topological_order()
    place = {vertex.name: k for k, vertex in enumerate(ordered)}
    plan = arranged([[place[given.from_] for given in vertex.inputs] for vertex in ordered])
    assert len(set(plan.centres)) == len(ordered)
    assert all(plan.centres[a][0] < plan.centres[b][0] for a, b in plan.ends)
    assert all(0 <= part <= 1 for centre in plan.centres for part in centre)


def test_the_colours_are_those_of_the_pages():
    dark, light = theme("dark"), theme("light")
    assert dark.paper == (0x14, 0x17, 0x1C)
    assert light.paper == (255, 255, 255)
    assert "--paper: #14171c" in STYLE
    assert len(set(dark.lines)) == len(set(light.lines)) == 8


def test_busyness_goes_from_grey_over_green_to_red():
    look = theme("dark")
    assert look.of_busyness(0.0) == look.of_busyness(float("nan")) == look.grey
    assert look.of_busyness(0.6) == look.good
    assert look.of_busyness(1.0) == look.bad
    assert look.of_busyness(0.88) == look.wait


def test_a_job_with_no_room_for_its_graph_is_bars_as_high_as_it_has_tasks():
    pytest.importorskip("PIL")
    spec = JobSpec.model_validate(random_dag(1003, "large", 16))
    topology = Topology.of([spec])
    scene = Scene.of(topology, 0)
    seen = unknown_snapshot(topology)
    seen.parallelism[0, :] = 2
    seen.parallelism[0, 5] = 12
    now = Moment.of(seen, 0)
    sheet, look = Sheet(600, 104, (0, 0, 0)), theme("dark")
    JobGraph(scene, (600, 104), look).draw(sheet, (0, 0), now, now)
    heights = (sheet.pixels() == np.array(look.grey)).all(axis=2).sum(axis=0)
    assert heights[int(5.5 * 600 / 16)] == round(68 * 12 / 16)
    assert heights[int(6.5 * 600 / 16)] in range(6, 10)


@pytest.mark.parametrize(("length_s", "shown_s"), [(600.0, 600.0), (300.0, 7200.0), (None, 7200.0)])
def test_an_axis_holds_the_episode_though_it_is_longer_than_was_said(length_s, shown_s):
    topology = Topology.of([JobSpec.model_validate(random_dag(1, "small", 3))])
    story = Story(Scene.of(topology, 0, length_s=length_s))
    for t_s in (0.0, 500.0 if length_s == shown_s else 5000.0):
        seen = unknown_snapshot(topology)
        seen.t_s[0] = t_s
        story.add(Moment.of(seen, 0))
    assert axis_of(story) == TimeAxis(0.0, shown_s)
