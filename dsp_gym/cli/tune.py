"""`dsp-gym tune`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import (
    open_engine,
)
from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.evaluate import DEFAULT_STORE, read_config
from dsp_gym.cli.options import (
    JsonOption,
    MasterOption,
    StoreOption,
    TrackOption,
    WorkersOption,
)
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.cli.progress import long_bar
from dsp_gym.cli.tracked import tell_missing

if TYPE_CHECKING:
    from dsp_gym.evaluation.config import BenchmarkConfig
    from dsp_gym.experiments.experiment import ExperimentConfig
    from dsp_gym.experiments.tuning.agent import AgentObjective
    from dsp_gym.experiments.tuning.objective import PolicyObjective, Score
    from dsp_gym.experiments.tuning.space import SearchSpace
    from dsp_gym.experiments.tuning.study import BestTrial, SearchProgress
    from dsp_gym.trackers import Tracker

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym tune ds2 core-v1\n\n"
        "  dsp-gym tune justin-paper q11 --trials 50\n\n"
        "  dsp-gym tune ds2 core-v2 --seeds 1\n\n"
        "  dsp-gym tune agent q11-quickstart --trials 20 --steps 100000\n\n"
        "  dsp-gym tune agent q11-quickstart --at-once 4     four trainings in parallel\n\n"
        "  dsp-gym tune ds2 core-v1 --at-once 8 --master spark://host:7077\n\n"
        "  dsp-gym tune ds2 core-v1 --resume --trials 200      continue, after Ctrl-C or for more"
    )(tune)


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
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="cost|reward",
            help="Lowest cost within the bound on SLO violations, or highest reward.  [default: "
            "reward for an experiment, cost for a benchmark]",
        ),
    ] = None,
    max_slo_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Bound on SLO violations, a share of the time.  [default: the benchmark's]",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Training seeds per load and trial.")] = 2,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Decisions per training of an agent. Default: the experiment's."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    at_once: Annotated[
        int,
        typer.Option(
            min=1,
            help="Trials proposed together after the first ten, to run in parallel. A smaller "
            "number finds more per trial.",
        ),
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study in the folder.")
    ] = False,
    master: MasterOption = None,
    workers: WorkersOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the result.  [default: runs/tuned/CONFIG]"),
    ] = None,
    track: TrackOption = True,
    uri: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Search for a policy's best parameters, or an agent's, on training loads only.

    Writes the best so far after every improvement, as a policy that can be named like any other;
    for an agent, as an experiment to train. Ctrl-C keeps it; --resume continues. The result depends
    on --at-once, but neither on the engine nor on the number of its workers.
    """
    from dsp_gym.experiments.tuning.study import FIRST_ROUND
    from dsp_gym.experiments.tuning.study import tune as search

    job = _job(policy, config, goal, max_slo_share, seeds, steps, out)
    tracker = _tracker(uri) if track else None
    if tracker is not None:
        tracker.start(f"{job.label}-{job.name}", {"kind": "tuning"})
    status = "FAILED"
    try:
        if tracker is not None:
            tracker.params({**job.objective.about(), "seed": seed, "trials": trials})
        # The first round holds ten trials and the default; those after it may be smaller.
        decisions = job.objective.decisions * min(trials + 1, max(at_once, FIRST_ROUND))
        with (
            open_engine(f"dsp-gym tune {job.label}", master, workers, decisions) as opened,
            _progress(job, trials, seed, at_once, tracker) as progress,
        ):
            best = search(
                job.objective,
                job.space,
                job.database,
                trials=trials,
                seed=seed,
                resume=resume,
                progress=progress,
                engine=opened,
                at_once=at_once,
            )
        job.write(best, seed, at_once)
        if tracker is not None:
            tracker.artifact(job.file)
        status = "KILLED" if best.interrupted else "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        if tracker is not None:
            tracker.end(status)
        tell_missing(tracker, uri)
    if as_json:
        print_json(
            {
                "file": job.file,
                "params": best.params,
                "trials": best.trials,
                "found": best.score.metrics,
                "default": best.default.metrics,
                "within_bound": best.score.excess <= 0,
            }
        )
    else:
        _show(job, best)
    if best.interrupted:
        typer.echo(
            f"Stopped after {best.trials} of {trials} trials; the best so far is in {job.file}. "
            "Continue with the same command and --resume.",
            err=True,
        )
        raise typer.Exit(INTERRUPTED)


class _Job:
    """The subject of a search, and the file of its result."""

    def __init__(
        self,
        name: str,
        label: str,
        objective: PolicyObjective | AgentObjective,
        space: SearchSpace,
        folder: Path,
        then: str,
    ) -> None:
        self.then = then  # the command that takes the file
        self.name, self.label, self.objective, self.space = name, label, objective, space
        self.database = folder / f"{label}.db"
        self.file = folder / f"{label}-tuned.yaml"

    def write(self, best: BestTrial, seed: int, at_once: int) -> None:
        """Writes the best parameters into the file."""
        from dsp_gym.experiments.tuning.agent import AgentObjective
        from dsp_gym.experiments.tuning.result import provenance, write_experiment, write_policy

        record = provenance(best, self.objective.about(), seed, at_once)
        if isinstance(self.objective, AgentObjective):
            write_experiment(self.file, self.objective.config(best.params), record)
        else:
            write_policy(self.file, self.objective.config(best.params), record)


def _job(
    policy: str,
    config: str,
    goal: str | None,
    max_slo_share: float | None,
    seeds: int,
    steps: int | None,
    out: Path | None,
) -> _Job:
    """Resolve the policy, the benchmark and the goal of the command line."""
    from dsp_gym.errors import ConfigError
    from dsp_gym.experiments.experiment import ExperimentConfig
    from dsp_gym.experiments.tuning.agent import AgentObjective
    from dsp_gym.experiments.tuning.objective import PolicyObjective
    from dsp_gym.experiments.tuning.space import AGENT, search_space
    from dsp_gym.policies.registry import resolve

    name, whole, measures = _tuned_on(config)
    folder = out or Path("runs/tuned") / name
    chosen = goal or ("reward" if isinstance(whole, ExperimentConfig) else "cost")
    if chosen not in ("cost", "reward"):
        raise ConfigError(
            "expected cost or reward", key="--goal", value=chosen, remedy="See dsp-gym tune --help."
        )
    if policy == AGENT:
        if not isinstance(whole, ExperimentConfig):
            raise ConfigError(
                "an agent is tuned on an experiment, this is a benchmark",
                file=config,
                remedy="Name an experiment: dsp-gym tune agent q11-quickstart.",
            )
        if goal == "cost" or max_slo_share is not None:
            raise ConfigError(
                "an agent is tuned for its experiment's reward",
                key="--goal" if goal == "cost" else "--max-slo-share",
                remedy="Leave it out, and set the weights in env.reward.",
            )
        agent = AgentObjective(whole, steps)
        return _Job(name, AGENT, agent, search_space(AGENT), folder, "train")
    if steps is not None:
        raise ConfigError(
            "a policy that is not trained has no steps", key="--steps", remedy="Leave it out."
        )
    if chosen == "reward" and max_slo_share is not None:
        raise ConfigError(
            "the reward has a weight for violations instead",
            key="--max-slo-share",
            remedy="Leave it out, or tune for cost: --goal cost.",
        )
    space = search_space(resolve(policy)[1].policy)
    objective = PolicyObjective(
        policy,
        name,
        whole,
        chosen,  # type: ignore[arg-type]  # a choice of the command line
        seeds=seeds,
        max_slo_share=max_slo_share,
        measures=measures,
    )
    command = "evaluate" if measures is None else "leaderboard"
    return _Job(name, objective.label, objective, space, folder, f"{command} {config} --policy")


def _tuned_on(config: str) -> tuple[str, BenchmarkConfig | ExperimentConfig, str | None]:
    """A benchmark, an experiment, or the training part of a frontier with its fingerprint."""
    from dsp_gym.cli.frontier import find_frontier
    from dsp_gym.evaluation.frontier.board import frontier_fingerprint

    found = find_frontier(config, (), (), None)
    if found is None:
        return (*read_config(config), None)
    name, frontier = found
    return name, frontier.tuning_benchmark(), frontier_fingerprint(frontier)


def _show(job: _Job, best: BestTrial) -> None:
    names = list(best.default.metrics)
    rows = [
        [label, *(f"{score.metrics[name]:.4g}" for name in names)]
        for label, score in (("default", best.default), ("tuned", best.score))
    ]
    print_table(["", *names], rows, title=f"{job.label} on training loads", right=names)
    if best.is_default:
        typer.echo(f"\nNothing better than the default in {counted(best.trials, 'trial')}.")
    if best.score.excess > 0:
        typer.echo("No parameters kept within the bound on SLO violations; these miss it least.")
    typer.echo(f"\nwritten  {job.file}")
    typer.echo(f"next     dsp-gym {job.then} {job.file}")


def _tracker(uri: str) -> Tracker | None:
    """The tracker; none where MLflow is not installed."""
    from dsp_gym.errors import MissingExtraError
    from dsp_gym.trackers import open_tracker

    try:
        return open_tracker(uri, "tuning")
    except MissingExtraError:
        return None


@contextmanager
def _progress(
    job: _Job, trials: int, seed: int, at_once: int, tracker: Tracker | None
) -> Iterator[SearchProgress]:
    """A bar on stderr over the trials, with the best so far; lines without a terminal."""
    with long_bar() as bar:
        task = bar.add_task(job.label, total=trials + 1, figures="")

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
                if tracker is not None:
                    tracker.metrics(dict(score.metrics), trial + 1)
                if best.trial == trial:
                    job.write(best, seed, at_once)
                    if not bar.console.is_terminal:
                        name = "default" if trial < 0 else f"trial {trial}"
                        typer.echo(f"{name}: best so far, {figures}", err=True)

        yield Shown()
