"""A source tree that was copied to a machine and not installed there."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import tomllib
from pathlib import Path
from tempfile import mkdtemp

NAME = "dsp-gym"


def offer_tree(root: Path) -> None:
    """Offer the entry points of a source tree, where no installed distribution does.

    Policies and algorithms are found by entry points, which `pip install` writes.

    Args:
        root: Folder of `pyproject.toml`.
    """
    try:
        importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        sys.path.append(str(described(root, Path(mkdtemp(prefix="dsp-gym-tree-")))))
        importlib.invalidate_caches()


def described(root: Path, folder: Path) -> Path:
    """Describe a source tree as its distribution would.

    Args:
        root: Folder of `pyproject.toml`.
        folder: Written to.

    Returns:
        The folder, which offers the tree's entry points as soon as it is on `sys.path`.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / "dsp_gym-0.dist-info"
    info.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n"
    (info / "METADATA").write_text(about, "utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), "utf-8")
    return folder
