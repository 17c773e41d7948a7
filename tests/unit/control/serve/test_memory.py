"""Memory that is given back: only copies of a file's content may be dropped."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsp_gym.control.serve.session import clean_mappings

SMAPS = """\
00400000-00500000 r-xp 00000000 08:01 11 /usr/lib/libllvmlite.so
Size:               1024 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
00500000-00600000 r--p 00100000 08:01 11 /usr/lib/libllvmlite.so
Private_Dirty:         8 kB
Anonymous:             8 kB
00600000-00700000 rw-p 00200000 08:01 11 /usr/lib/libllvmlite.so
Private_Dirty:         0 kB
Anonymous:             0 kB
00700000-00800000 r-xp 00000000 08:01 12 /usr/lib/libpython3.11.so
Private_Dirty:         0 kB
00800000-00900000 rw-p 00000000 00:00 0
Private_Dirty:         0 kB
00900000-00a00000 r--p 00300000 08:01 11 /usr/lib/libllvmlite.so
Private_Dirty:         0 kB
Anonymous:             0 kB
"""

DROPPED = """
from pathlib import Path
import numpy as np
from dsp_gym.compiling import njit
from dsp_gym.control.serve.session import give_back

@njit()
def doubled(x):
    return 2 * x

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

assert doubled(2) == 4
before = resident()
give_back()
after = resident()
assert doubled(4) == 8
assert doubled(2.5) == 5.0, "compiled after it was dropped"
print(before - after)
"""


def test_pages_that_were_written_to_and_other_files_stay() -> None:
    assert list(clean_mappings(SMAPS, "libllvmlite")) == [
        (0x400000, 0x500000), (0x900000, 0xA00000),
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")
def test_the_compiler_s_pages_are_dropped_and_it_works_on() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30_000  # kB
