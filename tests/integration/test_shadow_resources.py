"""Resources of a shadow: little memory, and no imports for training or Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsp_gym.studies.bench.policies import LARGE, chain
from dsp_gym.studies.bench.shadow import BARS, HEAVY, bench_shadow, beside, configuration

pytestmark = pytest.mark.slow


@pytest.mark.validate
def test_memory_stays_below_its_bar_and_every_figure_is_there():
    # Times are told by `dsp-gym bench shadow` on a machine at rest; memory is the same anywhere.
    found = bench_shadow(decisions=30, starts=1, replayed_h=1, jobs=[1])
    figures = {figure.name: figure for figure in found}
    assert {name for name in BARS if "jobs" not in name} <= set(figures)
    heavy = figures.pop("heavy modules")
    assert heavy.value == 0, heavy.method
    assert all(figure.value > 0 for figure in figures.values())
    # Python's and numba's own caches differ a little from one machine to the next.
    assert figures["memory"].value < 1.2 * BARS["memory"]
    assert figures["threads"].value <= BARS["threads"]


@pytest.mark.validate
@pytest.mark.parametrize(
    ("jobs", "interval_s", "threads"),
    [(30, 5, 75), (300, 30, 100)],
)
def test_many_jobs_take_few_threads_little_memory_and_nothing_heavy(
    tmp_path, jobs, interval_s, threads
):
    """Sixteen vertices, four policies and guardrails each."""
    document, spec = configuration(tmp_path), chain(LARGE)
    found = beside(document, spec, tmp_path, jobs=jobs, decisions=1, interval_s=interval_s)
    assert len(found.took_s) >= jobs
    assert (found.took_s > 0).all()
    assert found.memory_mib <= BARS[f"memory, {jobs} jobs"]
    assert found.threads < threads  # 5 for each job, were they its own, and those of the process
    assert found.heavy == ()


def test_a_decision_loads_nothing_heavy(tmp_path):
    code = (
        "import sys\n"
        "from dsp_gym.cli import app\n"
        f"app(['shadow', 'shadow-wordcount', 'diurnal', '--steps', '2', '--port', "
        f"'0', '--journal', {str(tmp_path / 'j')!r}], standalone_mode=False)\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"
