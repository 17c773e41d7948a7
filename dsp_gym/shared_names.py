"""`agents` and `baselines`: import names of ours that other distributions install, too.

pip merges two distributions that bring the same package: the later one's `__init__.py` stays. Ours
says that it is ours, so whoever imports by one of these names looks at that file first.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType

from dsp_gym.errors import ImportNameError

DISTRIBUTION = "dsp-gym"
SHARED_NAMES = ("agents", "baselines")
MARK = '__distribution__ = "dsp-gym"'
"""A line of the `__init__.py` of each."""

AGAIN = "pip install --force-reinstall --no-deps dsp-gym"
"""The command that puts our packages back."""


def import_ours(module: str) -> ModuleType:
    """Import a module of `agents` or `baselines`, which stand above the library.

    Args:
        module: its full name, such as `agents.training`.

    Returns:
        The module.

    Raises:
        ImportNameError: Python finds another package of that name.
    """
    check_owner(module)
    return importlib.import_module(module)


def check_owner(module: str) -> None:
    """Refuse a module whose top-level package is not ours, before anything of it runs.

    Args:
        module: a full name; all but those below the shared names pass.

    Raises:
        ImportNameError: Another distribution, or a folder on the import path, has the name.
    """
    name = module.partition(".")[0]
    if name in SHARED_NAMES and not is_ours(name):
        raise _taken(name)


def is_ours(name: str) -> bool:
    """Say whether Python finds our package by one of the shared names; nothing is imported.

    Returns:
        False also where it finds none.
    """
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and _has_mark(spec.origin)


def location(name: str) -> Path | None:
    """Return what Python imports by a name.

    Returns:
        The package's folder, or the file of a module; None where there is neither.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or []) or [spec.origin or name]
    return Path(places[0]).resolve()


def other_owners(name: str, owners: Mapping[str, list[str]]) -> list[str]:
    """List the other distributions that ship a top-level package of this name.

    Returns:
        Names of distributions, sorted; empty where only dsp-gym ships it.

    >>> other_owners("agents", {"agents": ["dsp_gym", "openai-agents"]})
    ['openai-agents']
    """
    found = owners.get(name, [])
    return sorted({owner for owner in found if owner.lower().replace("_", "-") != DISTRIBUTION})


def how_to_part(others: list[str]) -> str:
    """Return what to do about other distributions that took one of our names.

    Returns:
        Sentences. Without the second command `__init__.py` is missing after the first.
    """
    return f"Install them in separate environments; or: pip uninstall {' '.join(others)} && {AGAIN}"


@functools.cache
def _has_mark(origin: str) -> bool:
    try:
        return MARK in Path(origin).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False


def _taken(name: str) -> ImportNameError:
    where = location(name)
    needs = f"dsp-gym needs its own package '{name}'"
    if where is None:
        return ImportNameError(f"{needs}, and there is none", remedy=f"Install it anew: {AGAIN}")
    others = other_owners(name, metadata.packages_distributions())
    owned = [owner for owner in others if _holds(owner, where)]
    if owned:
        told = ", ".join(f"{owner} {metadata.version(owner)}" for owner in owned)
        return ImportNameError(
            f"{needs}, but that in {where} is of {told}", remedy=how_to_part(owned) + "."
        )
    if where == Path(__file__).resolve().parents[1] / name:
        said = f"{needs}, and the one in {where} has lost its __init__.py or got another"
        return ImportNameError(said, remedy=f"Install it anew: {AGAIN}")
    return ImportNameError(
        f"{needs}, but Python finds {where} first, which no distribution installed",
        remedy="Rename that, or start Python where its folder is not on the import path.",
    )


def _holds(owner: str, where: Path) -> bool:
    """Say whether a distribution installed something of this folder, or of this file."""
    for file in metadata.files(owner) or []:
        if file.parts[0].partition(".")[0] == where.stem:
            return Path(str(file.locate())).resolve().is_relative_to(where)
    return False
