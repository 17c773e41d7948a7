"""Threads that watch begin again, and their failures are counted."""

from __future__ import annotations

import logging
import threading

from dsp_gym.loop.watchers import WatcherFailures, keep_watching


def test_a_watcher_that_fails_begins_again_and_is_counted_and_told(monkeypatch, caplog):
    counted = WatcherFailures()
    monkeypatch.setattr("dsp_gym.loop.watchers.WATCHER_FAILURES", counted)
    begun, told = [], []

    def watch() -> None:
        begun.append(1)
        if len(begun) < 4:
            raise ValueError("http://me:geheim@host refused")

    with caplog.at_level(logging.ERROR):
        keep_watching("lease", watch, threading.Event(), tell=told.append, wait_s=0.0)
    assert len(begun) == 4
    assert counted.times() == {"lease": 3}
    assert told[-1].startswith("the watcher 'lease' failed, 3 times so far: ValueError")
    assert "geheim" not in told[-1]
    assert len(caplog.records) == 1  # the first, then the tenth, the hundredth


def test_a_watcher_that_is_closed_does_not_begin_again(monkeypatch):
    monkeypatch.setattr("dsp_gym.loop.watchers.WATCHER_FAILURES", WatcherFailures())
    closing, begun = threading.Event(), []

    def watch() -> None:
        begun.append(1)
        closing.set()
        raise ValueError

    keep_watching("rights", watch, closing, wait_s=10.0)
    assert begun == [1]
