"""`dsp-gym calibrate`: a job file from recordings, from Prometheus, or from tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import AccountOption, JsonOption, LabelsOption, refuse_given, shipped
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.calibration.config import CalibrationConfig

EXAMPLES = """
Examples:

  dsp-gym calibrate flink-q11-day --out job.yaml --report fit.html      recordings that ship

  dsp-gym calibrate http://127.0.0.1:9090 --job words --days 14 --out fit.yaml

  dsp-gym calibrate mst.csv rates.csv --query q5 --out q5.yaml          measured throughput

  dsp-gym plan q5.yaml --slots 32 --slot-memory-mib 2048

  dsp-gym calibrate static.csv profiles.csv --out cars.yaml             a series of means

  dsp-gym calibrate static.csv profiles.csv outages.csv --policy flink_operator_autoscaler

  dsp-gym calibrate runs.csv --query q1 --out q1.yaml                   an autoscaler's runs
"""
_WAYS = (
    "Name a calibration, or the URL of a Prometheus, or tables of throughput and operators, or a "
    "series and profiles, or runs: see dsp-gym calibrate --help."
)


@dataclass(frozen=True, slots=True)
class _Written:
    """Where results go."""

    out: Path | None
    report: Path | None
    as_json: bool

    @property
    def job(self) -> str:
        """Name of the fitted job."""
        return "job" if self.out is None else self.out.stem

    def write(self, text: str, page: str) -> None:
        """Write the job file and the page, each where it was asked for."""
        from dsp_gym.config.files import write_atomic

        for path, content in ((self.out, text), (self.report, page)):
            if path is not None:
                write_atomic(path, content)

    def say(self, notes: Iterable[str]) -> None:
        """Print notes and the paths of what was written."""
        for note in notes:
            typer.echo(f"note: {note}")
        for path in (self.out, self.report):
            if path is not None:
                typer.echo(f"written: {path}")


_SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="One calibration (a shipped name or a YAML file: recordings, datasets), or the "
        "URL of a Prometheus, or CSV tables. Tables are known by their columns: throughput and "
        "operators of runs, as StreamBed measures; or 30 s means of a job without rescales, "
        "profiles and outages, as Demeter measures; or samples of runs whose TaskManagers an "
        "autoscaler changed: run, t_s, input_rate_per_s, throughput_per_s, lag_records, "
        "busy_share, taskmanagers.",
        autocompletion=shipped("calibrations"),
    ),
]

_JobOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE[=NAME]",
        help="Prometheus: job file, as dsp-gym discover writes it (its path, its name in "
        "jobs/, or a shipped name), and the job's name in Flink, if it differs.",
        autocompletion=shipped("jobs"),
    ),
]


def calibrate(
    sources: _SourcesArgument,
    job: _JobOption = None,
    days: Annotated[
        float | None,
        typer.Option(min=0.001, max=366, help="Prometheus: days of history. Default: 14."),
    ] = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    query: Annotated[
        str | None,
        typer.Option(help="Throughput and operators, or runs: the query in the tables."),
    ] = None,
    slots_per_taskmanager: Annotated[
        int | None,
        typer.Option(
            min=1, help="Throughput and operators: slots of each TaskManager then. Default: 16."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Outages: the policy whose rescales give the cost of a restart."),
    ] = None,
    slot_memory_mib: Annotated[
        float | None,
        typer.Option(
            min=256, help="Series, runs: TaskManager process memory / slots. Default: 4096."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the fitted job file here.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the errors of the fit as an HTML page."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a job file to recordings, to a running job's metrics, or to measured tables."""
    written = _Written(out, report, as_json)
    kind, tables = _kind_of(sources)
    of_history = {"--job": job, "--days": days, "--labels": labels, "--account": account}
    of_rates = {"--query": query, "--slots-per-taskmanager": slots_per_taskmanager}
    of_series = {"--policy": policy, "--slot-memory-mib": slot_memory_mib}
    _refuse_others(kind, {**of_history, **of_rates, **of_series})
    if kind == "calibration":
        from dsp_gym.calibration.config import load_calibration

        _from_recordings(load_calibration(sources[0]), written)
    elif kind == "history":
        history = {"url": sources[0], "days": days or 14.0, "labels": labels}
        _from_recordings(_of_history(job, history, account), written)
    elif kind == "series":
        _from_series(tables, policy, slot_memory_mib or 4096.0, written)
    elif kind == "runs":
        _from_runs(tables["runs"], query, slot_memory_mib or 4096.0, written)
    else:
        _from_throughput(tables, query, slots_per_taskmanager or 16, written)


_TAKES: Mapping[str, tuple[str, ...]] = {
    "history": ("--job", "--days", "--labels", "--account"),
    "throughput": ("--query", "--slots-per-taskmanager"),
    "series": ("--policy", "--slot-memory-mib"),
    "runs": ("--query", "--slot-memory-mib"),
}
"""Options of each kind of source, beside those of all."""


def _refuse_others(kind: str, given: Mapping[str, object]) -> None:
    """Refuse options that belong to another kind of source, naming the first that has them."""
    what = {"runs": "table of runs"}.get(kind, kind)
    own = _TAKES.get(kind, ())
    for belongs, options in _TAKES.items():
        others = {name: given[name] for name in options if name not in own}
        refuse_given(others, f"does not apply to a {what}", f"It belongs to a {belongs}.")


def _kind_of(sources: Sequence[str]) -> tuple[str, dict[str, Path]]:
    """Tell calibrations, histories and both kinds of tables apart; tables come with it."""
    if all(source.lower().removesuffix(".gz").endswith(".csv") for source in sources):
        from dsp_gym.calibration.tables import tables_of

        tables = tables_of([Path(source) for source in sources])
        if "runs" in tables:
            if len(tables) > 1:
                raise ConfigError(
                    "a table of runs is calibrated alone",
                    value=" ".join(sources),
                    remedy=f"Name it alone: dsp-gym calibrate {shlex.quote(str(tables['runs']))}",
                )
            return "runs", tables
        return "throughput" if tables.keys() <= {"throughput", "operators"} else "series", tables
    if len(sources) > 1:
        raise ConfigError(
            "calibration needs exactly one source", value=" ".join(sources), remedy=_WAYS
        )
    is_url = sources[0].startswith(("http://", "https://"))
    return "history" if is_url else "calibration", {}


def _needed(tables: Mapping[str, Path], *names: str) -> list[Path]:
    for name in names:
        if name not in tables:
            from dsp_gym.calibration.tables import TABLES

            raise ConfigError(
                f"the table '{name}' is missing",
                value=" ".join(str(file) for file in tables.values()),
                remedy=f"Name its file, too: a CSV with the columns {', '.join(TABLES[name])}.",
            )
    return [tables[name] for name in names]


def _from_throughput(
    tables: Mapping[str, Path], query: str | None, slots: int, written: _Written
) -> None:
    from dsp_gym.calibration.evidence import with_section
    from dsp_gym.calibration.mst_fit import fit_measurements
    from dsp_gym.calibration.mst_job import evidence_of, job_spec, job_text
    from dsp_gym.calibration.mst_report import report_of
    from dsp_gym.calibration.mst_tables import read_measurements

    mst, operator_rates = _needed(tables, "throughput", "operators")
    if query is None:
        raise ConfigError("the query in the tables is missing", remedy="Name it: --query q5.")
    fit = fit_measurements(read_measurements(mst, operator_rates, query), slots)
    out = written.out
    job = query if out is None else out.stem
    files = [str(path) for path in dict.fromkeys((mst, operator_rates))]
    command = shlex.join(
        ["dsp-gym", "calibrate", *files, "--query", query]
        + ([] if slots == 16 else ["--slots-per-taskmanager", str(slots)])
    )
    text = job_text(fit, job, [path.name for path in dict.fromkeys((mst, operator_rates))], command)
    spec = job_spec(text, str(out or job))
    text = with_section(text, evidence_of(fit, spec, command))
    found = report_of(fit, job_spec(text, str(out or job)))
    written.write(text, found.render_html())
    if written.as_json:
        print_json(found.to_json())
        return
    print_table(
        ["MiB/slot", "slots", "runs", "measured/s", "predicted/s", "error"],
        [
            [
                f"{row.slot_memory_mib:g}",
                "one task each" if row.single_task else row.slots,
                row.runs,
                f"{row.measured_per_s:,.0f}",
                f"{row.predicted_per_s:,.0f}",
                f"{row.error:+.1%}",
            ]
            for row in found.rows
        ],
        right=["MiB/slot", "slots", "runs", "measured/s", "predicted/s", "error"],
    )
    left_out = found.left_out_error
    unseen = "not known" if left_out is None else f"{left_out:.1%}"
    typer.echo(f"{found.job}: {found.form}; error on slot counts left out: {unseen}")
    written.say((*found.warnings, *(found.fitted.sentences() if found.fitted else ())))


def _from_series(
    tables: Mapping[str, Path], policy: str | None, slot_memory_mib: float, written: _Written
) -> None:
    from dsp_gym.calibration.series import calibrate_series

    series, profiles = _needed(tables, "series", "profiles")
    found = calibrate_series(
        series,
        profiles,
        written.job,
        outages=tables.get("outages"),
        policy=policy,
        slot_memory_mib=slot_memory_mib,
    )
    written.write(found.job_text, found.render_html())
    if written.as_json:
        print_json(found.to_json())
        return
    print_table(["quantity", "value"], found.facts())
    written.say(found.warnings)


def _from_runs(file: Path, query: str | None, memory_mib: float, written: _Written) -> None:
    from dsp_gym.calibration.scaled_job import calibrate_runs

    found = calibrate_runs(file, written.job, query, memory_mib)
    written.write(found.job_text, found.render_html())
    if written.as_json:
        print_json(found.to_json())
        return
    print_table(["quantity", "value"], found.facts())
    written.say(found.warnings)


def _of_history(
    job: str | None, history: Mapping[str, object], account: Path | None
) -> CalibrationConfig:
    """Build the calibration that the options of a history stand for."""
    from dsp_gym.backends.upstream.access import access_of
    from dsp_gym.calibration.config import CalibrationConfig
    from dsp_gym.config.files import find, parse
    from dsp_gym.control.fleet_folder import flink_names

    if job is None:
        remedy = "Name it: --job FILE, as dsp-gym discover --prometheus URL writes it."
        raise ConfigError("a history needs a job file", remedy=remedy)
    file, _, name = job.partition("=")
    discovered = Path("jobs") / f"{file}.yaml"
    if len(Path(file).parts) == 1 and not Path(file).suffix and discovered.is_file():
        file = str(discovered)
    try:
        find("jobs", file)
    except ConfigError as error:
        error.remedy = f"{error.remedy or ''} Or write one: dsp-gym discover --help".strip()
        raise
    name = name or flink_names(Path(file).parent).get(Path(file).stem, "")
    asked = {**history, "job_name": name or None, "account": access_of(account)}
    document = {"job": file, "history": asked}
    return parse(CalibrationConfig, document, "dsp-gym calibrate")


def _from_recordings(chosen: CalibrationConfig, written: _Written) -> None:
    from dsp_gym.calibration.recordings import calibrate as fit
    from dsp_gym.cli.progress import bar
    from dsp_gym.config.files import write_atomic

    opened = None
    if chosen.datasets:
        from dsp_gym.datasets.reader import Dataset

        opened = Dataset.open
    with bar() as shown:
        task = shown.add_task("calibrating", total=None)
        found = fit(
            chosen,
            written.out,
            on_step=lambda text: shown.update(task, description=text[:40]),
            opened=opened,
            on_chunk=lambda chunks, of: shown.update(task, completed=chunks, total=of),
        )
    if written.report is not None:
        write_atomic(written.report, found.render_html())
    if written.as_json:
        print_json(found.to_json())
        return
    print_table(["", found.left_out or "left out", "fitted runs"], found.facts())
    written.say(found.notes())
