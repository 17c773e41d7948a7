"""How a signal ends a loop."""

from __future__ import annotations

import signal
import threading

import pytest

from dsp_gym.cli.turns import Printer, stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_loop_begins_to_wait_ends_it(number):
    stop = threading.Event()
    with stopping(stop) as interrupted:
        assert not interrupted()
        with stop._cond:  # as `stop.wait` holds it for a moment
            signal.raise_signal(number)
        assert stop.wait(10)
        assert interrupted()


def test_a_second_ctrl_c_does_not_wait():
    stop = threading.Event()
    with stopping(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(10)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_change_that_did_not_come_about_is_counted(capsys):
    printer = Printer(as_json=False)
    for event in ("asked", "failed", "refused", "alarm"):
        printer.happened(event, {"reason": "for a test"})
    assert printer.summary["failures"] == 2
    printer.end({})
    assert "0 held. 2 failures. The job keeps running." in capsys.readouterr().out
