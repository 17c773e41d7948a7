"""What a shadow beside a job takes: memory, and nothing that only training or Spark needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsp_gym.studies.bench.shadow import BARS, bench_shadow

pytestmark = pytest.mark.slow

HEAVY = ("torch", "pyspark", "mlflow", "matplotlib", "stable_baselines3")


def test_memory_stays_below_its_bar_and_every_figure_is_there():
    # Times are told by `dsp-gym bench shadow` on a machine at rest; memory is the same anywhere.
    figures = {figure.name: figure for figure in bench_shadow(decisions=30, starts=1, replayed_h=1)}
    assert set(BARS) <= set(figures)
    assert all(figure.value > 0 for figure in figures.values())
    assert figures["memory"].value < BARS["memory"]


def test_a_decision_loads_nothing_heavy(tmp_path):
    code = (
        "import sys\n"
        "from dsp_gym.cli import app\n"
        f"app(['shadow', 'shadow-wordcount', '--simulated', 'diurnal', '--steps', '2', '--port', "
        f"'0', '--journal', {str(tmp_path / 'j')!r}], standalone_mode=False)\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"
