"""The search: Optuna's, stored in SQLite; an interruption does not change its result."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dsp_gym.errors import ConfigError, MissingExtraError, StorageError
from dsp_gym.evaluation.tuning.objective import Objective, OnSteps, Score
from dsp_gym.evaluation.tuning.space import SearchSpace, Value

if TYPE_CHECKING:
    import optuna

__all__ = ["BestTrial", "SearchProgress", "tune"]

DEFAULT = -1
"""Number of the trial with the parameters as they are."""


@dataclass(frozen=True, slots=True)
class BestTrial:
    """The best parameters so far."""

    params: Mapping[str, object]
    score: Score
    trial: int  # -1: none was better than the parameters as they are
    default: Score
    trials: int  # done
    interrupted: bool = False

    @property
    def is_default(self) -> bool:
        """Whether nothing better was found."""
        return self.trial == DEFAULT


class SearchProgress(Protocol):
    """Hears the progress of a search."""

    def step(self, trial: int, taken: int, steps: int) -> None:
        """Report the steps that a trial has taken."""

    def done(self, trial: int, score: Score, best: BestTrial) -> None:
        """A trial is done; `best` counts it."""


def tune(
    objective: Objective,
    space: SearchSpace,
    database: Path,
    *,
    trials: int,
    seed: int,
    resume: bool,
    progress: SearchProgress,
) -> BestTrial:
    """Searches for parameters.

    The parameters as they are come first, and are the answer if nothing better is found. Every
    trial draws from a random stream of its own, so an interrupted and resumed search tries the same
    parameters.

    Args:
        objective: Judges parameters.
        space: Picks them.
        database: SQLite file of the study.
        trials: In all, those done before a resume counted.
        seed: Of the search.
        resume: Go on with the study in the file.
        progress: Hears each step and trial.

    Returns:
        The best parameters; `interrupted` after Ctrl-C, which leaves out the trial under way.
    """
    optuna = _optuna()
    interrupt = _Interrupt()
    about = json.dumps({**objective.about(), "seed": seed}, sort_keys=True)
    with _storage_errors(database), interrupt.watched():
        study = _study(optuna, database, about, resume)
        _forget_unfinished(optuna, study)
        judged = _Interruptible(objective, interrupt)
        try:
            best = _default(judged, study, progress)
            while best.trials < trials:
                best = _trial(optuna, judged, space, study, seed, best, progress)
        except KeyboardInterrupt:
            _forget_unfinished(optuna, study)
            if "default" not in study.user_attrs:
                raise
            return _best(study, interrupted=True)
    return best


class _Interrupt:
    """Ctrl-C: stops at once while parameters are judged; results are first stored whole."""

    def __init__(self) -> None:
        self.asked, self.judging = False, False

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


class _Interruptible:
    """An objective that stops at once, or does not begin, after Ctrl-C."""

    def __init__(self, objective: Objective, interrupt: _Interrupt) -> None:
        self._objective, self._interrupt = objective, interrupt

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        self._interrupt.judging = True
        try:
            if self._interrupt.asked:
                raise KeyboardInterrupt
            return self._objective.score(params, told)
        finally:
            self._interrupt.judging = False

    def about(self) -> dict[str, object]:
        return self._objective.about()


def _trial(
    optuna: Any,
    objective: Objective,
    space: SearchSpace,
    study: optuna.Study,
    seed: int,
    best: BestTrial,
    progress: SearchProgress,
) -> BestTrial:
    number = best.trials
    drawn = np.random.SeedSequence([seed, number]).generate_state(1)
    study.sampler = optuna.samplers.TPESampler(seed=int(drawn[0]), n_startup_trials=10)
    trial = study.ask()
    params = space(_TrialPick(trial))
    score = objective.score(params, lambda taken, steps: progress.step(number, taken, steps))
    trial.set_user_attr("params", json.dumps(params))
    trial.set_user_attr("metrics", dict(score.metrics))
    trial.set_user_attr("number", number)
    trial.set_constraint("excess", score.excess)
    trial.set_user_attr("excess", score.excess)
    study.tell(trial, score.value)
    best = _best(study)
    progress.done(number, score, best)
    return best


def _default(objective: Objective, study: optuna.Study, progress: SearchProgress) -> BestTrial:
    """The parameters as they are, judged when the study begins."""
    if "default" in study.user_attrs:
        return _best(study)
    score = objective.score({}, lambda taken, steps: progress.step(DEFAULT, taken, steps))
    study.set_user_attr(
        "default", {"value": score.value, "excess": score.excess, "metrics": dict(score.metrics)}
    )
    best = _best(study)
    progress.done(DEFAULT, score, best)
    return best


def _best(study: optuna.Study, interrupted: bool = False) -> BestTrial:
    default = Score(**study.user_attrs["default"])
    params, score, trial = "{}", default, DEFAULT
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    for one in done:
        told = one.user_attrs
        judged = Score(float(one.value or 0.0), told["excess"], told["metrics"])
        if judged.order < score.order:
            params, score, trial = told["params"], judged, told["number"]
    return BestTrial(json.loads(params), score, trial, default, len(done), interrupted)


class _TrialPick:
    """Picks what Optuna suggests."""

    def __init__(self, trial: optuna.Trial) -> None:
        self._trial = trial

    def real(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        # Four digits are enough to tune by, and to read.
        return float(f"{self._trial.suggest_float(name, low, high, log=log):.4g}")

    def whole(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return self._trial.suggest_int(name, low, high, log=log)

    def one(self, name: str, values: Sequence[Value]) -> Value:
        chosen: Value = self._trial.suggest_categorical(name, tuple(values))
        return chosen


def _study(optuna: Any, database: Path, about: str, resume: bool) -> Any:
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
        storage=f"sqlite:///{database}",
        study_name="tuning",
        direction="minimize",
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


def _forget_unfinished(optuna: Any, study: optuna.Study) -> None:
    """Marks trials that were cut short as failed; nothing is learned from them."""
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
