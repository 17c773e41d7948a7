"""The search: Optuna's, stored in SQLite; neither engine nor interruption changes its result.

Trials come in rounds. The parameters of a round are proposed before any of its trials is judged,
from the trials of the rounds before it alone; so it does not matter in which order they are done.
"""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dsp_gym.engine import HERE, Engine, Tell
from dsp_gym.errors import ConfigError, MissingExtraError, StorageError
from dsp_gym.experiments.tuning.objective import Objective, Score
from dsp_gym.experiments.tuning.space import Ends, SearchSpace, Value

if TYPE_CHECKING:
    import optuna

Result = TypeVar("Result")

DEFAULT = -1
"""Number of the trial with the parameters as they are."""

STARTUP = 10
"""Trials with parameters drawn at random, whatever was found before: the first round."""

FIRST_ROUND = STARTUP + 1
"""Trials of the first round, the default counted."""

PATIENCE, GAIN = 60, 0.01
"""A search ends when so many trials have lowered no cost that is compared by this share."""

WIDEST = 2.0
"""Multiple of the highest level of lateness beyond which the search does not look for low cost."""

NEAR = 0.01
"""Share of a range that counts as its end."""


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best parameters so far, at a level of lateness or of all."""

    params: Mapping[str, object]
    score: Score
    trial: int  # -1: none was better than the parameters as they are
    level: float | None = None  # share of the time; None: the value alone counts
    on_bound: tuple[str, ...] = ()  # dimensions whose best lies on an end that is not physical

    @property
    def is_default(self) -> bool:
        """Whether nothing better was found."""
        return self.trial == DEFAULT

    @property
    def is_within(self) -> bool:
        """Whether it keeps to its level of lateness."""
        return self.level is None or self.score.late <= self.level


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Where a search stands: the best at each level of lateness, or the best of all."""

    points: tuple[BestTrial, ...]
    default: Score
    scores: tuple[Score, ...]  # of the trials done, by their number
    has_settled: bool = False  # ended before all trials were done, as little was gained any more
    interrupted: bool = False

    @property
    def trials(self) -> int:
        """Trials done, the default not counted."""
        return len(self.scores)

    @property
    def best(self) -> BestTrial:
        """The best at the middle level."""
        return self.points[len(self.points) // 2]


class SearchProgress(Protocol):
    """Hears the progress of a search."""

    def step(self, trial: int, taken: int, steps: int) -> None:
        """Report the steps that a trial has taken."""

    def done(self, trial: int, score: Score, found: SearchResult) -> None:
        """Report a finished trial; `found` counts it."""


def tune(
    objective: Objective,
    space: SearchSpace,
    database: Path,
    *,
    trials: int,
    seed: int,
    resume: bool,
    progress: SearchProgress,
    engine: Engine = HERE,
    at_once: int = 1,
) -> SearchResult:
    """Search for parameters: for little cost and little lateness at once, or for a high reward.

    The parameters as they are come first, and are the answer if nothing better is found. Every
    trial draws from its own random stream, so an interrupted and resumed search tries the same
    parameters. A search for cost and lateness ends early once it has settled (`is_settled`).

    Args:
        objective: Judges parameters.
        space: Picks them.
        database: SQLite file of the study.
        trials: In all, those done before a resume counted.
        seed: Of the search.
        resume: Go on with the study in the file.
        progress: Hears each step and trial.
        engine: Where trials are judged; the result does not depend on it.
        at_once: Trials of a round after the first. With one, every trial knows all before it; with
            more, as many can run at the same time.

    Returns:
        The best parameters; `interrupted` after Ctrl-C, which leaves out the trials under way.
    """
    optuna = _optuna()
    interrupt = _Interrupt()
    rounds = {"at_once": at_once} if at_once > 1 else {}  # studies of one at a time do not name it
    about = json.dumps({**objective.about(), "seed": seed, **rounds}, sort_keys=True)
    with _storage_errors(database), interrupt.watched():
        study = _study(optuna, database, about, resume, objective.levels)
        _forget_unfinished(optuna, study)
        search = _Search(optuna, study, space, seed, progress, objective.levels)
        try:
            while work := search.round(trials, at_once):
                cells = [_Judged(objective, proposal.params) for proposal in work]

                def heard(
                    place: int, news: tuple[int, int], work: Sequence[_Proposal] = work
                ) -> None:
                    progress.step(work[place].number, *news)

                for place, score in interrupt.stopping(engine.map(_judge, cells, heard)):
                    search.keep(work[place], score)
        except KeyboardInterrupt:
            if "default" not in study.user_attrs:
                raise
            return replace(search.found(), interrupted=True)
        return search.found()


@dataclass(frozen=True, slots=True)
class _Judged:
    """Parameters to judge, and who judges them."""

    objective: Objective
    params: Mapping[str, object]


def _judge(cell: _Judged, tell: Tell[tuple[int, int]]) -> Score:
    def told(taken: int, steps: int) -> None:
        tell((taken, steps))

    return cell.objective.score(cell.params, told)


class _Interrupt:
    """Ctrl-C: stops at once while parameters are judged; results are first stored whole."""

    def __init__(self) -> None:
        self.asked, self.judging = False, False

    def stopping(self, results: Iterator[Result]) -> Iterator[Result]:
        """Pass results on; the next one is not waited for after Ctrl-C."""
        while True:
            self.judging = True
            try:
                if self.asked:
                    raise KeyboardInterrupt
                result = next(results)
            except StopIteration:
                return
            finally:
                self.judging = False
            yield result

    @contextmanager
    def watched(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        before = signal.signal(signal.SIGINT, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if self.judging or again:
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class _Proposal:
    """The parameters of a trial that was not judged yet."""

    number: int
    params: Mapping[str, object]
    trial: optuna.Trial | None  # None: the parameters as they are


class _Search:
    """Proposes rounds of trials, and keeps their scores in the study."""

    def __init__(
        self,
        optuna: Any,
        study: optuna.Study,
        space: SearchSpace,
        seed: int,
        progress: SearchProgress,
        levels: tuple[float, ...],
    ) -> None:
        self.optuna, self.study, self.space, self.seed = optuna, study, space, seed
        self.progress, self.levels = progress, levels
        self._untold: list[tuple[int, Score]] = []

    def round(self, trials: int, at_once: int) -> list[_Proposal]:
        """Propose the trials that the first unfinished round lacks; none when all are done."""
        done = {trial.user_attrs["number"]: trial for trial in _done(self.study)}
        lacking = next((number for number in range(trials) if number not in done), trials)
        work = [] if "default" in self.study.user_attrs else [_Proposal(DEFAULT, {}, None)]
        if lacking == trials:
            return work
        first, last = 0, STARTUP
        if lacking >= STARTUP:
            first = lacking - (lacking - STARTUP) % at_once
            last = first + at_once
        before = [done[number] for number in range(first)]
        if not work and is_settled(self._default, [_score(one) for one in before], self.levels):
            return work
        # Proposed are all, in order, so that those that are done already change nothing.
        scratch = self.optuna.create_study(directions=_directions(self.levels))
        scratch.add_trials(before)
        for number in range(first, min(last, trials)):
            drawn = np.random.SeedSequence([self.seed, number]).generate_state(1)
            scratch.sampler = self.optuna.samplers.TPESampler(
                seed=int(drawn[0]), n_startup_trials=STARTUP
            )
            trial = scratch.ask()
            params = self.space(_TrialPick(trial))
            if number not in done:
                work.append(_Proposal(number, params, trial))
        return work

    def keep(self, proposal: _Proposal, score: Score) -> None:
        """Store a trial with its score, and reports of it once the default is known."""
        figures = {"value": score.value, "late": score.late, "metrics": dict(score.metrics)}
        if proposal.trial is None:
            self.study.set_user_attr("default", figures)
        else:
            widest = {"late": score.late - WIDEST * max(self.levels)} if self.levels else None
            self.study.add_trial(
                self.optuna.trial.create_trial(
                    values=[score.value, score.late] if self.levels else [score.value],
                    params=proposal.trial.params,
                    distributions=proposal.trial.distributions,
                    user_attrs={
                        "params": json.dumps(proposal.params),
                        "number": proposal.number,
                        **figures,
                    },
                    constraints=widest,
                )
            )
        self._untold.append((proposal.number, score))
        if "default" in self.study.user_attrs:
            found = self.found()
            for number, judged in self._untold:
                self.progress.done(number, judged, found)
            self._untold.clear()

    def found(self) -> SearchResult:
        """The best of the trials done so far, and of the default."""
        done = _done(self.study)
        scores = tuple(map(_score, done))
        points = tuple(self._best(done, level) for level in self.levels or (None,))
        return SearchResult(
            points, self._default, scores, is_settled(self._default, scores, self.levels)
        )

    @property
    def _default(self) -> Score:
        return Score(**self.study.user_attrs["default"])

    def _best(self, done: Sequence[optuna.trial.FrozenTrial], level: float | None) -> BestTrial:
        best = BestTrial({}, self._default, DEFAULT, level)
        chosen = None
        for one in done:
            score = _score(one)
            if score.order(level) < best.score.order(level):
                params, number = json.loads(one.user_attrs["params"]), one.user_attrs["number"]
                best, chosen = BestTrial(params, score, number, level), one
        if chosen is None:
            return best
        return replace(best, on_bound=tuple(on_bounds(self.space, chosen.params)))


def on_bounds(space: SearchSpace, picked: Mapping[str, object]) -> list[str]:
    """Name what lies on an end of its range that is not physical.

    Args:
        space: Picks parameters.
        picked: What a trial picked, by dimension.

    Returns:
        Dimensions, in the order of the space.
    """
    again = _EndsPick(_optuna().trial.FixedTrial(dict(picked)))
    space(again)
    return again.on_bound


def is_settled(default: Score, scores: Sequence[Score], levels: Sequence[float]) -> bool:
    """Whether the last trials of a search for cost and lateness gained next to nothing.

    Args:
        default: Score of the parameters as they are.
        scores: Of the trials, in their order.
        levels: Levels of lateness; none: a search for the reward never settles.

    Returns:
        True if the last `PATIENCE` trials made the cheapest setting of no level cheaper by `GAIN`,
        and reached none that was out of reach before.
    """
    if not levels or len(scores) < PATIENCE:
        return False
    before = costs_at([default, *scores[:-PATIENCE]], levels)
    now = costs_at([default, *scores], levels)
    return not any(a < b and a <= (1.0 - GAIN) * b for a, b in zip(now, before, strict=True))


def costs_at(scores: Sequence[Score], levels: Sequence[float]) -> list[float]:
    """Find the cheapest setting that keeps to each level of lateness.

    Returns:
        Costs; infinite where none does.
    """
    return [
        min((one.value for one in scores if one.late <= level), default=np.inf) for level in levels
    ]


def _done(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials that were judged, by their number; those of an interrupted search are left out."""
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return sorted(done, key=lambda trial: trial.user_attrs["number"])


def _score(trial: optuna.trial.FrozenTrial) -> Score:
    told = trial.user_attrs
    return Score(told["value"], told["late"], told["metrics"])


def _directions(levels: Sequence[float]) -> list[str]:
    return ["minimize", "minimize"] if levels else ["minimize"]


class _TrialPick:
    """Picks what Optuna suggests."""

    def __init__(self, trial: optuna.trial.BaseTrial) -> None:
        self._trial = trial

    def real(
        self, name: str, low: float, high: float, *, log: bool = False, physical: Ends = "none"
    ) -> float:
        # Four digits are enough to tune by, and to read.
        return float(f"{self._trial.suggest_float(name, low, high, log=log):.4g}")

    def whole(
        self, name: str, low: int, high: int, *, log: bool = False, physical: Ends = "none"
    ) -> int:
        return self._trial.suggest_int(name, low, high, log=log)

    def one(self, name: str, values: Sequence[Value], *, physical: Ends = "none") -> Value:
        chosen: Value = self._trial.suggest_categorical(name, tuple(values))
        return chosen


class _EndsPick(_TrialPick):
    """Picks again what a trial picked, and notes what lies on an end that is not physical."""

    def __init__(self, trial: optuna.trial.BaseTrial) -> None:
        super().__init__(trial)
        self.on_bound: list[str] = []

    def real(
        self, name: str, low: float, high: float, *, log: bool = False, physical: Ends = "none"
    ) -> float:
        picked = super().real(name, low, high, log=log)
        at, least, most = map(math.log, (picked, low, high)) if log else (picked, low, high)
        self._note(name, (at - least) / (most - least), NEAR, physical)
        return picked

    def whole(
        self, name: str, low: int, high: int, *, log: bool = False, physical: Ends = "none"
    ) -> int:
        picked = super().whole(name, low, high, log=log)
        self._note(name, (picked - low) / (high - low), 0.0, physical)
        return picked

    def one(self, name: str, values: Sequence[Value], *, physical: Ends = "none") -> Value:
        picked = super().one(name, values)
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(values) > 2:
            self._note(name, sorted(values).index(picked) / (len(values) - 1), 0.0, physical)
        return picked

    def _note(self, name: str, share: float, near: float, physical: Ends) -> None:
        end = "low" if share <= near else "high" if share >= 1.0 - near else None
        if end is not None and physical not in (end, "both"):
            self.on_bound.append(name)


def _study(optuna: Any, database: Path, about: str, resume: bool, levels: Sequence[float]) -> Any:
    if resume != database.is_file():
        raise ConfigError(
            "there is no study to resume" if resume else "there is a study already",
            file=database,
            remedy="Leave --resume out, or name its folder with --out."
            if resume
            else "Go on with it: --resume. Or begin another one elsewhere: --out FOLDER.",
        )
    database.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=_storage(database),
        study_name="tuning",
        directions=_directions(levels),
        load_if_exists=resume,
    )
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", about)
    elif known != about:
        before, now = json.loads(known), json.loads(about)
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        raise ConfigError(
            f"the study began with another {', '.join(changed)}",
            file=database,
            remedy="Resume with the options it began with, or start another study: --out FOLDER.",
        )
    return study


def _storage(database: Path) -> optuna.storages.RDBStorage:
    """Open the study's file only while it is in use: Optuna never closes a pool."""
    from optuna.storages import RDBStorage
    from sqlalchemy import NullPool

    return RDBStorage(f"sqlite:///{database}", engine_kwargs={"poolclass": NullPool})


def _forget_unfinished(optuna: Any, study: optuna.Study) -> None:
    """Mark trials that were cut short as failed; nothing is learned from them."""
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


@contextmanager
def _storage_errors(database: Path) -> Iterator[None]:
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, FileExistsError, PermissionError) as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        raise StorageError(
            f"cannot be used as a study: {cause}",
            file=database,
            remedy="Free some space, or name another folder: --out FOLDER.",
        ) from error


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("tune", "tuning a policy") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
