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
    from dsp_gym.experiments.tuning.study import BestTrial, SearchProgress, SearchResult
    from dsp_gym.trackers import Tracker


AtOnceOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Trials proposed together after the first ten, to run in parallel. A smaller number "
        "finds more per trial.",
    ),
]


SeedsOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Training seeds per load and trial; of a referee, triples of each kind of jobs in "
        "each family of load.",
    ),
]


EXAMPLES = (
    "Examples:\n\n"
    "  dsp-gym tune ds2 core-v2\n\n"
    "  dsp-gym tune ds2 core-v2 --seed 1 --out runs/again        the same search, drawn anew\n\n"
    "  dsp-gym tune planner-walk core-v2 --seeds 1\n\n"
    "  dsp-gym tune ds2 core-v3                                  on its development set\n\n"
    "  dsp-gym tune justin-paper q11 --trials 50\n\n"
    "  dsp-gym tune agent q11-quickstart --trials 20\n\n"
    "  dsp-gym tune agent q11-quickstart --at-once 4     four trainings in parallel\n\n"
    "  dsp-gym tune ds2 core-v1 --at-once 8 --master spark://host:7077\n\n"
    "  dsp-gym tune ds2 core-v1 --resume --trials 400      continue, after Ctrl-C or for more"
)


def tune(
    policy: Annotated[
        str,
        typer.Argument(
            help="A policy, by name or file; or 'agent', for the agent of an experiment."
        ),
    ],
    config: Annotated[str, typer.Argument(help="A benchmark, frontier, referee or experiment.")],
    trials: Annotated[
        int, typer.Option(min=1, help="Most trials of the search, those before --resume included.")
    ] = 200,
    seeds: SeedsOption = 2,
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

    On a benchmark, frontier or referee it searches for little cost and little lateness at once, and
    writes the cheapest policy at each level of lateness. It ends early once 60 trials have gained
    less than a hundredth. On an experiment it searches for the highest reward. The best so far is
    written after every improvement, as a policy that can be named like any other; for an agent, as
    an experiment to train. Ctrl-C keeps it; --resume continues. The result depends on --at-once,
    but neither on the engine nor on its workers.
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
            found = search.run(engine, progress)
        for file in search.files(found):
            tracker.artifact(file)
        (_print_json if as_json else _show)(search, found)
        _warn_of_bounds(found)
        if found.interrupted:
            _say_how_to_go_on(search, found)
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

    def files(self, found: SearchResult) -> list[Path]:
        """Files of the result: the best at each level, and the course of the search."""
        files = [self.file(found, point) for point in found.points]
        course = [f"{self.label}-course.json", f"{self.label}-course.svg"]
        return files + [self.folder / name for name in course if self.objective.levels]

    def file(self, found: SearchResult, point: BestTrial) -> Path:
        """File of the best parameters at a level."""
        from dsp_gym.experiments.tuning.result import point_file

        return point_file(self.folder, self.label, found, point)

    def run(self, engine: Engine, progress: SearchProgress) -> SearchResult:
        """Search, and write the best parameters and the course of the search."""
        from dsp_gym.experiments.tuning.course import write_course
        from dsp_gym.experiments.tuning.study import tune as search

        found = search(
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
        self.write(found)
        levels, about = self.objective.levels, self.objective.about()
        if levels:
            about |= {"policy": self.label, "seed": self.how.seed, "at_once": self.how.at_once}
            write_course(self.folder, self.label, found, levels, about)
        return found

    def write(self, found: SearchResult) -> None:
        """Write the best parameters into their files."""
        from dsp_gym.experiments.tuning.result import provenance, write_tuned

        about = self.objective.about()
        for point in found.points:
            record = provenance(found, point, about, self.how.seed, self.how.at_once)
            write_tuned(self.file(found, point), self.objective.config(point.params), record)


def _search(policy: str, config: str, seeds: int, out: Path | None, how: _How) -> _Search:
    """Resolve the policy and the benchmark of the command line."""
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
    label, base, _ = resolve(policy)
    space = search_space(base.policy, label)
    objective = PolicyObjective(policy, name, whole, seeds=seeds)
    then = f"evaluate {config} --policies all,"
    return _Search(name, objective.label, objective, space, folder, then, how)


def _print_json(search: _Search, found: SearchResult) -> None:
    best = found.best
    print_json(
        {
            "file": search.file(found, best),
            "params": best.params,
            "trials": found.trials,
            "settled": found.has_settled,
            "found": best.score.metrics,
            "default": found.default.metrics,
            "within_bound": best.is_within,
            "points": [
                {
                    "late": point.level,
                    "file": search.file(found, point),
                    "params": point.params,
                    "found": point.score.metrics,
                    "within_bound": point.is_within,
                    "on_bound": point.on_bound,
                }
                for point in found.points
            ],
        }
    )


def _show(search: _Search, found: SearchResult) -> None:
    names = list(found.default.metrics)
    named = [(_level(point), point.score) for point in found.points]
    rows = [
        [label, *(f"{score.metrics[name]:.4g}" for name in names)]
        for label, score in (("default", found.default), *named)
    ]
    print_table(["", *names], rows, title=f"{search.label} on training loads", right=names)
    if found.best.is_default:
        typer.echo(f"\nNothing better than the default in {counted(found.trials, 'trial')}.")
    for point in found.points:
        if not point.is_within:
            typer.echo(f"No parameters kept to {_level(point)}; these miss it least.")
    if found.has_settled and found.trials < search.how.trials:
        typer.echo(f"Ended after {found.trials} trials: the last 60 gained less than a hundredth.")
    typer.echo("")
    for file in search.files(found):
        typer.echo(f"written  {file}")
    gap = "" if search.then.endswith(",") else " "
    typer.echo(f"next     dsp-gym {search.then}{gap}{search.file(found, found.best)}")


def _level(point: BestTrial) -> str:
    return "tuned" if point.level is None else f"tuned, {100 * point.level:g} % late"


def _say_how_to_go_on(search: _Search, found: SearchResult) -> None:
    typer.echo(
        f"Stopped after {found.trials} of {search.how.trials} trials; the best so far is in "
        f"{search.folder}. Continue with the same command and --resume.",
        err=True,
    )


def _warn_of_bounds(found: SearchResult) -> None:
    """Say which optima lie on an end of their range: the search space may be too small."""
    for point in found.points:
        if point.on_bound:
            typer.echo(
                f"warning: {_level(point)}: {', '.join(point.on_bound)} on a bound of the search "
                "space; widen it, or declare the bound physical where there is nothing beyond it",
                err=True,
            )


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

            def done(self, trial: int, score: Score, found: SearchResult) -> None:
                best = found.best
                self.finished = found.trials + 1
                self.parts.pop(trial, None)
                figures = "  ".join(f"{k} {v:.4g}" for k, v in best.score.metrics.items())
                bar.update(task, completed=self.finished, figures=figures)
                tracker.metrics(dict(score.metrics), trial + 1)
                if any(point.trial == trial for point in found.points):
                    search.write(found)
                    if not bar.console.is_terminal:
                        name = "default" if trial < 0 else f"trial {trial}"
                        typer.echo(f"{name}: best so far, {figures}", err=True)

        yield Shown()
