"""Work over rows on threads covers every row once, and idle threads take over the rest."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dsp_gym.simulation.rows import over_rows


@pytest.mark.parametrize("rows", [1, 31, 64, 1000])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_row_is_worked_on_once(rows, threads):
    seen = np.zeros(rows, np.int64)

    def work(low, high):
        seen[low:high] += 1

    over_rows(work, rows, threads)
    assert (seen == 1).all()


def test_a_thread_with_cheap_rows_takes_over_from_one_with_a_costly_row():
    others_done, done = threading.Event(), []

    def work(low, high):
        if low == 0:  # costs as much as all the others
            assert others_done.wait(10)
        else:
            done.append(high - low)
            if sum(done) == 240:
                others_done.set()

    over_rows(work, 256, 2)
    assert sum(done) == 240
