"""The search: Optuna's, stored in SQLite; neither engine nor interruption changes its result.

Trials come in rounds. The parameters of a round are proposed before any of its trials is judged,
from the trials of the rounds before it alone; so it does not matter in which order they are done.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dsp_gym.engine import HERE, Engine, Tell
from dsp_gym.errors import ConfigError, MissingExtraError, StorageError
from dsp_gym.experiments.tuning.objective import Objective, Score
from dsp_gym.experiments.tuning.space import SearchSpace, Value

if TYPE_CHECKING:
    import optuna

Result = TypeVar("Result")

DEFAULT = -1
"""Number of the trial with the parameters as they are."""

STARTUP = 10
"""Trials with parameters drawn at random, whatever was found before: the first round."""

FIRST_ROUND = STARTUP + 1
"""Trials of the first round, the default counted."""


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
        """Report a finished trial; `best` counts it."""


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
) -> BestTrial:
    """Search for for parameters.

    The parameters as they are come first, and are the answer if nothing better is found. Every
    trial draws from its own random stream, so an interrupted and resumed search tries the same
    parameters.

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
        study = _study(optuna, database, about, resume)
        _forget_unfinished(optuna, study)
        search = _Search(optuna, study, space, seed, progress)
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
            return _best(study, interrupted=True)
        return _best(study)


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
    ) -> None:
        self.optuna, self.study, self.space, self.seed = optuna, study, space, seed
        self.progress = progress
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
        # Proposed are all, in order, so that those that are done already change nothing.
        scratch = self.optuna.create_study(direction="minimize")
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
        figures = {"excess": score.excess, "metrics": dict(score.metrics)}
        if proposal.trial is None:
            self.study.set_user_attr("default", {"value": score.value, **figures})
        else:
            self.study.add_trial(
                self.optuna.trial.create_trial(
                    value=score.value,
                    params=proposal.trial.params,
                    distributions=proposal.trial.distributions,
                    user_attrs={
                        "params": json.dumps(proposal.params),
                        "number": proposal.number,
                        **figures,
                    },
                    constraints={"excess": score.excess},
                )
            )
        self._untold.append((proposal.number, score))
        if "default" in self.study.user_attrs:
            best = _best(self.study)
            for number, judged in self._untold:
                self.progress.done(number, judged, best)
            self._untold.clear()


def _done(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials that were judged, by their number; those of an interrupted search are left out."""
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return sorted(done, key=lambda trial: trial.user_attrs["number"])


def _best(study: optuna.Study, interrupted: bool = False) -> BestTrial:
    default = Score(**study.user_attrs["default"])
    params, score, trial = "{}", default, DEFAULT
    done = _done(study)
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
        storage=_storage(database),
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
