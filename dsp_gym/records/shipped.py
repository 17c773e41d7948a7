"""Recordings and journals that travel with the package, found by name.

They are of a real Flink; `make samples` remakes them.
"""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
"""Holds `recordings/NAME` and `journals/NAME`."""


def names(kind: str) -> list[str]:
    """The names of the shipped folders of one kind.

    Args:
        kind: `recordings` or `journals`.

    Returns:
        Their names, sorted.
    """
    return sorted(path.name for path in (SAMPLES / kind).glob("*") if path.is_dir())


def folder_of(kind: str, name: str | Path) -> Path:
    """The folder meant by a path, or by the name of a shipped one.

    Args:
        kind: `recordings` or `journals`.
        name: a path; a shipped name where no folder of that name is in the working folder.

    Returns:
        The shipped folder, or the path as it was given, whether it exists or not.
    """
    path = Path(name)
    is_shipped = len(path.parts) == 1 and not path.exists() and path.name in names(kind)
    return SAMPLES / kind / path.name if is_shipped else path
