"""Faults that wait for their moment: they are looked at every few hundredths of a second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from tests.fakes.kubernetes_api import FakeKubernetes
from tests.nemesis.journals import Tail
from tests.nemesis.replicas import Replica
from tests.nemesis.rivals import Rival
from tests.nemesis.schedule import Fault

__all__ = ["Account", "Crash", "Pending", "Rotation", "RivalsWrite"]

_BEGUN = ("asked", "submitted")


class Pending(Protocol):
    """A fault that has begun, and has not come about yet."""

    def look(self) -> None:
        """Do what is due."""

    def finish(self) -> None:
        """Do what is left, for the fault is over."""


class Crash:
    """Kills a process while a rescale is under way, or else at the end.

    Args:
        replica: the process.
        tail: its journal.
        fault: how long after a step of a rescale, and until when.
    """

    def __init__(self, replica: Replica, tail: Tail, fault: Fault) -> None:
        self._replica, self._tail, self._value = replica, tail, fault.value
        tail.take_in()
        self._begun, self._end_s = self._steps(), time.monotonic() + fault.lasts_s
        self._due_s: float | None = None
        self._is_over = False

    def look(self) -> None:
        if self._due_s is None:
            self._tail.take_in()
            if self._steps() > self._begun:
                self._due_s = time.monotonic() + self._value
        if self._due_s is not None and time.monotonic() >= self._due_s:
            self.finish()

    def finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._replica.kill(max(0.0, self._end_s - time.monotonic()))

    def _steps(self) -> int:
        return sum(step["event"] in _BEGUN for step in self._tail.steps)


class Account:
    """A token on the API server, and the file from which a process reads it.

    Args:
        server: takes it.
        token: at first.
        file: a kubeconfig, or a file with nothing but the token.
    """

    def __init__(self, server: FakeKubernetes, token: str, file: Path) -> None:
        self._server, self.file = server, file
        self.token = self.written = token

    def rotate(self) -> None:
        """Have the server take another token, and the old one no more."""
        self.token = self._server.rotate(self.token)

    def write(self) -> None:
        """Put the token that is taken into the file, at once as a whole."""
        text = self.file.read_text().replace(self.written, self.token)
        other = self.file.with_suffix(".new")
        other.write_text(text)
        other.replace(self.file)
        self.written = self.token


class Rotation:
    """Replaces a token, and the file a while later.

    Args:
        account: whose.
        fault: how much later.
    """

    def __init__(self, account: Account, fault: Fault) -> None:
        self._account, self._due_s = account, time.monotonic() + fault.value
        account.rotate()

    def look(self) -> None:
        if time.monotonic() >= self._due_s:
            self.finish()

    def finish(self) -> None:
        if self._account.written != self._account.token:
            self._account.write()


class RivalsWrite:
    """Has another controller change a job once, as soon as somebody acts on it and would notice.

    Args:
        rival: the controller.
        fault: what it asks for.
    """

    def __init__(self, rival: Rival, fault: Fault) -> None:
        self._rival, self._tasks = rival, round(fault.value)
        self._is_over = False
        self.look()

    def look(self) -> None:
        self._is_over = self._is_over or self._rival.write(self._tasks)

    def finish(self) -> None:
        """Leave it: nobody acted who would have noticed."""
