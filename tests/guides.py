"""A runner of guides: their edits on a copy of the packages, then their programs.

A Python block of a guide is an edit if its first line names a file and a place,

    # dsp_gym/envs/reward.py, at the end of class RewardWeights
    # dsp_gym/envs/reward.py, before class RewardWeights
    # dsp_gym/envs/reward.py, after def _rescale
    # dsp_gym/envs/reward.py, at the end
    # spark_pipelines/sources/mine.py, new

and a program that needs the edits if its first line is `# with the edit`. A block of the language
`diff` is a patch, and one of `toml` offers entry points.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ROOT / "docs" / "guides"
PACKAGES = ("dsp_gym", "agents", "baselines", "spark_pipelines")
EDIT = re.compile(r"# ([\w./-]+\.(?:py|toml|yaml)), (.+)\n")
PROGRAM = "# with the edit\n"


def blocks(guide: str, language: str) -> list[str]:
    """Fenced blocks of a guide in a language, in order."""
    text = (GUIDES / guide).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def edits(guide: str) -> list[tuple[str, str, str]]:
    """File, place and text of each edit of a guide."""
    found = [(EDIT.match(block), block) for block in blocks(guide, "python")]
    return [(m[1], m[2], block[m.end() :]) for m, block in found if m]


def files(guide: str) -> set[str]:
    """Every file that a guide edits."""
    patched = re.findall(r"^\+\+\+ b/(\S+)", "\n".join(blocks(guide, "diff")), re.MULTILINE)
    return {file for file, _, _ in edits(guide)} | set(patched)


def programs(guide: str) -> list[str]:
    """Programs of a guide that need its edits."""
    return [block for block in blocks(guide, "python") if block.startswith(PROGRAM)]


def needs_edit(block: str) -> bool:
    """Whether a Python block of a page does not run on its own."""
    return block.startswith(PROGRAM) or EDIT.match(block) is not None


def edited_copy(guide: str, folder: Path) -> Path:
    """A copy of the packages with a guide's edits.

    Args:
        guide: file name of the guide.
        folder: an empty folder.

    Returns:
        The folder to put before all others on the path.
    """
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (folder / "configs").symlink_to(ROOT / "configs")
    for file, place, text in edits(guide):
        insert(folder / file, place, text)
    offered = "".join(text for text in blocks(guide, "toml") if "entry-points" in text)
    if offered:  # as an installation of the reader's distribution would
        groups = tomllib.loads(offered)["project"]["entry-points"]
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
        ]
        (folder / "guide-1.dist-info").mkdir()
        (folder / "guide-1.dist-info" / "METADATA").write_text("Name: guide\nVersion: 1\n")
        (folder / "guide-1.dist-info" / "entry_points.txt").write_text("\n".join(lines))
    for patch in blocks(guide, "diff"):
        applied = subprocess.run(
            ["git", "apply", "-"],
            input=patch,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert applied.returncode == 0, applied.stdout + applied.stderr
    return folder


def insert(file: Path, place: str, text: str) -> None:
    """Put the text of an edit where the first line of its block says."""
    if place == "new":
        assert not file.exists(), f"{file} is there already"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return
    lines = file.read_text("utf-8").splitlines(keepends=True)
    if place == "at the end":
        file.write_text("".join([*lines, "\n\n", text]), "utf-8")
        return
    where, name = re.fullmatch(r"(before|after|at the end of) (?:class|def) (\w+)", place).groups()
    node = next(
        node
        for node in ast.parse("".join(lines)).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    )
    if where == "at the end of":
        at, new = node.end_lineno, re.sub(r"^(?=.)", "    ", text, flags=re.MULTILINE)
    elif where == "after":
        at, new = node.end_lineno, "\n\n" + text
    else:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        at, new = first - 1, text + "\n\n"
    file.write_text("".join([*lines[:at], new, *lines[at:]]), "utf-8")


def run(program: str, folder: Path, timeout_s: float = 300.0) -> str:
    """Run a program on an edited copy, as plain Python.

    Numba does not notice an edit in a file that compiled code calls into, and compiling everything
    anew takes longer than a small program.

    Args:
        program: its text.
        folder: as of `edited_copy`.
        timeout_s: longest wait for its end, s.

    Returns:
        What it printed.
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
