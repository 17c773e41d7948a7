"""The job file of a fitted query, each number beside its source, and the evidence of the fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from dsp_gym.calibration.evidence import (
    PER_DOUBLING,
    PER_MEMORY_DOUBLING,
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
    run_folds,
    what_folds_leave_out,
)
from dsp_gym.calibration.mst_fit import MstFit, refit
from dsp_gym.calibration.mst_model import MemoryEffect
from dsp_gym.calibration.mst_tables import MeasuredOperator, MstRun
from dsp_gym.config import files
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.memory import managed_mib_per_slot
from dsp_gym.job.spec import JobSpec

REFERENCE_SHARE = 2 / 3
"""Reference load over the largest measured throughput."""
MAX_PARALLELISM_FACTOR, LEAST_MAX_PARALLELISM = 4, 64
"""Highest parallelism over the largest slot budget measured; beyond, the fit has no say."""
_REFERENCE = "two thirds of the largest throughput measured"
_NEVER_LIMITS_US = 0.1
_KEY_GROUPS = 32768


def job_spec(text: str, name: str) -> JobSpec:
    """Read the text of a job file.

    Returns:
        The job, checked like any job file.
    """
    return files.parse(JobSpec, parse_yaml(text, file=name), name)


def job_text(fit: MstFit, job: str, tables: Sequence[str], command: str) -> str:
    """Write the job file.

    Args:
        fit: the fitted query.
        job: its name.
        tables: names of the tables it was fitted to.
        command: what makes the file again.

    Returns:
        YAML text.
    """
    runs = fit.measurements.runs
    largest = max(runs, key=lambda run: run.mst_per_s)
    slots = max(run.slots for run in runs)
    memory_mib = max(run.memory_mib for run in runs)
    model = fit.model
    managed = managed_mib_per_slot(memory_mib, model.slots_per_taskmanager)
    quota = max(LEAST_MAX_PARALLELISM, MAX_PARALLELISM_FACTOR * slots, *largest.parallelism)
    lines = [
        f"job: {_text(job)}",
        f"description: {_text(f'Query {fit.measurements.query}, fitted to {len(runs)} runs.')}",
        "used_in_fit:",
        *(f"  - {_text(f'{table}: runs of {fit.measurements.query}')}" for table in tables),
        f"fit_script: {_text(command)}",
        "source:",
        f"  rate_per_s: {_sourced(REFERENCE_SHARE * largest.mst_per_s, _REFERENCE)}",
        "vertices:",
        *(line for v in range(len(fit.measurements.operators)) for line in _vertex(fit, v)),
        f"memory: {{base_mib: {managed:.6g}, levels: 1, split: flink}}"
        f"  # a slot of {memory_mib:g} MiB",
        "taskmanager:",
        f"  slots: {model.slots_per_taskmanager}",
        f"  cores: {model.slots_per_taskmanager}",
        f"  memory_mib: {memory_mib * model.slots_per_taskmanager:.6g}",
        *([f"  contention: {_sourced(model.contention, 'fit')}"] if model.contention else []),
        f"max_parallelism_per_vertex: {_sourced(quota, 'above the largest slot budget measured')}",
    ]
    return "\n".join(lines) + "\n"


def selectivities(operators: Sequence[MeasuredOperator], ratio: Sequence[float]) -> list[float]:
    """Choose selectivities such that every operator gets its measured input rate.

    What an operator puts out is what a reader of its output alone gets; where it is only read
    together with others, each of those passes on what it gets, scaled to the sum measured.

    Returns:
        Records out per record in, by operator.
    """
    shares = source_shares(operators, ratio)
    into = [shares.get(v, ratio[v]) for v in range(len(operators))]
    output: dict[int, float] = {}
    for v, operator in enumerate(operators):
        if len(operator.inputs) == 1:
            output.setdefault(operator.inputs[0], into[v])
    for v, operator in enumerate(operators):
        unknown = [u for u in operator.inputs if u not in output]
        if unknown:
            rest = max(0.0, into[v] - sum(output.get(u, 0.0) for u in operator.inputs))
            passed = sum(into[u] for u in unknown)
            output |= {u: rest * (into[u] / passed if passed else 0.0) for u in unknown}
    return [
        output[v] / into[v] if v in output and into[v] > 0 else 1.0 for v in range(len(operators))
    ]


def source_shares(
    operators: Sequence[MeasuredOperator], ratio: Sequence[float]
) -> dict[int, float]:
    """The share of the job's rate by source, by its place among the operators.

    Returns:
        Shares that sum to 1, by index of the source; equal ones where no rate was measured.
    """
    sources = [v for v, operator in enumerate(operators) if operator.is_source]
    total = sum(ratio[v] for v in sources)
    return {v: ratio[v] / total if total else 1 / len(sources) for v in sources}


def _vertex(fit: MstFit, v: int) -> list[str]:
    model, operators = fit.model, fit.measurements.operators
    operator = operators[v]
    read = any(v in other.inputs for other in operators)
    kind = "source" if operator.is_source else "operator" if read else "sink"
    largest = max(fit.measurements.runs, key=lambda run: run.mst_per_s)
    lines = [f"  - name: {_text(operator.name)}"]
    if kind != "operator":
        lines.append(f"    kind: {kind}")
    if operator.inputs:
        edges = ", ".join(
            f"{{from: {_text(operators[u].name)}, ship: {'HASH' if s == 'HASH' else 'REBALANCE'}}}"
            for u, s in zip(operator.inputs, operator.ships, strict=True)
        )
        lines.append(f"    inputs: [{edges}]")
    if operator.is_source and sum(o.is_source for o in operators) > 1:
        share = source_shares(operators, model.ratio)[v]
        lines.append(f"    share: {_sourced(share, 'measured')}")
    if read:
        passed = selectivities(operators, model.ratio)[v]
        lines.append(f"    selectivity: {_sourced(passed, 'median of the input rates measured')}")
    lines += _cost(fit, v)
    lines += _efficiency(fit, v)
    lines.append(f"    parallelism: {largest.parallelism[v]}")
    if not operator.is_source:
        lines.append(
            f"    max_parallelism: {_sourced(_KEY_GROUPS, 'rounding to key groups is in the fit')}"
        )
    effect = model.memory
    if effect is not None and effect.operator == v:
        lines += _state(fit, effect)
    return lines


def _cost(fit: MstFit, v: int) -> list[str]:
    model = fit.model
    if fit.measurements.operators[v].is_source:
        cost = _sourced(_NEVER_LIMITS_US, "assumption: generators are never the limit")
    elif model.seconds[v] == 0:
        cost = _sourced(_NEVER_LIMITS_US, "assumption: never busy when measured")
    else:
        half = 0.5 if model.memory is not None and model.memory.operator == v else 1.0
        cost = _sourced(half * model.seconds[v] * 1e6, "fit: true rates and throughput")
    return [f"    cpu_us_per_record: {cost}"]


def _efficiency(fit: MstFit, v: int) -> list[str]:
    form, a, b = fit.model.efficiency(v)
    if fit.measurements.operators[v].is_source or form == "linear":
        return []
    b_text = f", b: {_sourced(b, 'fit')}" if b else ""
    return [f"    efficiency: {{form: {form}, a: {_sourced(a, 'fit')}{b_text}}}"]


def _state(fit: MstFit, effect: MemoryEffect) -> list[str]:
    half_us = 0.5 * fit.model.seconds[effect.operator] * 1e6
    return [
        "    state:",
        "      # Below the working set throughput falls: a read then goes to disk.",
        "      reads: 1",
        "      keys: 1",
        "      value_bytes: 1",
        f"      unshared_mib: "
        f"{_sourced(effect.working_set_mib, f'just fits a slot of {fit.enough_mib:g} MiB')}",
        f"      read_hit_us: {_sourced(half_us, 'assumption: half the cost of a record')}",
        f"      read_miss_us: {_sourced(effect.miss_s * 1e6, 'fit: throughput with less memory')}",
    ]


def _sourced(value: float, source: str) -> str:
    number = f"{value:d}" if isinstance(value, int) else f"{value:.8g}"
    return f"{{value: {number}, source: {_text(source)}}}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def evidence_of(
    fit: MstFit, spec: JobSpec, command: str, per_doubling: float = PER_DOUBLING
) -> Evidence:
    """The ranges of the measured runs, and the error of fits that left some of them out.

    Runs with too little memory for the job's state are beyond the ranges: what they carried is
    not what the next such run will.

    Args:
        fit: the fit to all of them.
        spec: the job file made from it.
        command: what made it.
        per_doubling: least growth of half the interval per doubling beyond the ranges.

    Returns:
        The section `fitted` of the job file.
    """
    runs = fit.measurements.runs
    seen = [seen_rate(fit, spec, run) for run in runs]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        model = refit(fit, [runs[i] for i in rows])
        return lambda i: model.mst_per_s(runs[i].parallelism, runs[i].memory_mib)

    predictions = predictions_left_out(spec, seen, predict_from, folds(seen))
    predictions += predictions_left_out(spec, seen, predict_from, run_folds(seen), by_run=True)
    growth = per_doubling, PER_MEMORY_DOUBLING
    error = error_of(predictions, what_folds_leave_out(seen), growth)
    return ranges_of(spec, seen, command).model_copy(update={"error": error})


def seen_rate(fit: MstFit, spec: JobSpec, run: MstRun) -> SeenRate:
    """A measured run as evidence.

    Returns:
        Its configuration and rate; starved where less memory than enough costs it throughput.
    """
    managed = managed_mib_per_slot(run.memory_mib, fit.model.slots_per_taskmanager)
    names = [operator.name for operator in fit.measurements.operators]
    return SeenRate(
        dict(zip(names, run.parallelism, strict=True)),
        {v.name: managed for v in spec.vertices if v.state is not None},
        run.mst_per_s,
        starved=fit.model.memory is not None and run.memory_mib < fit.enough_mib,
    )
