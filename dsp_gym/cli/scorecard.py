"""`dsp-gym scorecard`: predicted results of policies on a journal's job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.options import StoreOption
from dsp_gym.cli.output import print_table

if TYPE_CHECKING:
    from dsp_gym.whatif.evaluation import CounterfactualEvaluation, OnPrediction

__all__ = ["register"]

DEFAULT_STORE = "sqlite:///mlflow.db"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym scorecard flink-q11-day                    a shipped journal\n\n"
        "  dsp-gym scorecard flink-q11-day --html scorecard.html --seeds 64\n\n"
        "  dsp-gym scorecard runs/live/q11 --policy q11 --register models:/q11/3"
    )(scorecard)


def scorecard(
    journal: Annotated[
        Path,
        typer.Argument(
            help="Folder of a journal that `dsp-gym shadow` or `run` wrote, or a shipped name."
        ),
    ],
    config: Annotated[
        str | None,
        typer.Option(
            help="Configuration of the run, if the journal has none, or for another gate.",
            autocompletion=shipped("shadow"),
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Job in the journal, by name.")] = None,
    seeds: Annotated[int, typer.Option(min=2, max=1024, help="Predictions per policy.")] = 16,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with plots.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Policy whose verdict to register; default: the only one.")
    ] = None,
    register: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Write the verdict on this version: models:/NAME/VERSION."
        ),
    ] = None,
    uri: StoreOption = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Estimate what each policy would have cost and saved on a watched job, with a verdict.

    The calibrated model of the job replays the observed load, once with each policy in charge and
    once with the deployed configurations, which gives the model's error beside every claim.
    `dsp-gym policy promote` moves an alias; this command does not.
    """
    from dsp_gym.config.files import load_model
    from dsp_gym.control.config import RunConfig
    from dsp_gym.whatif.evaluation import CounterfactualConfig, evaluate_journal
    from dsp_gym.whatif.verdict_page import write_page

    given = None if config is None else load_model(RunConfig, "shadow", config)
    with _progress() as progress:
        card = evaluate_journal(
            journal, given, job=job, how=CounterfactualConfig(seeds=seeds), progress=progress
        )
    if html is not None:
        write_page(card, html)
    if register is not None:
        _register(card, policy, register, uri)
    if as_json:
        typer.echo(card.to_json(), nl=False)
        return
    _print(card)
    if html is not None:
        typer.echo(f"\npage  {html}")


def _print(card: CounterfactualEvaluation) -> None:
    from dsp_gym.whatif.headline import headline
    from dsp_gym.whatif.verdict_page import (
        claim_columns,
        claim_rows,
        error_rows,
        verdict_rows,
    )

    said = headline(card)
    if said:
        typer.echo(f"{said}\n")
    title = f"{card.job}: {card.days:.2f} days, {card.coverage:.1%} covered"
    columns = claim_columns(card)
    print_table(columns, claim_rows(card), title=title, right=columns[1:])
    typer.echo()
    columns = ("the model on the observed run", "model", "observed", "error")
    print_table(columns, error_rows(card), right=columns[1:])
    for name, verdict in card.verdicts.items():
        typer.echo(f"\n{name}: {verdict.word}")
        for subject, mark, text in verdict_rows(card, name):
            typer.echo(f"  {mark:<14}  {subject}: {text}")
    for text in card.notes:
        typer.echo(f"\n{text}", err=True)


def _register(card: CounterfactualEvaluation, policy: str | None, model: str, uri: str) -> None:
    """Writes the verdict on a version in the model registry, as tags."""
    from dsp_gym.errors import ConfigError, did_you_mean
    from dsp_gym.trackers.mlflow import tag_version

    names = list(card.verdicts)
    if policy is None and len(names) != 1:
        raise ConfigError(
            f"several policies were watched: {', '.join(names)}",
            key="--policy",
            remedy="Name the one whose verdict to register.",
        )
    name = policy or names[0]
    if name not in card.verdicts:
        raise ConfigError(
            "was not watched", key="--policy", value=name, remedy=did_you_mean(name, names)
        )
    verdict = card.verdicts[name]
    tags = {
        "shadow.verdict": verdict.word,
        "shadow.job": card.job,
        "shadow.days": f"{card.days:.2f}",
        **{f"shadow.{r.subject.replace(' ', '_')}": r.text for r in verdict.reasons},
    }
    tag_version(model, tags, uri)
    typer.echo(f"{model}: {verdict.word}", err=True)


@contextmanager
def _progress() -> Iterator[OnPrediction]:
    """A progress bar on stderr over the predictions; a line a minute without a terminal."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from dsp_gym.cli.progress import bar

    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeRemainingColumn())
    with bar(*columns) as shown:
        task = shown.add_task("predictions", total=None)

        def advance(policy: str, done: int, of: int) -> None:
            shown.update(task, description=policy, completed=done, total=of)

        yield advance
