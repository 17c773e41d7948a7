"""A policy from a module that no distribution offers, `module:Policy`, for the time of a run.

Importing a module executes it. So only a command whose user names the module does so; no
configuration and no folder of a policy can.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import PolicyError
from dsp_gym.policies.registry import GROUP, forget

__all__ = ["Code", "code_of", "offered"]


class Code(NamedTuple):
    """The place of a policy's code."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


def code_of(text: str) -> Code | None:
    """Take `module:Policy` apart.

    Returns:
        The module and the name in it; None where the text is no such name, such as a path.

    >>> code_of("my_rule:HalfBusy"), code_of("runs/q11/policy")
    (Code(module='my_rule', attribute='HalfBusy'), None)
    """
    module, colon, attribute = text.partition(":")
    names = [*module.split("."), attribute]
    return Code(module, attribute) if colon and all(map(str.isidentifier, names)) else None


@contextmanager
def offered(codes: Mapping[str, Code], folders: Sequence[Path]) -> Iterator[None]:
    """Offer code under names, as an installed distribution would, workers included.

    Args:
        codes: Code by the name of its policy.
        folders: Folders to search for modules, before installed packages.

    Yields:
        Nothing; within the block the registry knows the names.

    Raises:
        PolicyError: A module cannot be imported, or its content is no policy with a `Config`.
    """
    # A folder with entry points on sys.path is a distribution to importlib.metadata; worker
    # processes inherit the path, so they find it too.
    with TemporaryDirectory(prefix="dsp-gym-code-") as name:
        info = Path(name) / "dsp_gym_code-0.dist-info"
        info.mkdir()
        entries = "".join(f"{policy} = {code}\n" for policy, code in codes.items())
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dsp-gym-code\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}", encoding="utf-8")
        before = list(sys.path)
        sys.path[:0] = [name, *(str(folder.resolve()) for folder in folders)]
        importlib.invalidate_caches()
        forget()
        try:
            for code in codes.values():
                _check(code)
            yield
        finally:
            sys.path[:] = before
            forget()


def _check(code: Code) -> None:
    """Refuse code that the registry could not make a policy of."""
    try:
        found = getattr(importlib.import_module(code.module), code.attribute)
    except Exception as error:  # the module's own code may raise anything
        raise PolicyError(
            f"cannot be imported: {type(error).__name__}: {error}",
            value=str(code),
            remedy="Name it as Python would import it from this folder: my_module:MyPolicy.",
        ) from error
    config = getattr(found, "Config", None)
    if not (isinstance(config, type) and issubclass(config, ConfigModel)):
        raise PolicyError(
            "is not a policy class with a `Config`",
            value=str(code),
            remedy="Put @per_job above a function of one job, or see docs/guides/add-a-policy.md.",
        )
