"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("dsp_gym", "agents", "baselines", "spark_pipelines")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of(module: str) -> None:
    found = importlib.import_module(module)
    result = doctest.testmod(found)
    written = Path(str(found.__file__)).read_text(encoding="utf-8").count(">>> ")
    assert result.attempted == written  # none stands where nobody looks
    assert result.failed == 0
