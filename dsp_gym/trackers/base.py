"""The base of trackers, and the tracker that records nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from queue import SimpleQueue

from dsp_gym.errors import DspGymError

CHALLENGER = "challenger"
"""Alias of the newest version of a model where an older one holds the alias asked for."""


class Tracker:
    """One run: parameters, metrics over steps, files, and the policy it made.

    The methods of the base class do nothing; trackers replace all of them.
    """

    run_id: str | None = None
    problem: str | None = None  # why the record is missing or incomplete

    def start(self, name: str, tags: Mapping[str, str]) -> None:
        """Begin the run."""

    def params(self, values: Mapping[str, object]) -> None:
        """Record a nested document as dotted parameters."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers at a step; written in batches, numbers that are not finite left out."""

    def artifact(self, path: Path, folder: str = "") -> None:
        """Keep a copy of a file, or of a folder's content, under a folder of the record."""

    def register(self, folder: Path, model: str, alias: str | None) -> str | None:
        """Put a policy folder into the model registry.

        An alias that a version holds stays with it; the new version becomes the challenger, until
        `dsp_gym.trackers.mlflow.promote` moves the alias.

        Returns:
            The address it can be pulled from; None if nothing is recorded.
        """
        return None

    def end(self, status: str = "FINISHED") -> None:
        """End the run: FINISHED, FAILED or KILLED."""


class NullTracker(Tracker):
    """Records nothing."""


def flatten(document: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Values by dotted key.

    Returns:
        Leaves by dotted key; lists stay whole.

    >>> flatten({"agent": {"gamma": 0.97, "seeds": [0, 1]}})
    {'agent.gamma': 0.97, 'agent.seeds': [0, 1]}
    """
    flat: dict[str, object] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


WAIT_S = 60.0
"""How long a finished work waits for its record."""

_LOG = logging.getLogger(__name__)

Call = Callable[[Tracker], None]


class BackgroundTracker(Tracker):
    """Hands every call to another tracker in its own thread.

    After the first failure nothing more is recorded; `problem` says why. The calls return at once,
    but `register` and `end`, which wait for the store: both together at most for `wait_s`.

    Attributes:
        run_id: Of the run; None until the store has answered.
        problem: Why the record is missing or incomplete; None as long as nothing failed.
    """

    def __init__(
        self,
        opened: Callable[[], Tracker],
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        wait_s: float = WAIT_S,
    ) -> None:
        """Open nothing yet.

        Args:
            opened: Opens the tracker; called in the thread.
            around: Entered by the caller of `start`, left by the caller of `end`.
            wait_s: How long to wait for the store in all.
        """
        self._opened, self._around, self._left_s = opened, around, wait_s
        self._wait_s, self._ending = wait_s, False
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._record, name="tracker", daemon=True)
        self._entered = ExitStack()

    def start(self, name: str, tags: Mapping[str, str]) -> None:
        self._entered.enter_context(self._around())
        given = dict(tags)

        def begin(tracker: Tracker) -> None:
            tracker.start(name, given)
            self.run_id = tracker.run_id

        self._calls.put(begin)
        self._thread.start()

    def params(self, values: Mapping[str, object]) -> None:
        given = dict(values)
        self._calls.put(lambda tracker: tracker.params(given))

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        given = dict(values)
        self._calls.put(lambda tracker: tracker.metrics(given, step))

    def artifact(self, path: Path, folder: str = "") -> None:
        self._calls.put(lambda tracker: tracker.artifact(path, folder))

    def register(self, folder: Path, model: str, alias: str | None) -> str | None:
        address: list[str | None] = []
        done = threading.Event()

        def put(tracker: Tracker) -> None:
            address.append(tracker.register(folder, model, alias))
            done.set()

        self._calls.put(put)
        self._wait(lambda timeout_s: done.wait(timeout_s))
        return address[0] if address else None

    def end(self, status: str = "FINISHED") -> None:
        self._ending = True
        if not self._thread.is_alive():
            self._entered.close()
            return
        self._calls.put(lambda tracker: tracker.end(status))
        self._calls.put(None)
        try:
            self._wait(self._joined)
        finally:
            self._entered.close()

    def _joined(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _wait(self, done: Callable[[float], bool]) -> None:
        """Wait for an end of the calls so far, or of the time."""
        begun = time.monotonic()
        while not done(min(0.1, self._left_s)):
            left_s = self._left_s - (time.monotonic() - begun)
            if self.problem is not None:
                return
            if left_s <= 0:
                self.problem = f"the store did not answer within {self._wait_s:g} s"
                break
        self._left_s = max(0.0, self._left_s - (time.monotonic() - begun))

    def _record(self) -> None:
        """The thread: does the calls in their order, until one fails."""
        tracker: Tracker | None = None
        try:
            tracker = self._opened()
            while self.problem is None and (call := self._calls.get()) is not None:
                call(tracker)
        except Exception as error:  # whatever a store raises, the work goes on
            known = isinstance(error, DspGymError)
            said = str(error) if known else f"{type(error).__name__}: {error}"
            self.problem = said
            if not self._ending:  # hours may pass until the work is done
                _LOG.warning("The run is not recorded any more: %s", said)
            if tracker is not None:
                with suppress(Exception):  # it may have gone for good
                    tracker.end("FAILED")
