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


class OwnLease:
    """What one process knows of a lease by its own clock, whatever the lease is kept in.

    Args:
        name: for people.
        holder: this process; no other has that name.
        duration_s: how long it holds without being renewed, s.
        clock: seconds that only go forward.
        wall_clock: Unix seconds; written down for people.
    """

    def __init__(
        self,
        name: str,
        holder: str,
        duration_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.name, self.holder, self.duration_s = name, holder, duration_s
        self.term = 0
        """How often it was taken by this process; renewing it is no other term."""
        self.memory: str | None = None
        """What is written into it from the next renewal on; None: what stands there stays."""
        self.inherited: str | None = None
        """What stood there when it was taken from another holder, or first seen."""
        self._clock, self._wall_clock = clock, wall_clock
        self._until_s = float("-inf")  # held until then, unless another process took it
        self._other = ""  # why the last attempt to take it failed
        self._lock = threading.RLock()  # one renews it, another looks whether it is held

    def taken(self) -> str:
        """Say who holds it instead.

        Returns:
            A sentence about the last attempt to take it that failed.
        """
        return self._other or f"another process was faster to take the lease '{self.name}'"

    def standby(self) -> str | None:
        """Why this process does not act, by its own clock; None: it holds the lease.

        Returns:
            A sentence about the last attempt to take or renew it.
        """
        if self._clock() < self._until_s:
            return None
        return self._other or f"the lease '{self.name}' could not be taken or renewed"


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
