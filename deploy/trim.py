"""Removes from an image what no process beside a job imports, and says how large the rest is.

Run by the Python whose packages it trims, right after they were installed. Times of the files that
stay are set to whole seconds: layers of an image keep no fractions, and compiled functions are
looked up by the times of their sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
from collections import Counter
from pathlib import Path

REMOVED = (
    # The asynchronous client, and what only it needs.
    "kubernetes/aio",
    "aiohttp",
    "aiohttp-*",
    "aiohttp_retry*",
    "aiohappyeyeballs*",
    "aiosignal*",
    "frozenlist*",
    "multidict*",
    "propcache*",
    "yarl*",
    # A class for every kind there is; custom resources have none.
    "kubernetes/client/api/*_api.py",
    "kubernetes/client/models/*_*.py",
    "kubernetes/client/api/__pycache__/*_api.*.pyc",
    "kubernetes/client/models/__pycache__/*_*.*.pyc",
    # Tests, and what compiles for graphics cards.
    "llvmlite/tests",
    "numba/cuda",
    "numba/tests",
    "numpy/*/tests",
    "numpy/tests",
    # Headers and types for those who build on NumPy.
    "numpy/_core/include",
    "numpy/_core/lib",
    "**/*.pyi",
)
"""Patterns below the folder of packages."""

KEPT = ("kubernetes/client/api/__init__.py", "kubernetes/client/models/__init__.py")


def trim(packages: Path) -> int:
    """Removes files.

    Returns:
        How many bytes were freed.
    """
    before = sum(sizes(packages).values())
    for pattern in REMOVED:
        for found in sorted(packages.glob(pattern)):
            if str(found.relative_to(packages)) in KEPT or "__init__" in found.name:
                continue
            if found.is_dir():
                shutil.rmtree(found)
            elif found.exists():
                found.unlink()
    return before - sum(sizes(packages).values())


def sizes(packages: Path) -> Counter[str]:
    """Bytes on disk by package.

    Returns:
        Size by the name of the outermost folder or file.
    """
    found: Counter[str] = Counter()
    for file in packages.rglob("*"):
        if file.is_file() and not file.is_symlink():
            found[file.relative_to(packages).parts[0]] += file.stat().st_blocks * 512
    return found


def round_times(packages: Path) -> None:
    """Sets the time of every source to whole seconds."""
    for file in packages.rglob("*.py"):
        second = int(file.stat().st_mtime)
        os.utime(file, (second, second))


def main() -> None:
    """Trims, prints a table, and fails where the rest is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--most-mb", type=float, default=400.0, help="largest rest, 10^6 bytes")
    asked = parser.parse_args()
    freed = trim(asked.packages)
    round_times(asked.packages)
    found = sizes(asked.packages)
    lines = [f"{size / 1e6:8.1f} MB  {name}" for name, size in found.most_common(15)]
    total = sum(found.values())
    lines += [f"{total / 1e6:8.1f} MB  in all; {freed / 1e6:.1f} MB were removed", ""]
    sys.stdout.write("\n".join(lines))
    if total > asked.most_mb * 1e6:
        sys.exit(f"more than {asked.most_mb:g} MB of packages: see REMOVED in {__file__}")


if __name__ == "__main__":
    main()
