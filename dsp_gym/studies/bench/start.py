"""How long starting takes: processor seconds, which a busy machine stretches least."""

from __future__ import annotations

import subprocess
import sys

from dsp_gym.studies.bench.machine import MeasuredRate

_STARTS = {
    "import gymnasium": "import gymnasium",
    "import dsp_gym": "import dsp_gym",
    "dsp-gym --help": "import sys, dsp_gym.cli\nsys.argv = ['dsp-gym', '--help']\n"
    "try:\n    dsp_gym.cli.main()\nexcept SystemExit:\n    pass",
}


def bench_start(runs: int = 5) -> list[MeasuredRate]:
    """Time a fresh interpreter, its own start included.

    Returns:
        Processor milliseconds of each import and command.
    """
    return [
        MeasuredRate.of(name, "CPU ms", [_milliseconds(code) for _ in range(runs)])
        for name, code in _STARTS.items()
    ]


def _milliseconds(code: str) -> float:
    told = f"{code}\nimport sys, time\nprint(time.process_time(), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return 1000.0 * float(done.stderr.split()[-1])
