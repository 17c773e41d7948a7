"""What every lease offers, whatever it is kept in; and the thread that keeps one."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from dsp_gym.backends.base import Leadership
from dsp_gym.errors import DspGymError
from dsp_gym.loop.watchers import keep_watching

_LOG = logging.getLogger(__name__)

_LONGEST_S = 60.0
"""A medium that has not answered by then is left alone: the lease runs out."""


class RenewedLease(Leadership, Protocol):
    """A right to act that runs out unless it is renewed."""

    name: str
    """For people."""

    duration_s: float
    """How long it holds without being renewed, s."""

    def try_acquire(self) -> bool:
        """Take it if it is free or over, or renew it.

        Returns:
            True where this process holds it now.

        Raises:
            DspGymError: Its medium is out of reach, or refuses; it is not known to be held.
        """

    def taken(self) -> str:
        """Say who holds it instead.

        Returns:
            A sentence about the last attempt to take it that failed.
        """

    def is_held_now(self, for_s: float = 0.0) -> bool:
        """Whether this process holds it, by a look at its medium, and for so much longer.

        Args:
            for_s: longest time that what is to be done under it takes, s.

        Returns:
            False also where the medium does not answer.
        """

    def release(self) -> None:
        """Give it up, so that another need not wait until it runs out."""


def elapsed() -> float:
    """Seconds that only go forward, also while the machine sleeps.

    Returns:
        Seconds since an arbitrary moment.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def new_holder() -> str:
    """Name this process; no other has that name.

    Returns:
        The machine's name and some digits.
    """
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"


def reason_not_to_write(lease: RenewedLease, for_s: float) -> str | None:
    """Find out, right before a write, whether another process may act.

    Args:
        lease: renewed, with what its holder remembers, and looked at again.
        for_s: longest time that the write takes, s.

    Returns:
        A sentence; None where this process holds the lease until the write has ended.
    """
    try:
        if not lease.try_acquire():
            return lease.taken()
    except DspGymError as error:
        return str(error)
    if lease.is_held_now(for_s):
        return None
    return f"the lease '{lease.name}' is not held for {for_s:g} s more, so another process may act"


class LeaseKeeper:
    """Asks for a lease three times per duration until it is closed; then it is given up.

    Args:
        lease: held by this instance or another.
        began: called in the thread at the begin of each term of this instance, and again where it
            raises a DspGymError.
    """

    def __init__(self, lease: RenewedLease, began: Callable[[], None] = lambda: None) -> None:
        self.trouble: str | None = None
        self.term = 0
        """The term whose begin was told; the lease's own, once that is done."""
        self._lease, self._began = lease, began
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._keep_on, name=f"lease-{lease.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread and give the lease up."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join(_LONGEST_S)  # calls have time limits, but for a folder that hangs
        if not self._thread.is_alive():
            self._lease.release()

    def _keep_on(self) -> None:
        keep_watching("lease", self._keep, self._closing, tell=self._failed)

    def _failed(self, said: str) -> None:
        self.trouble = said

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                if self._lease.try_acquire() and self.term != (term := self._lease.term):
                    self._began()
                    self.term = term
                self.trouble = None
            except DspGymError as error:
                if self.trouble is None:
                    _LOG.warning("lease %s: %s", self._lease.name, error)
                self.trouble = str(error)
            self._closing.wait(self._lease.duration_s / 3)
