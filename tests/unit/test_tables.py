"""Job files compiled to arrays."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.scaling import efficiency, hottest_share, useful_tasks
from dsp_gym.job.spec import Efficiency, Vertex
from dsp_gym.job.tables import SLIDING, MechanismSwitches, compile_jobs
from tests.simulating import line


def hashed(**changes):
    return Vertex.model_validate(
        {"name": "v", "inputs": [{"from": "u"}], "cpu_us_per_record": 1, **changes}
    )


def test_shares_and_selectivities_cumulate_along_the_graph():
    spec = load_job("nexmark-q3")
    tables = compile_jobs([spec])
    ratio = dict(zip((v.name for v in spec.topological_order()), tables.ratio[0], strict=True))
    assert ratio["auctions"] == pytest.approx(2 / 3)
    assert ratio["join"] == pytest.approx(2 / 3 * 0.2 + 1 / 3 * 0.5)


def test_edges_carry_their_share_of_the_input():
    spec = load_job("nexmark-q3")
    tables = compile_jobs([spec])
    join = [v.name for v in spec.topological_order()].index("join")
    assert tables.in_share[0, join, :2] == pytest.approx([12 / 27, 15 / 27])
    assert np.all(tables.upstream[0, join, 2:] == -1)


def test_a_sliding_window_multiplies_the_work_by_its_panes():
    spec = load_job("nexmark-q5")
    tables = compile_jobs([spec])
    v = [v.name for v in spec.topological_order()].index("window")
    assert (tables.window[0, v], tables.panes[0, v], tables.reads[0, v]) == (SLIDING, 60, 60)


def test_a_job_has_the_same_mst_beside_a_larger_one():
    small, large = load_job("nexmark-q11"), load_job("streambed-q5")
    together = compile_jobs([small, large])
    alone = mst(small, {"session": 6}, {"session": 1})
    assert mst(small, {"session": 6}, {"session": 1}, together) == alone
    assert np.all(together.kind[0, 3:] == -1)


def test_what_may_be_chosen_is_bounded_by_quota_and_fixed_vertices():
    tables = compile_jobs([load_job("nexmark-q1")])  # bids, map, sink
    assert tables.min_parallelism[0].tolist() == [15, 1, 1]
    assert tables.max_parallelism[0].tolist() == [15, 24, 1]


def test_mechanisms_can_be_turned_off():
    spec = load_job("nexmark-q11")
    off = compile_jobs([spec], MechanismSwitches(efficiency=False, cache=False, skew=False))
    linear = {p: mst(spec, {"session": p}, tables=off).rate_per_s for p in (1, 7)}
    assert linear[7] == pytest.approx(7 * linear[1])
    assert linear[1] > mst(spec, {"session": 1}).rate_per_s


@pytest.mark.parametrize(
    ("form", "at_4"),
    [
        (Efficiency(form="linear"), 1.0),
        (Efficiency(form="power", a=0.5), 0.5),
        (Efficiency(form="contention", a=1.0, b=0.2), 0.2 + 0.8 / 4),
        (Efficiency(form="usl", a=0.1, b=0.05), 1 / (1 + 0.3 + 0.6)),
    ],
)
def test_efficiency_forms(form, at_4):
    p = np.arange(1, 65)
    e = efficiency(form, p)
    assert e[0] == 1.0
    assert e[3] == pytest.approx(at_4)
    assert np.all(np.diff(e) <= 0)
    assert np.all(np.diff(useful_tasks(form, p)) >= 0)


def test_key_groups_that_divide_evenly_make_no_hot_subtask():
    p = np.array([1, 2, 4, 8, 128])
    assert hottest_share(hashed(), p) == pytest.approx(np.ones(5))
    assert hottest_share(hashed(), np.array([7])) == pytest.approx([19 * 7 / 128])


def test_more_subtasks_than_active_keys_bring_nothing():
    few = hashed(distinct_keys=3)
    assert hottest_share(few, np.array([1, 3, 6])) == pytest.approx([1, 1, 2], rel=0.02)


def test_few_active_keys_leave_the_capacity_of_contention_but_idle_tasks():
    def job(form):
        source, mapper, sink = line().vertices
        lossy = mapper.model_copy(update={"efficiency": Efficiency(form=form, a=0.75, b=0.05)})
        return line().model_copy(update={"vertices": (source, lossy, sink)})

    tables = compile_jobs([job("contention"), job("few_keys")])
    useful, hot = tables.useful[:, 1, 1:], tables.hot[:, 1, 1:]
    assert useful[1] / hot[1] == pytest.approx(useful[0] / hot[0])
    assert useful[1] == pytest.approx(np.arange(1, useful.shape[1] + 1))


def test_the_most_popular_key_bounds_the_hottest_subtask():
    state = {"keys": 10, "value_bytes": 1, "popularity": {"form": "zipf", "exponent": 1}}
    top = 1 / sum(1 / n for n in range(1, 11))
    share = hottest_share(hashed(state=state), np.array([64]))
    assert share == pytest.approx([64 * top])
