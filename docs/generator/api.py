"""The API reference: one page per package, rendered from its docstrings by mkdocstrings."""

from __future__ import annotations

import importlib.util
from ast import get_docstring, parse
from pathlib import Path

from generator.markdown import page, table

PUBLIC = (
    "dsp_gym.envs",
    "dsp_gym.loop",
    "dsp_gym.policies",
    "dsp_gym.guardrails",
    "dsp_gym.backends",
    "dsp_gym.job",
    "dsp_gym.loads",
    "dsp_gym.metrics",
    "dsp_gym.evaluation",
    "dsp_gym.datasets",
    "dsp_gym.records",
    "dsp_gym.trackers",
)
"""Packages whose documented names keep their meaning within a major version."""

INTERNAL = (
    "dsp_gym.control",
    "dsp_gym.sizing",
    "dsp_gym.simulation",
    "dsp_gym.experiments",
    "dsp_gym.whatif",
    "dsp_gym.calibration",
    "agents",
    "baselines",
    "spark_pipelines",
)
"""Packages to read and to build on at one's own risk; they change in minor releases."""

PACKAGES = (*PUBLIC, *INTERNAL)

PROMISE = """
Public within a major version, beside the packages marked so: `import dsp_gym` and the environment
ids, `dsp_gym.errors`, `dsp_gym.config.ConfigModel`, the groups of entry points of the
[guides](../guides/add-a-policy.md) (`dsp_gym.policies`, `dsp_gym.algorithms`, `dsp_gym.guardrails`
and others), commands and their options, keys of configuration files, `--json` documents, and
documents with a schema `dsp-gym/NAME/N`. Names with a leading underscore are private everywhere.
Policies are named through entry points or files, never by their module, so `agents` and `baselines`
may change. What guides import from a package that is not public changes together with them, and the
changelog says so. A public name is announced as obsolete in a minor release, and removed in a major
one.
"""


def api() -> dict[str, str]:
    """Path below docs/ and content of the reference's index and of one page per package."""
    rows = [
        [f"[`{name}`]({short(name)}.md)", "yes" if name in PUBLIC else "no", purpose(name)]
        for name in PACKAGES
    ]
    index = page(
        "Python API",
        "Every documented class and function, from its docstring. Arrays hold a batch of shape "
        "(jobs,) or (jobs, vertices); J and V abbreviate both. Units are part of the names.",
        table(["package", "public", "holds"], rows),
        PROMISE.strip(),
        "`import dsp_gym` registers the environments and is the only import most programs need. "
        "Modules under `studies/` compute the figures of this documentation; nothing imports them.",
    )
    pages = {"api/index.md": index}
    for name in PACKAGES:
        mark = (
            "Public API." if name in PUBLIC else "Not public: this may change in a minor release."
        )
        pages[f"api/{short(name)}.md"] = page(name, mark, f"::: {name}")
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
