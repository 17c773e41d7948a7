"""Starting is quick. Processor time is compared, which a busy machine does not stretch."""

from __future__ import annotations

import subprocess
import sys


def cpu_seconds(code: str) -> float:
    """The least of three runs, warm: the first run may compile byte code."""
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return min(float(run.stdout.split()[-1]) for run in runs)


def test_importing_the_library_adds_less_than_300_ms_to_importing_gymnasium() -> None:
    code = (
        "import time, gymnasium\n"
        "start = time.process_time()\n"
        "import dsp_gym\n"
        "print(time.process_time() - start)"
    )
    assert cpu_seconds(code) < 0.3


def test_help_takes_less_than_a_second() -> None:
    code = (
        "import sys, time\n"
        "sys.argv = ['dsp-gym', '--help']\n"
        "import dsp_gym.cli\n"
        "try:\n"
        "    dsp_gym.cli.main()\n"
        "except SystemExit:\n"
        "    print(time.process_time())"
    )
    assert cpu_seconds(code) < 1.0


def test_importing_the_library_opens_no_heavy_door() -> None:
    code = (
        "import sys, dsp_gym\n"
        "heavy = {'torch', 'mlflow', 'matplotlib', 'scipy', 'pandas', 'numba', 'agents'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
