"""Memory that only the start of a process needs, given back to the system.

Loading compiled functions reads a good part of LLVM into memory: 70 MB that no decision touches
again, since decisions run what was loaded. These pages are copies of a file, so the system may drop
them, and reads them again should they ever be needed.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_COMPILER = "libllvmlite"
_SMAPS = Path("/proc/self/smaps")
_MADV_DONTNEED = 4

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \S+ +(\S.*)")
_UNSHARED = re.compile(r"(?:Anonymous|Private_Dirty|Shared_Dirty): +(\d+) kB")


def give_back() -> None:
    """Collect garbage, and drop what the process can read again; only on Linux the latter."""
    gc.collect()
    if sys.platform != "linux" or not _SMAPS.exists():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(ctypes.c_size_t(0))
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for begin, end in clean_mappings(_SMAPS.read_text(), _COMPILER):
        libc.madvise(begin, end - begin, _MADV_DONTNEED)


def clean_mappings(smaps: str, library: str) -> Iterator[tuple[int, int]]:
    """Find the parts of a library in memory that equal its file.

    Args:
        smaps: `/proc/PID/smaps` of a process.
        library: how the name of the file begins.

    Yields:
        First address and the one after the last, of mappings that are not written to and hold no
        page of their own, such as one that was relocated.
    """
    found: tuple[int, int] | None = None
    for line in [*smaps.splitlines(), "0-0 end"]:
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            if found is not None:
                yield found
            mapping = _MAPPING.fullmatch(line)
            is_it = mapping is not None and Path(mapping[3]).name.startswith(library)
            found = (int(mapping[1], 16), int(mapping[2], 16)) if mapping and is_it else None
        elif found is not None and (own := _UNSHARED.match(line)) and int(own[1]) > 0:
            found = None
