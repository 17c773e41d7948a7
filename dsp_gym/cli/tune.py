"""`dsp-gym tune`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import open_engine
from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.options import JsonOption, MasterOption, StoreOrNoneOption, WorkersOption
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.cli.progress import long_bar
from dsp_gym.cli.tracked import DEFAULT_STORE, recorded, tracker_of
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.engine import Engine
    from dsp_gym.experiments.tuning.agent import AgentObjective
    from dsp_gym.experiments.tuning.objective import PolicyObjective, Score
    from dsp_gym.experiments.tuning.space import SearchSpace
    from dsp_gym.experiments.tuning.study import BestTrial, SearchProgress
    from dsp_gym.trackers import Tracker


AtOnceOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Trials proposed together after the first ten, to run in parallel. A smaller number "
        "finds more per trial.",
    ),
]


EXAMPLES = (
    "Examples:\n\n"
    "  dsp-gym tune ds2 core-v1\n\n"
    "  dsp-gym tune justin-paper q11 --trials 50\n\n"
    "  dsp-gym tune ds2 core-v2 --seeds 1\n\n"
    "  dsp-gym tune agent q11-quickstart --trials 20\n\n"
    "  dsp-gym tune agent q11-quickstart --at-once 4     four trainings in parallel\n\n"
    "  dsp-gym tune ds2 core-v1 --at-once 8 --master spark://host:7077\n\n"
    "  dsp-gym tune ds2 core-v1 --resume --trials 200      continue, after Ctrl-C or for more"
)


def tune(
    policy: Annotated[
        str,
        typer.Argument(
            help="A policy, by name or file; or 'agent', for the agent of an experiment."
        ),
    ],
    config: Annotated[str, typer.Argument(help="A benchmark, a frontier or an experiment.")],
    trials: Annotated[
        int, typer.Option(min=1, help="Trials of the search, including those before --resume.")
    ] = 100,
    seeds: Annotated[int, typer.Option(min=1, help="Training seeds per load and trial.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    at_once: AtOnceOption = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study in the folder.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the result.  [default: runs/tuned/CONFIG]"),
    ] = None,
    workers: WorkersOption = None,
    master: MasterOption = None,
    track: StoreOrNoneOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Search for a policy's best parameters, or an agent's, on training loads only.

    On a benchmark or a frontier the goal is the lowest cost within its bound on lateness, on an
    experiment the highest reward. Writes the best so far after every improvement, as a policy that
    can be named like any other; for an agent, as an experiment to train. Ctrl-C keeps it; --resume
    continues. The result depends on --at-once, but neither on the engine nor on its workers.
    """
    from dsp_gym.experiments.tuning.study import FIRST_ROUND

    search = _search(policy, config, seeds, out, _How(trials, seed, at_once, resume))
    # The first round holds ten trials and the default; those after it may be smaller.
    decisions = search.objective.decisions * min(trials + 1, max(at_once, FIRST_ROUND))
    tags = {"kind": "tuning"}
    name = f"{search.label}-{search.name}"
    with recorded(tracker_of(track, "tuning"), name, tags, track) as tracker:
        tracker.params({**search.objective.about(), "seed": seed, "trials": trials})
        with (
            open_engine(f"dsp-gym tune {search.label}", master, workers, decisions) as engine,
            _progress(search, tracker) as progress,
        ):
            best = search.run(engine, progress)
        tracker.artifact(search.file)
        (_print_json if as_json else _show)(search, best)
        if best.interrupted:
            typer.echo(
                f"Stopped after {best.trials} of {trials} trials; the best so far is in "
                f"{search.file}. Continue with the same command and --resume.",
                err=True,
            )
            raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _How:
    """How to search."""

    trials: int
    seed: int
    at_once: int
    resume: bool


@dataclass(frozen=True, slots=True)
class _Search:
    """The subject of a search, and the file of its result."""

    name: str
    label: str
    objective: PolicyObjective | AgentObjective
    space: SearchSpace
    folder: Path
    then: str  # the command that takes the file, without it
    how: _How

    @property
    def file(self) -> Path:
        """File of the best parameters."""
        return self.folder / f"{self.label}-tuned.yaml"

    def run(self, engine: Engine, progress: SearchProgress) -> BestTrial:
        """Search, and write the best parameters."""
        from dsp_gym.experiments.tuning.study import tune as search

        best = search(
            self.objective,
            self.space,
            self.folder / f"{self.label}.db",
            trials=self.how.trials,
            seed=self.how.seed,
            resume=self.how.resume,
            progress=progress,
            engine=engine,
            at_once=self.how.at_once,
        )
        self.write(best)
        return best

    def write(self, best: BestTrial) -> None:
        """Write the best parameters into the file."""
        from dsp_gym.experiments.tuning.result import provenance, write_tuned

        record = provenance(best, self.objective.about(), self.how.seed, self.how.at_once)
        write_tuned(self.file, self.objective.config(best.params), record)


def _search(policy: str, config: str, seeds: int, out: Path | None, how: _How) -> _Search:
    """Resolve the policy and the benchmark of the command line."""
    from dsp_gym.evaluation.frontier.board import frontier_fingerprint
    from dsp_gym.evaluation.frontier.config import FrontierConfig
    from dsp_gym.experiments.comparison import read_comparison
    from dsp_gym.experiments.experiment import ExperimentConfig
    from dsp_gym.experiments.tuning.agent import AgentObjective
    from dsp_gym.experiments.tuning.objective import PolicyObjective
    from dsp_gym.experiments.tuning.space import AGENT, search_space
    from dsp_gym.policies.registry import resolve

    name, whole = read_comparison(config)
    folder = out or Path("runs/tuned") / name
    if policy == AGENT:
        if not isinstance(whole, ExperimentConfig):
            raise ConfigError(
                "an agent is tuned on an experiment, this is a benchmark",
                file=config,
                remedy="Name an experiment: dsp-gym tune agent q11-quickstart.",
            )
        agent = AgentObjective(whole)
        return _Search(name, AGENT, agent, search_space(AGENT), folder, "train", how)
    measures = None
    if isinstance(whole, FrontierConfig):
        measures, whole = frontier_fingerprint(whole), whole.tuning_benchmark()
    space = search_space(resolve(policy)[1].policy)
    objective = PolicyObjective(policy, name, whole, seeds=seeds, measures=measures)
    then = f"evaluate {config} --policies all,"
    return _Search(name, objective.label, objective, space, folder, then, how)


def _print_json(search: _Search, best: BestTrial) -> None:
    print_json(
        {
            "file": search.file,
            "params": best.params,
            "trials": best.trials,
            "found": best.score.metrics,
            "default": best.default.metrics,
            "within_bound": best.score.excess <= 0,
        }
    )


def _show(search: _Search, best: BestTrial) -> None:
    names = list(best.default.metrics)
    rows = [
        [label, *(f"{score.metrics[name]:.4g}" for name in names)]
        for label, score in (("default", best.default), ("tuned", best.score))
    ]
    print_table(["", *names], rows, title=f"{search.label} on training loads", right=names)
    if best.is_default:
        typer.echo(f"\nNothing better than the default in {counted(best.trials, 'trial')}.")
    if best.score.excess > 0:
        typer.echo("No parameters kept within the bound on SLO violations; these miss it least.")
    typer.echo(f"\nwritten  {search.file}")
    gap = "" if search.then.endswith(",") else " "
    typer.echo(f"next     dsp-gym {search.then}{gap}{search.file}")


@contextmanager
def _progress(search: _Search, tracker: Tracker) -> Iterator[SearchProgress]:
    """Show a bar on stderr over the trials, with the best so far; lines without a terminal."""
    with long_bar() as bar:
        task = bar.add_task(search.label, total=search.how.trials + 1, figures="")

        class Shown:
            """Draws and records the progress, and writes the best parameters so far."""

            def __init__(self) -> None:
                self.finished = 0
                self.parts: dict[int, float] = {}

            def step(self, trial: int, taken: int, steps: int) -> None:
                self.parts[trial] = taken / steps
                bar.update(task, completed=self.finished + sum(self.parts.values()))

            def done(self, trial: int, score: Score, best: BestTrial) -> None:
                self.finished = best.trials + 1
                self.parts.pop(trial, None)
                figures = "  ".join(f"{k} {v:.4g}" for k, v in best.score.metrics.items())
                bar.update(task, completed=self.finished, figures=figures)
                tracker.metrics(dict(score.metrics), trial + 1)
                if best.trial == trial:
                    search.write(best)
                    if not bar.console.is_terminal:
                        name = "default" if trial < 0 else f"trial {trial}"
                        typer.echo(f"{name}: best so far, {figures}", err=True)

        yield Shown()
