"""Decisions on a job with a chained source, and on the same job unchained."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S, Samples, with_source_records
from dsp_gym.metrics.window import Observed, WindowConfig, snapshot_of
from dsp_gym.policies import make

RULES = ("ds2", "ds2-justin", "flink-autoscaler", "hpa-cpu", "justin-paper", "static")
"""Without Dhalion: it changes one vertex a step, and an unchained job has more of them."""
NETWORKS = ("planner",)
WINDOW = WindowConfig(window_s=60, stabilization_s=0)
STEPS_S = tuple(range(120, 900, 60))


RATE = 4000.0


def job(passes: list[float], count_us: float, *, chained: bool) -> JobSpec:
    """clicks -> step 0 -> ... -> count -> out; chained, the steps are part of the source.

    A step of its own is half busy, so that no rule has a reason to change it: some rules act on the
    whole job where one vertex leaves their band.
    """
    steps: list[dict[str, Any]] = []
    if not chained:
        names = ["clicks", *(f"step {k}" for k in range(len(passes)))]
        steps = [
            {"name": name, "inputs": [{"from": before}], "selectivity": share, "parallelism": 2,
             "cpu_us_per_record": 1e6 / (RATE * float(np.prod(passes[:k])))}
            for k, ((before, name), share) in enumerate(
                zip(itertools.pairwise(names), passes, strict=True)
            )
        ]  # fmt: skip
    source = {
        "name": "clicks", "kind": "source", "parallelism": 2, "cpu_us_per_record": 20.0,
        "selectivity": float(np.prod(passes)) if chained else 1.0,
    }  # fmt: skip
    last = steps[-1]["name"] if steps else "clicks"
    count = {"name": "count", "inputs": [{"from": last, "ship": "HASH"}], "parallelism": 2,
             "cpu_us_per_record": count_us}  # fmt: skip
    out = {"name": "out", "kind": "sink", "inputs": [{"from": "count"}], "scalable": False,
           "cpu_us_per_record": 1.0}  # fmt: skip
    return JobSpec.model_validate(
        {
            "job": "clicks",
            "source": {"rate_per_s": 1000.0},
            "vertices": [source, *steps, count, out],
            "max_parallelism_per_vertex": 16,
        }
    )


def seen(spec: JobSpec, rate: float, growth: float) -> list[MetricsSnapshot]:
    """What a collector sees of the job in a steady state, as Flink's counters show it."""
    times = np.arange(SAMPLE_S, STEPS_S[-1] + 1.0, SAMPLE_S)
    series: dict[tuple[str, int, str], tuple[Any, Any]] = {}
    taken = rate
    for vertex in spec.topological_order():
        tasks = vertex.parallelism
        given_out = taken * vertex.selectivity
        busy = min(1000.0, taken * vertex.cpu_us_per_record / 1e3 / tasks)
        per_s = {
            "records_in_total": 0.0 if vertex.kind == "source" else taken,
            "records_out_total": 0.0 if vertex.kind == "sink" else given_out,
            "busy_ms_total": busy * tasks,
            "idle_ms_total": (1000.0 - busy) * tasks,
            "backpressured_ms_total": 0.0,
        }
        if vertex.kind == "source":
            per_s |= {"source_in_total": taken, "source_out_total": taken}
            pending = 10_000.0 + growth * times
            for k in range(tasks):
                series["clicks", k, "pending_records"] = times, pending / tasks
        for (name, value), k in itertools.product(per_s.items(), range(tasks)):
            series[vertex.name, k, name] = times, value / tasks * times
        taken = given_out
    samples = Samples.of_series(with_source_records(series))
    parallelism = {v.name: v.parallelism for v in spec.vertices}
    levels = dict.fromkeys(parallelism, 0)
    topology = Topology.of([spec])
    return [
        snapshot_of(
            topology,
            [Observed(float(t_s), Status.RUNNING, 0.0, parallelism, levels, tm_count=1.0)],
            [samples],
            WINDOW,
        )
        for t_s in STEPS_S
    ]


def decided(name: str, spec: JobSpec, snapshots: list[MetricsSnapshot]) -> dict[str, int]:
    """The last decision of a policy that saw them all."""
    policy = make(name)
    topology = snapshots[0].topology
    policy.reset(topology, np.array([7]))
    decisions = [policy.decide(snapshot) for snapshot in snapshots]
    last = decisions[-1].parallelism[0, : len(spec.vertices)].tolist()
    return dict(zip(topology.names(0), last, strict=True))


CHAINS = {
    "passes": st.lists(st.sampled_from([0.01, 0.1, 0.5, 1.0, 3.0, 10.0]), min_size=1, max_size=3),
    "load": st.floats(0.2, 1.6),
    "growth_share": st.sampled_from([0.0, 0.02, 0.3]),
}


def both(
    name: str, passes: list[float], load: float, growth_share: float
) -> tuple[dict[str, int], dict[str, int]]:
    """Decisions on the chained and the unchained job; the load is in capacities of two counts."""
    load *= 1.0137  # off the whole numbers of tasks, at which rounding decides
    count_us = load * 2e6 / (RATE * float(np.prod(passes)))
    found = []
    for chained in (True, False):
        spec = job(passes, count_us, chained=chained)
        found.append(decided(name, spec, seen(spec, RATE, growth_share * RATE)))
    return found[0], found[1]


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=8)
@given(**CHAINS)
def test_rules_decide_alike_on_what_a_chained_source_feeds(name, passes, load, growth_share):
    chained, unchained = both(name, passes, load, growth_share)
    assert chained["count"] == unchained["count"]
    assert chained["out"] == unchained["out"]


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=5)
@given(**CHAINS)
def test_networks_decide_within_one_task_on_what_a_chained_source_feeds(
    name, passes, load, growth_share
):
    chained, unchained = both(name, passes, load, growth_share)
    assert abs(chained["count"] - unchained["count"]) <= 1


def test_a_source_that_filters_is_seen_with_its_own_records_and_selectivity():
    spec = job([0.01], 3000.0, chained=True)
    source = seen(spec, 10_000.0, 200.0)[-1].job(0)
    assert source.vertex("clicks", "records_in_per_s") == pytest.approx(10_000.0)
    assert source.vertex("clicks", "records_out_per_s") == pytest.approx(100.0)
    assert source.vertex("count", "records_in_per_s") == pytest.approx(100.0)
    assert source.vertex("clicks", "pending_growth_per_s") == pytest.approx(200.0)
