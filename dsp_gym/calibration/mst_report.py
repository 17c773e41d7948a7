"""What a fit to measured throughput says about itself: for programs, the terminal and a browser."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass

from dsp_gym.calibration.mst_fit import ENOUGH_GROUPS, MstFit
from dsp_gym.calibration.mst_tables import MstRun
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.placement import place, with_slot_memory
from dsp_gym.job.spec import JobSpec
from dsp_gym.pages import Html, ScatterPoint, against, note, page, section, table


@dataclass(frozen=True, slots=True)
class MstRow:
    """One cell of the fit: runs of one memory and slot budget."""

    slot_memory_mib: float
    slots: int
    single_task: bool  # one task per operator whatever the budget
    runs: int
    measured_per_s: float  # median
    predicted_per_s: float  # with the parallelism as measured
    placed_per_s: float | None  # as `dsp-gym plan --slots` places it
    enough_memory: bool

    @property
    def error(self) -> float:
        """Relative error of the prediction with the parallelism as measured."""
        return self.predicted_per_s / self.measured_per_s - 1


@dataclass(frozen=True, slots=True)
class MstReport:
    """The fit of one query."""

    job: str
    query: str
    runs: int
    suspect_runs: int
    form: str
    left_out_error: float | None  # mean absolute log error over slot counts left out of the fit
    forms: dict[str, float | None]  # of every form that was tried
    parameters: dict[str, float]
    memory_effect: dict[str, object] | None
    enough_mib: float
    rows: tuple[MstRow, ...]
    warnings: tuple[str, ...]
    fitted: Evidence | None  # the job file's section

    @property
    def median_error(self) -> float:
        """Median absolute error over the cells with enough memory, which the fit has seen."""
        return statistics.median(abs(row.error) for row in self.rows if row.enough_memory)

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            The report's fields by name, an `error` in each row, and `median_error`.
        """
        rows = [asdict(row) | {"error": row.error} for row in self.rows]
        fitted = None if self.fitted is None else self.fitted.model_dump(mode="json")
        return asdict(self) | {"rows": rows, "median_error": self.median_error, "fitted": fitted}

    def render_html(self) -> str:
        """One page that needs nothing else.

        Returns:
            HTML of one page without outside references.
        """
        left_out = "not known" if self.left_out_error is None else f"{self.left_out_error:.1%}"
        facts = [
            ("query", self.query),
            ("runs", f"{self.runs}, and {self.suspect_runs} suspect ones left out"),
            ("form of the loss with parallelism", self.form),
            ("error on slot counts left out of the fit", left_out),
            ("median error on the cells of the fit", f"{self.median_error:.1%}"),
            ("memory per slot that is enough", f"{self.enough_mib:g} MiB"),
            ("effect of less memory", _effect_text(self.memory_effect)),
        ]
        cells = [
            (
                f"{row.slot_memory_mib:g}",
                "one task each" if row.single_task else str(row.slots),
                str(row.runs),
                f"{row.measured_per_s:,.0f}",
                f"{row.predicted_per_s:,.0f}",
                f"{row.error:+.1%}",
                "" if row.placed_per_s is None else f"{row.placed_per_s:,.0f}",
            )
            for row in self.rows
        ]
        forms = [(name, "–" if e is None else f"{e:.1%}") for name, e in self.forms.items()]
        columns = (
            "MiB per slot",
            "slots",
            "runs",
            "measured/s",
            "predicted/s",
            "error",
            "placed/s",
        )
        numbers = [(name, f"{value:.4g}") for name, value in self.parameters.items()]
        return page(
            f"{self.job}: fitted to measured throughput",
            *(note(text) for text in self.warnings),
            *(note(text) for text in (self.fitted.sentences() if self.fitted else ())),
            table((), facts),
            section("Cells of the fit", self._drawn(), table(columns, cells)),
            section(
                "Forms tried",
                "Mean error on slot counts left out of the fit.",
                table(("form", "error"), forms),
            ),
            section("Fitted numbers", table(("number", "value"), numbers)),
        )

    def _drawn(self) -> Html:
        """Predicted against measured throughput."""
        groups = []
        for name, single in (("placed on slots", False), ("one task each", True)):
            rows = [row for row in self.rows if row.single_task == single]
            if rows:
                texts = tuple(f"{row.slots} slots of {row.slot_memory_mib:g} MiB" for row in rows)
                seen, predicted = zip(
                    *((row.measured_per_s, row.predicted_per_s) for row in rows), strict=True
                )
                groups.append(ScatterPoint(name, seen, predicted, texts))
        return against(
            "predicted against measured throughput, records/s",
            groups,
            x_label="measured, records/s",
            y_label="predicted, records/s",
        )


def report_of(fit: MstFit, spec: JobSpec) -> MstReport:
    """The report of a fit and of the job file made from it.

    Returns:
        The report: one row per measured run, and the warnings in words.
    """
    model, measurements = fit.model, fit.measurements
    chosen = next((c for c in fit.choices if c.form == model.form), None)
    return MstReport(
        spec.job,
        measurements.query,
        len(measurements.runs),
        measurements.suspect_runs,
        model.form.name,
        None if chosen is None else chosen.error,
        {choice.form.name: choice.error for choice in fit.choices},
        _parameters(fit),
        _effect(fit),
        fit.enough_mib,
        tuple(_rows(fit, spec)),
        tuple(_warnings(fit)),
        spec.fitted,
    )


def _rows(fit: MstFit, spec: JobSpec) -> list[MstRow]:
    measurements, model = fit.measurements, fit.model
    cells: dict[tuple[float, int, bool], list[MstRun]] = {}
    for run in measurements.runs:
        single = all(run.parallelism[v] == 1 for v in measurements.working)
        cells.setdefault((run.memory_mib, run.slots, single), []).append(run)
    rows = []
    for (memory, slots, single), runs in sorted(cells.items()):
        predicted = [model.mst_per_s(run.parallelism, run.memory_mib) for run in runs]
        placed = None
        if not single:
            placed = place(with_slot_memory(spec, memory), slots).result.rate_per_s
        rows.append(
            MstRow(
                memory,
                slots,
                single,
                len(runs),
                statistics.median(run.mst_per_s for run in runs),
                statistics.median(predicted),
                placed,
                memory >= fit.enough_mib,
            )
        )
    return rows


def _parameters(fit: MstFit) -> dict[str, float]:
    model, operators = fit.model, fit.measurements.operators
    found = {
        f"{operators[v].name}.cpu_us_per_record": model.seconds[v] * 1e6
        for v in model.working
        if model.seconds[v] > 0
    }
    named = {
        "efficiency.a": model.a,
        "efficiency.b": model.b,
        "few_keys.a": model.few_keys_a,
        "taskmanager.contention": model.contention,
    }
    return found | {name: value for name, value in named.items() if value > 0}


def _effect(fit: MstFit) -> dict[str, object] | None:
    effect = fit.model.memory
    if effect is None:
        return None
    return {
        "operator": fit.measurements.operators[effect.operator].name,
        "working_set_mib": effect.working_set_mib,
        "miss_us": effect.miss_s * 1e6,
        "efficiency_a": effect.a,
    }


def _effect_text(effect: dict[str, object] | None) -> str:
    if effect is None:
        return "none seen"
    return (
        f"the state of {effect['operator']} ({effect['working_set_mib']:.0f} MiB per subtask) "
        f"no longer fits; a miss costs {effect['miss_us']:.0f} µs"
    )


def _warnings(fit: MstFit) -> list[str]:
    runs, working = fit.measurements.runs, fit.measurements.working
    groups = {0 if all(r.parallelism[v] == 1 for v in working) else r.slots for r in runs}
    found = []
    if groups == {0}:
        found.append(
            "Every run has one task per operator: the loss with parallelism is assumed, not fitted."
        )
    elif len(groups) < ENOUGH_GROUPS:
        found.append(
            f"{len(groups)} slot counts are too few to choose a form; the default was taken."
        )
    starved = any(run.memory_mib < fit.enough_mib for run in runs)
    if starved and fit.model.memory is None:
        found.append(
            f"Below {fit.enough_mib:g} MiB per slot throughput falls, but no keyed operator "
            "can explain it; those runs were left out."
        )
    if math.isclose(fit.enough_mib, max(run.memory_mib for run in runs)) and starved:
        found.append("Only the largest memory per slot is enough; more was never measured.")
    return found
