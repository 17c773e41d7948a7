"""A lease in a folder, as two processes see it, with a clock of each."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.lease import LeaseKeeper, reason_not_to_write
from dsp_gym.errors import StorageError


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clocks():
    return Clock(), Clock()


@pytest.fixture
def both(tmp_path, clocks):
    return tuple(
        FileLease(tmp_path, "my job", 30.0, holder=name, clock=clock, wall_clock=lambda: 0.0)
        for name, clock in zip("ab", clocks, strict=True)
    )


def pass_by(clocks, seconds: float) -> None:
    for clock in clocks:
        clock.now_s += seconds


def test_the_first_holds_it_and_the_second_says_who_does(both):
    a, b = both
    assert a.standby() is not None
    assert a.try_acquire()
    assert a.standby() is None
    assert not b.try_acquire()
    assert b.standby() == f"another process holds the lease {a.name}: a"
    assert (a.term, b.term) == (1, 0)


def test_who_renews_keeps_it(both, clocks):
    a, b = both
    assert a.try_acquire()
    for _ in range(10):
        pass_by(clocks, 10)
        assert a.try_acquire()
        assert not b.try_acquire()
    assert a.term == 1


def test_it_is_over_when_it_has_not_changed_for_its_duration_by_the_clock_of_the_other(
    both, clocks
):
    a, b = both
    assert a.try_acquire()
    pass_by(clocks, 1000)  # nobody looked: how old it is cannot be known
    assert not b.try_acquire()
    pass_by(clocks, 29)
    assert not b.try_acquire()
    pass_by(clocks, 1)
    assert b.try_acquire()


def test_a_process_that_was_frozen_does_not_write(both, clocks):
    a, b = both
    assert a.try_acquire()
    assert not b.try_acquire()
    clocks[1].now_s += 31  # the clock of the frozen one stands still
    assert b.try_acquire()
    assert a.standby() is None
    assert not a.is_held_now()
    assert "another process holds the lease" in str(reason_not_to_write(a, 10.0))


def test_who_let_it_run_out_does_not_renew_it_but_takes_it_anew(both, clocks):
    a, _ = both
    assert a.try_acquire()
    pass_by(clocks, 24.5)
    assert a.standby() is not None  # before the others may take it
    assert a.try_acquire()
    assert a.term == 2


def test_a_write_must_end_before_the_lease_does(both, clocks):
    a, _ = both
    assert a.try_acquire()
    assert a.is_held_now(20.0)
    assert not a.is_held_now(25.0)


def test_who_gives_it_up_lets_others_take_it_at_once(both):
    a, b = both
    assert a.try_acquire()
    a.release()
    assert a.standby() is not None
    assert b.try_acquire()


def test_memory_changes_hands_with_the_lease(both, clocks):
    a, b = both
    assert a.try_acquire()
    assert a.inherited is None
    a.memory = "what must be known"
    a.release()
    assert b.try_acquire()
    assert b.inherited == "what must be known"
    b.release()  # before it has written anything itself
    assert a.try_acquire()
    assert a.inherited == "what must be known"
    assert a.memory is None


def test_one_of_two_that_take_it_at_once_gets_it(both, clocks):
    a, b = both
    assert a.try_acquire()
    a.release()
    newest = a._files.newest()
    assert b.try_acquire()
    assert not a._made(0.0, newest)


def test_files_of_earlier_terms_are_removed(both):
    a, _ = both
    for _ in range(5):
        assert a.try_acquire()
        a.release()
    assert sorted(os.listdir(a.name)) == [f"term-0000000{n}" for n in (3, 4, 5)]


def test_a_folder_that_somebody_has_emptied_is_no_lease(both):
    a, b = both
    assert a.try_acquire()
    for file in Path(a.name).iterdir():
        file.unlink()
    assert b.try_acquire()
    assert not a.is_held_now()


@pytest.mark.parametrize("text", ["", "not JSON", "[1]", '{"schema": "other/1"}', "\x00" * 20])
def test_what_cannot_be_read_is_held_by_somebody_until_it_runs_out(both, clocks, text):
    a, _ = both
    Path(a.name).mkdir(parents=True)
    (Path(a.name) / "term-00000003").write_text(text)
    assert not a.try_acquire()
    pass_by(clocks, 30)
    assert a.try_acquire()
    assert (Path(a.name) / "term-00000004").exists()


def test_without_hard_links_files_are_made_exclusively_all_the_same(both, monkeypatch):
    def refuse(*names):
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "link", refuse)
    a, b = both
    assert a.try_acquire()
    assert not b.try_acquire()
    assert not b._files.make(1, "{}")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    lease = FileLease(tmp_path / "file", "job")
    with pytest.raises(StorageError, match=r"where\.lease"):
        lease.try_acquire()
    assert "cannot be taken" in str(lease.standby())
    assert not lease.is_held_now()


def test_jobs_of_one_folder_have_a_lease_each(tmp_path):
    assert FileLease(tmp_path, "a b").try_acquire()
    assert FileLease(tmp_path, "a_b").try_acquire()


def test_a_keeper_renews_it_and_gives_it_up(tmp_path):
    lease, told = FileLease(tmp_path, "job", 1.0), []
    keeper = LeaseKeeper(lease, lambda: told.append(lease.term))
    other = FileLease(tmp_path, "job", 1.0)
    try:
        while keeper.term == 0:
            time.sleep(0.01)
        assert not other.try_acquire()
    finally:
        keeper.close()
    assert other.try_acquire()
    assert told == [1]
