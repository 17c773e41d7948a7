"""`dsp-gym backtest`: what policies would have saved on the history a team already owns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.engines import (
    cells_bar,
    open_engine,
)
from dsp_gym.cli.options import (
    AccountOption,
    KeepOption,
    KubeconfigOption,
    LabelsOption,
    MasterOption,
    NamespaceOption,
    OverwriteOption,
    ResumeOption,
    WorkersOption,
)
from dsp_gym.cli.output import print_table
from dsp_gym.cli.histories import Histories, Sources, read_histories

if TYPE_CHECKING:
    from dsp_gym.engine import Engine
    from dsp_gym.evaluation.kept import KeptResults
    from dsp_gym.whatif.backtest import BacktestConfig
    from dsp_gym.whatif.result import Backtest

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym backtest --journal flink-q11-day                   a journal that ships

  dsp-gym backtest --recording flink-q11-day --interval 10 --policies ds2,learned

  dsp-gym backtest --prometheus http://127.0.0.1:9090 --days 14

  dsp-gym backtest --prometheus http://127.0.0.1:9090 --selector team=ads --out report/

  dsp-gym backtest --prometheus http://127.0.0.1:9090 --jobs jobs --policies ds2,learned

  dsp-gym backtest --dataset flink-q11-day --policies ds2        after dsp-gym dataset build

  dsp-gym backtest --autoscaler state.yaml --flink http://127.0.0.1:8081

  dsp-gym backtest --series exported/ --days 14 --out report/

  dsp-gym backtest --series exported/ --days 14 --out report/ --resume     after Ctrl-C
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(backtest)


def backtest(
    journal: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a journal, or a shipped name; repeat for more jobs."),
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a recording, or a shipped name; repeat for more jobs."),
    ] = None,
    series: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Exported tables: DIR/JOB/series.csv, profiles.csv."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Dataset of dsp-gym dataset build: its folder, or its name below runs/datasets; "
            "repeat for more.",
        ),
    ] = None,
    autoscaler: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="State of Flink's autoscaler (some minutes): a file of kubectl get configmap "
            "-o yaml, the URL of its database, or kubernetes with --selector.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus with the history of the jobs."),
    ] = None,
    flink: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --prometheus or --autoscaler: Flink's REST interface, the best "
            "description of the jobs.",
        ),
    ] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS",
            help="With --prometheus or --autoscaler: only FlinkDeployments with these "
            "labels, such as team=ads.",
        ),
    ] = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --prometheus: folder of job files. Default: the running jobs are described "
            "as dsp-gym discover does.",
        ),
    ] = None,
    job_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE=NAME",
            help="With --jobs: Flink's name of a job, if it differs from the file's; repeat.",
        ),
    ] = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    keep: KeepOption = Path("runs/history"),
    job: Annotated[
        str | None,
        typer.Option(
            help="Calibrated file of the job, for a source of one job. Default: that of the "
            "journal; a recording's or dataset's is fitted.",
            autocompletion=shipped("jobs"),
        ),
    ] = None,
    vertex: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEX=NAME",
            help="With --autoscaler and --job: name of the vertex with that id; repeat it.",
        ),
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B,C", help="Policies: names, YAML files or folders.")
    ] = "ds2,justin-paper,learned",
    guardrails: Annotated[
        str,
        typer.Option(
            help="Guardrails around each policy: a shipped name, a file, or none.",
            autocompletion=shipped("guardrails"),
        ),
    ] = "default",
    days: Annotated[
        float | None,
        typer.Option(min=0.001, help="The last days alone. Default: all, or 14."),
    ] = None,
    interval: Annotated[
        int,
        typer.Option(min=5, max=3600, help="Seconds between decisions."),
    ] = 60,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the pages. Default: runs/backtests/NAME."),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; files only together with --out.")
    ] = False,
) -> None:
    """Estimate what each policy would have saved on the metrics history of your jobs.

    The command fits a model of each job to its history, and replays the observed load with the
    deployed configurations and with each policy. It claims no saving on a job whose model misses
    the observed cost by more than 5 %, or the late time by more than 2 points. It only reads from
    the cluster.
    """
    from dsp_gym.errors import ConfigError
    from dsp_gym.evaluation.kept import KeptResults
    from dsp_gym.whatif.backtest import BacktestConfig, decisions_of, shares_of

    chosen = tuple(filter(None, map(str.strip, policies.split(","))))
    if not chosen:
        raise ConfigError(
            "names no policy", key="--policies", value=policies, remedy="Write ds2,learned."
        )
    config = BacktestConfig(
        policies=chosen,
        guardrails=None if guardrails == "none" else guardrails,
    )
    shares_of(config)  # refuse a wrong name before hours of reading
    read = read_histories(
        Sources(
            journal=journal or (),
            recording=recording or (),
            dataset=dataset or (),
            series=series,
            autoscaler=autoscaler,
            vertices=vertex or (),
            prometheus=prometheus,
            flink=flink,
            selector=selector,
            namespace=namespace,
            kubeconfig=kubeconfig,
            jobs=jobs,
            names=job_name or (),
            labels=labels,
            account=account,
            keep=keep,
            job=job,
            interval_s=interval,
            days=days,
        )
    )
    folder = out or (None if as_json else Path("runs/backtests") / read.name)
    kept = None
    if folder is not None:
        kept = KeptResults.beside(folder, resume=resume, overwrite=overwrite)
    with open_engine(
        "dsp-gym backtest", master, workers, decisions_of(read.found, config)
    ) as opened:
        found = _played(read, config, opened, kept)
    if folder is None or kept is None:
        typer.echo(found.to_json(), nl=False)
        return
    _write(found, folder, as_json)
    kept.clear()


def _played(
    read: Histories,
    config: BacktestConfig,
    engine: Engine,
    kept: KeptResults | None,
) -> Backtest:
    from dsp_gym.whatif.backtest import backtest as run
    from dsp_gym.whatif.kept import KeptReplays

    replays = None if kept is None else KeptReplays(kept)
    try:
        with cells_bar("replays") as told:
            return run(
                read.found,
                config,
                read.source,
                engine=engine,
                told=told,
                kept=replays,
                left_out=read.left_out,
            )
    except KeyboardInterrupt:
        if kept is not None and len(kept):
            typer.echo(
                f"Stopped; {len(kept)} replays are kept in {kept.folder}. "
                "Continue with the same command and --resume.",
                err=True,
            )
        raise


def _write(found: Backtest, folder: Path, as_json: bool) -> None:
    from dsp_gym.whatif.fleet_page import (
        FLEET_COLUMNS,
        JOB_COLUMNS,
        fleet_rows,
        headline,
        job_rows,
        write_report,
    )

    written = write_report(found, folder)
    if as_json:
        typer.echo(found.to_json(), nl=False)
        return
    typer.echo(f"{headline(found)}\n")
    print_table(FLEET_COLUMNS, fleet_rows(found), right=FLEET_COLUMNS[1:])
    typer.echo()
    print_table(JOB_COLUMNS, job_rows(found), right=JOB_COLUMNS[1:])
    typer.echo()
    for job in found.jobs:
        for text in (*job.notes, *(() if job.best is None else job.best.why_not)):
            typer.echo(f"note: {job.name}: {text}")
    for text in found.left_out:
        typer.echo(f"note: left out: {text}")
    for kind, path in written.items():
        typer.echo(f"{kind:>6}  {path}")
