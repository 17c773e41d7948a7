"""Steps of many loops on few threads: on time, even while others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dsp_gym.control.serve.scheduler import Scheduler


class Loop:
    """Steps as told: each gives the seconds until the next one, or None."""

    def __init__(self, step: Callable[[int], float | None]) -> None:
        self.made: list[float] = []
        self.threads: set[int] = set()
        self.over = threading.Event()
        self._step = step

    def step(self) -> float | None:
        self.made.append(time.monotonic())
        self.threads.add(threading.get_ident())
        wait_s = self._step(len(self.made))
        if wait_s is None:
            self.over.set()
        return wait_s


def ended(*loops: Loop) -> None:
    for loop in loops:
        assert loop.over.wait(20)


def test_a_hundred_loops_need_no_more_threads_than_there_may_be() -> None:
    scheduler = Scheduler(quick=3, slow=1)
    loops = [Loop(lambda n: 0.02 if n < 5 else None) for _ in range(100)]
    for loop in loops:
        scheduler.begin(loop)
    ended(*loops)
    scheduler.close()
    assert {len(loop.made) for loop in loops} == {5}
    assert len(set().union(*(loop.threads for loop in loops))) <= 4


def test_a_step_is_due_when_the_loop_said_and_not_before() -> None:
    scheduler = Scheduler(quick=2, slow=1)
    later, sooner = Loop(lambda n: 0.3 if n < 2 else None), Loop(lambda n: 0.1 if n < 2 else None)
    scheduler.begin(later)
    scheduler.begin(sooner)
    ended(later, sooner)
    scheduler.close()
    assert later.made[1] - later.made[0] >= 0.3
    assert sooner.made[1] - sooner.made[0] >= 0.1
    assert sooner.made[1] < later.made[1]


def test_loops_whose_servers_hang_do_not_hold_up_the_others() -> None:
    scheduler, let_go = Scheduler(quick=2, slow=2, slow_s=0.05), threading.Event()

    def hangs(n: int) -> float | None:
        if n == 1:
            time.sleep(0.06)  # one step that is late, from then on it is known
            return 0.0
        let_go.wait(20)
        return None

    hung = [Loop(hangs) for _ in range(8)]
    for loop in hung:
        scheduler.begin(loop)
    while sum(len(loop.made) > 1 for loop in hung) < 2:
        time.sleep(0.01)
    fine = Loop(lambda n: 0.01 if n < 20 else None)
    scheduler.begin(fine)
    ended(fine)
    assert not any(loop.over.is_set() for loop in hung)
    let_go.set()
    ended(*hung)
    scheduler.close()


def test_a_loop_in_a_hurry_does_not_wait_for_its_time() -> None:
    scheduler, stop = Scheduler(quick=1, slow=1), threading.Event()
    under_way = threading.Event()

    def step(n: int) -> float | None:
        under_way.set()
        time.sleep(0.05)
        return None if stop.is_set() else 3600.0

    waiting, busy = Loop(step), Loop(step)
    scheduler.begin(waiting)
    while not waiting.made or not under_way.is_set():
        time.sleep(0.01)
    scheduler.begin(busy)
    time.sleep(0.12)
    stop.set()
    scheduler.hurry(waiting)
    scheduler.hurry(busy)
    scheduler.hurry(busy)
    ended(waiting, busy)
    scheduler.hurry(waiting)  # it has ended: nothing happens
    scheduler.close()


def test_a_hurry_during_a_step_counts_for_the_next_one() -> None:
    scheduler, inside, told = Scheduler(), threading.Event(), threading.Event()

    def step(n: int) -> float | None:
        if n == 2:
            return None
        inside.set()
        assert told.wait(20)
        return 3600.0

    loop = Loop(step)
    scheduler.begin(loop)
    assert inside.wait(20)
    scheduler.hurry(loop)
    told.set()
    ended(loop)
    scheduler.close()


def test_threads_end_when_it_is_closed() -> None:
    scheduler = Scheduler()
    loop = Loop(lambda n: None)
    scheduler.begin(loop)
    ended(loop)
    scheduler.close()
    deadline = time.monotonic() + 10
    while any(thread.ident in loop.threads for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
