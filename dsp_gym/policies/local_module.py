"""A policy from a local module, `module:Policy`, which no distribution offers, for one run.

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


class LocalPolicy(NamedTuple):
    """A policy's class in a module."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


def parse_local_policy(text: str) -> LocalPolicy | None:
    """Split `module:Policy` into module and name.

    Returns:
        The module and the name in it; None for any other text, such as a path.

    >>> parse_local_policy("my_rule:HalfBusy"), parse_local_policy("runs/q11/policy")
    (LocalPolicy(module='my_rule', attribute='HalfBusy'), None)
    """
    module, colon, attribute = text.partition(":")
    names = [*module.split("."), attribute]
    return LocalPolicy(module, attribute) if colon and all(map(str.isidentifier, names)) else None


@contextmanager
def offer_local(policies: Mapping[str, LocalPolicy], folders: Sequence[Path]) -> Iterator[None]:
    """Offer the policies of local modules under names, as an installed distribution would.

    Worker processes see them, too.

    Args:
        policies: the module of each policy, by the name of the policy.
        folders: searched for modules before the installed packages.

    Yields:
        Nothing; within the block the registry knows the names.

    Raises:
        PolicyError: A module cannot be imported, or its object is no policy class with a `Config`.
    """
    # A folder with entry points on sys.path is a distribution to importlib.metadata; worker
    # processes inherit the path, so they find it too.
    with TemporaryDirectory(prefix="dsp-gym-code-") as name:
        info = Path(name) / "dsp_gym_code-0.dist-info"
        info.mkdir()
        entries = "".join(f"{policy} = {code}\n" for policy, code in policies.items())
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dsp-gym-code\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}", encoding="utf-8")
        before = list(sys.path)
        sys.path[:0] = [name, *(str(folder.resolve()) for folder in folders)]
        importlib.invalidate_caches()
        forget()
        try:
            for code in policies.values():
                _check(code)
            yield
        finally:
            sys.path[:] = before
            forget()


def _check(code: LocalPolicy) -> None:
    """Refuse an object from which the registry cannot make a policy."""
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
