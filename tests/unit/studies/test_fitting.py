"""Fitted numbers in job files, and the fit itself on data it must be able to recover."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dsp_gym.calibration.mst_tables import MstRun
from dsp_gym.config.files import find
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import compile_jobs
from dsp_gym.studies.fitting import justin_micro, nexmark
from dsp_gym.studies.fitting.fitted_values import fitted_values, with_values
from dsp_gym.studies.fitting.streambed import fit, production_cell
from dsp_gym.studies.fitting.streambed_model import (
    AT_SCALE,
    KEY_GROUPS,
    QUERIES,
    StreambedCell,
    cells,
    read_runs,
)

LINE = "  cpu_us_per_record: {value: 0.5, source: fit} # fit: map_us"


def test_only_the_number_of_a_fitted_line_changes():
    text = f"# a comment\n{LINE}\n  other: {{value: 0.5, source: paper}}\n"
    assert with_values(text, {"map_us": 1.23456}) == text.replace(
        LINE, LINE.replace("0.5", "1.235")
    )


def test_a_number_that_is_not_fitted_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'map_us'"):
        with_values(LINE, {"mapp_us": 1.0})


def test_every_searched_number_stands_in_its_job_file():
    for query in (*QUERIES.values(), *AT_SCALE.values()):
        text = find("jobs", query.job).read_text()
        assert {number for number, _ in query.by_mst} <= set(fitted_values(text))


def made_up_q1(service_us, contention):
    """Cells of a q1 whose map takes that long and loses that much per slot in use."""
    made = []
    for slots, tasks in ((3, 2), (6, 5), (11, 9), (16, 13)):
        mst = tasks / (service_us * 1e-6) * (1 - contention * (slots - 1))
        run = MstRun(
            "1", 2048, slots, mst, (64, tasks, slots - tasks), (1, 1, 0.92), (1e6, 1e6, 1e8)
        )
        made.append(StreambedCell((run,)))
    return made


def test_the_fit_recovers_what_made_the_data():
    text = find("jobs", "streambed-q1").read_text()
    fitted = fitted_values(fit(QUERIES["q1"], made_up_q1(0.8, 0.02), text))
    assert fitted["filter_map_us"] == pytest.approx(0.8, rel=0.01)
    assert fitted["contention"] == pytest.approx(0.02, rel=0.02)


def made_up_q11(service_us, power):
    """Cells of a q11 whose window loses by a power law, and by rounding to 128 key groups."""
    made = []
    for slots, tasks in ((12, 9), (16, 13), (32, 28), (48, 42), (48, 43)):
        fullest = math.ceil(KEY_GROUPS / tasks) / KEY_GROUPS
        mst = tasks**-power / (fullest * service_us * 1e-6) / 0.92
        ratios, rates = (1, 1, 0.92, 0.02, 0.02), (1e6, 2e6, 5e4, 1e6, 4e6)
        run = MstRun("1", 2048, slots, mst, (32, 4, tasks, 1, 1), ratios, rates)
        made.append(StreambedCell((run,)))
    return made


def test_a_fit_for_large_budgets_sets_key_groups_apart_from_the_loss():
    query = AT_SCALE["q11"]
    fitted = fitted_values(fit(query, made_up_q11(17.0, 0.05), find("jobs", query.job).read_text()))
    assert fitted["window_agg_power"] == pytest.approx(0.05, rel=0.02)
    assert fitted["window_agg_us"] == pytest.approx(17.0 - 3.0, rel=0.01)  # 3 us are state


def test_a_production_run_is_placed_by_the_rates_of_the_largest_budget():
    rates = (1e6, 2e6, 4e4, 2e6, 2e6, 3e5, 1e6, 2e5, 1e6, 1e6)
    ratios = (1, 1, 0.9, 0.3, 0.3, 0.3, 1e-5, 0.3, 0.02, 0.02)
    run = MstRun("1", 2048, 48, 9e5, (32, 2, 36, 1, 1, 2, 1, 3, 1, 1), ratios, rates)
    small = replace(run, slots=9, true_rate_per_s=(1.0,) * 10)
    cell = production_cell(
        AT_SCALE["q5"],
        [StreambedCell((run,)), StreambedCell((small,))],
    )
    assert cell is not None
    # 2.5 M/s was carried in full, 3.0 M/s was not: the rate it was planned for is no measurement.
    assert cell.mst_per_s == pytest.approx(2.739e6, rel=1e-3)
    (placed,) = cell.runs
    assert sum(placed.parallelism[1:]) == placed.slots == 1069
    assert placed.parallelism[2] / placed.parallelism[7] == pytest.approx(15, rel=0.03)


def test_aborted_and_single_task_runs_are_left_out(tmp_path):
    (tmp_path / "streambed_mst.csv").write_text(
        "run_id,query,slot_memory_mb,slot_budget,mst_events_per_s,suspect\n"
        "1,q1,2048,3,100,0\n2,q1,2048,3,10,1\n3,q1,2048,3,90,0\n4,q1,2048,3,120,0\n"
    )
    names = ("source", "map", "sink")
    rows = [
        f"{run},q1,{op},{names[op]},{op - 1 if op else ''},{2 if op == 1 and run != 3 else 1},1.0,5"
        for run in (1, 2, 3, 4)
        for op in (0, 1, 2)
    ]
    (tmp_path / "streambed_operator_rates.csv").write_text(
        "run_id,query,op_index,operator,inputs,parallelism,input_ratio_to_source,"
        "true_rate_per_task_events_per_s\n" + "\n".join(rows)
    )
    (cell,) = cells(read_runs(tmp_path, "q1"))
    assert cell.mst_per_s == 110


def test_a_folder_without_the_data_is_explained(tmp_path):
    with pytest.raises(ConfigError, match=r"streambed_mst.csv: cannot be read"):
        read_runs(tmp_path, "q1")


def test_nexmark_targets_are_met_by_the_fitted_files():
    for name, (vertex, targets) in nexmark.TARGETS.items():
        spec = load_job(name)
        tables = compile_jobs([spec])
        v = [x.name for x in spec.topological_order()].index(vertex)
        inflow = spec.source.rate_per_s * tables.ratio[0, v]
        for target in targets:
            p = target.parallelism
            capacity, _ = vertex_capacity(tables, 0, v, p, target.level, inflow)
            busy = inflow / (capacity * tables.hot[0, v, p])  # average over subtasks
            assert busy == pytest.approx(target.utilization, abs=0.002)


def test_solving_a_solved_file_changes_nothing():
    for name in nexmark.TARGETS:
        text = find("jobs", name).read_text()
        again = fitted_values(nexmark.solve(name, text))
        assert again == pytest.approx(fitted_values(text), rel=2e-3)


def test_the_power_law_is_recovered_from_its_own_rates(tmp_path):
    rows = [f"q1,mapper,{p},1,{1000 * p**0.8}" for p in (1, 2, 10, 26)]
    (tmp_path / "nexmark_q1_mapper_scaling.csv").write_text(
        "query,operator,parallelism,trial,processing_ability_events_per_s\n" + "\n".join(rows)
    )
    assert nexmark.power_of(tmp_path) == pytest.approx(0.2)


def test_the_micro_benchmarks_are_what_their_fit_gives():
    texts = {name: find("jobs", f"justin-{name}").read_text() for name in justin_micro.BANDS}
    values = justin_micro.fit(texts)
    for text in texts.values():
        known = fitted_values(text)
        assert known == pytest.approx({name: values[name] for name in known}, rel=1e-2)
