"""`dsp-gym backtest`: what policies would have saved on the history of jobs, with a verdict."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import cells_bar, kept_beside, open_engine
from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.options import (
    AccountOption,
    LabelsOption,
    MasterOption,
    OverwriteOption,
    ResumeOption,
    WorkersOption,
    refuse_given,
    shipped,
)
from dsp_gym.cli.output import print_table
from dsp_gym.errors import ConfigError, DspGymError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsp_gym.cli.histories import Histories, Sources
    from dsp_gym.whatif.policies import ReplayedPolicy
    from dsp_gym.whatif.result import Backtest, JobResult

EXAMPLES = """
Examples:

  dsp-gym backtest journals/flink-q11-day                 a journal that ships

  dsp-gym backtest recordings/flink-q11-day --interval 10 --policies ds2,planner

  dsp-gym backtest runs/live/orders --out report/         what a shadow run watched

  dsp-gym backtest runs/live/orders --incumbent aws-managed-flink --policies ds2,planner

  dsp-gym backtest runs/live --follow                     beside dsp-gym shadow, until Ctrl-C

  dsp-gym backtest --prometheus http://127.0.0.1:9090 --days 14

  dsp-gym backtest --prometheus http://127.0.0.1:9090 --jobs jobs --policies ds2,planner

  dsp-gym backtest exported/ --days 14 --out report/ --resume          after Ctrl-C
"""

LOOK_S = 10.0
"""Seconds between two looks at journals that are followed."""

POLICIES = "ds2,justin-paper,planner"
"""Of a history beside which no policy was watched."""


SourceArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Folder of a journal (or of those of several jobs), recording, dataset, or tables "
        "DIR/JOB/series.csv; or a shipped name such as journals/flink-q11-day.",
    ),
]
JobsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Job file, or folder of those that dsp-gym discover wrote; NAME=FILE where Flink's "
        "name is another; repeat. Default: that of the journal; fitted or described.",
    ),
]
PoliciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Policies: names, YAML files or folders. Default: those of the journal, else "
        f"{POLICIES}.",
    ),
]
IncumbentOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Policy that the others would replace, such as a provider's default: "
        "aws-managed-flink, dataflow, beam-flink; without guardrails. Default: the deployed "
        "configurations.",
    ),
]
GuardrailsOption = Annotated[
    str,
    typer.Option(
        help="Guardrails around each of --policies: a shipped name, a file, or none.",
        autocompletion=shipped("guardrails"),
    ),
]
RegisterOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Write the verdict on this version in MLflow ($MLFLOW_TRACKING_URI): "
        "models:/NAME/VERSION.",
    ),
]


def backtest(
    source: SourceArgument = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Prometheus with the history of the jobs.")
    ] = None,
    jobs: JobsOption = None,
    labels: LabelsOption = None,
    account: AccountOption = None,
    policies: PoliciesOption = None,
    incumbent: IncumbentOption = None,
    guardrails: GuardrailsOption = "default",
    days: Annotated[
        float | None,
        typer.Option(min=0.001, help="The last days alone. Default: all, or 14 of a Prometheus."),
    ] = None,
    interval: Annotated[
        int, typer.Option(min=5, max=3600, help="Seconds between decisions; a journal has its own.")
    ] = 60,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the pages. Default: runs/backtests/NAME."),
    ] = None,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow the journals of a shadow run until Ctrl-C.")
    ] = False,
    register: RegisterOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; files only together with --out.")
    ] = False,
) -> None:
    """Estimate what each policy would have cost and saved on the history of jobs, with a verdict.

    The model of each job replays the observed load, once with the deployed configurations, which
    shows the model's error, and once with each policy in charge. No saving is claimed where the
    model misses the observed cost by more than 5 %, the late time by more than 2 points or the
    backlog by more than 25 %. The command only reads from the cluster.
    """
    from dsp_gym.cli.histories import Sources, read_histories

    sources = Sources(source or (), prometheus, jobs or (), labels, account, interval, days)
    base = _incumbent(incumbent, follow, register)
    if follow:
        _follow(sources, as_json=as_json)
        return
    entrants = _named(policies, guardrails)  # a wrong name is refused before hours of reading
    read = read_histories(sources)
    if entrants is None and any(one.watched is None for one in read.found):
        entrants = _named(POLICIES, guardrails)
    folder = out or (None if as_json else Path("runs/backtests") / read.name)
    found = _run(read, entrants, base, folder, resume, overwrite, master, workers)
    if register is not None:
        _register(found, register)
    if folder is not None:
        _write(found, folder, as_json)
    if as_json:
        typer.echo(found.to_json(), nl=False)


def _incumbent(named: str | None, follow: bool, register: str | None) -> ReplayedPolicy | None:
    from dsp_gym.whatif.policies import ReplayedPolicy

    if named is None:
        return None
    if follow:
        refuse_given({"--incumbent": named}, "does not belong to --follow")
    if register is not None:
        refuse_given({"--incumbent": named}, "a version is judged against what was deployed")
    return ReplayedPolicy.of(None, named, None)


def _named(policies: str | None, guardrails: str) -> Sequence[ReplayedPolicy] | None:
    from dsp_gym.whatif.policies import named_entrants

    if policies is None:
        return None
    chosen = tuple(filter(None, map(str.strip, policies.split(","))))
    if not chosen:
        raise ConfigError(
            "names no policy", key="--policies", value=policies, remedy="Write ds2,planner."
        )
    return named_entrants(chosen, None if guardrails == "none" else guardrails)


def _run(
    read: Histories,
    entrants: Sequence[ReplayedPolicy] | None,
    incumbent: ReplayedPolicy | None,
    folder: Path | None,
    resume: bool,
    overwrite: bool,
    master: str | None,
    workers: int | None,
) -> Backtest:
    from dsp_gym.whatif.backtest import backtest as run
    from dsp_gym.whatif.backtest import decisions_of, work_of
    from dsp_gym.whatif.kept import KeptReplays

    with kept_beside(folder, resume, overwrite, "{} replays") as kept:
        decisions = decisions_of(
            [work_of(one, entrants, incumbent=incumbent)[0] for one in read.found]
        )
        with (
            open_engine("dsp-gym backtest", master, workers, decisions) as engine,
            cells_bar("replays") as told,
        ):
            found = run(
                read.found,
                read.source,
                entrants=entrants,
                incumbent=incumbent,
                engine=engine,
                told=told,
                kept=None if kept is None else KeptReplays(kept),
                left_out=read.left_out,
            )
    if kept is not None:
        kept.clear()
    return found


def _write(found: Backtest, folder: Path, as_json: bool) -> None:
    from dsp_gym.whatif.fleet_page import (
        FLEET_COLUMNS,
        JOB_COLUMNS,
        fleet_rows,
        headline,
        job_rows,
        write_report,
    )
    from dsp_gym.whatif.job_page import BESIDE_COLUMNS, beside_rows

    written = write_report(found, folder)
    if as_json:
        return
    typer.echo(f"{headline(found)}\n\nAmounts in {found.currency} a month:\n")
    print_table(FLEET_COLUMNS, fleet_rows(found), right=FLEET_COLUMNS[1:])
    typer.echo()
    heads = [head.removesuffix(":") for head in JOB_COLUMNS]
    print_table(heads, job_rows(found), right=heads[2:6])
    for job in found.jobs:
        if job.incumbent is not None:
            typer.echo(f"\n{job.name}, leaving {job.incumbent.policy}:\n")
            print_table(BESIDE_COLUMNS, beside_rows(job), right=BESIDE_COLUMNS[1:])
        _print_verdicts(job)
    for text in found.left_out:
        typer.echo(f"note: left out: {text}")
    typer.echo()
    for kind, path in written.items():
        typer.echo(f"{kind:>6}  {path}")


def _print_verdicts(job: JobResult) -> None:
    from dsp_gym.whatif.job_page import verdict_rows

    for claim in job.ranked():
        typer.echo(f"\n{job.name}, {claim.policy}: {claim.verdict}")
        for subject, mark, text in verdict_rows(claim):
            typer.echo(f"  {mark:<14}  {subject}: {text}")
    for text in job.notes:
        typer.echo(f"note: {job.name}: {text}")


def _register(found: Backtest, model: str) -> None:
    """Write the verdict on a version in the model registry, as tags."""
    from dsp_gym.trackers.mlflow import DEFAULT_URI, tag_version

    claims = [(job, claim) for job in found.jobs for claim in job.claims]
    if len(claims) != 1:
        said = ", ".join(f"{claim.policy} on {job.name}" for job, claim in claims)
        raise ConfigError(
            f"there are several verdicts: {said}" if claims else "there is no verdict",
            key="--register",
            value=model,
            remedy="Name one journal and one policy: --policies NAME",
        )
    job, claim = claims[0]
    tags = {
        "shadow.verdict": claim.verdict,
        "shadow.job": job.name,
        "shadow.days": f"{job.observed.days:.2f}",
        **{f"shadow.{r.subject.replace(' ', '_')}": r.text for r in claim.reasons},
    }
    tag_version(model, tags, os.environ.get("MLFLOW_TRACKING_URI", DEFAULT_URI))
    typer.echo(f"{model}: {claim.verdict}", err=True)


def _follow(sources: Sources, *, as_json: bool) -> None:
    """Follow the journals of a folder; `twins.json` beside each feeds the page of its run."""
    from dsp_gym.cli.turns import stopping
    from dsp_gym.whatif.follow import Following

    folder = _followed(sources)
    os.nice(10)  # the loop that writes the journal comes first
    following, stop = Following(folder), threading.Event()
    said: dict[str, str] = {}
    with stopping(stop) as interrupted:
        while not stop.is_set():
            for name, found in following.look():
                if isinstance(found, DspGymError):
                    if said.get(name) != str(found):  # once
                        typer.echo(f"{name}: {found}", err=True)
                    said[name] = str(found)
                else:
                    said.pop(name, None)
                    _tell(name, found.result(), as_json=as_json)
                if stop.is_set():
                    break
            if not following.is_behind:
                stop.wait(LOOK_S)
        if interrupted():
            raise typer.Exit(INTERRUPTED)


def _followed(sources: Sources) -> Path:
    if sources.prometheus is not None or len(sources.given) != 1:
        raise ConfigError(
            "follows journals that `dsp-gym shadow` writes",
            key="--follow",
            remedy="Name the journal's folder, or the one that holds those of several jobs.",
        )
    return Path(sources.given[0])


def _tell(name: str, job: JobResult | None, *, as_json: bool) -> None:
    from dsp_gym.whatif.job_page import headline

    if job is None:
        typer.echo(f"{name}: no stretch of ten decisions with known outcomes yet", err=as_json)
    elif as_json:
        typer.echo(job.model_dump_json())
    else:
        typer.echo(f"{job.name}, {job.intervals} intervals: {headline(job)}")
