"""`dsp-gym` as a process of its own, whose wall clock steps as a file says.

python -m tests.nemesis.program CLOCK_FILE INTERVAL_S VERB ... is `dsp-gym VERB ...`, with decisions
closer than a user may ask for. It ends when whoever started it is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.05


def stepped(file: Path, real: Callable[[], float]) -> Callable[[], float]:
    """Unix seconds, and as many more as the file says."""
    read = [0.0, 0.0]  # when, and what it said

    def now() -> float:
        at_s = time.monotonic()
        if at_s - read[0] >= _LOOK_S:
            read[:] = at_s, float(file.read_text() or 0)
        return real() + read[1]

    return now


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Run the command line."""
    file, interval_s = Path(sys.argv.pop(1)), int(sys.argv.pop(1))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    time.time = stepped(file, time.time)  # before anything keeps a reference to it

    from dsp_gym.cli import main as command_line
    from dsp_gym.cli import shadow
    from dsp_gym.control.config import RunConfig

    def settings_of(*given: object, **more: object) -> RunConfig:
        checked = original(*given, **more)  # type: ignore[arg-type]
        return checked.model_copy(update={"interval_s": interval_s})

    original, shadow.settings_of = shadow.settings_of, settings_of  # type: ignore[attr-defined]
    command_line()


if __name__ == "__main__":
    main()
