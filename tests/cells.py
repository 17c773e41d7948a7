"""Work for engines in tests: functions of a module, as worker processes import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from dsp_gym.errors import PolicyError


def square(cell: int, tell) -> tuple[int, int]:
    """Its square, and who did it; tells its half and its whole."""
    tell(0.5)
    tell(1.0)
    return cell * cell, os.getpid()


def cores_of(cell: int, tell) -> list[int]:
    """The cores it may use."""
    time.sleep(0.2)  # long enough for the other worker to get a cell, too
    return sorted(os.sched_getaffinity(0))


def refuse(cell: int, tell) -> int:
    raise PolicyError("cannot be used", value="this one", remedy="Take another.")


def divide(cell: int, tell) -> float:
    return 1 / cell


def die_once(cell: tuple[Path, int], tell) -> int:
    """Kills its own process where the folder does not say that it did before."""
    folder, number = cell
    mark = folder / str(number)
    tell("begun")
    if number == 1 and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(cell: int, tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def silent(cell: Path, tell) -> None:
    """Says who it is in a file, and nothing for ten minutes."""
    cell.write_text(str(os.getpid()))
    time.sleep(600)


def until_stopped(cell: Path, tell) -> str:
    """Goes on until it is asked to stop; says who it is."""
    cell.write_text(str(os.getpid()))
    for _ in range(600):
        if tell("more"):
            cell.write_text("stopped")
            return "stopped"
        time.sleep(0.05)
    return "not stopped"
