"""One thread does all the work, unless it is held up."""

from __future__ import annotations

import threading
import time

from dsp_gym.backends.upstream.thread_pool import DaemonPool

PATIENCE_S = 0.05


def test_work_is_done_in_order_by_one_thread() -> None:
    threads, done, over = (
        DaemonPool(4, "dsp-gym test", patience_s=PATIENCE_S),
        [],
        threading.Event(),
    )
    for number in range(200):
        threads.do(lambda number=number: done.append((number, threading.get_ident())))
    threads.do(over.set)
    assert over.wait(10)
    assert [number for number, _ in done] == list(range(200))
    assert len({thread for _, thread in done}) == 1
    threads.close()


def test_one_that_is_held_up_holds_up_no_other_and_there_are_no_more_than_allowed() -> None:
    threads, let_go, over = (
        DaemonPool(3, "dsp-gym test", patience_s=PATIENCE_S),
        threading.Event(),
        threading.Event(),
    )
    for _ in range(2):
        threads.do(lambda: let_go.wait(10) and None)
    threads.do(over.set)
    for _ in range(3):
        time.sleep(1.5 * PATIENCE_S)
        threads.look()
    assert over.wait(10)
    for _ in range(4):
        threads.do(lambda: let_go.wait(10) and None)
    for _ in range(4):
        time.sleep(1.5 * PATIENCE_S)
        threads.look()
    assert threads._threads == 3
    let_go.set()
    threads.close()


def test_closing_ends_them_and_what_waits_is_not_done() -> None:
    threads, let_go, done = DaemonPool(1, "dsp-gym closing"), threading.Event(), []
    threads.do(lambda: let_go.wait(10) and None)
    threads.do(lambda: done.append(1))
    threads.close()
    let_go.set()
    end = time.monotonic() + 10
    while any(thread.name == "dsp-gym closing" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert done == []
