"""The local engine: the same results with any number of workers, whatever happens to one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.engine import HERE, LocalEngine, batch_size, cores, worth
from dsp_gym.errors import EngineError, PolicyError
from tests import cells


@pytest.fixture(scope="module")
def two():
    with LocalEngine(2) as engine:
        yield engine


def test_one_worker_is_this_process_and_keeps_the_order():
    told = []
    found = list(HERE.map(cells.square, [3, 1, 2], lambda *news: told.append(news)))
    assert found == [(0, (9, os.getpid())), (1, (1, os.getpid())), (2, (4, os.getpid()))]
    assert told == [(0, 0.5), (0, 1.0), (1, 0.5), (1, 1.0), (2, 0.5), (2, 1.0)]


def test_workers_are_other_processes_and_give_the_same_results_and_news(two):
    told = []
    found = dict(two.map(cells.square, list(range(20)), lambda *news: told.append(news)))
    assert {place: value for place, (value, _) in found.items()} == {k: k * k for k in range(20)}
    assert os.getpid() not in {process for _, process in found.values()}
    assert sorted(told) == [(k, share) for k in range(20) for share in (0.5, 1.0)]


def test_a_single_cell_stays_in_this_process(two):
    assert list(two.map(cells.square, [4])) == [(0, (16, os.getpid()))]
    assert list(two.map(cells.square, [])) == []


def test_workers_stay_for_the_next_work_and_end_with_the_engine():
    with LocalEngine(2) as engine:
        before = {process for _, (_, process) in engine.map(cells.square, [1, 2, 3, 4])}
        after = {process for _, (_, process) in engine.map(cells.square, [1, 2, 3, 4])}
    assert after <= before
    for process in before:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_each_worker_keeps_to_its_share_of_the_cores(two):
    usable = sorted(os.sched_getaffinity(0))
    shares = [on_cores for _, on_cores in two.map(cells.cores_of, [1, 2, 3, 4])]
    assert all(on_cores in (usable[::2], usable[1::2] or usable) for on_cores in shares)
    with LocalEngine(64) as many:  # two cells leave more cores than one to each
        shares = [on_cores for _, on_cores in many.map(cells.cores_of, [1, 2])]
    assert sorted({core for on_cores in shares for core in on_cores}) == usable


def test_an_error_comes_back_as_it_was_raised_and_the_engine_goes_on(two):
    with pytest.raises(PolicyError, match=r"'this one': cannot be used. Take another."):
        list(two.map(cells.refuse, [1, 2]))
    with pytest.raises(ZeroDivisionError) as caught:
        list(two.map(cells.divide, [0, 0]))
    assert "cells.py" in caught.value.__notes__[0]  # where it was raised, in the other process
    assert sorted(two.map(cells.divide, [1, 2])) == [(0, 1.0), (1, 0.5)]


def test_the_work_of_a_killed_worker_is_done_again(two, tmp_path):
    begun = []
    work = [(tmp_path, number) for number in range(4)]
    found = dict(two.map(cells.die_once, work, lambda place, _news: begun.append(place)))
    assert found == {number: number for number in range(4)}
    assert sorted(begun) == [0, 1, 1, 2, 3]


def test_work_that_kills_every_worker_is_given_up(two):
    with pytest.raises(EngineError, match=r"4 workers died on the same cell.*status -9.*memory"):
        list(two.map(cells.die, [1, 2]))


def test_ctrl_c_lets_patient_work_stop_by_itself(two, tmp_path):
    work = [tmp_path / "a", tmp_path / "b", tmp_path / "never"]

    def press() -> None:
        while not all(file.exists() for file in work[:2]):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(two.map(cells.until_stopped, work, patient=True))
    assert [file.read_text() for file in work[:2]] == ["stopped", "stopped"]
    assert not work[2].exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_workers_of_a_command_that_was_killed_end_by_themselves(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    program = (
        "import sys; from pathlib import Path; from tests import cells\n"
        "from dsp_gym.engine import LocalEngine\n"
        "list(LocalEngine(2).map(cells.silent, [Path(one) for one in sys.argv[1:]]))"
    )
    running = subprocess.Popen([sys.executable, "-c", program, *map(str, files)])
    assert wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60, 0.05)
    workers = [int(file.read_text()) for file in files]
    running.kill()
    running.wait()

    def ended(process: int) -> bool:
        stat = Path(f"/proc/{process}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    assert wait_until(lambda: all(map(ended, workers)), 20, 0.05)


def test_small_work_gets_one_process_and_large_work_every_core():
    assert worth(0) == worth(99_999) == 1
    assert worth(100_000) == min(2, cores())
    assert worth(10**12) == cores()


def test_batches_fill_every_slot_and_are_never_too_large():
    assert batch_size(HERE, 10) == batch_size(HERE, 10_000) == 64
    four = LocalEngine(4)
    assert batch_size(four, 10) == 1
    assert batch_size(four, 160) == 10
    assert batch_size(four, 10_000) == 64
