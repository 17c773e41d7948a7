"""Programs run with edits to single modules of the library, as by a contributor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]

BEFORE = {
    "@vertex_feature": ("dsp_gym.envs.features", "# Features of the job.\n"),
    "@job_feature": ("dsp_gym.envs.features", "# The encoder: "),
    "Term(": ("dsp_gym.envs.reward", "\n\ndef _terms_of("),
}
"""Where an addition goes, by what stands in it: the module, and the text it is put before."""

_LOADER = """
import importlib.util, sys
for name, file in {files!r}.items():
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
"""


def added(addition: str, sources: Mapping[str, str]) -> dict[str, str]:
    """The sources of edited modules by name, with one addition more."""
    module, mark = next(place for sign, place in BEFORE.items() if sign in addition)
    source = sources.get(module) or (REPO / f"{module.replace('.', '/')}.py").read_text()
    assert source.count(mark) == 1, (module, mark)
    return {**sources, module: source.replace(mark, f"{addition.rstrip()}\n\n\n{mark}")}


def run_edited(sources: Mapping[str, str], program: str, folder: Path) -> str:
    """What a program prints that runs with these sources in place of the library's own.

    Args:
        sources: the text of each edited module, by its name.
        program: Python.
        folder: where the edited modules are written.
    """
    files = {}
    for module, source in sources.items():
        file = folder / f"{module.rpartition('.')[2]}.py"
        file.write_text(source)
        files[module] = str(file)
    done = subprocess.run(
        [sys.executable, "-c", _LOADER.format(files=files) + program],
        cwd=REPO,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},  # compiling takes longer than a few steps
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
