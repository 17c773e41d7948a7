"""An installer of another project's distribution into a folder, like `pip install`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

GUIDES = Path(__file__).resolve().parents[1] / "docs/guides"


def install(folder: Path, modules: Mapping[str, str], entry_points: str) -> Path:
    """Write a package `my_package` and its metadata.

    Args:
        folder: put on the import path by the caller.
        modules: source by name inside the package.
        entry_points: groups and entries as `pyproject.toml` has them.
    """
    package, info = folder / "my_package", folder / "my_package-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("")
    for name, source in modules.items():
        (package / f"{name}.py").write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    groups = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", entry_points)
    (info / "entry_points.txt").write_text(groups.replace('"', ""))
    return folder


def block(guide: str, kind: str, number: int = 0) -> str:
    """A code block of a guide."""
    text = (GUIDES / guide).read_text(encoding="utf-8")
    found: list[str] = re.findall(f"```{kind}\n(.*?)```", text, re.S)
    return found[number]
