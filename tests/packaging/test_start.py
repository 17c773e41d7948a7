"""Starting is quick, because what is heavy is imported where it is used.

How long it takes: `dsp-gym bench start`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "agents", "kubernetes", "matplotlib", "minari", "mlflow", "numba", "optuna", "pandas",
    "prometheus_client", "pyarrow", "pyspark", "scipy", "sklearn", "torch",
}  # fmt: skip

HELP = """
import contextlib, io
import dsp_gym.cli
sys.argv = ["dsp-gym", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    dsp_gym.cli.main()
"""


@pytest.mark.parametrize("code", ["import dsp_gym", HELP], ids=["import", "help"])
def test_it_opens_no_heavy_door(code: str) -> None:
    told = f"import sys\n{code}\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
