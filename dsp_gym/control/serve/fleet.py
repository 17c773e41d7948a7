"""Loops beside every job whose resource has certain labels, in one process.

They share the connection to the API server, its watcher, a bounded number of threads, and what is
served over HTTP; each has its own journal and status. A new resource gets a loop, a deleted
one loses it, and one that cannot be watched is reported and tried again; the others run on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsp_gym.backends.base import Clock
from dsp_gym.backends.kubernetes.config import RESOURCE_NAME, KubernetesPlace
from dsp_gym.backends.kubernetes.connection import Followed, follow
from dsp_gym.backends.upstream.interpreter_turn import computing, waiting
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.backend_of import must_only_read
from dsp_gym.control.config import RunConfig
from dsp_gym.control.event_handler import words
from dsp_gym.control.modes import ACTING, Mode
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.scheduler import Scheduler
from dsp_gym.control.serve.session import served, starting, watched
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.serve.tokens import read_tokens
from dsp_gym.control.start import acting_name, started
from dsp_gym.control.turn import Hooks, Turn

if TYPE_CHECKING:
    from dsp_gym.control.serve.server import StatusServer

_LOG = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds between two comparisons of loops and resources; the watcher hears of a change at once."""


def place_of(config: RunConfig) -> KubernetesPlace:
    """Return the place of the resources in Kubernetes, which a fleet's configuration has."""
    assert config.where.kubernetes is not None
    return config.where.kubernetes


def of_resource(config: RunConfig, name: str) -> RunConfig:
    """Make the configuration of one of several jobs, called as its resource is.

    Returns:
        The configuration with the resource's name in `job`, `job_name` and `where.kubernetes`.
    """
    one = place_of(config).model_copy(update={"name": name, "selector": None})
    return config.model_copy(
        update={
            "job": config.job.replace(RESOURCE_NAME, name),
            "job_name": name,
            "where": config.where.model_copy(update={"kubernetes": one}),
        }
    )


class Fleet:
    """Loops that come and go with their resources; made by `fleet`.

    Args:
        config: what to run, with labels of resources.
        followed: the server and its watcher.
        mode: how far the acting policy may go.
        journal: folder of journals; each job has a folder inside.
        settle: called when the interval after a decision has passed.
        hooks_of: whom to tell of the turns of a job, by its name; `on_event` also hears when a job
            goes or cannot be watched.
        stop: ends the loops when set.
    """

    def __init__(
        self,
        config: RunConfig,
        followed: Followed,
        *,
        mode: Mode,
        journal: Path,
        settle: Callable[[], None],
        hooks_of: Callable[[str], Hooks],
        stop: threading.Event,
    ) -> None:
        self.config, self.followed, self.mode, self.journal = config, followed, mode, journal
        self.place = place_of(config)
        self.boards = Boards()
        self.server: StatusServer | None = None
        self.stop, self.settle = stop, settle
        self._hooks_of = hooks_of
        self._lanes = Scheduler()
        self._loops: dict[str, _Loop] = {}

    def hooks_of(self, name: str) -> Hooks:
        """Return whom to tell of a job: listeners that never fail."""
        return _unfailing(self._hooks_of(name))

    def __str__(self) -> str:
        return f"{self.place.kind}s {self.place.selector} in {self.place.namespace}"

    def run(self, steps: int | None = None, duration_s: float | None = None) -> None:
        """Watch until stopped, or until every loop has made its decisions.

        Args:
            steps: decisions of each job, and what comes of a single one is not waited for; None:
                for ever.
            duration_s: how long each job is watched, s; None: for ever.

        Raises:
            DspGymError: None of the jobs that are there can be watched, or the account could
                write meanwhile.
        """
        course = _Course(steps, duration_s)
        self._lanes = Scheduler()
        try:
            self._watch(self._there(), course)
            self._wait_for_the_first()
            while not self.stop.wait(LOOK_S):
                if (error := self.followed.must_end()) is not None:
                    raise error
                if course.ends and all(loop.over.is_set() for loop in self._loops.values()):
                    return
                self.boards.trouble = self._trouble()
                there = self._there()
                for name in sorted(self._loops.keys() - there):
                    self._leave(name)
                self._watch(there - self._loops.keys(), course)
        finally:
            self._end()

    def _there(self) -> set[str]:
        """List the names of the resources that are jobs."""
        known = self.followed.watcher.resources().values()
        return {one.name for one in known if not one.is_session_cluster}

    def _trouble(self) -> str | None:
        """Say why what is known of the resources may be old."""
        watcher = self.followed.watcher
        if watcher.age_s() <= 2.0 * self.place.watch_s + self.followed.api.timeout_s:
            return None
        return f"the API server was last heard of {watcher.age_s():.0f} s ago: {watcher.trouble}"

    def _watch(self, names: set[str], course: _Course) -> None:
        for name in sorted(names):
            self._loops[name] = _Loop(self, name, course)
            self._lanes.begin(self._loops[name])

    def _wait_for_the_first(self) -> None:
        loops = [self._loops[name] for name in sorted(self._loops)]
        for loop in loops:
            loop.begun.wait()
        errors = [loop.error for loop in loops if loop.error is not None]
        if loops and len(errors) == len(loops):
            raise errors[0]

    def _leave(self, name: str) -> None:
        loop = self._loops.pop(name)
        self._stop(loop)
        loop.over.wait()
        self.boards.drop(name)
        gone: dict[str, object] = {"reason": "its resource is gone, or has other labels"}
        self.hooks_of(name).on_event("left", gone)

    def _end(self) -> None:
        for loop in self._loops.values():
            self._stop(loop)
        for name, loop in self._loops.items():
            loop.over.wait()
            self.boards.drop(name)
        self._loops.clear()
        self._lanes.close()

    def _stop(self, loop: _Loop) -> None:
        loop.stop.set()
        if not loop.over.is_set():
            self._lanes.hurry(loop)


class _Course(NamedTuple):
    """How long each job is watched."""

    steps: int | None
    duration_s: float | None

    @property
    def ends(self) -> bool:
        return self.steps is not None or self.duration_s is not None


def _unfailing(hooks: Hooks) -> Hooks:
    """Wrap hooks: a listener that fails, such as output to a full disk, ends no loop."""

    def told(hook: Callable[..., None]) -> Callable[..., None]:
        def tell(*what: object) -> None:
            try:
                hook(*what)
            except Exception:
                _LOG.exception("what a loop had to tell could not be passed on")

        return tell

    return replace(
        hooks,
        on_decision=told(hooks.on_decision),
        on_turn=told(hooks.on_turn),
        on_event=told(hooks.on_event),
    )


class _Loop:
    """The loop beside one job, tried again when it fails; see `Scheduler`."""

    def __init__(self, fleet: Fleet, name: str, course: _Course) -> None:
        self.fleet, self.job, self.course = fleet, name, course
        self.config, self.hooks = of_resource(fleet.config, name), fleet.hooks_of(name)
        self.stop, self.begun, self.over = (threading.Event() for _ in range(3))
        self.error: Exception | None = None
        """Why the job could not be watched at first."""
        self._held = ExitStack()  # what is open while the job is watched
        self._run: JobAutoscaler | None = None
        self._boards: list[StatusBoard] = []
        self._end_s: float | None = None  # of the run
        self._decided: Turn | None = None  # its outcome is not known yet

    def step(self) -> float | None:
        """Look at the outcome of the last decision and make the next one.

        Returns:
            Seconds until the outcome of that one is due, or a job that cannot be watched is tried
            again; None: the loop has ended.
        """
        wait_s: float | None = None
        try:
            with computing():
                wait_s = self._tried()
            if self.stop.is_set():
                wait_s = None
        finally:
            self.begun.set()
            if wait_s is None:
                self._close()
                self.over.set()
        return wait_s

    def _tried(self) -> float | None:
        try:
            return self._on()
        except Exception as error:
            self._close()
            if not self.begun.is_set():
                self.error = error
            self._tell(error)
            return None if self.course.ends else self.config.interval_s

    def _on(self) -> float | None:
        if self.stop.is_set() and self._run is None:
            return None
        run = self._run or self._started()
        if self._decided is not None:
            decided, self._decided = self._decided, None
            run.finish(decided)
        if not run.goes_on(self.course.steps, self._end_s):
            self._close()
            return None if self.course.ends else self.config.interval_s
        self._decided = run.decide()
        return None if self.course.steps == 1 else run.interval_s

    def _started(self) -> JobAutoscaler:
        fleet, name = self.fleet, self.job
        run = self._held.enter_context(
            started(
                self.config,
                mode=fleet.mode,
                journal=fleet.journal / name,
                hooks=watched(self.hooks, self._boards, fleet.settle),
                clock=Clock(stop=self.stop),
                followed=fleet.followed,
            )
        )
        if self.course.duration_s is not None:
            self._end_s = run.backend.now_s() + self.course.duration_s
        self._run, self._boards[:] = run, [StatusBoard(run)]
        fleet.boards.put(name, self._boards[0])
        self.begun.set()
        return run

    def _close(self) -> None:
        """Wait for a rescale under way, and give back what is held."""
        self._run = self._decided = None
        self._boards.clear()
        try:
            with waiting():  # for a rescale, it may be
                self._held.close()
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        said = words(error)
        known = self.fleet.boards.troubles().get(self.job)
        self.fleet.boards.fail(self.job, self.fleet.place.namespace, said)
        if known is None or known.reason != said:
            self.hooks.on_event("not_watched", {"reason": said})


@contextmanager
def fleet(
    config: RunConfig,
    *,
    serve: bool,
    mode: Mode,
    journal: Path | None = None,
    hooks_of: Callable[[str], Hooks] = lambda name: Hooks(),
    stop: threading.Event | None = None,
) -> Iterator[Fleet]:
    """Start loops beside every job that a selector names; arguments as for `Fleet`.

    Yields:
        The fleet, following its selector; it is closed when the block ends.

    Raises:
        DspGymError: The server is out of reach, the account lacks rights or has too many, no
            resource is there, or the configuration is wrong whatever the job.
    """
    tokens = read_tokens(config.serve.token_file) if serve else None
    acting = acting_name(config)
    with ExitStack() as stack:
        settle = stack.enter_context(starting())
        followed = follow(
            place_of(config),
            apply=mode in ACTING,
            must_only_read=must_only_read(config, mode),
            every=True,
        )
        stack.callback(followed.close)
        made = Fleet(
            config,
            followed,
            mode=mode,
            journal=journal or config.journal,
            settle=settle,
            hooks_of=hooks_of,
            stop=stop or threading.Event(),
        )
        if serve:
            made.server = stack.enter_context(served(config, made.boards, acting, tokens))
        yield made
