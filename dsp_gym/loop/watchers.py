"""Threads that watch beside the loop: one that fails is counted, told, and begins again.

A thread that ends at an exception that nobody expected ends silently, and what it watched is taken
to be as it was: a lease to be held, a right to be absent, a resource not to have changed.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter
from collections.abc import Callable

from dsp_gym.redaction import redacted

_LOG = logging.getLogger(__name__)
_LEAST_WAIT_S, _MOST_WAIT_S = 1.0, 60.0


class WatcherFailures:
    """How often a watcher failed at something unexpected, by its kind."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, watcher: str, error: BaseException) -> str:
        """Count one, and log the first, the tenth, the hundredth and so on.

        Returns:
            What is wrong, in words.
        """
        with self._lock:
            self._times[watcher] += 1
            times = self._times[watcher]
        at = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f", at {frame.filename}:{frame.lineno}" for frame in at)
        said = redacted(f"{type(error).__name__}: {error}")
        if str(times).strip("0") == "1":
            _LOG.error(
                "the watcher '%s' failed, %d times so far; it begins again: %s%s",
                watcher,
                times,
                said,
                where,
            )
        return f"the watcher '{watcher}' failed, {times} times so far: {said}"

    def times(self) -> dict[str, int]:
        """Count how often each failed.

        Returns:
            Number by kind of watcher.
        """
        with self._lock:
            return dict(self._times)


WATCHER_FAILURES = WatcherFailures()
"""Of this process."""


def keep_watching(
    watcher: str,
    watch: Callable[[], None],
    closing: threading.Event,
    *,
    tell: Callable[[str], None] | None = None,
    wait_s: float = _LEAST_WAIT_S,
) -> None:
    """Run a watcher until it returns, or its owner closes it; begin again where it fails.

    Args:
        watcher: its kind, for the metric and the log.
        watch: returns when there is nothing more to watch.
        closing: set when it is to end.
        tell: receives what is wrong, in words.
        wait_s: seconds before it begins again, doubled at each failure up to a minute.
    """
    while not closing.is_set():
        try:
            watch()
        except Exception as error:
            said = WATCHER_FAILURES.add(watcher, error)
            if tell is not None:
                tell(said)
            closing.wait(wait_s)
            wait_s = min(2 * wait_s, _MOST_WAIT_S)
        else:
            return
