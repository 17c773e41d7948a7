"""Settings shared by all tests: seeds, one thread per library, golden files, the data folder."""

from __future__ import annotations

import functools
import gc
import json
import os
import random
import re
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before anything imports NumPy or torch: tests run side by side, and their pools would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest
import typer.testing

from tests.spark_session import spark  # noqa: F401  # a fixture

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell; what tests start is to hear Ctrl-C all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,  # the first example compiles
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

QUICK_EXAMPLES = 10
"""Most examples of a property where slow tests are left out; elsewhere the test says how many."""

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"

FIRST = (
    # One worker compiles the simulator; those beside it meanwhile have Flink, which needs none.
    "contracts/test_policy_contract.py",
    "integration/test_flink_jobs.py",
    "integration/test_flink_cluster.py",
    "integration/test_flink_job_counts.py",
    # What computes beside what waits, the longest first.
    "integration/test_dataset_build.py",
    "integration/test_run.py",
    "integration/test_record.py",
    "integration/test_shadow_kubernetes.py",
    "integration/test_dataset_rescales.py",
    "integration/test_actuators.py",
    "integration/test_shadow.py",
    "integration/test_cli_train.py",
    "integration/test_flink_env.py",
    "integration/test_sweep.py",
    "unit/calibration/test_robust_fits.py",
    "properties/test_dataset_steps.py",
    "integration/test_kubernetes_env.py",
    "integration/test_calibrating_from_datasets.py",
    "integration/test_shadow_resources.py",
    "unit/calibration/test_fit.py",
    "integration/test_cli_frontier.py",
    "properties/test_guardrail_laws.py",
    "reproduction/test_published_numbers.py",
    "integration/test_agents_training.py",
    "integration/test_training_engines.py",
    "unit/experiments/test_tuning.py",
    "integration/test_cli_tune.py",
    "reproduction/test_streambed_tables.py",
    "integration/test_processors.py",
    "unit/test_docs.py",  # builds the site
    "unit/test_agents_planning.py",
    "integration/test_dataset_killed.py",
    "integration/test_cli_evaluate.py",
    "integration/test_worldcup.py",
    "unit/evaluation/test_report.py",
    "integration/test_dataset_sources.py",
    "integration/test_transitions.py",
    "unit/baselines/test_streambed_explorer.py",
    "integration/test_guides.py",
    "integration/test_shadow_page.py",
    "envs/test_one_edit.py",
    "unit/baselines/test_streambed_plan.py",
    "integration/test_dataset_plan.py",
    "integration/test_streaming.py",
    "integration/test_dataset_engines.py",
    "integration/test_dataset_installed.py",
    "packaging/test_start.py",
    "packaging/test_deploy.py",
    "packaging/test_wheel.py",
    # Measures a job that needs a processor: the heaviest are through by then.
    "integration/test_collectors.py",
)
"""Files that take long. A worker of `make test` takes whole files, in this order, then the rest."""

ON_SPARK = (
    "integration/test_calibrating_from_datasets.py",
    "integration/test_dataset_build.py",
    "integration/test_dataset_engines.py",
    "integration/test_dataset_installed.py",
    "integration/test_dataset_plan.py",
    "integration/test_dataset_prometheus.py",
    "integration/test_dataset_rescales.py",
    "integration/test_dataset_sources.py",
    "integration/test_streaming.py",
    "integration/test_sweep.py",
    "integration/test_transitions.py",
    "properties/test_dataset_steps.py",
)
"""Files that share a Spark session: one worker takes them all, so that one JVM starts and warms."""


RECORD_RELEASES = "--record-releases"
EXAMPLES = "--examples"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write what the golden tests see to tests/golden instead of comparing",
    )
    parser.addoption(
        RECORD_RELEASES,
        action="store_true",
        help="write which ways to change a job passed to docs/figures/validation/releases.json",
    )
    parser.addoption(
        EXAMPLES,
        type=float,
        default=1.0,
        metavar="SHARE",
        help=f"try this share of the examples that each property names, {QUICK_EXAMPLES} at least",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(RECORD_RELEASES):
        from tests.acting import Recorder

        config.pluginmanager.register(Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files, and those on Spark together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSparkSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "on Spark" if file.removeprefix("tests/") in ON_SPARK else file

    return OneSparkSession(config, log)


def _without_slow(config: pytest.Config) -> bool:
    return "not slow" in config.option.markexpr


SLOW_FOLDERS = ("integration", "reproduction")
"""Real systems and published numbers: each test of these is slow, marked or not."""

WHOLLY_SLOW = re.compile(r"^pytestmark = .*\bmark\.(slow|validate)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files of slow tests alone unread without slow tests: importing torch takes seconds."""
    if not _without_slow(config) or collection_path.suffix != ".py":
        return None
    slow = _in_slow_folder(collection_path) or (
        collection_path.name.startswith("test_")
        and WHOLLY_SLOW.search(collection_path.read_text(encoding="utf-8"))
    )
    return True if slow else None


@functools.cache
def _in_slow_folder(file: Path) -> bool:
    return any(file.is_relative_to(ROOT / "tests" / folder) for folder in SLOW_FOLDERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left with one in the end."""
    share = 0.0 if _without_slow(config) else config.getoption(EXAMPLES)
    if share < 1.0:
        _try_fewer_examples(items, share)
    for item in items:
        if _in_slow_folder(item.path):
            item.add_marker(pytest.mark.slow)
    rank = {f"tests/{file}": number for number, file in enumerate(FIRST)}
    named = {*rank, *(f"tests/{file}" for file in ON_SPARK)}
    assert all((ROOT / file).is_file() for file in named), "FIRST or ON_SPARK names a gone file"
    on_spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    assert on_spark <= {ROOT / "tests" / file for file in ON_SPARK}, "name these files in ON_SPARK"
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def pytest_collection_finish() -> None:
    """Imported modules and collected tests stay, so garbage collection may pass them over."""
    gc.freeze()


def _try_fewer_examples(items: list[pytest.Item], share: float) -> None:
    found = (getattr(item, "obj", None) for item in items)
    for test in {getattr(one, "__func__", one) for one in found}:  # each once, for all its items
        own = getattr(
            test, "_hypothesis_internal_use_settings", None
        )  # where Hypothesis keeps them
        if own is not None:
            fewer = max(round(share * own.max_examples), min(own.max_examples, QUICK_EXAMPLES))
            vars(test)["_hypothesis_internal_use_settings"] = hypothesis.settings(
                own, max_examples=fewer
            )


@pytest.fixture(autouse=True, scope="session")
def _command_line_built_once() -> Iterator[None]:
    """Typer reads the options of 40 commands in a tenth of a second, and would for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Global generators belong to third parties only; they start alike in every test."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002  # as above
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # as above
    yield
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002  # as above


@pytest.fixture(autouse=True)
def _outside_settings_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracking server named in the caller's shell must not receive what tests log."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data_folder() -> Path:
    """The folder of recorded data; tests that need it are skipped where there is none."""
    folder = Path(os.environ.get("DSP_GYM_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no recorded data: DSP_GYM_DATA names no folder ({folder})")
    return folder


@pytest.fixture
def limited_files() -> Iterator[Callable[[int | None], None]]:
    """Sets the size in bytes above which the kernel lets no file grow (EFBIG); None: any size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda most: resource.setrlimit(
        resource.RLIMIT_FSIZE, (soft if most is None else most, hard)
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(name, value)`` compares with ``tests/golden/NAME.json``, floats within `rel`."""

    def compare(name: str, value: Any, *, rel: float = 1e-9) -> None:
        path = GOLDEN / f"{name}.json"
        if request.config.getoption("--rewrite-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing; write it with: make golden"
        _same(json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(value)), rel, "")

    return compare


def _same(expected: Any, found: Any, rel: float, where: str) -> None:
    assert type(expected) is type(found), f"{where}: {expected!r} became {found!r}"
    if isinstance(expected, dict):
        assert list(expected) == list(found), f"{where}: keys changed"
        for key in expected:
            _same(expected[key], found[key], rel, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(expected) == len(found), f"{where}: {len(expected)} became {len(found)} items"
        for position, (old, new) in enumerate(zip(expected, found, strict=True)):
            _same(old, new, rel, f"{where}[{position}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, nan_ok=True), f"{where} moved"
    else:
        assert expected == found, f"{where}: {expected!r} became {found!r}"
