"""One of several loops computes at a time, and a hanging server blocks none of them."""

from __future__ import annotations

import threading
import time

from dsp_gym.backends.upstream.interpreter_turn import computing, waiting


def test_one_computes_at_a_time_and_nobody_while_waiting_keeps_the_turn() -> None:
    at_once: list[int] = []
    inside: set[int] = set()
    let_go, hung = threading.Event(), threading.Event()

    def hangs() -> None:
        with computing():
            with waiting():
                hung.set()
                let_go.wait(20)
            inside.add(0)
            at_once.append(len(inside))
            inside.discard(0)

    def computes(number: int) -> None:
        with computing():
            inside.add(number)
            time.sleep(0.01)
            at_once.append(len(inside))
            inside.discard(number)

    first = threading.Thread(target=hangs)
    first.start()
    assert hung.wait(20)
    others = [threading.Thread(target=computes, args=(n,)) for n in range(1, 6)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join(20)
    assert len(at_once) == 5  # while the first one hangs
    let_go.set()
    first.join(20)
    assert at_once == [1] * 6


def test_the_turn_is_given_back_after_an_error_and_waiting_alone_does_nothing() -> None:
    with waiting():
        pass
    for _ in range(2):
        try:
            with computing(), waiting():
                raise ValueError
        except ValueError:
            pass
    with computing():
        pass
