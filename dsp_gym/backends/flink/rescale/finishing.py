"""The second process of a rescale (see `finisher`): it waits, and takes over if the first one dies.

Whatever it says goes to the error output of the process that started it, and its steps to the
journal. A signal for that process's group or service is not for this one: it ends with the rescale.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

from dsp_gym.backends.flink.rescale.finisher import ENDED, LOADED, STANDS_BY, Order
from dsp_gym.backends.flink.rescale.resumed import ResumedRescale
from dsp_gym.backends.flink.rest import FlinkRest, until_timeout
from dsp_gym.errors import DspGymError, FlinkError, SchemaError, StorageError
from dsp_gym.records.journal import Journal
from dsp_gym.records.rescales import Unfinished, unfinished
from dsp_gym.redaction import redacted_values

_LOG = logging.getLogger(__name__)

BY = "finisher"
"""Who took a step, in the journal; of the acting process's own steps nothing is said."""

_STEPS = 4
"""Steps of a rescale that have a time limit each: savepoint, end, coming up, being brought back."""

_LONGEST = 3 * _STEPS
"""Time limits after which the process is ended in any case."""

_RELEASED_S = 5.0
"""Longest wait for the journal of a process that is dying."""


def main() -> None:
    """Stand by, and finish the rescale if the other process dies."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.raiseExceptions = False  # where nobody takes its words any more, it still works
    try:
        order = attend(sys.stdin.buffer, sys.stdout.buffer)
    except (DspGymError, ValueError, OSError) as error:
        _LOG.warning("the second process cannot stand by: %s", error)
        sys.exit(1)
    if order is not None:
        signal.alarm(math.ceil(_LONGEST * order.rescale_timeout_s))
        finish(order)


def attend(heard: BinaryIO, said: BinaryIO) -> Order | None:
    """Wait until the rescale has ended, or the process that began it.

    Args:
        heard: what that process says; its end is that of the process.
        said: what it is answered.

    Returns:
        What is to be finished; None: nothing.
    """
    _say(said, LOADED)
    line = heard.readline()
    if not line.endswith(b"\n"):
        return None
    order = Order.model_validate_json(line)
    _ = _reached(order).session  # a missing file is found out here, and what it needs is loaded
    _say(said, STANDS_BY)
    return None if heard.readline() == ENDED else order


def finish(order: Order) -> None:
    """Bring the rescale to its end, by what the journal says of it.

    Args:
        order: the rescale.
    """
    try:
        journal = _opened(order)
    except StorageError:
        _LOG.warning(
            "job %s: its journal is still written, so nothing is taken over", order.job_name
        )
        return
    try:
        _finish(order, journal)
    finally:
        if journal is not None:
            with suppress(OSError):
                journal.close()


def _finish(order: Order, journal: Journal | None) -> None:
    step = _steps(order, journal)
    until_s = time.monotonic() + _STEPS * order.rescale_timeout_s
    left = _left(order)
    if left is not None:
        _LOG.warning(
            "job %s: the process that rescales it has died; a second one finishes the rescale",
            order.job_name,
        )
    while left is not None:
        rest = _reached(order)
        _wait_for(rest, until_s)
        with ResumedRescale(
            rest,
            order.job_name,
            order.spec,
            left,
            timeout_s=order.rescale_timeout_s,
            heard_within_s=order.timeout_s,
            on_event=step,
            own=order.own,
        ) as actuator:
            actuator.resume()
            actuator.wait(max(0.0, until_s - time.monotonic()))
        left = _left(order)
        if journal is None or time.monotonic() > until_s or (left and left.has_alarmed):
            return


def _left(order: Order) -> Unfinished | None:
    """What is left of this rescale; None: it has ended, or was not begun."""
    left = unfinished(order.journal)
    if left is None or left.stopping is None or left.stopping.get("next_id") != order.next_id:
        return None
    return replace(left, stopping={**left.stopping, "arguments": order.arguments})


def _reached(order: Order) -> FlinkRest:
    return FlinkRest(order.rest_url, order.timeout_s, order.access)


def _wait_for(rest: FlinkRest, until_s: float) -> None:
    """Wait until Flink answers, at most until then."""
    for _ in until_timeout(until_s - time.monotonic()):
        with suppress(FlinkError):
            rest.jobs()
            return


def _opened(order: Order) -> Journal | None:
    """The journal, once the process before has left it; None: it cannot be written.

    Raises:
        StorageError: It is still written, so that process lives.
    """
    until_s = time.monotonic() + _RELEASED_S
    while True:
        try:
            return Journal(order.journal)
        except StorageError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.01)
        except (OSError, SchemaError) as error:
            _LOG.warning("job %s: nothing is written down: %s", order.job_name, error)
            return None


def _steps(order: Order, journal: Journal | None) -> Callable[[str, dict[str, object]], None]:
    def step(kind: str, body: dict[str, object]) -> None:
        hidden = {key: redacted_values(value) for key, value in body.items()}
        words = [str(hidden[key]) for key in ("reason", "remedy") if key in hidden]
        _LOG.warning("%s", ". ".join([f"job {order.job_name}: {kind}", *words]))
        told = {"event": kind, **hidden, "by": BY}
        if journal is not None:
            try:
                journal.append("actuation", time.time(), order.job_name, order.policy, told)
            except OSError as error:
                _LOG.warning("job %s: %s is not written down: %s", order.job_name, kind, error)

    return step


def _say(said: BinaryIO, line: bytes) -> None:
    said.write(line)
    said.flush()


if __name__ == "__main__":
    main()
