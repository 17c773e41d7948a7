"""Engines: independent cells of work, done in this process, in several, or on a cluster.

A cell fixes its own result: seeds, loads and parameters travel with it. So results depend neither
on the engine, nor on how many cells run at once, nor on how often one is begun.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from types import FrameType, TracebackType
from typing import Generic, Protocol, TypeVar, cast

from dsp_gym.errors import DspGymError, EngineError

Cell = TypeVar("Cell")
News = TypeVar("News")
Result = TypeVar("Result")

Tell = Callable[[News], bool]
"""Given to the work on a cell: it reports news, and hears whether to stop at the next rest."""

BATCH = 64
"""Cells played together: enough for the compiled simulation, few enough to lose when killed."""

BATCHES_PER_SLOT = 4
"""Batches for each core, so that a slow one does not keep the others waiting at the end."""

DECISIONS_PER_WORKER = 50_000
"""A worker starts in three to four seconds of processor time; these decisions take five or more."""

TRIES = 4
"""Workers a cell may lose, as many as Spark allows a task."""

_LOOK_S = 0.2
"""Seconds between two looks whether Ctrl-C was pressed, where the work ends by itself."""

_WATCH_S = 1.0
"""Seconds between two looks of a worker whether the process it works for is still there."""

_PROGRAM = "import sys; from dsp_gym.engine import serve; serve(int(sys.argv[1]))"


class Engine(Protocol):
    """Does cells somewhere, in any order."""

    @property
    def slots(self) -> int:
        """Cells that can be done at the same time."""
        ...

    @property
    def shares_disk(self) -> bool:
        """Whether the work sees the files of this machine."""
        ...

    def map(
        self,
        do: Callable[[Cell, Tell[News]], Result],
        cells: Sequence[Cell],
        heard: Callable[[int, News], None] | None = None,
        *,
        patient: bool = False,
    ) -> Iterator[tuple[int, Result]]:
        """Do every cell once; a cell that was lost with its worker is done again elsewhere.

        Args:
            do: A function of a module, called with a cell and a function that reports news.
            cells: Values that can be pickled.
            heard: Called here with the place of a cell and its news, all of it before its result.
            patient: On Ctrl-C the cells under way are asked to stop by themselves, and waited for;
                a second Ctrl-C ends them at once.

        Returns:
            The place of each cell and its result, as they are done.

        Raises:
            DspGymError: What `do` raised.
            EngineError: The engine gave up on a cell.
        """
        ...


def cores() -> int:
    """Count the cores this process may use.

    Returns:
        At least 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def worth(decisions: int) -> int:
    """Choose how many processes pay for some work.

    Args:
        decisions: Of all cells together.

    Returns:
        One for small work, at most one for each core.
    """
    return max(1, min(cores(), decisions // DECISIONS_PER_WORKER))


def batch_size(engine: Engine, cells: int) -> int:
    """Choose batches small enough for every slot to get some, and large enough to pay.

    Returns:
        Cells in one batch, at most `BATCH`.
    """
    if engine.slots == 1:
        return BATCH
    return max(1, min(BATCH, math.ceil(cells / (engine.slots * BATCHES_PER_SLOT))))


@dataclass(eq=False)
class LocalEngine:
    """The cores of this machine.

    One worker is this process. Several are processes of their own that start with the first work
    and stay until the engine is closed. Each keeps to its share of the cores, so that the threads
    of its libraries do not fight those of the others.

    Attributes:
        workers: Cells done at the same time.
    """

    workers: int = 1
    shares_disk: bool = field(default=True, init=False)
    _started: list[_Worker] = field(default_factory=list, init=False)
    _idle: list[_Worker] = field(default_factory=list, init=False)

    @property
    def slots(self) -> int:
        """Cells that can be done at the same time."""
        return self.workers

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._idle.clear()
        while self._started:
            self._started.pop().end()

    def map(
        self,
        do: Callable[[Cell, Tell[News]], Result],
        cells: Sequence[Cell],
        heard: Callable[[int, News], None] | None = None,
        *,
        patient: bool = False,
    ) -> Iterator[tuple[int, Result]]:
        """Do every cell; see `Engine.map`. A single cell is done in this process.

        Yields:
            The place of each cell and its result, as they are done.
        """
        if min(self.workers, len(cells)) > 1:
            spread = _Spread[Cell, News, Result](self._start, self._idle, heard, patient)
            yield from spread.run(do, cells, min(self.workers, len(cells)))
            return
        for place, cell in enumerate(cells):

            def tell(news: News, place: int = place) -> bool:
                if heard is not None:
                    heard(place, news)
                return False

            yield place, do(cell, tell)

    def _start(self, number: int, of: int) -> _Worker:
        own: list[int] = []
        if hasattr(os, "sched_getaffinity"):
            usable = sorted(os.sched_getaffinity(0))
            own = usable[number % len(usable) :: of]
        self._started.append(_Worker(number, own))
        return self._started[-1]


HERE = LocalEngine()
"""This process, one cell after the other."""


class _Worker:
    """A process that does one cell at a time, and the connection to it."""

    def __init__(self, number: int, on_cores: Sequence[int]) -> None:
        self.number = number
        self.connection, there = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with there:
            # Its own session: Ctrl-C at the terminal reaches this process alone.
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(there.fileno())],
                pass_fds=(there.fileno(),),
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a library prints must not mix with a command's JSON
                start_new_session=True,
            )
        with suppress(OSError):  # it has ended already, which the first cell will show
            self.connection.send(list(on_cores))

    def end(self) -> int:
        """Kill the process.

        Returns:
            Its exit status; negative is the number of a signal.
        """
        ended = self.process.poll()
        self.process.kill()
        self.process.wait()
        self.connection.close()
        return self.process.returncode if ended is None else ended


class _Spread(Generic[Cell, News, Result]):
    """One `map` over several workers."""

    def __init__(
        self,
        start: Callable[[int, int], _Worker],
        idle: list[_Worker],
        heard: Callable[[int, News], None] | None,
        patient: bool,
    ) -> None:
        self.start, self.idle, self.patient = start, idle, patient
        self.heard = heard
        self.busy: dict[Connection, tuple[_Worker, int]] = {}  # and the place of its cell

    def run(
        self, do: Callable[[Cell, Tell[News]], Result], cells: Sequence[Cell], workers: int
    ) -> Iterator[tuple[int, Result]]:
        """Hand out cells until all are done."""
        waiting, lost = deque(range(len(cells))), Counter[int]()
        stopping = False
        try:
            with _interrupts(self.patient) as asked:
                while waiting or self.busy:
                    if asked() and not stopping:
                        stopping = True
                        waiting.clear()
                        for connection in self.busy:
                            with suppress(OSError):
                                connection.send(None)
                        continue
                    while waiting and len(self.busy) < workers:
                        self._hand_out(do, cells, waiting.popleft(), workers)
                    # Without patience Ctrl-C raises here, and nothing needs to be looked at.
                    timeout = _LOOK_S if self.patient and not stopping else None
                    for ready in wait(list(self.busy), timeout):
                        done = self._answer(cast(Connection, ready), lost, waiting, stopping)
                        if done is not None:
                            yield done
            if stopping:
                raise KeyboardInterrupt
        finally:
            for worker, _ in self.busy.values():
                worker.end()

    def _hand_out(
        self,
        do: Callable[[Cell, Tell[News]], Result],
        cells: Sequence[Cell],
        place: int,
        workers: int,
    ) -> None:
        taken = {worker.number for worker, _ in self.busy.values()}
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        worker = self.idle.pop() if self.idle else self.start(free, workers)
        with suppress(OSError):  # it has ended: its connection says so, and the cell comes back
            worker.connection.send((do, cells[place]))
        self.busy[worker.connection] = (worker, place)

    def _answer(
        self, connection: Connection, lost: Counter[int], waiting: deque[int], stopping: bool
    ) -> tuple[int, Result] | None:
        """Take a message of a worker: a result, or None for everything else."""
        worker, place = self.busy[connection]
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            del self.busy[connection]
            status = worker.end()
            lost[place] += 1
            if lost[place] >= TRIES:
                raise EngineError(
                    f"{TRIES} workers died on the same cell, the last one with "
                    f"exit status {status}",
                    remedy="-9 is often a lack of memory: use fewer workers with --workers. "
                    "Finished work is kept.",
                ) from None
            if not stopping:
                waiting.appendleft(place)
            return None
        if kind == _NEWS:
            if self.heard is not None:
                self.heard(place, value)
            return None
        del self.busy[connection]
        self.idle.append(worker)
        if kind == _RESULT:
            return place, value
        if not stopping:
            raise value
        return None


_NEWS, _RESULT, _RAISED = "news", "result", "raised"


def serve(handle: int) -> None:
    """Do cells for another process until it is gone: the program of a worker.

    Args:
        handle: The descriptor of the connection.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    # Between two words of a cell minutes may pass; nobody waits for them when the parent is gone.
    threading.Thread(target=watch, daemon=True).start()
    with Connection(handle) as connection, suppress(EOFError, BrokenPipeError, ConnectionError):
        on_cores = connection.recv()
        if on_cores:
            with suppress(OSError):  # they were taken from this machine meanwhile
                os.sched_setaffinity(0, on_cores)
        while True:
            message = connection.recv()
            if message is None:
                continue  # asked to stop after the last cell was done
            do, cell = message
            stop = False

            def tell(news: object) -> bool:
                nonlocal stop
                connection.send((_NEWS, news))
                while connection.poll():
                    stop = connection.recv() is None
                return stop

            try:
                answer = (_RESULT, do(cell, tell))
            except (BrokenPipeError, ConnectionError, EOFError):
                raise
            except Exception as error:
                answer = (_RAISED, _told(error))
            connection.send(answer)


def _told(error: Exception) -> Exception:
    """Add its traceback to an error that another process will read."""
    if not isinstance(error, DspGymError):
        error.add_note("".join(traceback.format_exception(error)))
    return error


@contextmanager
def _interrupts(patient: bool) -> Iterator[Callable[[], bool]]:
    """Note whether Ctrl-C was pressed; the second one raises `KeyboardInterrupt`.

    Without patience, and outside the main thread, it stays as it was.
    """
    pressed = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if not patient or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
