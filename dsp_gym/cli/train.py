"""`dsp-gym train`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.engines import open_engine
from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.options import JsonOption, MasterOption, WorkersOption, shipped
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.cli.progress import LINE_EVERY_S, long_bar
from dsp_gym.cli.tracked import tell_missing, tracker_for, with_track
from dsp_gym.errors import ConfigError
from dsp_gym.redaction import redacted
from dsp_gym.shared_names import import_ours

if TYPE_CHECKING:
    from rich.progress import TaskID

    from dsp_gym.experiments.experiment import ExperimentConfig


ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue the newest training, or the one in --out, from its checkpoint."
    ),
]


OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of checkpoints and policy. Default: a new folder runs/NAME/TIME, linked as "
        "runs/NAME/latest.",
    ),
]

TrackOption = Annotated[
    str | None,
    typer.Option(
        metavar="URI|none",
        help="Record in this MLflow store; none: no record. Default: the experiment's.",
    ),
]


EXAMPLES = (
    "Examples:\n\n"
    "  dsp-gym train quickstart\n\n"
    "  dsp-gym train q11 --seed 3 --out runs/q11-seed-3\n\n"
    "  dsp-gym train q11 --workers 1                one seed after the other\n\n"
    "  dsp-gym train q11 --master spark://host:7077\n\n"
    "  dsp-gym train q11 --resume                   continue after Ctrl-C"
)


def train(
    config: Annotated[
        str,
        typer.Argument(
            help="An experiment: its name, or its YAML file.", autocompletion=shipped("experiments")
        ),
    ],
    resume: ResumeOption = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="With --out: remove the training in it and start again."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, help="Train this seed only, in place of the config's."),
    ] = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    master: MasterOption = None,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train an agent per seed of an experiment, and export the best as a policy folder.

    Seeds are trained side by side, one per core; on a GPU one after the other. Ctrl-C finishes the
    updates under way, writes checkpoints and ends; `--resume` continues. While a training watches
    or imitates a teacher, there is no checkpoint yet. Each training has its own folder; without
    `--resume` or `--overwrite` the command refuses a folder of `--out` with checkpoints.
    """
    experiment = _experiment(config, seed, track)
    # By name: the library is below the agents, and works without them and without torch.
    training: Any = import_ours("agents.training")
    tracking, decisions = experiment.tracking, _decisions(experiment)
    workers = _processes(experiment, workers, master)
    tracker = tracker_for(tracking, experiment.name)
    try:
        with (
            _folder(experiment.name, out, resume, overwrite) as folder,
            open_engine(f"dsp-gym train {experiment.name}", master, workers, decisions) as opened,
            _progress(training.SeedProgress, _currency(experiment)) as progress,
        ):
            result = training.train(
                experiment,
                folder,
                resume=resume,
                overwrite=overwrite,
                progress=progress,
                tracker=tracker,
                engine=opened,
            )
    except training.TrainingInterrupted:
        given = {"--seed": seed, "--master": master, "--track": track and redacted(track)}
        _say_stopped(config, folder, given, bool(training.learned_steps(experiment, folder)))
        raise typer.Exit(INTERRUPTED) from None
    tell_missing(tracker, tracking.uri)
    if as_json:
        print_json(result)
    else:
        _show(config, experiment, result)


def _say_stopped(
    config: str, folder: Path, given: Mapping[str, str | int | None], is_kept: bool
) -> None:
    """Say what an interruption left, and how to go on."""
    words = ["dsp-gym", "train", config, *(["--resume"] if is_kept else []), "--out", str(folder)]
    for option, value in given.items():
        words += [option, str(value)] if value is not None else []
    again = shlex.join(words)
    if is_kept:
        typer.echo(f"Stopped; a checkpoint is in {folder}. Continue with: {again}", err=True)
    else:
        typer.echo(f"Stopped before anything was learned. Begin again with: {again}", err=True)


def _experiment(config: str, seed: int | None, track: str | None) -> ExperimentConfig:
    """Read the experiment, with the seed and the record that the command line asks for."""
    from dsp_gym.config.files import find, load_model
    from dsp_gym.experiments.experiment import ExperimentConfig

    experiment = load_model(ExperimentConfig, "experiments", find("experiments", config))
    agent = experiment.agent
    if seed is not None:
        agent = agent.model_copy(update={"seeds": (seed,)})
    tracking = with_track(experiment.tracking, track)
    return experiment.model_copy(update={"agent": agent, "tracking": tracking})


def _show(config: str, experiment: ExperimentConfig, result: Any) -> None:
    columns = ["seed", *result.validation]
    rows = [
        [number, *(f"{value:.4g}" for value in figures.values())]
        for number, figures in result.by_seed.items()
    ]
    print_table(columns, rows, title="on the validation loads", right=columns)
    typer.echo(f"\npolicy  {result.policy}  (seed {result.seed})")
    if result.run_id is not None:
        typer.echo(f"MLflow  run {result.run_id} in {experiment.tracking.uri}")
        typer.echo(f"model   {result.model}")
    if not result.has_learned:
        _say_untrained(experiment, result)
    words = ["dsp-gym", "evaluate", config, "--policies", f"all,{result.policy}"]
    typer.echo(f"next    {shlex.join(words)}")


def _say_untrained(experiment: ExperimentConfig, result: Any) -> None:
    """Say that nothing was learned, and what to do; the policy is no champion."""
    agent = experiment.agent
    typer.echo(
        "\nNo update beat the untrained network on the validation loads: the policy is that "
        f"network. Learn for longer than agent.total_steps {agent.total_steps:,}, or look oftener "
        "(agent.eval_every).",
        err=True,
    )
    if result.model is not None:
        typer.echo(
            "It has no alias. To deploy it all the same: dsp-gym policy promote "
            f"{result.model} --alias {experiment.tracking.alias or 'champion'}",
            err=True,
        )


@contextmanager
def _folder(name: str, out: Path | None, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Choose the folder to train into: the one named, the newest to resume, or a new one."""
    from dsp_gym.experiments.trainings import folder_of_its_own, newest_training

    if out is not None:
        yield out
    elif overwrite:
        raise ConfigError(
            "each training has its own folder, so there is nothing to overwrite",
            key="--overwrite",
            remedy="Leave it out, or name the folder: --out FOLDER.",
        )
    elif resume:
        newest = newest_training(name)
        if newest is None:
            raise ConfigError(
                "there is no training to resume",
                file=Path("runs") / name,
                remedy="Leave --resume out, or name the folder of the training with --out.",
            )
        yield newest
    else:
        with folder_of_its_own(name) as made:
            yield made


def _processes(experiment: ExperimentConfig, workers: int | None, master: str | None) -> int | None:
    """Choose the processes that train: on this machine's GPU one, unless more are asked for.

    Seeds side by side would share its memory, which each checks for itself before it takes its
    part.

    Args:
        experiment: The experiment.
        workers: What the command line asks for.
        master: Master of Spark, whose executors are others' business.

    Returns:
        Their number; None: as many as the decisions pay for.
    """
    agent = experiment.agent
    if workers is None and master is None and agent.kind == "ppo" and agent.device == "cuda":
        return 1
    return workers


def _decisions(experiment: ExperimentConfig) -> int:
    """Count the decisions of a training, all seeds together."""
    agent = experiment.agent
    steps = agent.total_steps
    if agent.kind == "planning":  # its steps are plays of the validation loads
        env = experiment.env
        steps *= agent.eval_episodes * (env.episode_s // env.interval_s)
    return steps * len(agent.seeds)


def _currency(experiment: ExperimentConfig) -> str:
    """Return the currency of the costs in a training's progress."""
    from dsp_gym.job.catalog import load_job
    from dsp_gym.job.cost import one_currency

    family = () if experiment.family is None else experiment.family.names()[:1]  # they are alike
    return one_currency(load_job(name) for name in (*experiment.jobs, *family))


@contextmanager
def _progress(base: Any, currency: str) -> Iterator[object]:
    """Show a bar on stderr with the time left and the newest figures.

    Without a terminal a line at the end of each stage, and one a minute.
    """
    with long_bar() as bar:

        class Shown(base):  # type: ignore[misc]  # a class of the agents, known by name only
            """Draws the progress of a training."""

            def __init__(self) -> None:
                self.seeds = 1
                self.tasks: dict[tuple[str, int], TaskID] = {}
                self.told_s = time.monotonic()

            def begin(self, seed: int, index: int, seeds: int) -> None:
                self.seeds = seeds

            def update(
                self, seed: int, stage: str, done: int, of: int, figures: dict[str, float]
            ) -> None:
                text, key = _figures(figures, currency), (stage, seed)
                label = f"{stage} seed {seed}" if self.seeds > 1 else stage
                if key not in self.tasks:
                    self.tasks[key] = bar.add_task(label, total=of, figures="")
                bar.update(self.tasks[key], completed=done, figures=text)
                now = time.monotonic()
                is_due = done >= of or now - self.told_s >= LINE_EVERY_S
                if is_due and not bar.console.is_terminal:
                    self.told_s = now
                    typer.echo(f"{label} {100 * done // of} % {text}".rstrip(), err=True)

        yield Shown()


def _figures(figures: dict[str, float], currency: str) -> str:
    """Write the few figures that show whether it learns."""
    names = {
        "imitation_loss": "loss",
        "offline_loss": "loss",
        "best_return": "best return",
        "best_cost_per_h": f"{currency}/h",
        "best_slo_share": "SLO missed",
    }
    return "  ".join(
        f"{label} {figures[key]:.3g}" for key, label in names.items() if key in figures
    )
