"""Processes that act on one job, each in a thread of its own, of which one runs at a time.

Time is simulated: whoever waits hands over to the process that wakes up first. So every schedule is
drawn from a seed, with pauses at any step, crashes, drifting clocks and slow writes.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.backends.file_lease import FileLease, SharedFolder
from dsp_gym.backends.flink.rescale import AdaptiveActuator
from dsp_gym.backends.flink.submission import Configuration
from dsp_gym.backends.lease import reason_not_to_write
from tests.fakes.adaptive_job import AdaptiveJob, DirectRest
from tests.simulating import line

LEASE_S = 30.0
TIMEOUT_S = 10.0
INTERVAL_S = 15.0
LASTS_S = 900.0


class Ended(BaseException):
    """The process is over: it crashed, or the schedule has ended."""


@dataclass
class Process:
    """One process: a thread that runs while it has the word."""

    name: str
    world: World
    rate: float  # of its clock
    thread: threading.Thread | None = None
    word: threading.Event = field(default_factory=threading.Event)
    wakes_s: float = 0.0
    is_over: bool = False
    wall_steps_s: float = 0.0

    def clock(self) -> float:
        return self.rate * self.world.now_s

    def wall_clock(self) -> float:
        return 1.7e9 + self.clock() + self.wall_steps_s

    def wait(self, seconds: float) -> None:
        """Let others run for so long."""
        self.wakes_s = self.world.now_s + seconds
        self.world.turn.set()
        self.word.wait()
        self.word.clear()
        if self.is_over:
            raise Ended

    def step(self) -> None:
        """Take a moment, or now and then as long as a frozen process does."""
        rng = self.world.rng
        chance = rng.random()
        if chance < self.world.freezes:
            self.wait(float(rng.uniform(1.0, 2.5 * LEASE_S)))
        elif chance < 2 * self.world.freezes:
            self.wall_steps_s += float(rng.normal(0.0, 3600.0))
            self.wait(0.0)
        else:
            self.wait(float(rng.uniform(0.0, self.world.most_s)))


class World:
    """The time, and the processes that share it.

    Args:
        seed: draws the schedule: how slow steps are, how often one is frozen, how often one
            crashes.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.most_s = float(np.exp(rng.uniform(np.log(0.02), np.log(8.0))))
        self.freezes = float(np.exp(rng.uniform(np.log(0.002), np.log(0.1))))
        self.crashes = float(rng.choice([0.0, 0.0005, 0.005]))
        self.now_s = 0.0
        self.turn = threading.Event()
        self.processes: list[Process] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def start(self, run: Callable[[Process], None]) -> None:
        """Start a process; it is started again, under another name, when it has crashed."""
        self._number += 1
        process = Process(f"p{self._number}", self, float(self.rng.uniform(0.95, 1.05)))
        process.wakes_s = self.now_s + float(self.rng.uniform(0.0, INTERVAL_S))

        def live() -> None:
            process.word.wait()
            process.word.clear()
            try:
                if not process.is_over:
                    run(process)
            except Ended:
                pass
            finally:
                process.is_over = True
                self.turn.set()

        process.thread = threading.Thread(target=live, daemon=True)
        self.processes.append(process)
        process.thread.start()

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        self._number += 1
        heapq.heappush(self._later, (self.now_s + seconds, self._number, do))

    def run(self, run: Callable[[Process], None], count: int = 2) -> None:
        """Let the processes run to the end of the schedule."""
        for _ in range(count):
            self.start(run)
        while self.now_s < LASTS_S:
            alive = [one for one in self.processes if not one.is_over]
            process = min(alive, key=lambda one: one.wakes_s)
            if self._later and self._later[0][0] <= process.wakes_s:
                self.now_s, _, do = heapq.heappop(self._later)
                do()
                continue
            self.now_s = max(self.now_s, process.wakes_s)
            if self.rng.random() < self.crashes:
                process.is_over = True
            self._pass_word(process)
            if process.is_over:
                self.start(run)
        for process in self.processes:
            if not process.is_over:
                process.is_over = True
                self._pass_word(process)
            assert process.thread is not None
            process.thread.join()

    def _pass_word(self, process: Process) -> None:
        self.turn.clear()
        process.word.set()
        self.turn.wait()


@dataclass(frozen=True)
class Write:
    """One write of the job."""

    by: str
    term: int
    sent_s: float
    landed_s: float


class SteppedFolder(SharedFolder):
    """A folder of which every call of a process takes a moment, or long."""

    def __init__(self, path: Path, process: Process, made: list[tuple[float, str, int]]) -> None:
        super().__init__(path)
        self._process, self._made = process, made

    def newest(self) -> int:
        self._process.step()
        return super().newest()

    def read(self, term: int) -> str:
        self._process.step()
        return super().read(term)

    def make(self, term: int, text: str) -> bool:
        self._process.step()
        made = super().make(term, text)
        if made:
            self._made.append((self._process.world.now_s, self._process.name, term))
        return made

    def replace(self, term: int, text: str) -> None:
        self._process.step()
        super().replace(term, text)


@dataclass
class Shared:
    """What came of processes that share a lease."""

    writes: list[Write] = field(default_factory=list)
    made: list[tuple[float, str, int]] = field(default_factory=list)  # when, by whom, which term

    @property
    def doubled(self) -> list[Write]:
        """Writes that arrived when another process had taken over."""
        found = []
        for write in self.writes:
            leader = max((term, name) for t_s, name, term in self.made if t_s <= write.landed_s)
            if leader != (write.term, write.by):
                found.append(write)
        return found

    @property
    def handovers(self) -> int:
        """How often another process wrote than the one before."""
        names = [one.by for one in sorted(self.writes, key=lambda one: one.landed_s)]
        return sum(a != b for a, b in itertools.pairwise(names))


def sharing(seed: int, folder: Path, *, frozen_s: float = 0.0) -> Shared:
    """Let two processes share a lease in a folder.

    Args:
        seed: draws the schedule.
        folder: for the lease.
        frozen_s: longest time for which a process is frozen between its last look at the lease and
            its write, beyond the time limit of a write.
    """
    world, found, under_way = World(seed), Shared(), Counter[str]()
    folder.mkdir(parents=True, exist_ok=True)

    def run(process: Process) -> None:
        files = SteppedFolder(folder, process, found.made)
        lease = FileLease(
            folder, "words", LEASE_S, holder=process.name, files=files, clock=process.clock,
            wall_clock=process.wall_clock,
        )  # fmt: skip
        decides_s = 0.0
        while True:
            lease.try_acquire()
            if lease.standby() is None and process.clock() >= decides_s:
                decides_s = process.clock() + INTERVAL_S
                process.step()
                if reason_not_to_write(lease, TIMEOUT_S) is None:
                    send(process, lease._number)
            if world.rng.random() < 0.01 and not under_way[process.name]:
                lease.release()  # as an actuator does that is closed: when nothing is under way
            process.wait(LEASE_S / 3)

    def send(process: Process, term: int) -> None:
        sent_s = world.now_s
        takes_s = float(world.rng.uniform(0.0, TIMEOUT_S / 1.06)) + (
            float(world.rng.uniform(0.0, frozen_s)) if frozen_s else 0.0
        )

        under_way[process.name] += 1

        def land() -> None:
            under_way[process.name] -= 1
            found.writes.append(Write(process.name, term, sent_s, world.now_s))

        world.later(takes_s, land)

    world.run(run)
    return found


@dataclass
class Put:
    """One change of a job that nobody keeps a lease of."""

    by: str
    maps: int  # tasks asked for; no other change asks for as many
    turns: dict[str, int]  # of every process when it landed


@dataclass(frozen=True)
class Stop:
    """A process that has seen the change of another."""

    by: str
    turn: int
    reason: str


@dataclass
class Alone:
    """What came of processes that each take themselves for the only one."""

    puts: list[Put] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    blind: int = 0  # changes by a process that had read another's
    crashed: set[str] = field(default_factory=set)

    @property
    def at_odds(self) -> set[str]:
        """Processes that have changed the job and go on, though another has, too."""
        over = {one.by for one in self.stops} | self.crashed
        acting = {put.by for put in self.puts} - over
        return acting if len(acting) > 1 else set()


class SteppedRest(DirectRest):
    """Flink's REST interface, of which every call takes a moment, or long."""

    def __init__(self, job: AdaptiveJob, process: Process, found: Alone, turns: Counter[str]):
        super().__init__(job)
        self._process, self._found, self._turns = process, found, turns
        self._baseline: int | None = None
        self._read: int | None = None

    def get(self, path: str) -> Any:
        self._process.step()
        if path.endswith("/resource-requirements"):
            self._read = _maps(self.to, self.to.requirements)
            self._baseline = self._read if self._baseline is None else self._baseline
        return super().get(path)

    def put(self, path: str, body: Any) -> Any:
        name, found = self._process.name, self._found
        mine = {put.maps for put in found.puts if put.by == name} | {self._baseline}
        found.blind += self._read not in mine
        self._process.wait(float(self._process.world.rng.uniform(0.0, TIMEOUT_S)))
        super().put(path, body)
        found.puts.append(Put(name, _maps(self.to, body), dict(self._turns)))
        self._process.step()


def _maps(job: AdaptiveJob, requirements: dict[str, Any]) -> int:
    return int(requirements[job.ids["map"]]["parallelism"]["upperBound"])


def alone(seed: int) -> Alone:
    """Let two processes without a lease change one job under the adaptive scheduler."""
    world, found, turns = World(seed), Alone(), Counter[str]()
    job = AdaptiveJob({"source": 4, "map": 1, "sink": 1})
    spec = line(flink={"program": "micro-update"}, memory={"levels": 1, "uniform": True})
    fresh = itertools.count(2)

    def run(process: Process) -> None:
        try:
            act(process)
        except Ended:
            if world.now_s < LASTS_S:
                found.crashed.add(process.name)
            raise

    def act(process: Process) -> None:
        actuator = AdaptiveActuator(
            SteppedRest(job, process, found, turns), "line", spec, timeout_s=0.02, poll_s=0.01
        )
        level = actuator._known.memory_level
        while True:
            turns[process.name] += 1
            if (foreign := actuator.interference()) is not None:
                found.stops.append(Stop(process.name, turns[process.name], foreign.reason))
                while True:
                    process.wait(INTERVAL_S)
            if world.now_s < LASTS_S - 8 * LEASE_S and world.rng.random() < 0.5:
                tasks = {"source": 4, "map": next(fresh), "sink": 1}
                actuator._handle(Configuration(tasks, level))
            process.wait(INTERVAL_S)

    world.run(run)
    return found
