"""Runs the notebooks from top to bottom, each in a fresh folder, and keeps their outputs.

    python docs/execute_notebooks.py [NAME ...] [--check]

With --check nothing is written: it fails where a cell raises, or where the kept outputs are not of
the kinds that the cells give now.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent / "notebooks"
TIMEOUT_S = 900
_ENVIRONMENT = {
    # As on a page, whatever the terminal is.
    "COLUMNS": "110",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def executed(file: Path) -> NotebookNode:
    """A notebook with the outputs that its cells give now.

    Returns:
        The notebook, without the times and counts of this execution.
    """
    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT_S, record_timing=False)
        client.execute(cwd=folder, env={**os.environ, **_ENVIRONMENT})
        return _plain(notebook, folder)


def kinds(notebook: NotebookNode) -> list[list[str]]:
    """What kinds of output each code cell gives.

    Returns:
        MIME types, or the name of a stream, by cell.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [sorted({kind for out in cell.outputs for kind in _kinds(out)}) for cell in cells]


def _kinds(output: NotebookNode) -> list[str]:
    return list(output.data) if "data" in output else [str(output.name)]


def _plain(notebook: NotebookNode, folder: str) -> NotebookNode:
    """Without what differs from run to run: where it ran, progress on stderr, colours."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                if "text" in output:
                    output.text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.text)
                    output.text = output.text.replace(f"{folder}/", "").replace(folder, ".")
    return notebook


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """A program's output comes in pieces, as it was written."""
    found: list[NotebookNode] = []
    for output in outputs:
        if found and "text" in output and "text" in found[-1] and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def main() -> int:
    """Execute the notebooks that were named, or all.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    given = parser.parse_args()
    stale = []
    for name in given.names or sorted(file.stem for file in FOLDER.glob("*.ipynb")):
        file = FOLDER / f"{name}.ipynb"
        begun_s = time.perf_counter()
        found = executed(file)
        sys.stdout.write(f"{name}: {time.perf_counter() - begun_s:.0f} s\n")
        if given.check:
            if kinds(found) != kinds(nbformat.read(file, as_version=4)):
                stale.append(name)
        else:
            nbformat.write(found, file)
    if stale:
        sys.stderr.write(f"outputs are not of this source: {', '.join(stale)}\n")
    return bool(stale)


if __name__ == "__main__":
    raise SystemExit(main())
