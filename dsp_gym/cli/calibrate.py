"""`dsp-gym calibrate`: a job file from recordings, or from measured tables."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.options import AccountOption, JsonOption, KeepOption, LabelsOption
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.calibration.config import CalibrationConfig
    from dsp_gym.calibration.series import SeriesReport

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym calibrate flink-q11-day --out job.yaml --report fit.html      recordings that ship

  dsp-gym calibrate --prometheus http://127.0.0.1:9090 --job words --days 14 --out fit.yaml

  dsp-gym calibrate --mst mst.csv --operator-rates rates.csv --query q5 --out q5.yaml

  dsp-gym mst q5.yaml --slots 32 --slot-memory-mib 2048

  dsp-gym calibrate --series static.csv --profiles profiles.csv --out cars.yaml

  dsp-gym calibrate --series static.csv --profiles profiles.csv --outages outages.csv \\
      --policy flink_operator_autoscaler --out redeployed.yaml
"""
_WAYS = (
    "Give CONFIG, or --prometheus and --job, or --mst, --operator-rates and --query, or --series "
    "and --profiles; "
    "see dsp-gym calibrate --help."
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(calibrate)


def calibrate(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]",
            help="Calibration file: fit to recordings or datasets.",
            autocompletion=shipped("calibrations"),
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus with the history of a running job."),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --prometheus: job file, as dsp-gym discover writes it: its path, its name "
            "in jobs/, or a shipped name.",
            autocompletion=shipped("jobs"),
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(min=0.001, max=366, help="With --prometheus: days of history.")
    ] = 14.0,
    job_name: Annotated[
        str | None,
        typer.Option(help="With --prometheus: name of the job in Flink. Default: the job file's."),
    ] = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    keep: KeepOption = Path("runs/history"),
    mst: Annotated[
        Path | None, typer.Option(help="CSV of measured maximal throughput (streambed_mst.csv).")
    ] = None,
    operator_rates: Annotated[
        Path | None,
        typer.Option(help="CSV of those runs' operators (streambed_operator_rates.csv)."),
    ] = None,
    query: Annotated[str | None, typer.Option(help="With --mst: query in the tables.")] = None,
    slots_per_taskmanager: Annotated[
        int, typer.Option(min=1, help="With --mst: task slots per TaskManager in the measurement.")
    ] = 16,
    series: Annotated[
        Path | None,
        typer.Option(help="CSV of 30 s means of a job without rescales (demeter_cars_*.csv)."),
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(help="With --series: CSV of short runs (demeter_cars_profiles.csv)."),
    ] = None,
    outages: Annotated[
        Path | None,
        typer.Option(
            help="With --series: CSV of outages (demeter_cars_outages.csv); its "
            "rescales give the cost of a restart."
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="With --outages: use the outages of this policy.")
    ] = None,
    not_run: Annotated[
        int | None, typer.Option(help="With --outages: run to hold out for a check.")
    ] = None,
    slot_memory_mib: Annotated[
        float, typer.Option(min=256, help="With --series: TaskManager process memory / slots.")
    ] = 4096.0,
    out: Annotated[Path | None, typer.Option(help="Write the fitted job file here.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the errors of the fit as an HTML page."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a job file to recordings, to measured throughput, or to a series of a running job."""
    tables, measured = (mst, operator_rates, query), (series, profiles)
    ways = [
        config is not None,
        prometheus is not None or job is not None,
        any(t is not None for t in tables),
        any(s for s in measured),
    ]
    if sum(ways) != 1:
        raise ConfigError("calibration needs exactly one source", remedy=_WAYS)
    if config is not None:
        from dsp_gym.calibration.config import load_calibration

        _from_recordings(load_calibration(config), out, report, as_json)
    elif prometheus is not None and job is not None:
        told = {"url": prometheus, "days": days, "job_name": job_name, "labels": labels}
        told |= {"account": account, "keep": keep}
        _from_recordings(_of_history(job, told), out, report, as_json)
    elif prometheus is not None or job is not None:
        raise ConfigError("a history needs both --prometheus and --job", remedy=_WAYS)
    elif series is not None and profiles is not None:
        from dsp_gym.calibration.series import calibrate_series

        found = calibrate_series(
            series,
            profiles,
            "job" if out is None else out.stem,
            outages=outages,
            policy=policy,
            not_run=not_run,
            slot_memory_mib=slot_memory_mib,
        )
        _from_series(found, out, report, as_json)
    elif mst is not None and operator_rates is not None and query is not None:
        _from_tables(mst, operator_rates, query, slots_per_taskmanager, out, report, as_json)
    else:
        raise ConfigError("--mst, --operator-rates and --query belong together", remedy=_WAYS)


def _from_tables(
    mst: Path,
    operator_rates: Path,
    query: str,
    slots: int,
    out: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    from dsp_gym.calibration.evidence import with_section
    from dsp_gym.calibration.mst_fit import fit_measurements
    from dsp_gym.calibration.mst_job import evidence_of, job_spec, job_text
    from dsp_gym.calibration.mst_report import report_of
    from dsp_gym.calibration.mst_tables import read_measurements

    fit = fit_measurements(read_measurements(mst, operator_rates, query), slots)
    job = query if out is None else out.stem
    command = shlex.join(
        ["dsp-gym", "calibrate", "--mst", str(mst), "--operator-rates", str(operator_rates)]
        + ["--query", query]
        + ([] if slots == 16 else ["--slots-per-taskmanager", str(slots)])
    )
    text = job_text(fit, job, [path.name for path in dict.fromkeys((mst, operator_rates))], command)
    spec = job_spec(text, str(out or job))
    text = with_section(text, evidence_of(fit, spec, command))
    found = report_of(fit, job_spec(text, str(out or job)))
    _write(out, text, report, found.render_html())
    if as_json:
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
    _say((*found.warnings, *(found.fitted.sentences() if found.fitted else ())), out, report)


def _from_series(found: SeriesReport, out: Path | None, report: Path | None, as_json: bool) -> None:
    _write(out, found.job_text, report, found.render_html())
    if as_json:
        print_json(found.to_json())
        return
    print_table(["quantity", "value"], found.facts())
    _say(found.warnings, out, report)


def _of_history(job: str, history: dict[str, object]) -> CalibrationConfig:
    """The calibration that the options of a history stand for."""
    from dsp_gym.calibration.config import CalibrationConfig
    from dsp_gym.config.files import find, parse

    discovered = Path("jobs") / f"{job}.yaml"
    if len(Path(job).parts) == 1 and not Path(job).suffix and discovered.is_file():
        job = str(discovered)
    try:
        find("jobs", job)
    except ConfigError as error:
        error.remedy = f"{error.remedy or ''} Or write one: dsp-gym discover --help".strip()
        raise
    return parse(CalibrationConfig, {"job": job, "history": history}, "--prometheus")


def _from_recordings(
    chosen: CalibrationConfig, out: Path | None, report: Path | None, as_json: bool
) -> None:
    from rich.console import Console

    from dsp_gym.calibration.recordings import calibrate as fit
    from dsp_gym.config.files import write_atomic

    opened = None
    if chosen.datasets:
        from dsp_gym.datasets.reader import Dataset

        opened = Dataset.open
    if chosen.history is not None:
        from dsp_gym.cli.progress import bar

        with bar() as shown:
            task = shown.add_task("history", total=None)

            def done(chunks: int, of: int) -> None:
                shown.update(task, completed=chunks, total=of)

            found = fit(
                chosen,
                out,
                on_step=lambda text: shown.update(task, description=text[:40]),
                opened=opened,
                on_chunk=done,
            )
    else:
        with Console(stderr=True).status("calibrating") as status:  # nothing unless on a terminal
            found = fit(chosen, out, on_step=status.update, opened=opened)
    if report is not None:
        write_atomic(report, found.render_html())
    if as_json:
        print_json(found.to_json())
        return
    print_table(["", found.left_out or "left out", "fitted runs"], found.facts())
    _say(tuple(found.notes()), out, report)


def _write(out: Path | None, text: str, report: Path | None, page: str) -> None:
    from dsp_gym.config.files import write_atomic

    for path, content in ((out, text), (report, page)):
        if path is not None:
            write_atomic(path, content)


def _say(warnings: tuple[str, ...], out: Path | None, report: Path | None) -> None:
    for warning in warnings:
        typer.echo(f"note: {warning}")
    for path in (out, report):
        if path is not None:
            typer.echo(f"written: {path}")
