"""The API reference: one page per package, rendered from its docstrings by mkdocstrings."""

from __future__ import annotations

import importlib.util
from ast import get_docstring, parse
from pathlib import Path

from generator.markdown import page, table

PACKAGES = (
    "dsp_gym.envs",
    "dsp_gym.loop",
    "dsp_gym.policies",
    "dsp_gym.guardrails",
    "dsp_gym.backends",
    "dsp_gym.control",
    "dsp_gym.job",
    "dsp_gym.sizing",
    "dsp_gym.loads",
    "dsp_gym.simulation",
    "dsp_gym.metrics",
    "dsp_gym.evaluation",
    "dsp_gym.experiments",
    "dsp_gym.whatif",
    "dsp_gym.calibration",
    "dsp_gym.datasets",
    "dsp_gym.records",
    "dsp_gym.trackers",
    "agents",
    "baselines",
    "spark_pipelines",
)
"""Packages a reader may import from; studies and the command line are not among them."""


def api() -> dict[str, str]:
    """Path below docs/ and content of the reference's index and of one page per package."""
    rows = [[f"[`{name}`]({short(name)}.md)", purpose(name)] for name in PACKAGES]
    index = page(
        "Python API",
        "Every public class and function, from its docstring. Arrays hold a batch of shape (jobs,) "
        "or (jobs, vertices); J and V abbreviate both. Units are part of the names.",
        table(["package", "holds"], rows),
        "`import dsp_gym` registers the environments and is the only import most programs need. "
        "Modules under `studies/` compute the figures of this documentation; nothing imports them.",
    )
    pages = {"api/index.md": index}
    for name in PACKAGES:
        pages[f"api/{short(name)}.md"] = page(name, f"::: {name}")
    return pages


def short(package: str) -> str:
    """The last part of a package's name, the name of its page."""
    return package.rpartition(".")[2]


def purpose(package: str) -> str:
    """The first line of a package's docstring, read without importing what the package imports."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(package)
    text = get_docstring(parse(Path(found.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
