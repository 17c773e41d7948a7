"""What a calibration found: as JSON, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from dsp_gym.calibration.advice import Advice
from dsp_gym.calibration.checks import Problem
from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.errors import Agreement, Compared, Errors
from dsp_gym.calibration.fit import Fit, Fitted
from dsp_gym.calibration.noise import Noise, Skew
from dsp_gym.calibration.rescale import RescaleTimes
from dsp_gym.config.strict_json import plain
from dsp_gym.job.spec import JobSpec
from dsp_gym.pages import (
    Html,
    ScatterPoint,
    against,
    code,
    details,
    heading,
    lead,
    note,
    number,
    page,
    section,
    table,
)

SCHEMA = "dsp-gym/calibration/1"


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibrated job and how far it is from its recordings."""

    config: CalibrationConfig
    spec: JobSpec
    fit: Fit
    runs: tuple[str, ...]  # fitted
    aborted: tuple[str, ...]  # not used at all
    compared: tuple[Compared, ...]  # every steady part of every run
    fitted_errors: Errors
    held_out_errors: Errors
    left_out_errors: Errors  # of predictions of runs that their fit had not seen
    left_out: str | None  # which those are; None: there is a single run
    problems: tuple[Problem, ...]
    advice: tuple[Advice, ...]
    rescale: RescaleTimes
    noise: Noise
    skew: tuple[Skew, ...]
    agreement: Agreement | None
    job_yaml: str

    def to_json(self) -> dict[str, object]:
        """Everything as plain values; unknown is None.

        Returns:
            The document of `dsp-gym calibrate --json`; its key `schema` names the version.
        """
        document: dict[str, object] = {
            "schema": SCHEMA,
            "job": self.spec.job,
            "config": self.config.model_dump(mode="json"),
            "efficiency_form": self.fit.form,
            "parameters": [asdict(parameter) for parameter in self.fit.parameters],
            "not_identified": [p.name for p in self.fit.parameters if not p.identified],
            "fitted_runs": list(self.runs),
            "outliers": list(self.fit.outliers),
            "aborted": list(self.aborted),
            "errors": {
                "fitted": asdict(self.fitted_errors),
                "held_out": asdict(self.held_out_errors),
                "left_out": asdict(self.left_out_errors),
            },
            "headline": self.headline,
            "left_out": self.left_out,
            "problems": [asdict(one) for one in self.problems],
            "unsteady": self.unsteady,
            "advice": [asdict(one) | {"sentence": one.sentence} for one in self.advice],
            "rescale": asdict(self.rescale),
            "noise": asdict(self.noise),
            "evidence": None
            if self.spec.fitted is None
            else self.spec.fitted.model_dump(mode="json"),
            "skew": [asdict(one) for one in self.skew],
            "agreement": None if self.agreement is None else asdict(self.agreement),
            "parts": [
                {"in_fit": c.in_fit, "seen": asdict(c.seen), "predicted": asdict(c.predicted)}
                for c in self.compared
            ],
        }
        return {key: plain(value) for key, value in document.items()}

    @property
    def headline(self) -> str:
        """The error on runs that the fit had not seen, in one sentence."""
        e, how = self.left_out_errors, self.left_out
        if how is None:
            return "error on runs the fit has not seen: not known, there is a single run"
        said = [
            f"{name} {text}"
            for name, value, text in (
                (
                    "rate median",
                    e.rate_median,
                    f"{_percent(e.rate_median)}, p90 {_percent(e.rate_p90)}",
                ),
                ("busyness", e.busy_mean, _text(e.busy_mean)),
                ("hit rate", e.hit_mean, _text(e.hit_mean)),
            )
            if value is not None
        ]
        return f"error on runs the fit has not seen ({how}): {', '.join(said) or 'not measured'}"

    @property
    def unsteady(self) -> list[str]:
        """Runs that never became steady."""
        return [name for one in self.problems if one.kind == "unsteady" for name in one.runs]

    def facts(self) -> list[list[str]]:
        """List the errors on runs that a fit had not seen, and on fitted ones.

        Returns:
            Rows of three columns.
        """
        rows = (_error_row("", self.left_out_errors), _error_row("", self.fitted_errors))
        return [list(row) for row in zip(_ERROR_COLUMNS, *rows, strict=True)][1:]

    def notes(self) -> list[str]:
        """Sentences that a reader must know before using the job file.

        Returns:
            One sentence each: runs left out, parameters that kept their prior and the run that
            would fix them, keys skewed otherwise than modelled, the range of the fit, what is wrong
            with runs, and last the headline.
        """
        found = [f"left out as aborted: {name}" for name in (*self.aborted, *self.fit.outliers)]
        kept = [p.name for p in self.fit.parameters if not p.identified]
        if kept:
            found.append(f"not identified, prior kept: {', '.join(kept)}")
        found += [
            f"'{one.vertex}' at parallelism {one.parallelism}: its fullest subtask gets "
            f"{one.seen:.2f} of the mean, the model says {one.model:.2f}; check its keys"
            for one in self.skew
            if one.is_off
        ]
        found += self.spec.fitted.sentences() if self.spec.fitted is not None else []
        found += [one.sentence for one in self.advice]
        found += [one.sentence for one in self.problems]
        return [*found, self.headline]

    def render_html(self) -> str:
        """The report as one page.

        Returns:
            HTML of one page without outside references.
        """
        errors = [
            _error_row(self.left_out or "left out", self.left_out_errors),
            _error_row("fitted", self.fitted_errors),
        ]
        parts = [row for c in self.compared for row in _part_rows(c)]
        return page(
            f"Calibration of {self.spec.job}",
            lead(self.headline[0].upper() + self.headline[1:] + "."),
            self._lead(),
            *(note(one.sentence) for one in self.problems),
            *(note(one.sentence) for one in self.advice),
            section("Errors", table(_ERROR_COLUMNS, errors), *charts(self.compared)),
            section(
                "Fitted numbers",
                table(_PARAMETER_COLUMNS, [_parameter_row(p) for p in self.fit.parameters]),
            ),
            section(
                "Rescale, noise, skew, order of configurations",
                table(("measured", "value"), self._other()),
            ),
            section(
                "Residuals",
                details("Every steady part of every run", table(_PART_COLUMNS, parts)),
                details("The calibrated job file", code(self.job_yaml)),
            ),
        )

    def _lead(self) -> str:
        text = (
            f"Fitted to {len(self.runs)} runs; {self.held_out_errors.parts} steady parts of other "
            f"runs were held out. Efficiency over parallelism: {self.fit.form}."
        )
        if self.fit.outliers:
            text += f" Left out as aborted: {', '.join(self.fit.outliers)}."
        return text

    def _other(self) -> list[tuple[str, str]]:
        rows = [
            (name.replace("_", " "), _text(value))
            for part in (self.rescale, self.noise)
            for name, value in asdict(part).items()
        ]
        rows += [
            (f"skew: {one.vertex} at {one.parallelism}", f"{one.seen:.2f}, model {one.model:.2f}")
            for one in self.skew
        ]
        if self.agreement is not None:
            rows += [
                (f"agreement: {name.replace('_', ' ')}", _text(value))
                for name, value in asdict(self.agreement).items()
            ]
        return rows


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return " / ".join(_text(item) for item in value)
    if isinstance(value, float):
        return number(value)
    return str(value)


_ERROR_COLUMNS = (
    "runs",
    "parts",
    "rate, median",
    "rate, p90",
    "busyness, mean",
    "hit rate, mean",
    "read latency within 2x",
)
_PARAMETER_COLUMNS = ("number", "unit", "prior", "value", "95 %", "identified")
_PART_COLUMNS = ("run", "from, s", "in fit", "quantity", "seen", "predicted", "error")


def _error_row(name: str, errors: Errors) -> tuple[str, ...]:
    return (
        name,
        str(errors.parts),
        _percent(errors.rate_median),
        _percent(errors.rate_p90),
        _text(errors.busy_mean),
        _text(errors.hit_mean),
        _percent(errors.read_within_2),
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _parameter_row(p: Fitted) -> tuple[str, ...]:
    return (
        p.name,
        p.unit,
        _text(p.prior),
        _text(p.value),
        f"{_text(p.low)} to {_text(p.high)}",
        "yes" if p.identified else "no: keeps its prior",
    )


def _part_rows(c: Compared) -> list[tuple[str, ...]]:
    head = (c.seen.run, f"{c.seen.start_s:g}", "yes" if c.in_fit else "no")
    rows: list[tuple[str, ...]] = [
        (
            *head,
            "rate, records/s",
            _text(c.seen.rate_per_s),
            _text(c.predicted.rate_per_s),
            f"{100 * c.rate_error:+.1f} %",
        )
    ]
    for label, seen, said in (
        ("busy", c.seen.busy, c.predicted.busy),
        ("hit rate", c.seen.hit, c.predicted.hit),
        ("read, us", c.seen.read_us, c.predicted.read_us),
        ("write, us", c.seen.write_us, c.predicted.write_us),
    ):
        for vertex, value in seen.items():
            if vertex in said:
                off = (
                    f"x {said[vertex] / value:.2f}"
                    if label.endswith("us")
                    else f"{said[vertex] - value:+.3f}"
                )
                rows.append((*head, f"{vertex}: {label}", _text(value), _text(said[vertex]), off))
    return rows


Pair = tuple[str, float, float]
"""What is compared, in words, what was seen of it, and what was predicted."""


def charts(compared: Sequence[Compared]) -> list[Html]:
    """Draw rate, busyness, hit rate and read latency, predicted over seen.

    Returns:
        A heading and a chart for each quantity that was measured.
    """
    quantities: list[tuple[str, str, Callable[[Compared], Iterator[Pair]]]] = [
        ("Sustained rate", "records/s", _rate),
        ("Busy, share of the time", "share", lambda one: _vertices(one, "busy")),
        ("Hit rate of the cache", "share", lambda one: _vertices(one, "hit")),
        ("Latency of reads", "us", lambda one: _vertices(one, "read_us")),
    ]
    found: list[Html] = []
    for title, unit, pairs in quantities:
        groups = [
            _group(name, [pair for one in compared if one.in_fit == in_fit for pair in pairs(one)])
            for name, in_fit in (("fitted", True), ("held out", False))
        ]
        if any(group.x for group in groups):
            found += [
                heading(title),
                against(
                    f"{title}: predicted against seen, {unit}",
                    [group for group in groups if group.x],
                    x_label=f"seen, {unit}",
                    y_label=f"predicted, {unit}",
                ),
            ]
    return found


def _rate(one: Compared) -> Iterator[Pair]:
    yield one.seen.run, one.seen.rate_per_s, one.predicted.rate_per_s


def _vertices(one: Compared, quantity: str) -> Iterator[Pair]:
    """A quantity of each vertex that has it."""
    said: Mapping[str, float] = getattr(one.predicted, quantity)
    seen: Mapping[str, float] = getattr(one.seen, quantity)
    return ((f"{one.seen.run}, {v}", value, said[v]) for v, value in seen.items() if v in said)


def _group(name: str, pairs: Sequence[Pair]) -> ScatterPoint:
    texts, x, y = zip(*pairs, strict=True) if pairs else ((), (), ())
    return ScatterPoint(name, x, y, tuple(f"{name}, {text}" for text in texts))
